//! Priority inheritance: a thread with a real-time policy lends its priority to the owner of the lock for which it waits.
//!
//! The lock's word stays a plain futex, on which all other threads sleep. Beside it are two futexes with priority inheritance
//! ([`crate::sys::inheritance`]):
//!
//! | word | names | the threads that wait for it | changed by |
//! |---|---|---|---|
//! | `front` | the real-time thread that is first in line; 0 for none | the other real-time threads | these threads, and the kernel |
//! | `owner` | the thread that the lock's word named last; 0 after the wait | the first in line, alone | the first in line, the owner that unlocks the lock, and the kernel |
//!
//! So a chain leads from each real-time thread to the owner of the lock. The first in line stores `owner` before it sets WAITERS in the lock's
//! word. An owner that unlocks the lock and finds WAITERS unlocks `owner`, too, if it names that owner. This ends the loan of the priority and
//! wakes the first in line, which then takes the lock as every thread does.
//!
//! These words never decide which thread has the lock. If a process overwrites them, or dies between two steps, the priority is not lent, and
//! the threads wait as they do without it: in slices, at the end of which they read the lock's word again.
//!
//! No priority is lent in shared form, because the kernel call can't find a thread of another PID namespace. None is lent in a queue that
//! other users may write, because a process could name a thread of its own as the owner.

use super::contend::{Claim, Rest, overslept};
use super::{LENT, Lock, LockError, TID, is_lent, is_shared};
use crate::crash::crash_point;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::clock::Deadline;
use crate::sys::futex::{self, Slept};
use crate::sys::inheritance::{self, NotTaken};

/// See the module.
#[repr(C)]
#[derive(Default)]
pub(super) struct Inherit {
    front: AtomicU32,
    owner: AtomicU32,
}

/// The calling thread is first in line. Dropping it lets the next thread be first.
pub(super) struct FirstInLine<'a> {
    front: &'a AtomicU32,
    tid: u32,
}

impl Drop for FirstInLine<'_> {
    fn drop(&mut self) {
        if cfg!(loom) && std::thread::panicking() {
            // A thread of a model dies by unwinding.
            return;
        }
        // Release: pairs with the acquire in `inheritance::take`. Relaxed: the exchange fails if other threads wait, and the kernel orders.
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        let is_alone = self.front.compare_exchange(self.tid, 0, success, failure);
        if is_alone.is_err() {
            inheritance::unlock(self.front);
        }
    }
}

/// Returns the thread that a low half names as the owner of its lock, or as the borrower of a lent one.
fn thread_of(low: u32) -> u32 {
    match is_lent(low) {
        true => low & TID & !LENT,
        false => low & TID,
    }
}

impl Lock {
    /// Sleeps on a held lock for at most a slice, as [`sleep`](Self::sleep) does, and lends the owner the priority of this thread.
    /// `line` keeps the thread first in line until it has the lock or gives up.
    pub(super) fn sleep_inherited<'a>(
        &'a self,
        word: u64,
        claim: &Claim<'_>,
        rest: &mut Rest,
        patience: Deadline,
        line: &mut Option<FirstInLine<'a>>,
    ) -> Result<Slept, LockError> {
        // A process of another user could name a thread of its own, and get the priority for it.
        if claim.is_shared(word) || !claim.lives.is_private() {
            return self.sleep(word, rest, patience);
        }
        if patience.has_passed() {
            return Err(LockError::TimedOut);
        }
        let until = rest.until(word, patience);
        let tid = claim.thread.tid();
        let Inherit { front, owner } = &self.inherit;
        if line.is_none() {
            // Relaxed: a guess, which the exchange below checks.
            let first = front.load(Ordering::Relaxed);
            match inheritance::take(front, tid, until) {
                Ok(()) => {
                    *line = Some(FirstInLine { front, tid });
                    crash_point!(INHERIT_FIRST);
                    // The lock's word may have changed meanwhile.
                    return Ok(Slept::Awake);
                }
                // A handler interrupted the first in line, which is this thread.
                Err(NotTaken::Own) => {}
                Err(NotTaken::NoThread) => {
                    let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
                    let is_reset = front.compare_exchange(first, 0, success, failure).is_ok();
                    return match is_reset {
                        true => Ok(Slept::Awake),
                        false => self.sleep(word, rest, patience),
                    };
                }
                Err(NotTaken::TimedOut) => return overslept(word, rest),
                Err(NotTaken::Refused) => return self.sleep(word, rest, patience),
            }
        }
        let thread = thread_of(word as u32);
        if thread == 0 {
            return self.sleep(word, rest, patience);
        }
        // Relaxed: the exchange below publishes it to the owner of the lock.
        owner.swap(thread, Ordering::Relaxed);
        crash_point!(INHERIT_NAMED);
        // Also if the word has the bit already: the exchange proves that this thread still owns the lock.
        if !self.add_waiters(word) {
            owner.swap(0, Ordering::Relaxed);
            return Ok(Slept::Awake);
        }
        let slept = inheritance::wait_for_owner(owner, until);
        // Relaxed: only this thread waits for the word. An owner that unlocks it late finds another id, and does nothing.
        owner.swap(0, Ordering::Relaxed);
        match slept {
            Ok(()) => Ok(Slept::Awake),
            Err(NotTaken::TimedOut) => overslept(word, rest),
            // The owner has just died, or the word was overwritten.
            Err(_) => self.sleep(word, rest, patience),
        }
    }

    /// Returns whether no thread is in line, and no owner is named.
    #[cfg(all(loom, test))]
    pub(crate) fn lends_nothing(&self) -> bool {
        let Inherit { front, owner } = &self.inherit;
        [front, owner].map(|word| word.load(Ordering::Relaxed)) == [0, 0]
    }

    /// Ends the time in line of a thread that has the lock, or gives up.
    pub(super) fn leave_line(&self, line: Option<FirstInLine<'_>>, has_lock: bool) {
        if line.is_some() && !has_lock {
            // The owner may have woken this thread, which will wake no other one.
            futex::wake(&self.word, 1);
        }
    }

    /// Wakes a thread that waits for the lock, which has just been released. `word` is the lock's word before that.
    #[cold]
    pub(super) fn wake_next(&self, word: u64) {
        let owner = &self.inherit.owner;
        // Relaxed: the exchange that returned `word` has acquired it.
        let named = owner.load(Ordering::Relaxed) & TID;
        let is_named = named != 0 && named == thread_of(word as u32) && !is_shared(word);
        // The first in line takes the lock with WAITERS, and wakes another thread when it releases the lock.
        if is_named && inheritance::unlock(owner) {
            return;
        }
        futex::wake(&self.word, 1);
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::sys::liveness::{Liveness, UNREGISTERED};
    use crate::sys::thread;
    use std::sync::mpsc;
    use std::thread::scope;
    use std::time::{Duration, Instant};

    /// All threads are of this process.
    struct Here;

    impl Liveness for Here {
        fn own(&self) -> u32 {
            UNREGISTERED
        }

        fn is_over(&self, _: u32) -> bool {
            false
        }

        fn is_elsewhere(&self) -> bool {
            false
        }

        fn is_home(&self) -> bool {
            true
        }

        fn is_private(&self) -> bool {
            true
        }

        fn is_plain(&self) -> bool {
            true
        }
    }

    /// Returns false where real-time policies are refused.
    #[allow(unsafe_code, reason = "a policy for a thread of a test")]
    fn become_urgent(priority: i32) -> bool {
        let parameter = libc::sched_param {
            sched_priority: priority,
        };
        // SAFETY: a setting of this thread; the call reads a local.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
    }

    /// Waits until a thread runs with this real-time priority; 0 for none. Field 18 of proc_pid_stat(5).
    #[track_caller]
    fn expect_priority(tid: u32, priority: i64) {
        let begun = Instant::now();
        loop {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            let shown: i64 = fields.split(' ').nth(15).unwrap().parse().unwrap();
            let lent = if shown < 0 { -1 - shown } else { 0 };
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
        let may = std::thread::spawn(|| become_urgent(1)).join().unwrap();
        if !may {
            eprintln!("left out: takes CAP_SYS_NICE");
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
                assert!(become_urgent(7));
                lock(receiver).unlock();
            });
            expect_priority(second, 7);
            expect_priority(first, 7);
            go.send(()).unwrap();
        });
        for lock in [&sender, &receiver] {
            assert_eq!(lock.word.load(Ordering::Relaxed), 0);
            assert_eq!(lock.inherit.front.load(Ordering::Relaxed), 0);
            assert_eq!(lock.inherit.owner.load(Ordering::Relaxed), 0);
        }
    }
}
