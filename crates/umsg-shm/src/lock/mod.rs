//! The lock that knows its owner.
//!
//! One 64-bit word, which changes as a whole. Its low half is a futex in the kernel's robust form, its high half says whose thread the
//! low half names:
//!
//! | low half | state | may leave it | if the owner dies |
//! |---|---|---|---|
//! | 0 | free | anyone: CAS to its own thread id | - |
//! | tid | held | the owner: swap to free | the kernel stores OWNER_DIED |
//! | tid \| WAITERS | held, and other threads sleep | the owner: swap to free, wake one | the kernel stores OWNER_DIED \| WAITERS and wakes one |
//! | OWNER_DIED [\| WAITERS] | held by a dead thread; in shared form, if its process is dead | anyone: CAS to its own id, then repair | the same again |
//! | LENT [\| WAITERS] | a sender lock, held by the holder of the receiver lock | that holder | found by the next holder of the receiver lock |
//! | a number that no thread has | overwritten; LENT in a lock that is never lent included | any thread that has slept a slice: CAS to OWNER_DIED | - |
//!
//! | form | high half when free | when held | a mark of the kernel |
//! |---|---|---|---|
//! | plain: only processes of the queue's home use it | 0 | the process's id | proves the owner's death |
//! | shared: processes of other PID or time namespaces use it, too | SHARED | SHARED \| the process's [life](crate::sys::liveness) | is evidence: thread ids collide |
//!
//! The kernel marks the low half because the owner named it in its robust list head ([`crate::sys::thread`]). It keeps the high half. In
//! plain form a thread names the lock before it takes it. In shared form it does so once it has the lock, and unnames it before
//! it sleeps, so that the death of a thread that only wanted the lock marks nothing. A mark is believed if the life that the
//! word names is over. A lock whose owner died without a mark is found after a slice, by the same test.
//!
//! A lock goes from plain to shared form once, and never back: when a thread from elsewhere first takes it. Such a thread never names a word in
//! plain form.
//!
//! A lock is never broken by a time-out: a stopped owner is not a dead one.

mod contend;
pub(crate) mod deferred_wakes;
mod loan;
mod orphaned;
pub(crate) mod tokens;

use contend::Claim;

use crate::crash::crash_point;
use crate::sync::{AtomicU64, Futex, Ordering, fence_after_rmw};
use crate::sys::clock::Deadline;
use crate::sys::futex;
use crate::sys::liveness::{Liveness, UNREGISTERED};
use crate::sys::thread::{Outer, Thread};

/// Other threads sleep on the word (FUTEX_WAITERS).
pub(crate) const WAITERS: u32 = 0x8000_0000;
/// The owner died (FUTEX_OWNER_DIED).
pub const OWNER_DIED: u32 = 0x4000_0000;
/// The thread id (FUTEX_TID_MASK).
pub const TID: u32 = 0x3fff_ffff;
/// In place of a thread id: the holder of the receiver lock holds this sender lock too. No thread has this id.
pub const LENT: u32 = TID;
/// No thread has this id or a higher one: PID_MAX_LIMIT of linux/threads.h.
const THREADS: u32 = 1 << 22;
/// The word is in shared form.
const SHARED: u64 = 1 << 63;
/// A free lock in plain form.
const FREE: u64 = 0;

/// Whether a word names an owner that is no thread: it is lent, or scribbled.
pub fn is_nobodys(word: u32) -> bool {
    word & TID >= THREADS
}

fn is_shared(word: u64) -> bool {
    word & SHARED != 0
}

/// The process of a word's owner: its id in plain form, its life in shared form.
fn process_of(word: u64) -> u32 {
    (word >> 32) as u32 & UNREGISTERED
}

/// A word with another low half.
fn with_low(word: u64, low: u32) -> u64 {
    word >> 32 << 32 | u64::from(low)
}

/// The word of an owner that is dead, whatever process it names, in the same form.
fn orphaned(word: u64) -> u64 {
    word & SHARED | u64::from(word as u32 & WAITERS | OWNER_DIED)
}

/// Whether a thread has the lock, as far as the word says. In shared form a marked one may live.
fn is_held(word: u64) -> bool {
    word as u32 & TID != 0 || (is_shared(word) && word as u32 & OWNER_DIED != 0)
}

/// No sleep is longer, in nanoseconds: wake-ups can die with their waker.
pub const SLICE: u64 = 100_000_000;

/// How long a sleep is on a lock that the kernel has marked, and whose owner's process seems to live, in nanoseconds: it may be about to end.
const DOUBT: u64 = if cfg!(loom) { SLICE } else { 1_000_000 };

/// How often a contended lock is looked at before its waiter sleeps.
const SPINS: u32 = 100;

/// See the module.
#[repr(C)]
#[derive(Default)]
pub struct Lock {
    word: AtomicU64,
}

/// In which state a lock was got.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// By an owner that unlocked it.
    InOrder,
    /// By an owner that died holding it: what it guards has to be repaired first.
    ByTheDead,
}

/// Why a lock was not got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// Not within the caller's patience, or not before it was not needed any more.
    TimedOut,
    /// The calling thread holds it: a signal handler that did not defer.
    OwnedByCaller,
    /// It is lent and has been for a slice: the holder of the receiver lock may be dead. Or it names an impossible thread id.
    Nobodys,
}

/// A lock that is held. Dropping it without [`unlock`](Held::unlock) leaves it as a dead owner would: that is what
/// happens when a thread unwinds out of a critical section, and the next owner repairs.
pub struct Held<'a> {
    lock: &'a Lock,
    thread: &'a Thread,
    outer: Outer,
    /// The word of the lock when it is free again.
    free: u64,
}

impl Lock {
    /// Takes the lock for a call with this deadline, and waits for a running owner; for how long, says `contend::patience`.
    #[inline(always)]
    pub fn lock<'a>(
        &'a self,
        thread: &'a Thread,
        lives: &dyn Liveness,
        deadline: Deadline,
    ) -> Result<(Held<'a>, Left), LockError> {
        self.lock_unless(thread, lives, deadline, || false)
    }

    /// As [`lock`](Self::lock), of a lock that is not needed any more once `is_over` says so. It is asked after each slice that was slept: then
    /// the lock was not got.
    #[inline(always)]
    pub(crate) fn lock_unless<'a>(
        &'a self,
        thread: &'a Thread,
        lives: &dyn Liveness,
        deadline: Deadline,
        is_over: impl Fn() -> bool,
    ) -> Result<(Held<'a>, Left), LockError> {
        thread.critical.enter();
        let outer = thread.named();
        if !thread.is_stray() && !lives.is_elsewhere() {
            thread.rename(&self.word);
            // Acquire: pairs with the release in `unlock`: what the last owner did is seen.
            if self
                .word
                .compare_exchange(FREE, thread.owner(), Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return Ok((
                    Held {
                        lock: self,
                        thread,
                        outer,
                        free: FREE,
                    },
                    Left::InOrder,
                ));
            }
        }
        self.lock_slow(thread, outer, lives, deadline, &is_over)
    }

    #[cold]
    fn lock_slow<'a>(
        &'a self,
        thread: &'a Thread,
        outer: Outer,
        lives: &dyn Liveness,
        deadline: Deadline,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Held<'a>, Left), LockError> {
        let mut claim = Claim::of(thread, lives, thread.tid());
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

    /// One in shared form.
    #[cfg(all(loom, test))]
    pub(crate) fn shared() -> Lock {
        Lock {
            word: AtomicU64::new(SHARED),
        }
    }

    /// Whether the lock is in shared form.
    pub(crate) fn is_shared(&self) -> bool {
        // Relaxed: under the lock exact; else a hint.
        is_shared(self.word.load(Ordering::Relaxed))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// What the low half of the word says.
    #[cfg(not(loom))]
    pub fn word(&self) -> u32 {
        // Relaxed: a hint to a process that looks for owners that do not exist.
        self.word.load(Ordering::Relaxed) as u32
    }

    /// What a thread names to the kernel.
    #[cfg(all(test, loom))]
    pub(crate) fn futex(&self) -> &AtomicU64 {
        &self.word
    }

    /// What a peer may do that scribbles; and the owner of a segment that has no other users.
    #[cfg(not(loom))]
    pub fn forge(&self, word: u32) {
        // Relaxed: the segment is the caller's own, or wrong.
        self.word.store(u64::from(word), Ordering::Relaxed);
    }
}

impl<'a> Held<'a> {
    /// Lets go, wakes a sleeper, and is a full barrier for what the caller reads next.
    #[inline(always)]
    pub fn unlock(self) {
        let (thread, outer) = self.open();
        thread.unname(outer);
        thread.critical.leave();
    }

    /// Lets go and names `word` to the kernel in place of the lock: the caller goes on as a waiter.
    /// Returns what has to be restored with [`Thread::unname`] before the caller lets go of its node.
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
        // Release: what was done under the lock is seen by its next owner.
        let word = lock.word.swap(free, Ordering::AcqRel);
        fence_after_rmw();
        if word as u32 & WAITERS != 0 {
            // The lock stays named until the wake is done: if we die between, the kernel wakes in our place
            // (it does for a named word that is 0).
            futex::wake(&lock.word, 1);
        }
        (thread, outer)
    }
}

// In a model a thread dies by unwinding, and the model's kernel has marked the word already.
#[cfg(not(loom))]
impl Drop for Held<'_> {
    #[cold]
    fn drop(&mut self) {
        self.lock.abandon();
        self.thread.unname(self.outer);
        self.thread.critical.leave();
    }
}

/// How long a lock that does not change hands is waited for by a call that must not block, in nanoseconds. Its owner is
/// then stopped, or hostile.
pub const STOPPED: u64 = 1_000_000_000;
