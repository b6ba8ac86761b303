//! What repairs leave behind for people: which process died under a lock, which process repaired what it had left, and when. And which process
//! found a segment damaged.
//!
//! Nothing depends on it, but for the mark of a queue that is being made anew ([`Damage::begin_to_mend`]). A side of a queue has a
//! record for each of the last [`MENDED`] repairs; the count of repairs says which is the latest.

use crate::fault::Fault;
use crate::lock::Lock;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::clock;

/// Repairs of a side that are remembered.
pub const MENDED: usize = 8;

/// A repair.
#[repr(C)]
#[derive(Default)]
pub struct RepairLog {
    /// CLOCK_REALTIME, in nanoseconds since 1970.
    pub at: AtomicU64,
    /// The process that died; 0 for unknown.
    pub died: AtomicU32,
    /// The process that repaired.
    pub by: AtomicU32,
}

/// That a segment holds what no operation could have left there: found by whom, and when.
#[repr(C)]
#[derive(Default)]
pub struct Damage {
    /// 1 once a process found it; 2 while the queue is being made anew: then the next owner of a lock refuses it.
    pub(crate) found: AtomicU32,
    /// The process that found it first.
    pub by: AtomicU32,
    /// CLOCK_REALTIME, in nanoseconds since 1970.
    pub at: AtomicU64,
}

/// [`Damage::found`] once a process found something.
const NOTED: u32 = 1;
/// [`Damage::found`] while the queue is being made anew.
const MENDING: u32 = 2;

/// Counts a repair, and notes whose death made it necessary. The caller holds the lock that the dead left.
pub(crate) fn note(lock: &Lock, count: &AtomicU32, records: &[RepairLog; MENDED]) {
    // Relaxed throughout: under the lock, and for people.
    let before = count.fetch_add(1, Ordering::Relaxed);
    let by = std::process::id();
    if cfg!(loom) {
        // What nothing depends on is not modelled.
        return;
    }
    if let Some(record) = records.get(before as usize % MENDED) {
        record.at.store(clock::realtime(), Ordering::Relaxed);
        let died = lock.take_over();
        record.died.store(died, Ordering::Relaxed);
        record.by.store(by, Ordering::Relaxed);
    }
}

impl Damage {
    /// Notes what the caller has found.
    #[cold]
    pub fn note(&self) {
        // Relaxed throughout: notes for people; a process that comes first stays named, and what is being mended stays so.
        let is_first = self
            .found
            .compare_exchange(0, NOTED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if is_first && cfg!(not(loom)) {
            self.by.store(std::process::id(), Ordering::Relaxed);
            self.at.store(clock::realtime(), Ordering::Relaxed);
        }
    }

    /// Takes the note back. False if there is none, or the queue is being made anew, or was by one that died: no lock is held, and another
    /// may have begun since the caller looked.
    #[cfg(any(not(loom), test))]
    #[must_use]
    pub fn forget(&self) -> bool {
        // AcqRel: MENDING. It comes wholly before another's mark, or finds it.
        let is_taken = self
            .found
            .compare_exchange(NOTED, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if is_taken {
            // Relaxed: for people. A process that finds something just now may stay without a name.
            self.at.store(0, Ordering::Relaxed);
            self.by.store(0, Ordering::Relaxed);
        }
        is_taken
    }

    /// From now on the queue is being made anew. Under its locks: if a process that does that dies, they can't be repaired as those of others are,
    /// and calls say that the queue is damaged until another makes it anew.
    #[cfg(any(not(loom), test))]
    pub fn begin_to_mend(&self) {
        self.note();
        // AcqRel: MENDING, for `forget`. A swap, so that it has a place among the other changes of the word.
        self.found.swap(MENDING, Ordering::AcqRel);
        // Release: MENDING. A process that finds any of what is stored from here on finds the mark.
        fence(Ordering::Release);
    }

    /// The queue was made anew.
    #[cfg(any(not(loom), test))]
    pub fn end_mending(&self) {
        // Release: MENDING. A process that finds the mark gone finds all that was made anew.
        self.found.store(NOTED, Ordering::Release);
    }

    /// Fails if the process that rebuilt the queue has died before it was done. By the next owner of its lock.
    pub fn check_mended(&self) -> Result<(), Fault> {
        // Relaxed: MENDING. The caller has taken the lock (acquire), which the dead one held.
        match self.found.load(Ordering::Relaxed) {
            MENDING => Err(Fault::Damaged),
            _ => Ok(()),
        }
    }

    pub fn is_noted(&self) -> bool {
        self.found.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_queue_that_is_being_made_anew_stays_until_that_is_done() {
        let damage = Damage::default();
        assert!(!damage.forget(), "there is none");
        damage.note();
        let found_by = damage.by.load(Ordering::Relaxed);
        damage.begin_to_mend();
        assert!(!damage.forget());
        assert_eq!(damage.check_mended(), Err(Fault::Damaged));
        assert_eq!(damage.by.load(Ordering::Relaxed), found_by);
        damage.end_mending();
        assert_eq!(damage.check_mended(), Ok(()));
        assert!(damage.is_noted() && damage.forget() && !damage.is_noted());
        assert_eq!(damage.by.load(Ordering::Relaxed), 0);
    }
}
