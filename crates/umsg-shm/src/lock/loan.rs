//! The loan of a sender lock to the owner of the receiver lock.

use super::contend::{Claim, Rest};
use super::{LENT, Left, Lock, LockError, SHARED, TID, WAITERS, is_held, is_lent, names_no_thread};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::futex::Slept;
use crate::sys::liveness::Liveness;
use crate::sys::thread::Thread;

impl Lock {
    /// Lends the sender lock to the caller, which holds the receiver lock. If the sender lock has another owner, waits for it until `end`.
    pub(crate) fn borrow(
        &self,
        thread: &Thread,
        lives: &dyn Liveness,
        end: Deadline,
    ) -> Result<Left, LockError> {
        let mut rest = Rest::default();
        let result = self.borrow_until(thread, lives, end, &mut rest);
        self.leave_line(&rest, thread.tid(), result.is_ok());
        result
    }

    fn borrow_until(
        &self,
        thread: &Thread,
        lives: &dyn Liveness,
        end: Deadline,
        rest: &mut Rest,
    ) -> Result<Left, LockError> {
        let loan = LENT | thread.tid();
        let mut claim = Claim::of(thread, lives, loan);
        let mut is_scribbled = false;
        loop {
            // Relaxed: a guess, which the compare-and-swaps check.
            let word = self.word.load(Ordering::Relaxed);
            let low = word as u32;
            if let Some(left) = self.try_take(word, &claim) {
                return Ok(left);
            }
            if is_lent(low) {
                // Only the owner of the receiver lock can borrow, and the caller is that owner. So the borrower that the word names is dead, or the
                // word was overwritten.
                self.note_dead(word, thread);
                return Ok(Left::ByTheDead);
            }
            if names_no_thread(low) {
                // The next pass through the loop treats an overwritten word as the lock of a dead owner. A process may overwrite the word once more
                // before the next pass, so the loop ends at the deadline.
                if std::mem::replace(&mut is_scribbled, true) && end.has_passed() {
                    return Err(LockError::TimedOut);
                }
                self.take_from(low & TID);
                continue;
            }
            if claim.is_own(word) {
                return Err(LockError::OwnedByCaller);
            }
            // If the lock is free by now, the thread must not sleep: no owner would wake it.
            if is_held(word) {
                // A real-time thread may wait for the receiver lock, which this thread holds. This thread passes the priority on to the owner of the
                // sender lock.
                if self.sleep_inherited(word, &claim, rest, end)? == Slept::TimedOut {
                    self.take_from_the_dead(word, lives);
                }
                claim.low = loan | rest.waiters();
            }
        }
    }

    /// Returns whether a dead owner of the receiver lock has left this lock in the lent state, or the word was overwritten. The caller holds the
    /// receiver lock.
    pub(crate) fn is_left_lent(&self) -> bool {
        // Relaxed: the borrower held the receiver lock, whose acquire makes the loan visible.
        names_no_thread(self.word.load(Ordering::Relaxed) as u32)
    }

    /// Ends a loan of a sender lock whose data could not be repaired. The next owner of the lock tries the repair again.
    pub(crate) fn give_back_broken(&self) {
        // Release: as in `give_back`. The next owner repairs, so it does not rely on the changes of this thread.
        let broken = |word: u64| Some(self.broken(word) & !u64::from(WAITERS));
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if let Ok(word) = self.word.fetch_update(success, failure, broken)
            && word as u32 & WAITERS != 0
        {
            self.wake_next(word);
        }
    }

    /// Ends a loan. If the lock has changed to shared form during the loan, it stays in shared form.
    pub(crate) fn give_back(&self) {
        let word = self.word.fetch_and(SHARED, Ordering::AcqRel);
        if word as u32 & WAITERS != 0 {
            self.wake_next(word);
        }
    }
}
