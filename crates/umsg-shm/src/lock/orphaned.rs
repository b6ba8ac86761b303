//! Locks whose owner died, or that name an owner which no thread can be: for repairs, and for people.

use super::{
    Held, Left, Lock, LockError, OWNER_DIED, TID, is_held, is_nobodys, is_shared, orphaned,
    process_of, with_low,
};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::futex;
use crate::sys::liveness::Liveness;
use crate::sys::thread::Thread;

impl Lock {
    /// The process that has the lock, or took it last before it died: 0 for none, or if the lock is in shared form.
    #[cfg(not(loom))]
    pub fn process(&self) -> u32 {
        // Relaxed: for people.
        let word = self.word.load(Ordering::Relaxed);
        match is_shared(word) {
            true => 0,
            false => process_of(word),
        }
    }

    /// The life of the process that has the lock in shared form, or had it when it died. None in plain form, and if the lock is free.
    #[cfg(not(loom))]
    pub fn life(&self) -> Option<u32> {
        // Relaxed: for people.
        let word = self.word.load(Ordering::Relaxed);
        (is_shared(word) && is_held(word)).then(|| process_of(word))
    }

    /// The process that died holding the lock, which the caller has taken since and repairs now: 0 for unknown. From now on the lock is
    /// the caller's if it leaves it broken.
    #[cfg(not(loom))]
    pub(crate) fn take_over(&self) -> u32 {
        let (me, address) = (crate::sys::thread::current(), self.address());
        let died = me.bereaved.by(address);
        me.bereaved.forget(address);
        died
    }

    /// In a model no process asks.
    #[cfg(loom)]
    pub(crate) fn take_over(&self) -> u32 {
        0
    }

    /// Takes the lock from a thread that does not have it, and that is not marked: from now on it is that of a dead owner. False if the lock
    /// has another owner by now.
    pub fn take_from(&self, tid: u32) -> bool {
        // Relaxed: a guess, which the compare-and-swap checks. AcqRel there: what the lock guarded is seen by the process that repairs next.
        let word = self.word.load(Ordering::Relaxed);
        word as u32 & TID == tid
            && self
                .word
                .compare_exchange(word, orphaned(word), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Takes the lock from its owner, which may live, and wakes all that sleep on it. Only where what it guards is not used any more, whoever
    /// has it.
    #[cfg(any(not(loom), test))]
    pub(crate) fn break_up(&self) {
        // Relaxed: a guess, which the compare-and-swap checks.
        let read = || self.word.load(Ordering::Relaxed);
        let owner = |word: u64| (word >> 32, word as u32 & TID);
        let first = read();
        let mut word = first;
        // Others add WAITERS meanwhile; a process that gets the lock after this owner is in nobody's way.
        while is_held(word) && owner(word) == owner(first) {
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let new = orphaned(word);
            if self
                .word
                .compare_exchange(word, new, success, failure)
                .is_ok()
            {
                futex::wake(&self.word, i32::MAX);
                return;
            }
            word = read();
        }
    }

    /// As [`lock`](Self::lock), of a lock that is never lent. If it names an impossible thread id, it was scribbled: then it is taken
    /// at once, and what it guards is repaired as after a death.
    #[cold]
    pub(crate) fn lock_anyway<'a>(
        &'a self,
        thread: &'a Thread,
        lives: &dyn Liveness,
        deadline: Deadline,
    ) -> Result<(Held<'a>, Left), LockError> {
        self.free_of_nobody();
        self.lock(thread, lives, deadline)
    }

    /// Makes it a dead owner's if it names an impossible thread id.
    #[cold]
    pub(crate) fn free_of_nobody(&self) {
        // Relaxed: as in `take_from`. No thread can have the lock meanwhile: its word would be another.
        let word = self.word.load(Ordering::Relaxed) as u32;
        if is_nobodys(word) {
            self.take_from(word & TID);
        }
    }

    /// Whether the owner died and the lock has not been taken since: for those that sleep on something else. A hint: see
    /// [`believes_mark`](Claim::believes_mark).
    pub(crate) fn is_orphaned(&self) -> bool {
        // Relaxed: a hint. A process that wants to act on it takes the lock.
        self.word.load(Ordering::Relaxed) as u32 & (OWNER_DIED | TID) == OWNER_DIED
    }

    /// The word of a lock that is left as the dead leave it. What a dead owner left, and is not repaired, stays that owner's.
    pub(super) fn broken(&self, word: u64) -> u64 {
        #[cfg(not(loom))]
        let found = crate::sys::thread::current().bereaved.by(self.address());
        #[cfg(loom)]
        let found = 0_u32;
        match (is_shared(word), found) {
            (true, _) => orphaned(word),
            (false, 0) => with_low(word, orphaned(word) as u32),
            (false, died) => orphaned(word) | u64::from(died) << 32,
        }
    }

    /// What the kernel does to the word of a thread that died; in shared form, also what the end of its life says.
    #[cfg(not(loom))]
    pub(super) fn abandon(&self) {
        let left = |word: u64| Some(self.broken(word));
        // Release: as in `unlock`. Relaxed: the owner is this thread; others add WAITERS, or a mark.
        let _ = self
            .word
            .fetch_update(Ordering::Release, Ordering::Relaxed, left);
        futex::wake(&self.word, 1);
    }
}
