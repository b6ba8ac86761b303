//! Pacing: how long a call spins before it sleeps.
//!
//! A sleep costs the waker more than a microsecond, and the sleeper several microseconds. Therefore a call that finds no message or no room spins for
//! some microseconds, as long as recent spins were successful. Each successful spin lengthens the next spin, and each unsuccessful spin halves the
//! next spin. After a few unsuccessful spins, the next waits do not spin. On a single processor, only a handle with [`Waiting::Spinning`] spins.
//! Before a call sleeps, it yields the processor a few times: see [`yielding`](super::yielding).
//!
//! The pauses between reads matter, too. Two cores that exchange a cache line for each message move about three million messages a second. A receiver
//! that lets a few messages gather moves several times as many. In a *stream*, the receiver gets several messages between two waits. A receiver that
//! finds no message in a stream reads nothing for half a microsecond. In a ping-pong, the receiver gets one message between two waits, and reads
//! without a pause. A sender that finds no room pauses, too: its reads would take away the cache line on which each receive announces room.

use super::yielding::Yielding;
use crate::lock::SLICE;
use crate::sync::spin_hint;
use crate::sys::clock::{self, Deadline};
use crate::sys::cpu;
use crate::sys::thread::Calm;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The way in which calls on a handle wait for a message or for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// Spins for some microseconds if recent spins were successful and the machine has another processor, then sleeps.
    #[default]
    Adaptive,
    /// Yields the processor a few times, then sleeps. This choice takes the least CPU time.
    Blocking,
    /// Spins until the deadline. This choice has the least latency, and takes a whole processor.
    Spinning,
}

/// The longest spin, in nanoseconds.
pub(crate) const LONGEST: u32 = 50_000;
/// The first spin of a handle, in nanoseconds.
const FIRST: u32 = 20_000;
/// The shortest useful spin, in nanoseconds.
const SHORTEST: u32 = 2_000;
/// The number of waits without a spin after unsuccessful spins. Then a trial spin follows. The number doubles after each unsuccessful trial, because
/// threads that share a processor never gain by spinning.
const PAUSE: u32 = 64;
/// The largest number of waits without a spin before the next trial spin.
const LONGEST_PAUSE: u32 = 1_024;
/// The shortest trial spin, in nanoseconds. If the time between waits is shorter than the longest spin, the trial lasts a quarter longer than that
/// time: a shorter spin would miss messages that come every 20 µs.
const AGAIN: u32 = 5_000;
/// The number of reads between two readings of the clock.
const LOOKS: u32 = 16;
/// The pause of a stream's receiver, in nanoseconds, for each message that the queue can hold.
const GATHER_EACH: u64 = 20;
/// The longest pause of a stream's receiver, in nanoseconds.
const GATHER: u64 = 500;
/// The longest pause of a stream's sender, in nanoseconds. The queue is full during the pause, so no receiver waits for a message of this sender.
const GATHER_ROOM: u64 = 4_000;
/// In a ping-pong: the number of waits between two trials of a pause.
const TRIAL: u32 = 64;

/// The history of waits of a handle. The history is private to the process; a race between threads costs a wrong guess. It has its own cache lines,
/// because waits write it, and all threads read the neighbouring fields.
#[derive(Debug)]
#[repr(align(128))]
pub struct Pacing {
    mode: AtomicU32,
    /// The length of the next spin, in nanoseconds. A value below [`SHORTEST`] is not a length: it counts down the waits without a spin.
    budget: AtomicU32,
    /// The number of waits without a spin that follow after unsuccessful spins.
    pause: AtomicU32,
    /// The start of the last wait without a spin, in nanoseconds of the monotonic clock.
    began: AtomicU64,
    /// The length of the current run: the number of messages received since a call last found no message.
    streak: AtomicU32,
    /// The length of the previous run, which ended when a call found no message.
    last_streak: AtomicU32,
    /// 0 if the receiver's last wait paused. Otherwise a countdown of waits: the wait that finds 1 tries a pause.
    trial: AtomicU32,
    /// A countdown of waits of a sender that finds no room: a wait that finds 0 or 1 pauses.
    room_trial: AtomicU32,
    /// The length of a successful spin, in nanoseconds, while it is not yet counted: counting it at once would delay the receive of the message.
    uncounted: AtomicU64,
    yielding: Yielding,
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
            yielding: Yielding::default(),
        }
    }
}

// All accesses are Relaxed: the values are heuristics.
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

    /// Returns whether waits on this handle never sleep.
    pub(crate) fn only_spins(&self) -> bool {
        self.mode() == Waiting::Spinning
    }

    /// Returns the length of the next spin, in nanoseconds; 0 for no spin, u32::MAX for a spin until the deadline.
    pub(crate) fn allowance(&self) -> u32 {
        match self.mode() {
            Waiting::Blocking => return 0,
            Waiting::Spinning => return u32::MAX,
            Waiting::Adaptive => {}
        }
        if !cpu::are_several() {
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

    /// Adapts the next spin to the result of a spin of up to `budget` nanoseconds; `paid` says whether that spin was successful.
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

    /// Keeps the length of a successful spin, so that the next wait counts it.
    pub(crate) fn count_later(&self, time: u64) {
        self.uncounted.store(time, Relaxed);
    }

    /// Returns the length of a spin that [`count_later`](Self::count_later) has kept, and clears it.
    pub(crate) fn take_uncounted(&self) -> u64 {
        let time = self.uncounted();
        self.uncounted.store(0, Relaxed);
        time
    }

    /// Returns the length of a spin that [`take_uncounted`](Self::take_uncounted) would return.
    pub fn uncounted(&self) -> u64 {
        self.uncounted.load(Relaxed)
    }

    /// Yields the processor a few times before a sleep, except if other threads take the processor for a long time. Returns whether `ready` returned
    /// true.
    pub(crate) fn give_way(&self, ready: impl Fn() -> bool) -> bool {
        self.yielding.give_way(ready)
    }

    /// Yields as [`give_way`](Self::give_way) does, for a sender that waits for room, and learns whether the receiver shares the sender's processor.
    pub(crate) fn give_way_for_room(&self, ready: impl Fn() -> bool) -> bool {
        self.yielding.give_way_and_learn(ready)
    }

    /// Yields for a thread whose node is in its list, if sender and receiver share the processor. Returns whether `settled` returned true.
    pub(crate) fn give_way_enlisted(&self, settled: impl Fn() -> bool) -> bool {
        self.yielding.give_way_enlisted(settled)
    }

    /// Returns whether sender and receiver seem to share the processor. If so, a sender adds its node to the list before it yields, and does not
    /// spin.
    pub(crate) fn is_shared(&self) -> bool {
        self.yielding.is_shared()
    }

    /// Counts a received message, and returns the number of messages that came before it without a wait.
    #[inline(always)]
    pub fn received(&self) -> u32 {
        let streak = self.streak.load(Relaxed);
        self.streak.store(streak.wrapping_add(1), Relaxed);
        streak
    }

    /// Records that a call found no message.
    #[inline(always)]
    pub fn found_nothing(&self) {
        let streak = self.streak.load(Relaxed);
        if streak != 0 {
            self.last_streak.store(streak, Relaxed);
            self.streak.store(0, Relaxed);
        }
    }

    /// Returns the pause of a receiver that found no message, in nanoseconds.
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

    /// Returns the pause of a sender that found no room, in nanoseconds. The caller reports the result with [`learn_of_room`](Self::learn_of_room).
    pub(crate) fn room_gathering_time(&self, max_messages: usize) -> u64 {
        let left = self.room_trial.load(Relaxed).saturating_sub(1);
        self.room_trial.store(left, Relaxed);
        if left == 0 && cpu::are_several() {
            (max_messages as u64 * GATHER_EACH).min(GATHER_ROOM)
        } else {
            0
        }
    }

    /// Adapts the next pause to the result of the last pause. `has_gathered` says whether room for more than one message has become free. If not, the
    /// receiver is slow or shares a processor with this sender, or other senders took the room.
    pub(crate) fn learn_of_room(&self, has_gathered: bool) {
        self.room_trial
            .store(if has_gathered { 0 } else { TRIAL }, Relaxed);
    }
}

/// Returns the length of a trial spin, from the time since the start of the previous wait.
fn trial(since: u64) -> u32 {
    match u32::try_from(since + since / 4) {
        Ok(budget) if budget <= LONGEST => budget.max(AGAIN),
        _ => AGAIN,
    }
}

/// Spins until `ready` returns true, for at most `budget` nanoseconds, and only as long as no handler interrupts the call (`calm`). A budget of
/// u32::MAX means a slice, after which the caller attempts again and checks for dead processes.
pub(crate) fn spin_until(
    budget: u32,
    calm: Calm<'_>,
    deadline: Deadline,
    ready: impl Fn() -> bool,
) -> bool {
    spin_timed(budget, calm, deadline, ready).paid
}

/// The result of a spin.
#[must_use]
pub(crate) struct Spun {
    pub(crate) paid: bool,
    /// The length of the spin, in nanoseconds, up to its last reading of the clock. The clock is not read at the end, because this reading would
    /// delay a successful spin.
    pub(crate) time: u64,
}

/// Spins like [`spin_until`], and also returns the length of the spin.
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

/// Reads no shared memory for `time` nanoseconds.
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
        if !cpu::are_several() {
            return; // No thread makes room meanwhile.
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
        if !cpu::are_several() {
            return; // No thread spins.
        }
        let pacing = Pacing::default();
        let mut budgets = Vec::new();
        // Each pause is twice as long as the previous one.
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
