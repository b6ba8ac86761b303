//! Orphaned locks, and locks with an impossible owner: for repair and diagnosis.

#[cfg(not(loom))]
use super::COUNTED;
use super::{
    Held, Left, Lock, LockError, OWNER_DIED, TID, is_held, is_shared, names_no_thread, orphaned,
    process_of, with_low,
};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::futex;
use crate::sys::liveness::Liveness;
use crate::sys::thread::Thread;

impl Lock {
    /// Returns the id of the process that holds the lock, or that died with it. Returns 0 if there is no such process, or if the lock is in shared
    /// form.
    #[cfg(not(loom))]
    pub fn process(&self) -> u32 {
        // Relaxed: the value is only for diagnosis.
        let word = self.word.load(Ordering::Relaxed);
        match is_shared(word) || word == COUNTED {
            true => 0,
            false => process_of(word),
        }
    }

    /// Returns the liveness id of the process that holds the lock in shared form, or that died with it. None in plain form, and for a free lock.
    #[cfg(not(loom))]
    pub fn life(&self) -> Option<u32> {
        // Relaxed: the value is only for diagnosis.
        let word = self.word.load(Ordering::Relaxed);
        (is_shared(word) && is_held(word)).then(|| process_of(word))
    }

    /// Returns the process that died with the lock, which the caller has taken to repair the data; 0 if the process is unknown. If the caller does
    /// not finish the repair, the caller is then recorded as the dead owner.
    #[cfg(not(loom))]
    pub(crate) fn take_over(&self) -> u32 {
        let (me, address) = (crate::sys::thread::current(), self.address());
        let died = me.bereaved.by(address);
        me.bereaved.forget(address);
        died
    }

    /// Returns 0: a model has no diagnosis.
    #[cfg(loom)]
    pub(crate) fn take_over(&self) -> u32 {
        0
    }

    /// Turns the lock into an orphaned lock if its word has the id `tid`, of a thread that does not hold the lock. Returns false if the lock has
    /// another owner by now.
    pub fn take_from(&self, tid: u32) -> bool {
        // Relaxed: a guess, which the compare-and-swap checks. AcqRel in the compare-and-swap: the process that repairs then sees the protected
        // state.
        let word = self.word.load(Ordering::Relaxed);
        word as u32 & TID == tid
            && self
                .word
                .compare_exchange(word, orphaned(word), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Turns a held lock into an orphaned lock, although its owner may be alive, and wakes all sleepers. The caller makes sure that no process uses
    /// the protected data any more.
    #[cfg(any(not(loom), test))]
    pub(crate) fn break_up(&self) {
        // Relaxed: a guess, which the compare-and-swap checks.
        let read = || self.word.load(Ordering::Relaxed);
        let owner = |word: u64| (word >> 32, word as u32 & TID);
        let first = read();
        let mut word = first;
        // The loop repeats because other threads may add WAITERS. The loop ends if another thread takes the lock after this owner: that thread does
        // no harm.
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

    /// Takes a lock that is never lent, as [`lock`](Self::lock) does. An impossible thread id shows that the word was overwritten. The function then
    /// takes the lock at once, and the data are repaired as after a death.
    #[cold]
    pub(crate) fn lock_anyway<'a>(
        &'a self,
        thread: &'a Thread,
        lives: &dyn Liveness,
        deadline: Deadline,
    ) -> Result<(Held<'a>, Left), LockError> {
        self.take_from_impossible();
        self.lock(thread, lives, deadline)
    }

    /// Turns a lock with an impossible thread id into an orphaned lock.
    #[cold]
    pub(crate) fn take_from_impossible(&self) {
        // Relaxed: as in `take_from`. If a thread takes the lock meanwhile, the word changes, and the compare-and-swap fails.
        let word = self.word.load(Ordering::Relaxed) as u32;
        if names_no_thread(word) {
            self.take_from(word & TID);
        }
    }

    /// Returns whether the owner died and no thread has taken the lock since. Threads that sleep on another word call this function. The result is a
    /// hint: [`believes_mark`](Claim::believes_mark) says when the kernel's mark proves a death.
    pub(crate) fn is_orphaned(&self) -> bool {
        // Relaxed: a hint. A process that acts on the hint takes the lock.
        self.word.load(Ordering::Relaxed) as u32 & (OWNER_DIED | TID) == OWNER_DIED
    }

    /// Returns the word of an orphaned lock. If the repair after an earlier death is not finished, the word still names the owner that died first.
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

    /// Marks the word as the kernel does after the death of the owner; in shared form, also ends the life of the owner's process.
    #[cfg(not(loom))]
    pub(super) fn abandon(&self) {
        let left = |word: u64| Some(self.broken(word));
        // Release: as in `unlock`. Relaxed: this thread is the owner; other threads only add WAITERS or a mark.
        let _ = self
            .word
            .fetch_update(Ordering::Release, Ordering::Relaxed, left);
        futex::wake(&self.word, 1);
    }
}
