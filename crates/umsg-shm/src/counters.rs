//! Statistics that no thread waits for: one line a processor.
//!
//! How many messages and bytes a queue holds follows from its cursors and costs nothing. What is counted here happens
//! off the fast path: blocking, waking, handing over. Each event is added on the line of the processor that one runs
//! on, so two processors never pull a line from each other; a reader sums the lines up. A thread may be moved between
//! finding its processor and adding, so the additions are atomic: still exact, and still on a line that is almost
//! always its own.

use crate::sync::{AtomicU64, Ordering};
use crate::sys::cpu;

/// Lines; processors beyond share them.
#[cfg(not(loom))]
const LINES: usize = 32;
#[cfg(loom)]
const LINES: usize = 1;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A send found the queue full and waited.
    SendBlocked,
    /// A receive found the queue empty and waited.
    ReceiveBlocked,
    /// A message was handed to a waiting receiver.
    HandedOver,
    /// A wait ended while its thread was still spinning.
    SpinPaid,
    /// A wait ended with its deadline or a signal.
    GivenUp,
    /// A waiter's death was noticed.
    WaiterDied,
    /// A leased message went back to the queue.
    Returned,
    /// A message was dropped because the queue was full.
    Dropped,
    /// A message was older than the queue lets it get.
    Expired,
    /// A message was moved to the dead-letter queue.
    DeadLettered,
    /// A nanosecond that a ring's receiver spun.
    Spun,
    /// A nanosecond that a ring's receiver slept.
    Asleep,
}

const EVENTS: usize = 12;

#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Line([AtomicU64; EVENTS]);

/// The counters of a queue.
#[repr(C)]
#[derive(Default)]
pub struct Counters([Line; LINES]);

impl Counters {
    /// Counts one event.
    pub(crate) fn count(&self, event: Event) {
        self.add(event, 1);
    }

    /// Counts several events of a kind.
    pub(crate) fn add(&self, event: Event, events: u64) {
        // A model leaves it out: it would only multiply the interleavings.
        if cfg!(loom) {
            return;
        }
        // Relaxed: a number for people.
        self.0[cpu::current() % LINES].0[event as usize].fetch_add(events, Ordering::Relaxed);
    }

    /// How often the event happened, summed over the processors. What a peer may have written there is summed too.
    pub fn sum(&self, event: Event) -> u64 {
        let lines = self.0.iter();
        let counts = lines.map(|line| line.0[event as usize].load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn forged_counts_are_summed_without_overflow() {
        let counters = Counters::default();
        for line in &counters.0[..2] {
            line.0[Event::Spun as usize].store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(counters.sum(Event::Spun), u64::MAX - 1);
    }
}
