//! Takes a lock that is not free at once: spins, sleeps in slices, and takes the lock from a dead owner.

use super::{
    COUNTED, DOUBT, FREE, Left, Lock, LockError, OWNER_DIED, SHARED, SLICE, SPINS, STOPPED, TID,
    URGENT_SPINS, WAITERS, is_held, is_shared, names_no_thread, orphaned, process_of, with_low,
};
use crate::sync::{Ordering, spin_hint};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::Slept;
use crate::sys::liveness::{Liveness, UNREGISTERED};
use crate::sys::thread::{Outer, Thread};
use crate::sys::{cpu, futex};

/// The state of a thread that sleeps until a lock is free. Signals and wake-ups may interrupt the sleep, but they do not extend the slice: the time
/// for which the thread sleeps while one owner has the lock.
#[derive(Default)]
pub(super) struct Rest {
    /// The word of the lock's owner, and the end of the sleep while this owner has the lock.
    slice: Option<(u64, Deadline)>,
    /// True if the thread is the first of the real-time threads that wait for the lock.
    pub(super) in_line: bool,
    /// True if the thread has slept on the lock's word. Its wake-up may have been meant for another thread that still sleeps on the word.
    slept_on_word: bool,
}

impl Rest {
    /// Returns WAITERS or 0: the bit that the thread adds to the word with which it takes the lock. A thread that has slept on the word sets the bit,
    /// because other threads may still sleep on the word. A thread that was only first in line leaves the bit clear: the previous owner has woken
    /// this thread and also one of the threads on the word.
    pub(super) fn waiters(&self) -> u32 {
        if self.slept_on_word { WAITERS } else { 0 }
    }

    /// Returns the time until which the thread sleeps while the lock has this word.
    pub(super) fn until(&mut self, word: u64, patience: Deadline) -> Deadline {
        let held = word & !u64::from(WAITERS);
        match self.slice {
            Some((last, until)) if last == held => until,
            _ => {
                let slice = match word as u32 & OWNER_DIED {
                    0 => SLICE,
                    _ => DOUBT,
                };
                let until = patience.or_slice(slice);
                self.slice = Some((held, until));
                until
            }
        }
    }
}

/// The word with which a thread takes a lock.
pub(super) struct Claim<'a> {
    pub(super) thread: &'a Thread,
    pub(super) lives: &'a dyn Liveness,
    /// The low half of the word: the thread's id or LENT. WAITERS is added after the thread has slept on the word.
    pub(super) low: u32,
}

impl<'a> Claim<'a> {
    pub(super) fn of(thread: &'a Thread, lives: &'a dyn Liveness, low: u32) -> Claim<'a> {
        Claim { thread, lives, low }
    }

    /// Returns whether the thread takes every lock in shared form.
    pub(super) fn is_foreign(&self) -> bool {
        self.thread.is_stray() || self.lives.is_elsewhere()
    }

    /// Returns whether the thread takes a lock with this word in shared form.
    pub(super) fn is_shared(&self, word: u64) -> bool {
        is_shared(word) || self.is_foreign()
    }

    /// Returns the word of the lock after the thread has taken it.
    pub(super) fn taken(&self, word: u64) -> u64 {
        let low = self.low | word as u32 & WAITERS;
        match self.is_shared(word) {
            true => with_low(SHARED | u64::from(self.lives.own()) << 32, low),
            false => with_low(self.thread.owner(), low),
        }
    }

    /// Returns whether the kernel's mark in this word proves the owner's death.
    pub(super) fn believes_mark(&self, word: u64) -> bool {
        let life = process_of(word);
        !is_shared(word) || life == UNREGISTERED || self.lives.is_over(life)
    }

    /// Returns whether the thread already holds the lock.
    pub(super) fn is_own(&self, word: u64) -> bool {
        let tid = self.thread.tid();
        word as u32 & TID == tid
            && match is_shared(word) {
                true => process_of(word) == self.lives.own(),
                // A thread of another namespace may have the same ids as the calling thread.
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
        let (mut wait, mut rest) = (None, Rest::default());
        let result = self.contend_until(claim, outer, deadline, is_over, &mut wait, &mut rest);
        self.leave_line(&rest, claim.thread.tid(), result.is_ok());
        if let Some((began, _)) = wait {
            claim.thread.stall.note(began, clock::monotonic());
        }
        result
    }

    /// Takes the lock as `lock_contended` does. `wait` records the beginning and the end of the thread's wait.
    fn contend_until(
        &self,
        claim: &mut Claim<'_>,
        outer: Outer,
        deadline: Deadline,
        is_over: &dyn Fn() -> bool,
        wait: &mut Option<(u64, Deadline)>,
        rest: &mut Rest,
    ) -> Result<(Left, u64), LockError> {
        let thread = claim.thread;
        let mut spins = match (cpu::are_several(), thread.urgency.is_likely()) {
            (false, _) => 0,
            (true, false) => SPINS,
            (true, true) => URGENT_SPINS,
        };
        loop {
            // Relaxed: a guess, which the compare-and-swap checks.
            let word = self.word.load(Ordering::Relaxed);
            let is_shared = claim.is_shared(word);
            if is_shared {
                // FOREIGN_MARK: from here on, the death of this thread does not mark another thread's lock.
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
                // The thread holds no lock: signal handlers may run during the sleep, and may use the queue.
                thread.critical.leave();
                let slept = match rest.in_line || thread.urgency.counts(thread.tid()) {
                    true => self.sleep_inherited(word, claim, rest, patience),
                    false => self.sleep(word, rest, patience),
                };
                thread.critical.enter();
                if slept? == Slept::TimedOut {
                    if is_over() {
                        return Err(LockError::TimedOut);
                    }
                    self.take_from_the_dead(word, claim.lives);
                }
                claim.low = thread.tid() | rest.waiters();
            }
        }
    }

    /// Tries once to take a lock whose word was read as `word`. The attempt succeeds for a free or an orphaned lock, unless another thread is faster.
    pub(super) fn try_take(&self, word: u64, claim: &Claim<'_>) -> Option<Left> {
        let low = word as u32;
        let is_orphaned = low & OWNER_DIED != 0;
        if low & TID != 0 || (is_orphaned && !claim.believes_mark(word)) {
            return None;
        }
        // Acquire: as in `lock_if_free`. An orphaned lock in plain form: the kernel's compare-and-swap comes between the dead owner and this thread.
        // In shared form, the end of the owner's liveness lock comes between them.
        self.word
            .compare_exchange(
                word,
                claim.taken(word),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        if !is_orphaned {
            return Some(match word {
                COUNTED => Left::Counted,
                _ => Left::InOrder,
            });
        }
        self.note_dead(word, claim.thread);
        Some(Left::ByTheDead)
    }

    /// Marks a lock in shared form as orphaned if the process of its owner is dead and the kernel has set no mark.
    pub(super) fn take_from_the_dead(&self, word: u64, lives: &dyn Liveness) {
        let life = process_of(word);
        if is_shared(word) && life != UNREGISTERED && lives.is_over(life) {
            // Release: publishes that the process has ended. Relaxed on failure: the caller reads the word again.
            let now = self.word.load(Ordering::Relaxed);
            // Other threads may have added WAITERS, and the kernel may have set its mark. If the high half is unchanged, the dead process is still
            // the owner, because no other process has its liveness id.
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

    /// Records the dead owner of an orphaned lock for diagnosis.
    pub(super) fn note_dead(&self, word: u64, thread: &Thread) {
        let died = if is_shared(word) { 0 } else { process_of(word) };
        thread.bereaved.note(self.address(), died);
    }

    /// Sleeps on a held lock for at most a slice.
    pub(super) fn sleep(
        &self,
        word: u64,
        rest: &mut Rest,
        patience: Deadline,
    ) -> Result<Slept, LockError> {
        if patience.has_passed() {
            return Err(LockError::TimedOut);
        }
        // If WAITERS is already set, the word needs no change. The kernel compares the word with `word` before the thread sleeps.
        if word as u32 & WAITERS == 0 && !self.add_waiters(word) {
            return Ok(Slept::Awake);
        }
        if cfg!(miri) {
            // Under Miri, the futex call would read half of a word that is written as a whole.
            std::thread::yield_now();
            return Ok(Slept::Awake);
        }
        rest.slept_on_word = true;
        match futex::wait(
            &self.word,
            word as u32 | WAITERS,
            rest.until(word, patience),
        ) {
            Slept::TimedOut => overslept(word, rest),
            slept => Ok(slept),
        }
    }

    /// Sets WAITERS in the word of a held lock, so that the owner wakes a thread when it unlocks the lock. Returns false if the word has changed.
    pub(super) fn add_waiters(&self, word: u64) -> bool {
        // Release: the owner sees the words that `sleep_inherited` has stored.
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        let marked = with_low(word, word as u32 | WAITERS);
        let added = self.word.compare_exchange(word, marked, success, failure);
        added.is_ok()
    }

    /// Sleeps until the owner releases the lock, for at most a slice. Does not take the lock.
    pub(crate) fn sleep_while_held(&self, thread: &Thread) {
        // Relaxed: the kernel compares the word with this value before the sleep.
        let word = self.word.load(Ordering::Relaxed);
        let owner = word as u32 & TID;
        // A model does not sleep here: its threads take the lock at once, with the same result as after the sleep.
        if owner != 0 && owner != thread.tid() && !cfg!(loom) {
            // The result does not matter: a thread that needs the lock waits for it afterwards.
            let _ = self.sleep(word, &mut Rest::default(), Deadline::Never);
        }
    }
}

/// Ends a sleep that lasted a whole slice. Returns an error if the word of the lock names no thread.
pub(super) fn overslept(word: u64, rest: &mut Rest) -> Result<Slept, LockError> {
    rest.slice = None;
    match names_no_thread(word as u32) {
        true => Err(LockError::NoThread),
        false => Ok(Slept::TimedOut),
    }
}

/// Returns the current time, and the time until which a call with this deadline waits for a lock. A call waits until its deadline. A call that must
/// not block waits for a second if it has not waited before. A call whose time-out is over still waits for a slice, because it may still take a
/// message.
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
