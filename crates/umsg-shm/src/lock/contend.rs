//! Taking a lock that is not free at once: spinning, sleeping in slices, and taking it from the dead.

use super::{
    DOUBT, FREE, Left, Lock, LockError, OWNER_DIED, SHARED, SLICE, SPINS, STOPPED, TID, WAITERS,
    is_held, is_nobodys, is_shared, orphaned, process_of, with_low,
};
use crate::sync::{Ordering, spin_hint};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::Slept;
use crate::sys::liveness::{Liveness, UNREGISTERED};
use crate::sys::thread::{Outer, Thread};
use crate::sys::{cpu, futex};

/// The sleep of a thread on a lock: a slice for each owner, however often signals and wake-ups interrupt it.
#[derive(Default)]
pub(super) struct Rest(Option<(u64, Deadline)>);

impl Rest {
    /// Until when the thread sleeps while the lock has this word.
    pub(super) fn until(&mut self, word: u64, patience: Deadline) -> Deadline {
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
pub(super) struct Claim<'a> {
    pub(super) thread: &'a Thread,
    pub(super) lives: &'a dyn Liveness,
    /// The low half: the thread's id, or LENT, and WAITERS once it has slept.
    pub(super) low: u32,
}

impl<'a> Claim<'a> {
    pub(super) fn of(thread: &'a Thread, lives: &'a dyn Liveness, low: u32) -> Claim<'a> {
        Claim { thread, lives, low }
    }

    /// Whether the thread takes each lock in shared form.
    pub(super) fn is_foreign(&self) -> bool {
        self.thread.is_stray() || self.lives.is_elsewhere()
    }

    /// Whether the thread takes a lock with this word in shared form.
    pub(super) fn is_shared(&self, word: u64) -> bool {
        is_shared(word) || self.is_foreign()
    }

    /// The word of the lock once it is taken.
    pub(super) fn taken(&self, word: u64) -> u64 {
        let low = self.low | word as u32 & WAITERS;
        match self.is_shared(word) {
            true => with_low(SHARED | u64::from(self.lives.own()) << 32, low),
            false => with_low(self.thread.owner(), low),
        }
    }

    /// Whether the mark of the kernel in a word is true.
    pub(super) fn believes_mark(&self, word: u64) -> bool {
        let life = process_of(word);
        !is_shared(word) || life == UNREGISTERED || self.lives.is_over(life)
    }

    /// Whether the thread has the lock already.
    pub(super) fn is_own(&self, word: u64) -> bool {
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
    pub(super) fn contend(
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
    pub(super) fn contend_until(
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

    /// One attempt on a word that was read as `word`: free and orphaned locks can be taken.
    pub(super) fn try_take(&self, word: u64, claim: &Claim<'_>) -> Option<Left> {
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

    /// Makes the lock an orphaned one if it is in shared form and its owner's process is dead, though the kernel marked nothing.
    pub(super) fn take_from_the_dead(&self, word: u64, lives: &dyn Liveness) {
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

    /// Notes, for people, whose the lock was.
    pub(super) fn note_dead(&self, word: u64, thread: &Thread) {
        let died = if is_shared(word) { 0 } else { process_of(word) };
        thread.bereaved.note(self.address(), died);
    }

    /// Sleeps on a held lock for a slice.
    pub(super) fn sleep(
        &self,
        word: u64,
        rest: &mut Rest,
        patience: Deadline,
    ) -> Result<Slept, LockError> {
        if patience.has_passed() {
            return Err(LockError::TimedOut);
        }
        let marked = word as u32 | WAITERS;
        // Relaxed: a note to a process that lets go, which the kernel compares with what is slept on.
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

    /// Sleeps until another thread that holds it lets it go, for a slice at most, without wanting it.
    pub(crate) fn sleep_while_held(&self, thread: &Thread) {
        // Relaxed: whether to sleep, on just this value.
        let word = self.word.load(Ordering::Relaxed);
        let owner = word as u32 & TID;
        // The threads of a model take it at once, which comes to the same.
        if owner != 0 && owner != thread.tid() && !cfg!(loom) {
            // However it ends, a thread that then wants the lock waits for it.
            let _ = self.sleep(word, &mut Rest::default(), Deadline::Never);
        }
    }
}

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
