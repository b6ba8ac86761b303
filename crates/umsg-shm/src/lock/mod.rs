//! A lock whose word names its owner.
//!
//! The lock is one 64-bit word, which changes as a whole. Its low half is a robust futex with the owner's thread id. Its high half names the process
//! of that thread:
//!
//! | low half | state | may leave it | if the owner dies |
//! |---|---|---|---|
//! | 0 | free; also *counted*, see below | any thread: CAS to its own id | - |
//! | tid | held | the owner: swap to free | the kernel stores OWNER_DIED |
//! | tid \| WAITERS | held, and other threads sleep | the owner: swap to free, wake one | the kernel stores OWNER_DIED \| WAITERS and wakes one |
//! | OWNER_DIED [\| WAITERS] | held by a dead thread; in shared form only if its process is dead, too | any thread: CAS to its own id, then repair | the same again |
//! | LENT \| tid [\| WAITERS] | a sender lock, held by the owner of the receiver lock | that owner | found by the next owner of the receiver lock |
//! | an impossible thread id | overwritten word; also a lent word in a lock that is never lent | any thread that has slept a slice: CAS to OWNER_DIED | - |
//!
//! | form | high half when free | when held | a mark of the kernel |
//! |---|---|---|---|
//! | plain: only processes of the creating namespaces use it | 0 | the process id | proves the owner's death |
//! | shared: processes of other PID or time namespaces use it, too | SHARED | SHARED \| the process's [liveness id](crate::sys::liveness) | is evidence only: thread ids collide |
//!
//! The kernel marks the low half because the owner named the lock in its robust list head ([`crate::sys::thread`]). The kernel does not change the
//! high half. In plain form, a thread names the lock before it takes it. In shared form, the thread names the lock after it has taken it, and removes
//! the name before it sleeps: the death of a thread that only waited then marks nothing. In shared form, the mark is valid only if the process that
//! the word names is dead. If the kernel set no mark, another thread finds after a slice that the owner is dead, by the same test.
//!
//! A free lock in plain form is *counted* while its high half is COUNTED: a process has read the counts of the queue, and keeps them. The thread that
//! takes such a lock removes the mark and gets [`Left::Counted`]. The fast path expects a word of 0, so it needs no extra step for the mark.
//!
//! A lock changes from plain to shared form when a thread of another namespace first takes it, and never changes back. Such a thread never names a
//! word in plain form.
//!
//! A time-out never takes a lock from its owner: a stopped owner is not dead.
//!
//! A waiting thread with a real-time policy lends its priority to the owner: `inherit.rs`.

mod contend;
pub(crate) mod deferred_wakes;
mod inherit;
mod loan;
mod orphaned;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod tokens;

use contend::Claim;
use inherit::Inherit;

use crate::crash::crash_point;
use crate::sync::{AtomicU64, Futex, Ordering, fence_after_rmw};
use crate::sys::clock::Deadline;
use crate::sys::liveness::{Liveness, UNREGISTERED};
use crate::sys::thread::{Outer, Thread};

/// A bit of the low half: other threads sleep on the word (FUTEX_WAITERS).
pub(crate) const WAITERS: u32 = 0x8000_0000;
/// A bit of the low half: the owner died (FUTEX_OWNER_DIED).
pub const OWNER_DIED: u32 = 0x4000_0000;
/// The bits of the low half that hold the thread id (FUTEX_TID_MASK).
pub const TID: u32 = 0x3fff_ffff;
/// A bit of the low half of a sender lock: the owner of the receiver lock holds this lock, too. The lower bits are the thread id of that owner.
pub const LENT: u32 = 0x2000_0000;
/// A bound above all thread ids: PID_MAX_LIMIT of linux/threads.h.
const THREADS: u32 = 1 << 22;
/// The bit of a word in shared form.
const SHARED: u64 = 1 << 63;
/// The word of a free lock in plain form.
const FREE: u64 = 0;
/// The word of a counted lock: it is free and in plain form, and no thread has taken it since a process read the counts of the queue.
const COUNTED: u64 = 1 << 62;

/// Returns whether a word names no thread: the lock is lent, or the word was overwritten.
pub fn names_no_thread(word: u32) -> bool {
    word & TID >= THREADS
}

/// Returns whether a word says that its sender lock is lent.
pub fn is_lent(word: u32) -> bool {
    word & LENT != 0
}

fn is_shared(word: u64) -> bool {
    word & SHARED != 0
}

/// Returns the process of the owner: its id in plain form, its liveness id in shared form.
fn process_of(word: u64) -> u32 {
    (word >> 32) as u32 & UNREGISTERED
}

/// Replaces the low half of a word.
fn with_low(word: u64, low: u32) -> u64 {
    word >> 32 << 32 | u64::from(low)
}

/// Returns the word of the same lock after its owner's death, in the same form.
fn orphaned(word: u64) -> u64 {
    word & SHARED | u64::from(word as u32 & WAITERS | OWNER_DIED)
}

/// Returns whether the word names an owner that may live. In shared form, an owner that the kernel has marked as dead may live.
fn is_held(word: u64) -> bool {
    word as u32 & TID != 0 || (is_shared(word) && word as u32 & OWNER_DIED != 0)
}

/// The slice: the longest sleep of a waiter, in nanoseconds. A wake-up can be lost if the process that should send it dies, so a waiter then checks
/// by itself.
pub const SLICE: u64 = 100_000_000;

/// The sleep, in nanoseconds, on a lock that the kernel has marked although the process of its owner seems to live: the process may be about to
/// end.
const DOUBT: u64 = if cfg!(loom) { SLICE } else { 1_000_000 };

/// The number of times that a waiter reads a contended lock before it sleeps.
const SPINS: u32 = 100;

/// The number of spins of a thread with a real-time policy: the owner is likely to be a thread that it has interrupted on its own processor.
const URGENT_SPINS: u32 = 10;

/// A lock whose word names its owner: see the module.
#[repr(C)]
#[derive(Default)]
pub struct Lock {
    word: AtomicU64,
    inherit: Inherit,
}

/// The state in which a lock was taken.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The last owner unlocked the lock.
    InOrder,
    /// The last owner unlocked the lock and marked it as counted. The new owner announces, before its first change, that the counts change. Only
    /// locks of System V queues use this value. For other locks, the value means the same as [`InOrder`](Self::InOrder).
    Counted,
    /// The last owner died with the lock: the protected state needs a repair.
    ByTheDead,
}

/// The reason why a lock was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// The caller's time is over, or the lock is no longer needed.
    TimedOut,
    /// The calling thread holds the lock: a signal handler interrupted a call on this queue.
    OwnedByCaller,
    /// The lock has been lent for a whole slice, so the owner of the receiver lock may be dead; or the lock names an impossible thread id.
    NoThread,
}

/// A lock that is held. A value that is dropped without [`unlock`](Held::unlock) leaves an orphaned lock, and the next owner repairs the data. This
/// happens when a thread unwinds out of a critical section.
pub struct Held<'a> {
    lock: &'a Lock,
    thread: &'a Thread,
    outer: Outer,
    /// The word of the lock while it is free, which is the word that the unlock stores.
    free: u64,
}

impl Lock {
    /// Takes the lock for a call with this deadline. Waits for a running owner as long as `contend::patience` permits.
    #[inline(always)]
    pub fn lock<'a>(
        &'a self,
        thread: &'a Thread,
        lives: &dyn Liveness,
        deadline: Deadline,
    ) -> Result<(Held<'a>, Left), LockError> {
        match self.lock_if_free(thread, lives) {
            Some(held) => Ok((held, Left::InOrder)),
            None => self.lock_contended(thread, lives, deadline, &|| false),
        }
    }

    /// Takes the lock if it is free and in plain form. Never waits. Each call that takes a lock begins with this function, and needs no further step
    /// if no other thread uses the lock.
    #[inline(always)]
    pub(crate) fn lock_if_free<'a>(
        &'a self,
        thread: &'a Thread,
        lives: &dyn Liveness,
    ) -> Option<Held<'a>> {
        if thread.is_stray() || lives.is_elsewhere() {
            return None;
        }
        thread.critical.enter();
        let outer = thread.named();
        thread.rename(&self.word);
        // Acquire: pairs with the release in `unlock`, and makes the changes of the last owner visible.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        let (free, own) = (FREE, thread.owner());
        if self
            .word
            .compare_exchange(free, own, success, failure)
            .is_err()
        {
            thread.unname(outer);
            thread.critical.leave();
            return None;
        }
        Some(Held {
            lock: self,
            thread,
            outer,
            free,
        })
    }

    /// Takes the lock like [`lock`](Self::lock), after [`lock_if_free`](Self::lock_if_free) has failed. Calls `is_over` after each slice of sleep,
    /// and returns without the lock when `is_over` returns true.
    #[cold]
    pub(crate) fn lock_contended<'a>(
        &'a self,
        thread: &'a Thread,
        lives: &dyn Liveness,
        deadline: Deadline,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Held<'a>, Left), LockError> {
        thread.critical.enter();
        let outer = thread.named();
        let mut claim = Claim::of(thread, lives, thread.tid());
        if !claim.is_foreign() {
            thread.rename(&self.word);
        }
        match self.contend(&mut claim, outer, deadline, is_over) {
            Ok((left, free)) => Ok((
                Held {
                    lock: self,
                    thread,
                    outer,
                    free,
                },
                left,
            )),
            Err(error) => {
                thread.unname(outer);
                thread.critical.leave();
                Err(error)
            }
        }
    }

    /// Creates a lock in shared form.
    #[cfg(all(loom, test))]
    pub(crate) fn shared() -> Lock {
        Lock {
            word: AtomicU64::new(SHARED),
            inherit: Inherit::default(),
        }
    }

    /// Returns whether the lock is in shared form.
    pub(crate) fn is_shared(&self) -> bool {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        is_shared(self.word.load(Ordering::Relaxed))
    }

    /// Returns whether no thread has taken the lock since [`unlock_counted`](Held::unlock_counted). A caller that gets true sees all changes that
    /// were made before.
    pub(crate) fn is_counted(&self) -> bool {
        // Acquire: pairs with the release in `unlock_counted`.
        self.word.load(Ordering::Acquire) == COUNTED
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns the low half of the word.
    #[cfg(not(loom))]
    pub fn word(&self) -> u32 {
        // Relaxed: a hint. A search for impossible owners uses it.
        self.word.load(Ordering::Relaxed) as u32
    }

    /// Returns the lock's word, which a thread names to the kernel.
    #[cfg(all(test, loom))]
    pub(crate) fn futex(&self) -> &AtomicU64 {
        &self.word
    }

    /// Overwrites the word. For tests that act as a hostile process, and for a segment without other users.
    #[cfg(not(loom))]
    pub fn forge(&self, word: u32) {
        // Relaxed: the segment belongs to the caller alone, or is corrupted.
        self.word.store(u64::from(word), Ordering::Relaxed);
    }
}

impl<'a> Held<'a> {
    /// Releases the lock and wakes a sleeper. The release is a full barrier for the caller's next reads.
    #[inline(always)]
    pub fn unlock(self) {
        let (thread, outer) = self.open();
        thread.unname(outer);
        thread.critical.leave();
    }

    /// Releases a lock in plain form, and marks it as counted.
    pub(crate) fn unlock_counted(mut self) {
        if self.free == FREE {
            self.free = COUNTED;
        }
        self.unlock();
    }

    /// Releases the lock, and names `word` to the kernel instead of the lock: the caller becomes a waiter. The caller passes the result to
    /// [`Thread::unname`] before it gives up its node.
    pub(crate) fn unlock_and_name(self, word: &impl Futex) -> Outer {
        let (thread, outer) = self.open();
        crash_point!(WAIT_UNNAMED);
        thread.rename(word);
        thread.critical.leave();
        outer
    }

    #[inline(always)]
    fn open(self) -> (&'a Thread, Outer) {
        let (lock, thread, outer, free) = (self.lock, self.thread, self.outer, self.free);
        std::mem::forget(self);
        // Release: makes the changes under the lock visible to the next owner.
        let word = lock.word.swap(free, Ordering::AcqRel);
        fence_after_rmw();
        if word as u32 & WAITERS != 0 {
            // The lock stays named until the wake-up is done. If this thread dies before the wake-up, the kernel wakes a sleeper in its place,
            // because the named word is 0.
            lock.wake_next(word);
        }
        (thread, outer)
    }
}

// In a model, a thread dies by unwinding, and the model's kernel has already marked the word.
#[cfg(not(loom))]
impl Drop for Held<'_> {
    #[cold]
    fn drop(&mut self) {
        self.lock.abandon();
        self.thread.unname(self.outer);
        self.thread.critical.leave();
    }
}

/// The time, in nanoseconds, for which a call that must not block waits while a lock keeps the same owner. An owner that holds the lock for longer
/// is stopped or hostile.
pub const STOPPED: u64 = 1_000_000_000;
