//! The lock that knows its owner.
//!
//! One 64-bit word, which changes as a whole. Its low half is a futex in the kernel's robust form, its high half says whose thread the
//! low half names:
//!
//! | low half | state | who may leave it | if the owner dies |
//! |---|---|---|---|
//! | 0 | free | anyone: CAS to its own thread id | - |
//! | tid | held | the owner: swap to free | the kernel stores OWNER_DIED |
//! | tid \| WAITERS | held, and other threads sleep | the owner: swap to free, wake one | the kernel stores OWNER_DIED \| WAITERS and wakes one |
//! | OWNER_DIED [\| WAITERS] | held by a dead thread; in shared form, if its process is dead | anyone: CAS to its own id, then repair | the same again |
//! | LENT [\| WAITERS] | a sender lock, held by the holder of the receiver lock | that holder | found by the next holder of the receiver lock |
//! | a number that no thread has | scribbled, LENT in a lock that is never lent included | anyone who has slept a slice: CAS to OWNER_DIED | - |
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

pub(crate) mod deferred_wakes;
pub(crate) mod tokens;

use crate::crash::crash_point;
use crate::sync::{AtomicU64, Futex, Ordering, fence_after_rmw, spin_hint};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::Slept;
use crate::sys::liveness::{Liveness, UNREGISTERED};
use crate::sys::thread::{Outer, Thread};
use crate::sys::{cpu, futex};

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

/// The sleep of a thread on a lock: a slice for each owner, however often signals and wake-ups interrupt it.
#[derive(Default)]
struct Rest(Option<(u64, Deadline)>);

impl Rest {
    /// Until when the thread sleeps while the lock has this word.
    fn until(&mut self, word: u64, patience: Deadline) -> Deadline {
        let held = word & !u64::from(WAITERS);
        match self.0 {
            Some((last, until)) if last == held => until,
            _ => {
                let slice = match word as u32 & OWNER_DIED {
                    0 => SLICE,
                    _ => DOUBT,
                };
                let until = patience.or_slice(slice);
                self.0 = Some((held, until));
                until
            }
        }
    }
}

/// What a thread wants to make of a lock.
struct Claim<'a> {
    thread: &'a Thread,
    lives: &'a dyn Liveness,
    /// The low half: the thread's id, or LENT, and WAITERS once it has slept.
    low: u32,
}

impl<'a> Claim<'a> {
    fn of(thread: &'a Thread, lives: &'a dyn Liveness, low: u32) -> Claim<'a> {
        Claim { thread, lives, low }
    }

    /// Whether the thread takes each lock in shared form.
    fn is_foreign(&self) -> bool {
        self.thread.is_stray() || self.lives.is_elsewhere()
    }

    /// Whether the thread takes a lock with this word in shared form.
    fn is_shared(&self, word: u64) -> bool {
        is_shared(word) || self.is_foreign()
    }

    /// The word of the lock once it is taken.
    fn taken(&self, word: u64) -> u64 {
        let low = self.low | word as u32 & WAITERS;
        match self.is_shared(word) {
            true => with_low(SHARED | u64::from(self.lives.own()) << 32, low),
            false => with_low(self.thread.owner(), low),
        }
    }

    /// Whether the mark of the kernel in a word is true.
    fn believes_mark(&self, word: u64) -> bool {
        let life = process_of(word);
        !is_shared(word) || life == UNREGISTERED || self.lives.is_over(life)
    }

    /// Whether the thread has the lock already.
    fn is_own(&self, word: u64) -> bool {
        let tid = self.thread.tid();
        word as u32 & TID == tid
            && match is_shared(word) {
                true => process_of(word) == self.lives.own(),
                // Another namespace's thread may have the numbers of this one.
                false => !self.is_foreign() && with_low(word, tid) == self.thread.owner(),
            }
    }
}

impl Lock {
    /// Takes the lock for a call with this deadline, and waits for a running owner; for how long, says [`patience`].
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

    fn contend(
        &self,
        claim: &mut Claim<'_>,
        outer: Outer,
        deadline: Deadline,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Left, u64), LockError> {
        let mut wait = None;
        let result = self.contend_until(claim, outer, deadline, is_over, &mut wait);
        if let Some((began, _)) = wait {
            claim.thread.stall.note(began, clock::monotonic());
        }
        result
    }

    /// `wait` says when it began to sleep, if it did, and until when it sleeps.
    fn contend_until(
        &self,
        claim: &mut Claim<'_>,
        outer: Outer,
        deadline: Deadline,
        is_over: &dyn Fn() -> bool,
        wait: &mut Option<(u64, Deadline)>,
    ) -> Result<(Left, u64), LockError> {
        let thread = claim.thread;
        let mut spins = if cpu::available() > 1 { SPINS } else { 0 };
        let mut rest = Rest::default();
        loop {
            // Relaxed: a guess, which the compare-and-swap checks.
            let word = self.word.load(Ordering::Relaxed);
            let is_shared = claim.is_shared(word);
            if is_shared {
                // FOREIGN_MARK: from here on the death of this thread marks nothing of another's.
                thread.unname(outer);
            }
            if let Some(left) = self.try_take(word, claim) {
                if is_shared {
                    thread.rename(&self.word);
                }
                return Ok((left, if is_shared { SHARED } else { FREE }));
            }
            if claim.is_own(word) {
                return Err(LockError::OwnedByCaller);
            }
            if spins > 0 && word as u32 & OWNER_DIED == 0 {
                spins -= 1;
                spin_hint();
                continue;
            }
            if is_held(word) {
                let (_, patience) = *wait.get_or_insert_with(|| self::patience(thread, deadline));
                // Nothing is held yet: a handler may run, and may use the queue.
                thread.critical.leave();
                let slept = self.sleep(word, &mut rest, patience);
                thread.critical.enter();
                if slept? == Slept::TimedOut {
                    if is_over() {
                        return Err(LockError::TimedOut);
                    }
                    self.take_from_the_dead(word, claim.lives);
                }
                // A thread that has slept can't know whether others still sleep, and says WAITERS to be sure.
                claim.low = thread.tid() | WAITERS;
            }
        }
    }

    /// Makes the lock an orphaned one if it is in shared form and its owner's process is dead, though the kernel marked nothing.
    fn take_from_the_dead(&self, word: u64, lives: &dyn Liveness) {
        let life = process_of(word);
        if is_shared(word) && life != UNREGISTERED && lives.is_over(life) {
            // Release: the end of the life came before. Relaxed: whatever else stands there is looked at again.
            let now = self.word.load(Ordering::Relaxed);
            // Others add WAITERS, and the kernel marks. No other thread has the same life.
            if now >> 32 == word >> 32 && is_held(now) {
                let _ = self.word.compare_exchange(
                    now,
                    orphaned(now),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
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

    /// In a model nobody asks.
    #[cfg(loom)]
    pub(crate) fn take_over(&self) -> u32 {
        0
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes the lock from a thread that does not have it, and that is not marked: from now on it is that of a dead owner. False if the lock
    /// has another owner by now.
    pub fn take_from(&self, tid: u32) -> bool {
        // Relaxed: a guess, which the compare-and-swap checks. AcqRel there: what the lock guarded is seen by who repairs next.
        let word = self.word.load(Ordering::Relaxed);
        word as u32 & TID == tid
            && self
                .word
                .compare_exchange(word, orphaned(word), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Takes the lock from its owner, who may live, and wakes all who sleep on it. Only where what it guards is not used any more, whoever
    /// has it.
    #[cfg(any(not(loom), test))]
    pub(crate) fn break_up(&self) {
        // Relaxed: a guess, which the compare-and-swap checks.
        let read = || self.word.load(Ordering::Relaxed);
        let owner = |word: u64| (word >> 32, word as u32 & TID);
        let first = read();
        let mut word = first;
        // Others add WAITERS meanwhile; who gets the lock after this owner is in nobody's way.
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

    /// What the low half of the word says.
    #[cfg(not(loom))]
    pub fn word(&self) -> u32 {
        // Relaxed: a hint to who looks for owners that do not exist.
        self.word.load(Ordering::Relaxed) as u32
    }

    /// One attempt on a word that was read as `word`: free and orphaned locks can be taken.
    fn try_take(&self, word: u64, claim: &Claim<'_>) -> Option<Left> {
        let low = word as u32;
        let is_orphaned = low & OWNER_DIED != 0;
        if low & TID != 0 || (is_orphaned && !claim.believes_mark(word)) {
            return None;
        }
        // Acquire: as in `lock`; for an orphaned lock the kernel's own CAS stands between the dead owner and us, and in shared form
        // the end of its life.
        self.word
            .compare_exchange(
                word,
                claim.taken(word),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        if !is_orphaned {
            return Some(Left::InOrder);
        }
        self.note_dead(word, claim.thread);
        Some(Left::ByTheDead)
    }

    /// Notes, for people, whose the lock was.
    fn note_dead(&self, word: u64, thread: &Thread) {
        let died = if is_shared(word) { 0 } else { process_of(word) };
        thread.bereaved.note(self.address(), died);
    }

    /// Sleeps on a held lock for a slice.
    fn sleep(&self, word: u64, rest: &mut Rest, patience: Deadline) -> Result<Slept, LockError> {
        if patience.has_passed() {
            return Err(LockError::TimedOut);
        }
        let marked = word as u32 | WAITERS;
        // Relaxed: a note to who lets go, which the kernel compares with what is slept on.
        if word as u32 != marked
            && self
                .word
                .compare_exchange(
                    word,
                    with_low(word, marked),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_err()
        {
            return Ok(Slept::Awake);
        }
        if cfg!(miri) {
            // Miri's futex would read half of a word that is written whole.
            std::thread::yield_now();
            return Ok(Slept::Awake);
        }
        let slept = futex::wait(&self.word, marked, rest.until(word, patience));
        if slept == Slept::TimedOut {
            *rest = Rest::default();
            if is_nobodys(marked) {
                return Err(LockError::Nobodys);
            }
        }
        Ok(slept)
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

    /// Sleeps until another thread that holds it lets it go, for a slice at most, without wanting it.
    pub(crate) fn sleep_while_held(&self, thread: &Thread) {
        // Relaxed: whether to sleep, on just this value.
        let word = self.word.load(Ordering::Relaxed);
        let owner = word as u32 & TID;
        // The threads of a model take it at once, which comes to the same.
        if owner != 0 && owner != thread.tid() && !cfg!(loom) {
            // Whichever way it ends, who then wants the lock waits for it.
            let _ = self.sleep(word, &mut Rest::default(), Deadline::Never);
        }
    }

    /// Whether the owner died and the lock has not been taken since: for those who sleep on something else. A hint: see
    /// [`believes_mark`](Claim::believes_mark).
    pub(crate) fn is_orphaned(&self) -> bool {
        // Relaxed: a hint. Who wants to act on it takes the lock.
        self.word.load(Ordering::Relaxed) as u32 & (OWNER_DIED | TID) == OWNER_DIED
    }

    /// Lends a sender lock to the caller, who holds the receiver lock, and waits for its owner until `end`.
    pub(crate) fn borrow(
        &self,
        thread: &Thread,
        lives: &dyn Liveness,
        end: Deadline,
    ) -> Result<Left, LockError> {
        let mut claim = Claim::of(thread, lives, LENT);
        let mut is_scribbled = false;
        let mut rest = Rest::default();
        loop {
            // Relaxed: a guess, which the compare-and-swaps check.
            let word = self.word.load(Ordering::Relaxed);
            let low = word as u32;
            if let Some(left) = self.try_take(word, &claim) {
                return Ok(left);
            }
            if low & TID == LENT {
                // Only the receiver lock's holder lends, and that is the caller: a dead holder's loan, or scribbled.
                self.note_dead(word, thread);
                return Ok(Left::ByTheDead);
            }
            if is_nobodys(low) {
                // A scribbled word is a dead owner's lock in the next turn, unless its writer goes on.
                if std::mem::replace(&mut is_scribbled, true) && end.has_passed() {
                    return Err(LockError::TimedOut);
                }
                self.take_from(low & TID);
                continue;
            }
            if claim.is_own(word) {
                return Err(LockError::OwnedByCaller);
            }
            // A word that was free, and was taken and dropped meanwhile, has nobody who would wake us.
            if is_held(word) {
                if self.sleep(word, &mut rest, end)? == Slept::TimedOut {
                    self.take_from_the_dead(word, lives);
                }
                claim.low = LENT | WAITERS;
            }
        }
    }

    /// Whether a dead holder of the receiver lock, which the caller holds now, left this lock lent, or it was scribbled.
    pub(crate) fn is_left_lent(&self) -> bool {
        // Relaxed: who lent it has held the receiver lock, whose acquire shows the loan.
        is_nobodys(self.word.load(Ordering::Relaxed) as u32)
    }

    /// Ends a loan of a side that could not be repaired: the next owner tries again.
    pub(crate) fn give_back_broken(&self) {
        // Release: as in `give_back`; there is nothing that the next owner relies on.
        let broken = |word: u64| Some(self.broken(word) & !u64::from(WAITERS));
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if let Ok(word) = self.word.fetch_update(success, failure, broken)
            && word as u32 & WAITERS != 0
        {
            futex::wake(&self.word, 1);
        }
    }

    /// Ends a loan. The lock keeps its form, which may have changed meanwhile.
    pub(crate) fn give_back(&self) {
        if self.word.fetch_and(SHARED, Ordering::AcqRel) as u32 & WAITERS != 0 {
            futex::wake(&self.word, 1);
        }
    }

    /// The word of a lock that is left as the dead leave it. What a dead owner left, and is not repaired, stays that owner's.
    fn broken(&self, word: u64) -> u64 {
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
    fn abandon(&self) {
        let left = |word: u64| Some(self.broken(word));
        // Release: as in `unlock`. Relaxed: the owner is this thread; others add WAITERS, or a mark.
        let _ = self
            .word
            .fetch_update(Ordering::Release, Ordering::Relaxed, left);
        futex::wake(&self.word, 1);
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
