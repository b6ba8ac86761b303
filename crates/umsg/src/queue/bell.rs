//! The bell: how the one receiver of a ring is woken once, when as many messages are there as it asked for.
//!
//! | bell | state | who may leave it | if that one dies |
//! |---|---|---|---|
//! | `turn << 2` | silent | the receiver: armed | - |
//! | `turn << 2 \| ARMED` | the receiver sleeps on the word, or is about to | a sender that reaches the threshold: silent, and wakes. The receiver: silent | a sender that died before it woke: the receiver's next slice |
//! | `turn << 2 \| POLLED` | somebody polls the ring's descriptor | a sender that reaches the threshold: silent, and makes the descriptor readable. The receiver: silent | the same, at the receiver's next look |
//!
//! Each arming is another turn: a sender that has looked at an old one can't ring the new one too early.

use super::{Engine, Refused};
use crate::counters::Event;
use crate::lock::SLICE;
use crate::pacing::{give_way, look_away, spin_timed};
use crate::slots::Ring;
use crate::sync::{Ordering, fence};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::{self, Slept};
use crate::sys::thread::{Calm, Thread};

const ARMED: u32 = 1;
const POLLED: u32 = 2;
/// One more turn.
const TURN: u32 = 4;
/// Somebody waits for the bell.
pub(super) const RUNG_BY_SENDERS: u32 = ARMED | POLLED;

impl Engine {
    /// Messages that can be received now.
    pub(crate) fn available(&self) -> u64 {
        let fixed = self.segment().fixed();
        // Acquire, in this order: what counts as received at least is.
        let stored = fixed.receiver.stored.load(Ordering::Acquire);
        let drained = fixed.receiver.drained.load(Ordering::Acquire);
        let sent = fixed.sender.sent.load(Ordering::Acquire);
        (sent.wrapping_sub(drained) as i64).max(0) as u64 + stored
    }

    /// Messages that the one receiver of a ring has last seen to be there, less those that it has received. It reads nothing that
    /// senders write.
    pub(crate) fn known(&self) -> u64 {
        let receiver = &self.segment().fixed().receiver;
        // Relaxed: this thread's own.
        let stored = receiver.stored.load(Ordering::Relaxed);
        let drained = receiver.drained.load(Ordering::Relaxed);
        let ahead = receiver.sent_seen.get().wrapping_sub(drained) as i64;
        stored + ahead.max(0) as u64
    }

    /// Waits until so many messages are there. Only the one receiver of a ring may.
    pub(crate) fn wait_for_messages(
        &self,
        me: &Thread,
        count: u64,
        calm: Calm<'_>,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        if self.has(count) {
            return Ok(());
        }
        if deadline.has_passed() {
            return Err(Refused::NotNow.by(deadline));
        }
        if self.spin_for_messages(count, calm, deadline) {
            return Ok(());
        }
        self.segment().fixed().counters.count(Event::ReceiveBlocked);
        loop {
            let Some(armed) = self.arm(count, ARMED) else {
                return Ok(());
            };
            match self.sleep_on_bell(armed, calm, deadline) {
                Slept::Interrupted => return self.give_up_waiting(count, Refused::Interrupted),
                Slept::TimedOut if deadline.has_passed() => {
                    return self.give_up_waiting(count, Refused::TimedOut);
                }
                // A sender may have died before it counted its message, or before it rang.
                Slept::TimedOut => {
                    self.mend(me);
                    self.mend_senders_side(me);
                }
                Slept::Awake => {}
            }
        }
    }

    /// Sleeps for a slice, and counts for how long.
    fn sleep_on_bell(&self, armed: u32, calm: Calm<'_>, deadline: Deadline) -> Slept {
        let fixed = self.segment().fixed();
        let start = clock::monotonic();
        let slept = futex::wait_in_calm(&fixed.board.bell, armed, calm, deadline.or_slice(SLICE));
        let time = clock::monotonic().saturating_sub(start);
        fixed.counters.add(Event::Asleep, time);
        slept
    }

    /// Counts what a sender that died had sent: until the next send nobody else does.
    fn mend_senders_side(&self, me: &Thread) {
        if self.segment().fixed().sender.lock.is_orphaned()
            && let Ok(held) = self.lock_sender(me, Deadline::Passed)
        {
            held.unlock();
        }
    }

    /// The last look of a wait: a message that came is better than an error.
    fn give_up_waiting(&self, count: u64, refused: Refused) -> Result<(), Refused> {
        self.silence();
        match self.has(count) {
            true => Ok(()),
            false => Err(refused),
        }
    }

    fn spin_for_messages(&self, count: u64, calm: Calm<'_>, deadline: Deadline) -> bool {
        let ready = || self.seems_to_have(count);
        let budget = self.pacing.allowance();
        let counters = &self.segment().fixed().counters;
        let mut paid = false;
        if budget != 0 {
            // In the midst of a stream it lets messages gather: see `pacing`. One that only spins wants the next at once.
            let gathering = match count == 1 && budget != u32::MAX {
                true => self.gathering_time(),
                false => 0,
            };
            counters.add(Event::Spun, self.pacing.take_uncounted() + gathering);
            look_away(gathering);
            let spun = spin_timed(budget, calm, deadline, ready);
            paid = spun.paid;
            match paid {
                true => self.pacing.count_later(spun.time),
                false => counters.add(Event::Spun, spun.time),
            }
            if budget != u32::MAX {
                self.pacing.learn(budget, paid);
            }
            if paid {
                counters.count(Event::SpinPaid);
            }
        }
        (paid || give_way(ready)) && self.has(count)
    }

    fn gathering_time(&self) -> u64 {
        let max = self.segment().layout().max_messages;
        self.pacing.gathering_time(max)
    }

    /// Whether so many messages can be received. For one message it does not look at what senders write for each.
    #[inline]
    fn has(&self, count: u64) -> bool {
        // The later messages of a batch are stamped before its first one, with which they all are sent.
        self.seems_to_have(count) && (count <= 1 || self.available() >= count)
    }

    /// Whether the last of so many messages is there. It looks at that message's cell alone, which nobody writes before.
    #[inline(always)]
    fn seems_to_have(&self, count: u64) -> bool {
        let receiver = &self.segment().fixed().receiver;
        // Relaxed: this thread's own.
        let stored = receiver.stored.load(Ordering::Relaxed);
        let Some(ahead) = count.checked_sub(stored + 1) else {
            return true;
        };
        let last = receiver.drained.load(Ordering::Relaxed).wrapping_add(ahead);
        !matches!(Ring::of(self.segment()).published(last), Ok(None))
    }

    /// Arms the bell. None if so many messages are there already.
    fn arm(&self, count: u64, how: u32) -> Option<u32> {
        let fixed = self.segment().fixed();
        let board = &fixed.board;
        // Relaxed: this thread's own.
        let stored = fixed.receiver.stored.load(Ordering::Relaxed);
        let drained = fixed.receiver.drained.load(Ordering::Relaxed);
        let threshold = drained.wrapping_add(count.saturating_sub(stored));
        board.threshold.store(threshold, Ordering::Relaxed);
        let turn = board.bell.load(Ordering::Relaxed) & !(TURN - 1);
        let armed = turn.wrapping_add(TURN) | how;
        // Release: a sender that sees the turn sees its threshold.
        board.bell.store(armed, Ordering::Release);
        // ATTENTION: the bell, then `sent`; pairs with the barrier between a send and its look at the board.
        fence(Ordering::SeqCst);
        if self.available() >= count {
            self.silence();
            return None;
        }
        Some(armed)
    }

    /// Arms the bell for the descriptor: it is made readable with the next message. False if there are some already.
    pub(crate) fn arm_for_polling(&self) -> bool {
        self.arm(1, POLLED).is_some()
    }

    /// Silences the bell.
    fn silence(&self) {
        self.segment()
            .fixed()
            .board
            .bell
            .fetch_and(!(TURN - 1), Ordering::Relaxed);
    }

    /// Rings if as many messages are there as the receiver asked for. By a sender, after its message was counted.
    #[cold]
    pub(super) fn ring_bell(&self) {
        let fixed = self.segment().fixed();
        let board = &fixed.board;
        // Acquire: the threshold of this turn.
        let bell = board.bell.load(Ordering::Acquire);
        if bell & (TURN - 1) == 0 {
            return;
        }
        let threshold = board.threshold.load(Ordering::Relaxed);
        let sent = fixed.sender.sent.load(Ordering::Acquire);
        if (sent.wrapping_sub(threshold) as i64) < 0 {
            return;
        }
        let silent = bell & !(TURN - 1);
        // Of many senders that reach the threshold one rings.
        if board
            .bell
            .compare_exchange(bell, silent, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        if bell & ARMED != 0 {
            futex::wake(&board.bell, 1);
        } else if let Some(rope) = &self.rope {
            rope.pull();
        }
    }
}

/// How a sender makes the receiver's descriptor readable.
pub(crate) struct Rope(Box<dyn Fn() + Send + Sync>);

impl Rope {
    pub(crate) fn new(pull: impl Fn() + Send + Sync + 'static) -> Rope {
        Rope(Box::new(pull))
    }

    fn pull(&self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Rope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rope").finish_non_exhaustive()
    }
}
