//! Statistics off the fast path: one cache line for each processor.
//!
//! The number of messages and bytes in a queue follows from its cursors, at no cost. This module counts events off the fast path: blocking, waking,
//! handing over. A thread counts an event on the line of its processor, so two processors seldom share a line. A reader adds the lines up. The kernel
//! may move a thread to another processor after the thread has found its line. So the additions are atomic, and the sums are exact.

use crate::sync::{AtomicU64, Ordering};
use crate::sys::cpu;

/// The number of lines. If there are more processors, several of them share a line.
#[cfg(not(loom))]
const LINES: usize = 32;
#[cfg(loom)]
const LINES: usize = 1;

/// The events that are counted.
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
    /// A message was older than the queue's time to live.
    Expired,
    /// A message was moved to the dead-letter queue.
    DeadLettered,
    /// The receiver of a ring spun for a nanosecond.
    Spun,
    /// The receiver of a ring slept for a nanosecond.
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

    /// Counts several events of one kind.
    pub(crate) fn add(&self, event: Event, events: u64) {
        // Models do not count, because counting multiplies the interleavings.
        if cfg!(loom) {
            return;
        }
        // Relaxed: the counts order no other memory.
        self.0[cpu::current() % LINES].0[event as usize].fetch_add(events, Ordering::Relaxed);
    }

    /// Sets all counts to zero.
    pub(crate) fn reset(&self) {
        if cfg!(loom) {
            return;
        }
        // Relaxed: the counts order no other memory. A count that is zero is not stored again, because the store would take the cache line from the
        // processor that uses it.
        let counts = self.0.iter().flat_map(|line| &line.0);
        counts
            .filter(|count| count.load(Ordering::Relaxed) != 0)
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Returns the count of an event, summed over the processors. A peer may have forged it.
    pub fn sum(&self, event: Event) -> u64 {
        let lines = self.0.iter();
        let counts = lines.map(|line| line.0[event as usize].load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

/// The number of attempts to read values of a queue that is in use.
const READINGS: u32 = 8;

/// Reads values without a lock, until the words that change with them are the same before and after. After some attempts, returns the last values.
pub(crate) fn read_steadily<P: PartialEq, T>(words: impl Fn() -> P, values: impl Fn() -> T) -> T {
    let mut before = words();
    for _ in 1..READINGS {
        let read = values();
        let after = words();
        if after == before {
            return read;
        }
        before = after;
    }
    values()
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
