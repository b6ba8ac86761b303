//! Yielding the processor before a sleep.
//!
//! If sender and receiver share a processor, a yield lets the other thread run at once. A sleep and a wake-up take several times as long. The length
//! of a yield shows two facts:
//!
//! - A yield that lasts longer than the system call alone has let another thread run. If the yield also ended the wait, both sides share the
//!   processor. Then a sender first adds its node to the list, and yields afterwards. So the receiver also admits the message of the sender, and each
//!   switch of the processor moves two messages.
//! - A yield that lasts for hundreds of microseconds has let a third thread run for its time slice. The scheduler charges a yielding thread for the
//!   rest of its own slice. So even a load of the lowest priority gets most of the processor. Therefore a handle that finds such a load sleeps
//!   for a while without yields.

use crate::sys::{clock, cpu};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The number of times that a call yields the processor before it sleeps.
const YIELDS: u32 = 4;

/// Sender and receiver share the processor if this number of waits ended with a yield of at least [`SWITCH`], and no wait ended with a shorter yield.
/// A single yield of that length may be due to an interruption.
const SURE: u32 = 4;

/// The shortest yield in which another thread has run, in nanoseconds. The system call alone takes a part of that time.
const SWITCH: u64 = 1_000;

/// The shortest yield in which a load has run, in nanoseconds. A sleep in place of such a yield costs a small part of this time.
const LONG: u64 = 300_000;

/// Two long yields within this number of yields show a load. Threads that share the processor equally have long yields more rarely.
const RARE: u32 = 2_048;

/// The number of yields that are timed after a yield during which the timer ticked. A time slice of a load ends with a tick; a yield without a load
/// rarely meets a tick.
const TIMED: u32 = 64;

/// The time without yields after a load was found, in nanoseconds.
const PAUSE: u64 = 500_000_000;

/// The history of the yields of a handle. The history is private to the process; a race between threads costs a wrong guess.
#[derive(Debug)]
pub(super) struct Yielding {
    /// The number of waits that ended with a yield to another thread, since a wait last ended with a shorter yield. The number is at most [`SURE`].
    shared: AtomicU32,
    /// The number of yields that are still to be timed.
    timed: AtomicU32,
    /// The number of yields since the last long yield, at most [`RARE`].
    since: AtomicU32,
    /// The end of the time without yields, in nanoseconds of the coarse clock. 0 for none.
    resumes: AtomicU64,
}

impl Default for Yielding {
    fn default() -> Self {
        Yielding {
            shared: AtomicU32::new(0),
            timed: AtomicU32::new(0),
            since: AtomicU32::new(RARE),
            resumes: AtomicU64::new(0),
        }
    }
}

// All accesses are Relaxed: the values are heuristics.
impl Yielding {
    /// Yields the processor to other threads, and checks `ready` after each time.
    pub(super) fn give_way(&self, ready: impl Fn() -> bool) -> bool {
        (0..self.yields()).any(|_| {
            self.give_way_once();
            ready()
        })
    }

    /// Yields as `give_way` does, and learns whether sender and receiver share the processor.
    pub(super) fn give_way_and_learn(&self, ready: impl Fn() -> bool) -> bool {
        (0..self.yields()).any(|_| {
            let begun = clock::monotonic();
            self.give_way_once();
            let is_ready = ready();
            if is_ready {
                self.learn(clock::monotonic().saturating_sub(begun));
            }
            is_ready
        })
    }

    /// Yields for a thread whose node is in its list, but only while sender and receiver share the processor. Returns whether `settled` returned
    /// true.
    pub(super) fn give_way_enlisted(&self, settled: impl Fn() -> bool) -> bool {
        if !self.is_shared() {
            return false;
        }
        let yields = self.yields();
        let begun = clock::monotonic();
        for done in 1..=yields {
            self.give_way_once();
            if settled() {
                return true;
            }
            if clock::monotonic().saturating_sub(begun) < SWITCH * u64::from(done) {
                break;
            }
        }
        // The other thread runs on another processor, or does not work on this queue now.
        self.shared.store(0, Relaxed);
        false
    }

    /// Returns whether sender and receiver seem to share the processor.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed) == SURE
    }

    /// Learns from a yield of this length that ended a wait.
    fn learn(&self, lasted: u64) {
        let shared = match lasted < SWITCH {
            true => 0,
            false => SURE.min(self.shared.load(Relaxed) + 1),
        };
        self.shared.store(shared, Relaxed);
    }

    /// Returns the number of times that a call may yield the processor.
    fn yields(&self) -> u32 {
        // In a model, threads sleep at once: yielding gains nothing, and loom would let them spin endlessly.
        if cfg!(loom) {
            return 0;
        }
        match self.resumes.load(Relaxed) {
            0 => YIELDS,
            resumes if clock::monotonic_coarse() < resumes => 0,
            _ => {
                // The load may have ended. If it has not ended, one long yield shows the load again.
                self.resumes.store(0, Relaxed);
                self.since.store(0, Relaxed);
                self.timed.store(TIMED, Relaxed);
                YIELDS
            }
        }
    }

    fn give_way_once(&self) {
        let timed = self.timed.load(Relaxed);
        let since = self.since.load(Relaxed);
        self.since.store(RARE.min(since + 1), Relaxed);
        if timed == 0 {
            // The coarse clock changes with each tick. Reading it takes a fraction of the time of reading the exact clock.
            let begun = clock::monotonic_coarse();
            cpu::give_way();
            if clock::monotonic_coarse() != begun {
                self.timed.store(TIMED, Relaxed);
            }
            return;
        }
        self.timed.store(timed - 1, Relaxed);
        let begun = clock::monotonic();
        cpu::give_way();
        if clock::monotonic().saturating_sub(begun) >= LONG {
            self.note_long();
        }
    }

    /// Notes a yield in which a load may have run.
    fn note_long(&self) {
        if self.since.load(Relaxed) < RARE {
            let resumes = clock::monotonic_coarse().saturating_add(PAUSE);
            self.resumes.store(resumes, Relaxed);
        }
        self.since.store(0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_long_yields_among_few_are_a_load_and_end_the_yields_for_a_while() {
        let yielding = Yielding::default();
        // Notes a long yield that shows a load, and keeps the time without yields from passing while the test does not run.
        let note_load = || {
            let begun = clock::monotonic_coarse();
            yielding.note_long();
            assert!(yielding.resumes.load(Relaxed) >= begun + PAUSE, "a load");
            yielding.resumes.store(u64::MAX, Relaxed);
        };
        yielding.note_long();
        assert_eq!(yielding.yields(), YIELDS, "an interruption");
        note_load();
        assert_eq!(yielding.yields(), 0, "a load");
        assert!(!yielding.give_way(|| true), "it does not yield");
        yielding.resumes.store(1, Relaxed);
        assert_eq!(yielding.yields(), YIELDS, "the time is over");
        note_load();
        assert_eq!(yielding.yields(), 0, "the load is still there");
    }

    #[test]
    fn long_yields_that_are_rare_are_no_load() {
        let yielding = Yielding::default();
        for _ in 0..3 {
            yielding.note_long();
            assert_eq!(yielding.yields(), YIELDS);
            yielding.since.store(RARE, Relaxed);
        }
    }

    #[test]
    fn yields_that_end_waits_and_last_show_that_both_sides_share_a_processor() {
        let yielding = Yielding::default();
        let other_side = || {
            std::thread::sleep(std::time::Duration::from_nanos(2 * SWITCH));
            true
        };
        // The load of other tests must not stop the yields of this test.
        let without_load = || {
            yielding.resumes.store(0, Relaxed);
            yielding.since.store(RARE, Relaxed);
            &yielding
        };
        for _ in 0..SURE {
            assert!(!without_load().give_way_enlisted(|| true), "not known yet");
            assert!(without_load().give_way_and_learn(other_side));
        }
        assert!(yielding.is_shared());
        assert!(without_load().give_way_enlisted(|| true));
        assert!(!without_load().give_way_enlisted(|| false));
        assert!(!yielding.is_shared(), "the other side runs elsewhere");
        yielding.shared.store(SURE, Relaxed);
        yielding.learn(SWITCH - 1);
        assert!(!yielding.is_shared(), "no other thread has run");
    }
}
