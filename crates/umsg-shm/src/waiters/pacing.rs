//! How long a call looks before it sleeps.
//!
//! A sleep costs its waker more than a microsecond and its sleeper several, so a call that finds nothing first looks
//! again for some microseconds, as long as that has paid lately: each spin that found something makes the next one
//! longer, each that did not halves it, and after a few in vain the next waits don't spin. On a single processor
//! nobody spins. Before it sleeps, a call gives way a few times: where sender and receiver share a processor, the other
//! one then runs at once, and neither has to sleep and be woken.
//!
//! *When* it looks matters too. Two cores that pass a cache line to and fro for each message move some three million
//! messages a second; a receiver that lets a few gather moves several times as many. So a receiver that finds nothing
//! in the middle of a stream looks away for half a microsecond. Whether it is one, it knows from how many messages it
//! got since it last waited; in a ping-pong that is always one, and it looks without a pause. A sender that finds no room
//! does the same: its looks would take the line away on which each receive says that there is some.

use crate::lock::SLICE;
use crate::sync::spin_hint;
use crate::sys::clock::{self, Deadline};
use crate::sys::cpu;
use crate::sys::thread::Calm;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How a call on this handle waits for a message or for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// Spins for some microseconds as long as that has paid lately and there is another processor, then sleeps.
    #[default]
    Adaptive,
    /// Gives way to other threads a few times, then sleeps: the least CPU time.
    Blocking,
    /// Spins until the deadline: the least latency, and a processor's whole time.
    Spinning,
}

/// The longest spin, and the first one, in nanoseconds.
const LONGEST: u32 = 50_000;
const FIRST: u32 = 20_000;
/// A spin shorter than this is not worth its while.
const SHORTEST: u32 = 2_000;
/// After spinning has not paid, so many waits do without before it is tried again, and twice as many each time that this
/// does not pay either: threads that share a processor never gain by it.
const PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 1_024;
/// How long it is tried again, in nanoseconds, at least. If waits have followed each other faster than the longest spin, a
/// quarter longer than from one to the next: what comes every 20 µs is met by that, and never by a shorter spin.
const AGAIN: u32 = 5_000;
/// Looks between two readings of the clock.
const LOOKS: u32 = 16;
/// How long a stream's receiver looks away, in nanoseconds: so long for each message that the queue can hold, ...
const GATHER_EACH: u64 = 20;
/// ... and at most so long.
const GATHER: u64 = 500;
/// A stream's sender: the queue is full, and no thread waits for what it sends.
const GATHER_ROOM: u64 = 4_000;
/// In a ping-pong, every so many waits it is tried whether messages gather after all.
const TRIAL: u32 = 64;

/// What a handle remembers of its waits. Private to the process; a race between its threads costs a wrong guess. On lines
/// of its own: a process that waits writes it, and what lies beside it in a handle is read by all processes.
#[derive(Debug)]
#[repr(align(128))]
pub struct Pacing {
    mode: AtomicU32,
    /// How long the next wait spins, in nanoseconds; below [`SHORTEST`]: not at all, and how many more waits not.
    budget: AtomicU32,
    /// How long the next pause is.
    pause: AtomicU32,
    /// When the last wait of a pause began, in nanoseconds of the monotonic clock.
    began: AtomicU64,
    /// Messages received one after another, now and until nothing was found last.
    streak: AtomicU32,
    last_streak: AtomicU32,
    /// 0: let messages gather. Otherwise after how many waits to try it.
    trial: AtomicU32,
    /// The same of room: after how many waits less one.
    room_trial: AtomicU32,
    /// Nanoseconds of a spin that paid, until they are counted: not while its message waits to be received.
    uncounted: AtomicU64,
}

impl Default for Pacing {
    fn default() -> Self {
        Pacing {
            mode: AtomicU32::new(0),
            budget: AtomicU32::new(FIRST),
            pause: AtomicU32::new(PAUSE),
            began: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            last_streak: AtomicU32::new(0),
            trial: AtomicU32::new(TRIAL),
            room_trial: AtomicU32::new(0),
            uncounted: AtomicU64::new(0),
        }
    }
}

// Relaxed throughout: heuristics.
impl Pacing {
    pub fn set(&self, waiting: Waiting) {
        self.mode.store(waiting as u32, Relaxed);
    }

    fn mode(&self) -> Waiting {
        match self.mode.load(Relaxed) {
            _ if cfg!(loom) => Waiting::Blocking,
            1 => Waiting::Blocking,
            2 => Waiting::Spinning,
            _ => Waiting::Adaptive,
        }
    }

    /// Whether waits never sleep.
    pub(crate) fn only_spins(&self) -> bool {
        self.mode() == Waiting::Spinning
    }

    /// How long to spin now, in nanoseconds; 0 for not at all, u32::MAX for until the deadline.
    pub(crate) fn allowance(&self) -> u32 {
        match self.mode() {
            Waiting::Blocking => return 0,
            Waiting::Spinning => return u32::MAX,
            Waiting::Adaptive => {}
        }
        if cpu::available() < 2 {
            return 0;
        }
        match self.budget.load(Relaxed) {
            0 => {
                let since = clock::monotonic().saturating_sub(self.began.load(Relaxed));
                let budget = trial(since);
                self.budget.store(budget, Relaxed);
                budget
            }
            pause if pause < SHORTEST => {
                if pause == 1 {
                    self.began.store(clock::monotonic(), Relaxed);
                }
                self.budget.store(pause - 1, Relaxed);
                0
            }
            budget => budget,
        }
    }

    /// Draws the lesson from a spin of up to `budget` nanoseconds.
    pub(crate) fn learn(&self, budget: u32, paid: bool) {
        let next = match paid {
            true => {
                self.pause.store(PAUSE, Relaxed);
                (budget + budget / 4).min(LONGEST)
            }
            false if budget / 2 < SHORTEST => {
                let pause = self.pause.load(Relaxed);
                self.pause.store((pause * 2).min(LONGEST_PAUSE), Relaxed);
                pause
            }
            false => budget / 2,
        };
        self.budget.store(next, Relaxed);
    }

    /// Keeps the time of a spin that paid for the next wait to count.
    pub(crate) fn count_later(&self, time: u64) {
        self.uncounted.store(time, Relaxed);
    }

    /// What was kept, once.
    pub(crate) fn take_uncounted(&self) -> u64 {
        let time = self.uncounted();
        self.uncounted.store(0, Relaxed);
        time
    }

    /// What was kept.
    pub fn uncounted(&self) -> u64 {
        self.uncounted.load(Relaxed)
    }

    /// Counts a received message; answers how many came before it without a pause.
    #[inline(always)]
    pub fn received(&self) -> u32 {
        let streak = self.streak.load(Relaxed);
        self.streak.store(streak.wrapping_add(1), Relaxed);
        streak
    }

    /// Notes that nothing was found.
    #[inline(always)]
    pub fn found_nothing(&self) {
        let streak = self.streak.load(Relaxed);
        if streak != 0 {
            self.last_streak.store(streak, Relaxed);
            self.streak.store(0, Relaxed);
        }
    }

    /// How long a receiver that found nothing looks away, in nanoseconds.
    pub(crate) fn gathering_time(&self, max_messages: usize) -> u64 {
        let streaming = self.last_streak.load(Relaxed) > 1;
        let gather = match (streaming, self.trial.load(Relaxed)) {
            (true, _) | (false, 1) => 0,
            (false, 0) => TRIAL,
            (false, left) => left - 1,
        };
        self.trial.store(gather, Relaxed);
        if gather == 0 {
            (max_messages as u64 * GATHER_EACH).min(GATHER)
        } else {
            0
        }
    }

    /// How long a sender that found no room looks away, in nanoseconds. What came of it is to be
    /// [learned](Self::learn_of_room).
    pub(crate) fn room_gathering_time(&self, max_messages: usize) -> u64 {
        let left = self.room_trial.load(Relaxed).saturating_sub(1);
        self.room_trial.store(left, Relaxed);
        if left == 0 && cpu::available() > 1 {
            (max_messages as u64 * GATHER_EACH).min(GATHER_ROOM)
        } else {
            0
        }
    }

    /// Draws the lesson from having looked away: whether room has gathered for more than was wanted. If not, the receiver is
    /// slow, or shares a processor with this sender, or other senders took the room.
    pub(crate) fn learn_of_room(&self, has_gathered: bool) {
        self.room_trial
            .store(if has_gathered { 0 } else { TRIAL }, Relaxed);
    }
}

/// How long to spin for a trial, if the wait before began so long ago.
fn trial(since: u64) -> u32 {
    match u32::try_from(since + since / 4) {
        Ok(budget) if budget <= LONGEST => budget.max(AGAIN),
        _ => AGAIN,
    }
}

/// Looks until `ready`, at most `budget` nanoseconds (u32::MAX: a slice, after which an attempt looks for the dead), and not
/// beyond the end of the calm.
pub(crate) fn spin_until(
    budget: u32,
    calm: Calm<'_>,
    deadline: Deadline,
    ready: impl Fn() -> bool,
) -> bool {
    spin_timed(budget, calm, deadline, ready).paid
}

/// What came of a spin.
#[must_use]
pub(crate) struct Spun {
    pub(crate) paid: bool,
    /// How long it took, in nanoseconds, up to its last look at the clock: another, for the looks since, would be at the
    /// expense of a process that has just found what it looked for.
    pub(crate) time: u64,
}

/// As [`spin_until`], and says how long it took.
pub(crate) fn spin_timed(
    budget: u32,
    calm: Calm<'_>,
    deadline: Deadline,
    ready: impl Fn() -> bool,
) -> Spun {
    let time = if budget == u32::MAX {
        SLICE
    } else {
        u64::from(budget)
    };
    let start = clock::monotonic();
    let mut now = start;
    let spun = |paid, now: u64| Spun {
        paid,
        time: now.saturating_sub(start),
    };
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return spun(true, now);
            }
            spin_hint();
        }
        now = clock::monotonic();
        if calm.is_over() || deadline.has_passed() || now.saturating_sub(start) >= time {
            return spun(false, now);
        }
    }
}

/// How often a call gives way before it sleeps.
const YIELDS: u32 = 4;

/// Lets others run on this processor, and looks after each turn whether that was of use.
pub(crate) fn give_way(ready: impl Fn() -> bool) -> bool {
    // The threads of a model sleep at once: there is nothing to be gained, and loom would let them look for ever.
    let yields = if cfg!(loom) { 0 } else { YIELDS };
    (0..yields).any(|_| {
        cpu::give_way();
        ready()
    })
}

/// Looks at nothing that others write, for so many nanoseconds.
pub(crate) fn look_away(time: u64) {
    if time == 0 {
        return;
    }
    let end = clock::monotonic().saturating_add(time);
    while clock::monotonic() < end {
        spin_hint();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_trial_spins_longer_than_waits_are_apart_if_that_is_not_too_long() {
        assert_eq!([0, 3_000].map(trial), [AGAIN; 2]);
        assert_eq!([20_000, 40_000].map(trial), [25_000, 50_000]);
        assert_eq!([40_001 * 4, 1_000_000, u64::MAX / 2].map(trial), [AGAIN; 3]);
    }

    #[test]
    fn a_sender_lets_room_gather_as_long_as_that_pays_then_now_and_then() {
        if cpu::available() < 2 {
            return; // Nobody makes room meanwhile.
        }
        let pacing = Pacing::default();
        let wait = |pays| {
            let time = pacing.room_gathering_time(1_000);
            if time != 0 {
                pacing.learn_of_room(pays);
            }
            time
        };
        assert_eq!([true, true, false].map(wait), [GATHER_ROOM; 3]);
        let in_vain = (0..2 * TRIAL).filter(|_| wait(false) != 0).count();
        assert_eq!(in_vain, 2);
        assert!((0..TRIAL).any(|_| wait(true) != 0));
        assert_eq!(wait(true), GATHER_ROOM);
        assert_eq!(pacing.room_gathering_time(10), 10 * GATHER_EACH);
    }

    #[test]
    fn spins_in_vain_become_shorter_then_rare_and_one_that_pays_brings_them_back() {
        if cpu::available() < 2 {
            return; // Nobody spins.
        }
        let pacing = Pacing::default();
        let mut budgets = Vec::new();
        // Each pause is twice as long as the one before.
        for pause in [PAUSE, 2 * PAUSE] {
            loop {
                let budget = pacing.allowance();
                if budget == 0 {
                    break;
                }
                budgets.push(budget);
                pacing.learn(budget, false);
            }
            for _ in 1..pause {
                assert_eq!(pacing.allowance(), 0);
            }
        }
        assert_eq!(budgets[..4], [FIRST, FIRST / 2, FIRST / 4, FIRST / 8]);
        let budget = pacing.allowance();
        assert!((AGAIN..=LONGEST).contains(&budget), "{budget}");
        pacing.learn(budget, true);
        assert!(pacing.allowance() > budget.min(LONGEST - 1));
    }
}
