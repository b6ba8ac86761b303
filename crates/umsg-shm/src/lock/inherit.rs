//! Priority inheritance: a thread with a real-time policy lends its priority to the owner of the lock for which it waits.
//!
//! The lock's word stays a plain futex, on which all other threads sleep. Beside it are two futexes with priority inheritance
//! ([`crate::sys::inheritance`]):
//!
//! | word | names | the threads that wait for it | changed by |
//! |---|---|---|---|
//! | `front` | the real-time thread that is first in line; 0 for none | the other real-time threads | these threads, and the kernel |
//! | `owner` | the last thread that the lock's word named; 0 after the wait | the first in line, alone | the first in line, the owner that unlocks the lock, and the kernel |
//!
//! So a chain leads from each real-time thread to the owner of the lock. The first in line stores `owner` before it sets WAITERS in the lock's word.
//! An owner that unlocks the lock and finds WAITERS also unlocks the futex `owner`, if that futex names the owner. This unlock ends the loan of the
//! priority and wakes the first in line, which then takes the lock as every thread does.
//!
//! `front` and `owner` never decide which thread has the lock. If a process overwrites these words, or dies between two steps, the priority is not
//! lent. The threads then wait in slices, and read the lock's word again at the end of each slice, as they do without a loan.
//!
//! In two cases no priority is lent. For a lock in shared form, the kernel call could not find a thread of another PID namespace. In a queue that
//! other users may write, a process could name one of its own threads as the owner.

use super::contend::{Claim, Rest, overslept};
use super::{LENT, Lock, LockError, TID, WAITERS, is_lent, is_shared};
use crate::crash::crash_point;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::clock::Deadline;
use crate::sys::futex::{self, Slept};
use crate::sys::inheritance::{self, NotTaken};

/// The two futexes with priority inheritance.
#[repr(C)]
#[derive(Default)]
pub(super) struct Inherit {
    front: AtomicU32,
    owner: AtomicU32,
}

/// Returns the thread that the low half of a lock's word names: the owner of the lock, or the borrower of a lent lock.
fn thread_of(low: u32) -> u32 {
    match is_lent(low) {
        true => low & TID & !LENT,
        false => low & TID,
    }
}

impl Lock {
    /// Sleeps on a held lock for at most a slice, as [`sleep`](Self::sleep) does, and lends the owner the priority of this thread.
    /// The thread then stays first in line until [`leave_line`](Self::leave_line).
    pub(super) fn sleep_inherited(
        &self,
        word: u64,
        claim: &Claim<'_>,
        rest: &mut Rest,
        patience: Deadline,
    ) -> Result<Slept, LockError> {
        let thread = thread_of(word as u32);
        // A process of another user could name one of its own threads as the owner, and that thread would get the priority of this thread.
        let may_lend = !claim.is_shared(word) && (rest.in_line || claim.lives.is_private());
        if !may_lend || thread == 0 {
            return self.sleep(word, rest, patience);
        }
        if patience.has_passed() {
            return Err(LockError::TimedOut);
        }
        if !rest.in_line {
            return self.join_line(word, claim, rest, patience);
        }
        let owner = &self.inherit.owner;
        // Relaxed: the compare-and-swap in `add_waiters` publishes this store to the owner of the lock.
        owner.swap(thread, Ordering::Relaxed);
        crash_point!(INHERIT_NAMED);
        // `add_waiters` is called even if WAITERS is already set: its compare-and-swap proves that the named thread still owns the lock.
        if !self.add_waiters(word) {
            // Relaxed: for the same reason as the swap after the wait, below.
            owner.swap(0, Ordering::Relaxed);
            return Ok(Slept::Awake);
        }
        let slept = inheritance::wait_for_owner(owner, rest.until(word, patience));
        // Relaxed: only this thread waits for the word. If the owner of the lock unlocks `owner` later, that thread finds another id and does
        // nothing.
        owner.swap(0, Ordering::Relaxed);
        match slept {
            Ok(()) => Ok(Slept::Awake),
            Err(NotTaken::TimedOut) => overslept(word, rest),
            // The owner of the lock has just died, or `owner` was overwritten.
            Err(_) => self.sleep(word, rest, patience),
        }
    }

    /// Waits for at most a slice until this thread is first in line. The lock's word may have changed meanwhile.
    fn join_line(
        &self,
        word: u64,
        claim: &Claim<'_>,
        rest: &mut Rest,
        patience: Deadline,
    ) -> Result<Slept, LockError> {
        let front = &self.inherit.front;
        // Relaxed: a guess, which the compare-and-swap of `remove_first` checks.
        let first = front.load(Ordering::Relaxed);
        match inheritance::take(front, claim.thread.tid(), rest.until(word, patience)) {
            Ok(()) => {
                rest.in_line = true;
                crash_point!(INHERIT_FIRST);
                Ok(Slept::Awake)
            }
            Err(NotTaken::NoThread) if self.remove_first(first) => Ok(Slept::Awake),
            Err(NotTaken::TimedOut) => {
                let held = |word: u64| word & !u64::from(WAITERS);
                // Relaxed: the value is only evidence.
                if held(self.word.load(Ordering::Relaxed)) != held(word) {
                    // The lock has another owner now, so the first in line did not take its turn: a process may have overwritten `front`. If `front`
                    // is valid after all, the thread that it names only loses its place.
                    self.remove_first(first);
                }
                overslept(word, rest)
            }
            // `Own`: this thread is the first in line, and this call runs in a signal handler that interrupted its wait.
            Err(_) => self.sleep(word, rest, patience),
        }
    }

    /// Removes a thread from `front`. Returns false if `front` names another thread by now.
    fn remove_first(&self, first: u32) -> bool {
        let named = |now: u32| (now & TID == first & TID).then_some(0);
        // Relaxed: the access orders no other memory.
        let removed = self
            .inherit
            .front
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, named);
        removed.is_ok()
    }

    /// Returns whether no thread is in line and `owner` names no thread.
    #[cfg(test)]
    pub(crate) fn lends_nothing(&self) -> bool {
        let Inherit { front, owner } = &self.inherit;
        // Relaxed: the threads that used the lock have ended.
        [front, owner].map(|word| word.load(Ordering::Relaxed)) == [0, 0]
    }

    /// Makes the next thread first in line, if the calling thread is first. The calling thread has taken the lock, or no longer waits for it.
    pub(super) fn leave_line(&self, rest: &Rest, tid: u32, has_lock: bool) {
        if !rest.in_line {
            return;
        }
        if !has_lock {
            // The owner may have woken this thread instead of another waiter. A thread that gives up therefore wakes another waiter.
            futex::wake(&self.word, 1);
        }
        let front = &self.inherit.front;
        // Release: pairs with the acquire in `inheritance::take`. Relaxed on failure: other threads wait in the kernel, and the kernel call that
        // follows orders the accesses.
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        if front.compare_exchange(tid, 0, success, failure).is_err() {
            inheritance::unlock(front);
        }
    }

    /// Wakes a thread that waits for the lock, which the calling thread has just released. `word` is the lock's word before the release.
    #[cold]
    pub(super) fn wake_next(&self, word: u64) {
        let owner = &self.inherit.owner;
        // Relaxed: the exchange that returned `word` was an acquire, so the store of `owner` is visible.
        let named = owner.load(Ordering::Relaxed) & TID;
        let is_named = named != 0 && named == thread_of(word as u32) && !is_shared(word);
        if is_named {
            // The first in line takes the lock without WAITERS, so its own unlock makes no system call. This thread therefore also wakes a thread on
            // the lock's word, after it has woken the first in line. If the kernel refuses to unlock `owner`, the first in line wakes at the end of
            // its slice.
            inheritance::unlock(owner);
            crash_point!(INHERIT_HANDED_ON);
        }
        futex::wake(&self.word, 1);
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::lock::tests::Here;
    use crate::sys::thread;
    use std::sync::mpsc;
    use std::thread::scope;
    use std::time::{Duration, Instant};
    use umsg_testkit::real_time;

    #[track_caller]
    fn expect_priority(tid: u32, priority: i64) {
        let begun = Instant::now();
        loop {
            let lent = real_time::priority(&format!("/proc/self/task/{tid}/stat"));
            if lent == priority {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{lent} instead of {priority}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn lock(lock: &Lock) -> super::super::Held<'_> {
        let (held, _) = lock
            .lock(thread::current(), &Here, Deadline::Never)
            .unwrap();
        held
    }

    #[test]
    fn a_priority_passes_from_the_receiver_lock_to_the_sender_that_keeps_its_owner_waiting() {
        let (sender, receiver) = (Lock::default(), Lock::default());
        if !real_time::is_permitted() {
            return;
        }
        scope(|threads| {
            let (tell, tid) = mpsc::channel();
            let (go, gone) = mpsc::channel::<()>();
            let tell_sender = tell.clone();
            let sender = &sender;
            let receiver = &receiver;
            threads.spawn(move || {
                let held = lock(sender);
                tell_sender.send(thread::current().tid()).unwrap();
                gone.recv().unwrap();
                held.unlock();
            });
            let first = tid.recv().unwrap();
            threads.spawn(move || {
                let held = lock(receiver);
                tell.send(thread::current().tid()).unwrap();
                let me = thread::current();
                let left = sender.borrow(me, &Here, Deadline::Never);
                assert_eq!(left, Ok(crate::lock::Left::InOrder));
                sender.give_back();
                held.unlock();
            });
            let second = tid.recv().unwrap();
            expect_priority(first, 0);
            threads.spawn(move || {
                assert!(real_time::become_urgent(7));
                lock(receiver).unlock();
            });
            expect_priority(second, 7);
            expect_priority(first, 7);
            go.send(()).unwrap();
        });
        for lock in [&sender, &receiver] {
            assert_eq!(lock.word.load(Ordering::Relaxed), 0);
            assert!(lock.lends_nothing());
        }
    }

    #[test]
    fn a_forged_first_in_line_is_removed_after_a_slice() {
        if !real_time::is_permitted() {
            return;
        }
        let forged = Lock::default();
        let held = lock(&forged);
        // The forged owner is this thread, which lives and does not wait.
        forged
            .inherit
            .front
            .store(thread::current().tid(), Ordering::Relaxed);
        scope(|threads| {
            let (tell, tid) = mpsc::channel();
            let forged = &forged;
            let waits = threads.spawn(move || {
                assert!(real_time::become_urgent(7));
                tell.send(()).unwrap();
                lock(forged).unlock();
            });
            tid.recv().unwrap();
            expect_priority(thread::current().tid(), 7);
            held.unlock();
            waits.join().unwrap();
        });
        assert!(forged.lends_nothing());
    }
}
