//! The wake word: how the one receiver of a ring is woken once, when as many messages are there as it asked for.
//!
//! | wake word | state | may leave it | if that one dies |
//! |---|---|---|---|
//! | `turn << 2` | silent | the receiver: armed | - |
//! | `turn << 2 \| ARMED` | the receiver sleeps on the word, or is about to | a sender that reaches the threshold: silent, and wakes. The receiver: silent | a sender that died before it woke: the receiver's next slice |
//! | `turn << 2 \| POLLED` | a process polls the ring's descriptor | a sender that reaches the threshold: makes the descriptor readable, then silent. The receiver: silent | before the descriptor is readable: the next sender rings, the wake word is still armed |
//!
//! Each arming is another turn: a sender that has looked at an old one can't ring the new one too early. A sleeper looks up after
//! each slice, a poller does not: so the one is woken after the wake word was silenced, once however many senders there are, and the
//! other's descriptor is made readable before, at times by two.

use super::{Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::lock::SLICE;
use crate::posix_engine::segment::{ARMED, POLLED, Ring};
use crate::sync::{Ordering, fence};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::{self, Slept};
use crate::sys::thread::{Calm, Thread};
use crate::waiters::pacing::{give_way, look_away, spin_timed};

impl Engine {
    /// Messages that can be received now. While others move messages to the store it may count one twice.
    pub fn available(&self) -> u64 {
        let (stored, ahead) = self.stored_and_ahead();
        stored.saturating_add(ahead)
    }

    /// Messages in the store, and in the ring.
    fn stored_and_ahead(&self) -> (u64, u64) {
        let fixed = self.segment().fixed();
        // In this order: what counts as received at least is.
        let stored = fixed.receiver.stored_so_far();
        let drained = fixed.receiver.drained_so_far();
        let sent = fixed.sender.sent();
        // A receiver may be ahead of a sender that has stamped its message and not moved the cursor.
        (stored, (sent.wrapping_sub(drained) as i64).max(0) as u64)
    }

    /// Messages that the one receiver of a ring has last seen to be there, less those that it has received. It reads nothing that
    /// senders write.
    pub fn known(&self) -> u64 {
        let receiver = &self.segment().fixed().receiver;
        let stored = receiver.stored_hint();
        let ahead = receiver.known_sent(receiver.drained_hint());
        stored.saturating_add(ahead.max(0) as u64)
    }

    /// Waits until so many messages are there. Only the one receiver of a ring may.
    pub fn wait_for_messages(
        &self,
        me: &Thread,
        count: u64,
        calm: Calm<'_>,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        if self.has(me, count) {
            return Ok(());
        }
        if deadline.has_passed() {
            return Err(Refused::NotNow.by(deadline));
        }
        while !self.spin_for_messages(me, count, calm, deadline) {
            if !self.pacing.only_spins() {
                return self.sleep_for_messages(me, count, calm, deadline);
            }
            if calm.is_over() {
                return self.give_up_waiting(me, count, Refused::Interrupted);
            }
            if deadline.has_passed() {
                return self.give_up_waiting(me, count, Refused::TimedOut);
            }
            self.look_for_the_dead(me);
        }
        Ok(())
    }

    fn sleep_for_messages(
        &self,
        me: &Thread,
        count: u64,
        calm: Calm<'_>,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        self.segment().fixed().counters.count(Event::ReceiveBlocked);
        loop {
            let Some(armed) = self.arm(me, count, ARMED) else {
                return Ok(());
            };
            crash_point!(RING_ARMED);
            match self.sleep_on_wake_word(armed, calm, deadline) {
                Slept::Interrupted => return self.give_up_waiting(me, count, Refused::Interrupted),
                Slept::TimedOut if deadline.has_passed() => {
                    return self.give_up_waiting(me, count, Refused::TimedOut);
                }
                Slept::TimedOut => self.look_for_the_dead(me),
                // A peer that scribbles can ring for ever.
                Slept::Awake if deadline.has_passed() => {
                    return self.give_up_waiting(me, count, Refused::TimedOut);
                }
                Slept::Awake => {}
            }
        }
    }

    /// Sleeps for a slice, and counts for how long.
    fn sleep_on_wake_word(&self, armed: u32, calm: Calm<'_>, deadline: Deadline) -> Slept {
        let fixed = self.segment().fixed();
        let start = clock::monotonic();
        let slept = futex::wait_in_calm(
            fixed.wait_flags.futex(),
            armed,
            calm,
            deadline.or_slice(SLICE),
        );
        let time = clock::monotonic().saturating_sub(start);
        fixed.counters.add(Event::Asleep, time);
        slept
    }

    /// At the end of a slice: a sender may have died before it counted its message, or before it rang.
    fn look_for_the_dead(&self, me: &Thread) {
        self.mend(me);
        self.mend_senders_side(me);
    }

    /// Counts what a sender that died had sent: until the next send no other process does.
    fn mend_senders_side(&self, me: &Thread) {
        if self.segment().fixed().sender.lock.is_orphaned()
            && let Ok(held) = self.lock_sender(me, Deadline::Passed)
        {
            held.unlock();
        }
    }

    /// The last look of a wait: a message that came is better than an error.
    fn give_up_waiting(&self, me: &Thread, count: u64, refused: Refused) -> Result<(), Refused> {
        self.silence();
        match self.has(me, count) {
            true => Ok(()),
            false => Err(refused),
        }
    }

    fn spin_for_messages(
        &self,
        me: &Thread,
        count: u64,
        calm: Calm<'_>,
        deadline: Deadline,
    ) -> bool {
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
        (paid || give_way(ready)) && self.has(me, count)
    }

    fn gathering_time(&self) -> u64 {
        let max = self.segment().layout().max_messages;
        self.pacing.gathering_time(max)
    }

    /// Whether so many messages can be received. For one message it does not look at what senders write for each.
    #[inline]
    fn has(&self, me: &Thread, count: u64) -> bool {
        // The later messages of a batch are stamped before its first one, with which they all are sent.
        self.seems_to_have(count) && (count <= 1 || self.holds(me, count))
    }

    /// Whether so many messages are there, by the cursors. With some in the store it looks under the lock: a sender that gives
    /// others room may be moving messages there, and one may seem to be in both places.
    fn holds(&self, me: &Thread, count: u64) -> bool {
        let (stored, ahead) = self.stored_and_ahead();
        let seems_to = stored.saturating_add(ahead) >= count;
        if !seems_to || stored == 0 || count <= 1 {
            return seems_to;
        }
        self.with_receiver_lock(me, Deadline::Passed, |_, _| Ok(self.available() >= count))
            .unwrap_or(false)
    }

    /// Whether the last of so many messages is there. It looks at that message's cell alone, which no process writes before.
    #[inline(always)]
    fn seems_to_have(&self, count: u64) -> bool {
        let receiver = &self.segment().fixed().receiver;
        // Relaxed: this thread's own, or that of a sender that makes room: then the look behind the fence of `arm` decides.
        let stored = receiver.stored_hint();
        let Some(ahead) = count.checked_sub(stored.saturating_add(1)) else {
            return true;
        };
        let last = receiver.drained_hint().wrapping_add(ahead);
        !matches!(Ring::of(self.segment()).published(last), Ok(None))
    }

    /// Arms the wake word. None if so many messages are there already.
    fn arm(&self, me: &Thread, count: u64, how: u32) -> Option<u32> {
        let fixed = self.segment().fixed();
        let wait_flags = &fixed.wait_flags;
        // Relaxed: this thread's own, or that of a sender that makes room: that rings whatever the threshold.
        let stored = fixed.receiver.stored_hint();
        let drained = fixed.receiver.drained_hint();
        let threshold = drained.wrapping_add(count.saturating_sub(stored));
        let armed = wait_flags.arm(threshold, how);
        // ATTENTION: the wake word, then `sent`; pairs with the barrier between a send and its look at the wait flags.
        fence(Ordering::SeqCst);
        if self.holds(me, count) {
            self.silence();
            return None;
        }
        Some(armed)
    }

    /// Arms the wake word for the descriptor: it is made readable with the next message. False if there are some already.
    pub fn arm_for_polling(&self, me: &Thread) -> bool {
        let is_armed = self.arm(me, 1, POLLED).is_some();
        crash_point!(RING_ARMED);
        is_armed
    }

    /// Silences the wake word. By the receiver, which looks for messages itself.
    fn silence(&self) {
        self.segment().fixed().wait_flags.silence();
    }

    /// Rings if a thread waits for the wake word. By a sender, after its message was counted and the lock dropped.
    #[inline(always)]
    pub(super) fn ring_if_asked(&self) {
        if self.segment().fixed().wait_flags.seems_armed() {
            self.ring_when_due();
        }
    }

    /// Rings if as many messages are there as the receiver asked for.
    #[cold]
    fn ring_when_due(&self) {
        let fixed = self.segment().fixed();
        let wait_flags = &fixed.wait_flags;
        let wake_word = wait_flags.wake_word();
        let threshold = wait_flags.threshold();
        let sent = fixed.sender.sent();
        if sent.wrapping_sub(threshold) as i64 >= 0 {
            self.ring(wake_word);
        }
    }

    /// Rings whatever the threshold, if a thread waits for the wake word. By a thread that has changed what is there otherwise than by sending:
    /// a message was let in that had waited for room, or the dead were mended. The receiver counts for itself.
    #[cold]
    pub(super) fn ring_anyway(&self) {
        // The change was made under the lock under which the receiver looks.
        self.ring(self.segment().fixed().wait_flags.wake_word());
    }

    /// Rings, unless another process has, or the receiver has armed the wake word anew.
    fn ring(&self, wake_word: u32) {
        if wake_word & (ARMED | POLLED) == 0 {
            return;
        }
        crash_point!(RING_DUE);
        if wake_word & ARMED == 0 {
            if !self.notify() {
                // The wake word stays armed: the next sender rings.
                return;
            }
            crash_point!(RING_PULLED);
        }
        let wait_flags = &self.segment().fixed().wait_flags;
        // Of many senders that reach the threshold, one wakes the receiver.
        if wait_flags.take_ring(wake_word) && wake_word & ARMED != 0 {
            crash_point!(RING_SILENCED);
            futex::wake(wait_flags.futex(), 1);
        }
    }

    /// How often the wake word was armed.
    #[cfg(any(test, feature = "testing"))]
    pub fn turns(&self) -> u32 {
        self.segment().fixed().wait_flags.turns()
    }

    /// A process without a notifier, as in a repair of the ring's file, leaves it to others.
    fn notify(&self) -> bool {
        self.notifier.as_ref().is_some_and(Notifier::pull)
    }
}

/// How a sender makes the receiver's descriptor readable.
pub struct Notifier(Box<dyn Fn() -> bool + Send + Sync>);

impl Notifier {
    /// `pull` answers false if it could not do so.
    pub fn new(pull: impl Fn() -> bool + Send + Sync + 'static) -> Notifier {
        Notifier(Box::new(pull))
    }

    fn pull(&self) -> bool {
        (self.0)()
    }
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}
