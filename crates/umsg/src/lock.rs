//! The lock that knows its owner.
//!
//! One 32-bit word in the kernel's robust-futex form:
//!
//! | word | state | who may leave it | if the owner dies |
//! |---|---|---|---|
//! | 0 | free | anyone: CAS to its own thread id | - |
//! | tid | held | the owner: swap to 0 | the kernel stores OWNER_DIED |
//! | tid \| WAITERS | held, somebody sleeps | the owner: swap to 0, wake one | the kernel stores OWNER_DIED \| WAITERS and wakes one |
//! | OWNER_DIED [\| WAITERS] | held by a dead thread | anyone: CAS to its own id, then repair | the same again |
//! | LENT [\| WAITERS] | a sender lock, held by whoever holds the receiver lock | that holder | found by the next holder of the receiver lock |
//! | a number that no thread has | somebody scribbled, LENT in a lock that nobody lends included | anyone who has slept a slice: CAS to OWNER_DIED | - |
//!
//! The kernel marks the word because the owner named it in its robust list head ([`crate::sys::thread`]).
//! A lock is never broken by a time-out: a stopped owner is not a dead one.

use crate::crash::crash_point;
use crate::sync::{AtomicU32, Ordering, fence_after_rmw, spin_hint};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::Slept;
use crate::sys::thread::{Outer, Thread};
use crate::sys::{cpu, futex};

/// Somebody sleeps on the word (FUTEX_WAITERS).
pub(crate) const WAITERS: u32 = 0x8000_0000;
/// The owner died (FUTEX_OWNER_DIED).
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;
/// The thread id (FUTEX_TID_MASK).
pub(crate) const TID: u32 = 0x3fff_ffff;
/// In place of a thread id: the holder of the receiver lock holds this sender lock too. No thread has this id.
pub(crate) const LENT: u32 = TID;
/// No thread has this id or a higher one: PID_MAX_LIMIT of linux/threads.h.
const THREADS: u32 = 1 << 22;

/// Whether a word names an owner that is no thread: it is lent, or somebody scribbled there.
pub(crate) fn is_nobodys(word: u32) -> bool {
    word & TID >= THREADS
}

/// No sleep is longer, in nanoseconds: wake-ups can die with their waker.
pub(crate) const SLICE: u64 = 100_000_000;

/// How often a contended lock is looked at before its waiter sleeps.
const SPINS: u32 = 100;

/// See the module.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Lock {
    word: AtomicU32,
    /// The process that took it last, for people: the kernel wipes the thread's id from the word of one that dies.
    last: AtomicU32,
}

/// In which state a lock was got.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// By an owner that unlocked it.
    InOrder,
    /// By an owner that died holding it: what it guards has to be repaired first.
    ByTheDead,
}

/// Why a lock was not got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Not within the caller's patience, or not before it was not needed any more.
    TimedOut,
    /// The calling thread holds it: a signal handler that did not defer.
    OwnedByCaller,
    /// It is lent and has been for a slice: whoever holds the receiver lock may be dead. Or it names nobody that there could be.
    Nobodys,
}

/// A lock that is held. Dropping it without [`unlock`](Held::unlock) leaves it as a dead owner would: that is what
/// happens when a thread unwinds out of a critical section, and the next owner repairs.
pub(crate) struct Held<'a> {
    lock: &'a Lock,
    thread: &'a Thread,
    outer: Outer,
}

impl Lock {
    /// Takes the lock for a call with this deadline, and waits for a running owner; for how long, says [`patience`].
    #[inline(always)]
    pub(crate) fn lock<'a>(
        &'a self,
        thread: &'a Thread,
        deadline: Deadline,
    ) -> Result<(Held<'a>, Left), LockError> {
        self.lock_unless(thread, deadline, || false)
    }

    /// As [`lock`](Self::lock), of a lock that nobody needs any more once `is_over` says so. It is asked after each slice that was slept: then
    /// the lock was not got.
    #[inline(always)]
    pub(crate) fn lock_unless<'a>(
        &'a self,
        thread: &'a Thread,
        deadline: Deadline,
        is_over: impl Fn() -> bool,
    ) -> Result<(Held<'a>, Left), LockError> {
        thread.critical.enter();
        let outer = thread.name(&self.word);
        // Acquire: pairs with the release in `unlock`: what the last owner did is seen.
        if self
            .word
            .compare_exchange(0, thread.tid(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            self.note_owner(thread);
            return Ok((
                Held {
                    lock: self,
                    thread,
                    outer,
                },
                Left::InOrder,
            ));
        }
        self.lock_slow(thread, outer, deadline, is_over)
    }

    #[cold]
    fn lock_slow<'a>(
        &'a self,
        thread: &'a Thread,
        outer: Outer,
        deadline: Deadline,
        is_over: impl Fn() -> bool,
    ) -> Result<(Held<'a>, Left), LockError> {
        match self.contend(thread, deadline, &is_over) {
            Ok(left) => {
                if left == Left::InOrder {
                    self.note_owner(thread);
                }
                Ok((
                    Held {
                        lock: self,
                        thread,
                        outer,
                    },
                    left,
                ))
            }
            Err(error) => {
                thread.unname(outer);
                thread.critical.leave();
                Err(error)
            }
        }
    }

    fn contend(
        &self,
        thread: &Thread,
        deadline: Deadline,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Left, LockError> {
        let mut wait = None;
        let result = self.contend_until(thread, deadline, is_over, &mut wait);
        if let Some((began, _)) = wait {
            thread.stall.note(began, clock::monotonic());
        }
        result
    }

    /// `wait` says when it began to sleep, if it did, and until when it sleeps.
    fn contend_until(
        &self,
        thread: &Thread,
        deadline: Deadline,
        is_over: &dyn Fn() -> bool,
        wait: &mut Option<(u64, Deadline)>,
    ) -> Result<Left, LockError> {
        let mut spins = if cpu::available() > 1 { SPINS } else { 0 };
        // Whoever has slept can't know whether others still sleep, and says WAITERS to be sure.
        let mut mine = thread.tid();
        loop {
            // Relaxed: a guess, which the compare-and-swap checks.
            let word = self.word.load(Ordering::Relaxed);
            if let Some(left) = self.try_take(word, mine) {
                return Ok(left);
            }
            if word & TID == thread.tid() {
                return Err(LockError::OwnedByCaller);
            }
            if spins > 0 {
                spins -= 1;
                spin_hint();
                continue;
            }
            if word & TID != 0 {
                let (_, patience) = *wait.get_or_insert_with(|| self::patience(thread, deadline));
                // Nothing is held yet: a handler may run, and may use the queue.
                thread.critical.leave();
                let slept = self.sleep(word, patience);
                thread.critical.enter();
                if slept? == Slept::TimedOut && is_over() {
                    return Err(LockError::TimedOut);
                }
                mine = thread.tid() | WAITERS;
            }
        }
    }

    /// Notes whose the lock is now. That of a dead owner stays noted as that one's until it has been repaired.
    #[inline(always)]
    pub(crate) fn note_owner(&self, thread: &Thread) {
        if cfg!(not(loom)) {
            self.note_last(thread.pid());
        }
    }

    /// As [`note_owner`](Self::note_owner), for a process.
    #[inline(always)]
    pub(crate) fn note_last(&self, pid: u32) {
        // Relaxed: for people. The word that it stands beside is on this core already.
        self.last.store(pid, Ordering::Relaxed);
    }

    /// The process that took the lock last; 0 for nobody.
    pub(crate) fn last(&self) -> u32 {
        // Relaxed: for people.
        self.last.load(Ordering::Relaxed)
    }

    /// Takes the lock from a thread that does not have it, and that nobody marks: from now on it is that of a dead owner. False if the lock
    /// has another owner by now.
    pub(crate) fn take_from(&self, tid: u32) -> bool {
        // Relaxed: a guess, which the compare-and-swap checks. AcqRel there: what the lock guarded is seen by who repairs next.
        let word = self.word.load(Ordering::Relaxed);
        let marked = word & WAITERS | OWNER_DIED;
        let is_taken = word & TID == tid
            && self
                .word
                .compare_exchange(word, marked, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if is_taken {
            self.forget_owner();
        }
        is_taken
    }

    /// Takes the lock from whoever has it, who may live, and wakes all who sleep on it. Only where what it guards is not used any more, whoever
    /// has it.
    #[cfg(any(not(loom), test))]
    pub(crate) fn break_up(&self) {
        // Relaxed: a guess, which `take_from` checks.
        let word = || self.word.load(Ordering::Relaxed) & TID;
        let owner = word();
        // Others add WAITERS meanwhile; who gets the lock after this owner is in nobody's way.
        while owner != 0 && word() == owner {
            if self.take_from(owner) {
                futex::wake(&self.word, i32::MAX);
            }
        }
    }

    /// Who took it last need not have died.
    pub(crate) fn forget_owner(&self) {
        if cfg!(not(loom)) {
            self.note_last(0);
        }
    }

    /// As [`lock`](Self::lock), of a lock that nobody lends. If it names nobody that there could be, somebody scribbled there: then it is taken
    /// at once, and what it guards is repaired as after a death.
    #[cold]
    pub(crate) fn lock_anyway<'a>(
        &'a self,
        thread: &'a Thread,
        deadline: Deadline,
    ) -> Result<(Held<'a>, Left), LockError> {
        self.free_of_nobody();
        self.lock(thread, deadline)
    }

    /// Makes it a dead owner's if it names nobody that there could be.
    #[cold]
    pub(crate) fn free_of_nobody(&self) {
        // Relaxed: as in `take_from`. No thread can have the lock meanwhile: its word would be another.
        let word = self.word.load(Ordering::Relaxed);
        if is_nobodys(word) {
            self.take_from(word & TID);
        }
    }

    /// What the word says.
    #[cfg(not(loom))]
    pub(crate) fn word(&self) -> u32 {
        // Relaxed: a hint to who looks for owners that do not exist.
        self.word.load(Ordering::Relaxed)
    }

    /// One attempt on a word that was read as `word`: free and orphaned locks can be taken.
    fn try_take(&self, word: u32, mine: u32) -> Option<Left> {
        if word & TID != 0 {
            return None;
        }
        let keep = word & WAITERS;
        // Acquire: as in `lock`; for an orphaned lock the kernel's own CAS stands between the dead owner and us.
        self.word
            .compare_exchange(word, mine | keep, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(if word & OWNER_DIED != 0 {
            Left::ByTheDead
        } else {
            Left::InOrder
        })
    }

    /// Sleeps on a held lock for a slice.
    fn sleep(&self, word: u32, patience: Deadline) -> Result<Slept, LockError> {
        if patience.has_passed() {
            return Err(LockError::TimedOut);
        }
        let marked = word | WAITERS;
        // Relaxed: a note to who lets go, which the kernel compares with what is slept on.
        if word != marked
            && self
                .word
                .compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return Ok(Slept::Awake);
        }
        let slept = futex::wait(&self.word, marked, patience.or_slice(SLICE));
        if slept == Slept::TimedOut && is_nobodys(marked) {
            return Err(LockError::Nobodys);
        }
        Ok(slept)
    }

    /// What a peer may do that scribbles; and who has a segment for himself.
    #[cfg(not(loom))]
    pub(crate) fn forge(&self, word: u32) {
        // Relaxed: the segment is the caller's own, or wrong.
        self.word.store(word, Ordering::Relaxed);
    }

    /// Sleeps until another thread that holds it lets it go, for a slice at most, without wanting it.
    pub(crate) fn sleep_while_held(&self, thread: &Thread) {
        // Relaxed: whether to sleep, on just this value.
        let word = self.word.load(Ordering::Relaxed);
        let is_held = word & TID != 0 && word & TID != thread.tid();
        // The threads of a model take it at once, which comes to the same.
        if is_held && !cfg!(loom) {
            // Whichever way it ends, who then wants the lock waits for it.
            let _ = self.sleep(word, Deadline::Never);
        }
    }

    /// Whether the owner died and nobody has taken the lock since: for those who sleep on something else.
    pub(crate) fn is_orphaned(&self) -> bool {
        // Relaxed: a hint. Who wants to act on it takes the lock.
        self.word.load(Ordering::Relaxed) & (OWNER_DIED | TID) == OWNER_DIED
    }

    /// Lends a sender lock to the caller, who holds the receiver lock, and waits for its owner until `end`.
    pub(crate) fn borrow(&self, thread: &Thread, end: Deadline) -> Result<Left, LockError> {
        let (mut marked, mut is_scribbled) = (LENT, false);
        loop {
            // Relaxed: a guess, which the compare-and-swaps check.
            let word = self.word.load(Ordering::Relaxed);
            if let Some(left) = self.try_take(word, marked) {
                if left == Left::InOrder {
                    self.note_owner(thread);
                }
                return Ok(left);
            }
            if word & TID == LENT {
                // Only the receiver lock's holder lends, and that is the caller: a dead holder's loan, or what somebody scribbled.
                return Ok(Left::ByTheDead);
            }
            if is_nobodys(word) {
                // What somebody scribbled is a dead owner's lock in the next turn, unless he goes on.
                if std::mem::replace(&mut is_scribbled, true) && end.has_passed() {
                    return Err(LockError::TimedOut);
                }
                self.take_from(word & TID);
                continue;
            }
            if word & TID == thread.tid() {
                return Err(LockError::OwnedByCaller);
            }
            // A word that was free, and was taken and dropped meanwhile, has nobody who would wake us.
            if word & TID != 0 {
                self.sleep(word, end)?;
                marked = LENT | WAITERS;
            }
        }
    }

    /// Whether a dead holder of the receiver lock, which the caller holds now, left this lock lent, or somebody scribbled there.
    pub(crate) fn is_left_lent(&self) -> bool {
        // Relaxed: who lent it has held the receiver lock, whose acquire shows the loan.
        is_nobodys(self.word.load(Ordering::Relaxed))
    }

    /// Ends a loan of a side that could not be repaired: the next owner tries again.
    pub(crate) fn give_back_broken(&self) {
        // Release: as in `give_back`; there is nothing that the next owner relies on.
        if self.word.swap(OWNER_DIED, Ordering::AcqRel) & WAITERS != 0 {
            futex::wake(&self.word, 1);
        }
    }

    /// Ends a loan.
    pub(crate) fn give_back(&self) {
        if self.word.swap(0, Ordering::AcqRel) & WAITERS != 0 {
            futex::wake(&self.word, 1);
        }
    }

    /// What the kernel does to the word of a thread that died.
    #[cfg(not(loom))]
    fn abandon(&self, tid: u32) {
        // Relaxed: the owner is this thread; others add WAITERS, which the compare-and-swap checks. Release there: as in `unlock`.
        let mut word = self.word.load(Ordering::Relaxed);
        while word & TID == tid {
            let marked = word & WAITERS | OWNER_DIED;
            match self
                .word
                .compare_exchange(word, marked, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => {
                    futex::wake(&self.word, 1);
                    return;
                }
                Err(now) => word = now,
            }
        }
    }
}

impl<'a> Held<'a> {
    /// Lets go, wakes a sleeper, and is a full barrier for what the caller reads next.
    #[inline(always)]
    pub(crate) fn unlock(self) {
        let (thread, outer) = self.open();
        thread.unname(outer);
        thread.critical.leave();
    }

    /// Lets go and names `word` to the kernel in place of the lock: the caller goes on as a waiter.
    /// Returns what has to be restored with [`Thread::unname`] when the waiting is over.
    pub(crate) fn unlock_and_name(self, word: &AtomicU32) -> Outer {
        let (thread, outer) = self.open();
        crash_point!(WAIT_UNNAMED);
        thread.rename(word);
        thread.critical.leave();
        outer
    }

    #[inline(always)]
    fn open(self) -> (&'a Thread, Outer) {
        let (lock, thread, outer) = (self.lock, self.thread, self.outer);
        std::mem::forget(self);
        // Release: what was done under the lock is seen by its next owner.
        let word = lock.word.swap(0, Ordering::AcqRel);
        fence_after_rmw();
        if word & WAITERS != 0 {
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
        self.lock.abandon(self.thread.tid());
        self.thread.unname(self.outer);
        self.thread.critical.leave();
    }
}

/// How long a lock that does not change hands is waited for by a call that must not block, in nanoseconds. Its owner is
/// then stopped, or hostile.
pub(crate) const STOPPED: u64 = 1_000_000_000;

/// Now, and until when a call with this deadline waits for a lock: until the deadline; a call that must not block, for a
/// second, if it has not waited for others; a timed call whose time is over, for a slice, because it may still take what is
/// there.
fn patience(thread: &Thread, deadline: Deadline) -> (u64, Deadline) {
    let now = clock::monotonic();
    let end = match deadline {
        Deadline::Never => Deadline::Never,
        Deadline::Passed => Deadline::Monotonic(thread.stall.end(now, STOPPED)),
        over if over.has_passed() => Deadline::Monotonic(now.saturating_add(SLICE)),
        timed => timed,
    };
    (now, end)
}
