//! The log of repairs, for diagnosis: the process that died with a lock, the process that repaired the data, and the time. The log also names the
//! process that found the segment corrupted.
//!
//! No protocol depends on the log, except for the mark of a queue that is being rebuilt ([`Damage::begin_to_mend`]). A queue has one or two sides,
//! each with its own lock. For each side, the log has a record of each of the last [`MENDED`] repairs. The count of repairs shows which record is the
//! latest.

use crate::fault::Fault;
use crate::lock::Lock;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::clock;

/// The number of repair records for each side.
pub const MENDED: usize = 8;

/// The record of one repair.
#[repr(C)]
#[derive(Default)]
pub struct RepairLog {
    /// The time of the repair: CLOCK_REALTIME, in nanoseconds since 1970.
    pub at: AtomicU64,
    /// The process that died with the lock; 0 for unknown.
    pub died: AtomicU32,
    /// The process that made the repair.
    pub by: AtomicU32,
}

/// A finding: the segment holds a value that no operation writes. The record also has the finder and the time.
#[repr(C)]
#[derive(Default)]
pub struct Damage {
    /// 1 after a process has found corruption. 2 while a process rebuilds the queue; an owner of a lock that finds 2 refuses the queue.
    pub(crate) found: AtomicU32,
    /// The first process that found corruption.
    pub by: AtomicU32,
    /// The time of the finding: CLOCK_REALTIME, in nanoseconds since 1970.
    pub at: AtomicU64,
}

/// The value of [`Damage::found`] after a process has found corruption.
const NOTED: u32 = 1;
/// The value of [`Damage::found`] while the queue is being rebuilt.
const MENDING: u32 = 2;

/// Counts a repair, and records the process whose death made it necessary. The caller holds the lock of that process.
pub(crate) fn note(lock: &Lock, count: &AtomicU32, records: &[RepairLog; MENDED]) {
    // Relaxed: the lock orders the stores, and only a diagnosis reads these words without the lock.
    let before = count.fetch_add(1, Ordering::Relaxed);
    let by = std::process::id();
    if cfg!(loom) {
        // A model does not keep the log, because no protocol depends on it.
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
    /// Records that the calling process has found corruption.
    #[cold]
    pub fn note(&self) {
        // Relaxed in all accesses: the words are for diagnosis. The first finder stays recorded, and so does the mark of a queue that is being
        // rebuilt.
        let is_first = self
            .found
            .compare_exchange(0, NOTED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if is_first && cfg!(not(loom)) {
            self.by.store(std::process::id(), Ordering::Relaxed);
            self.at.store(clock::realtime(), Ordering::Relaxed);
        }
    }

    /// Removes the record of corruption. Returns false if there is none, if a process is rebuilding the queue, or if a process died while it rebuilt
    /// the queue. The caller holds no lock, so a rebuild may have begun since the caller's check.
    #[cfg(any(not(loom), test))]
    #[must_use]
    pub fn forget(&self) -> bool {
        // AcqRel: MENDING. Either this store comes before the mark of another process, or it finds that mark.
        let is_taken = self
            .found
            .compare_exchange(NOTED, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if is_taken {
            // Relaxed: for diagnosis. If another process finds corruption at the same moment, its finding may stay unrecorded.
            self.at.store(0, Ordering::Relaxed);
            self.by.store(0, Ordering::Relaxed);
        }
        is_taken
    }

    /// Marks the queue as being rebuilt. The caller holds the locks of the queue. If the caller dies, the next owner of a lock can't repair the
    /// data: calls report a corrupted queue until another process has rebuilt it.
    #[cfg(any(not(loom), test))]
    pub fn begin_to_mend(&self) {
        self.note();
        // AcqRel: MENDING, for `forget`. The swap gives this change a place in the order of all changes of the word.
        self.found.swap(MENDING, Ordering::AcqRel);
        // Release: MENDING. A process that reads a later store of this thread also finds the mark.
        fence(Ordering::Release);
    }

    /// Removes the mark of the rebuild, which is complete. The record of corruption stays.
    #[cfg(any(not(loom), test))]
    pub fn end_mending(&self) {
        // Release: MENDING. A process that finds no mark finds the rebuilt queue.
        self.found.store(NOTED, Ordering::Release);
    }

    /// Returns an error if a process died while it rebuilt the queue. The next owner of a lock calls this function.
    pub fn check_mended(&self) -> Result<(), Fault> {
        // Relaxed: MENDING. The caller has taken the dead process's lock (acquire).
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
    fn the_mark_of_a_queue_that_is_being_rebuilt_stays_until_that_is_done() {
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
