//! The wake word of a ring: it makes senders wake the ring's only receiver once, when the number of messages for which the receiver waits has
//! arrived.
//!
//! | wake word | state | may change it | if that thread dies |
//! |---|---|---|---|
//! | `turn << 2` | silent | the receiver: armed | - |
//! | `turn << 2 \| ARMED` | the receiver sleeps on the word, or is about to | a sender that reaches the threshold: silent, and wakes. The receiver: silent | if a sender dies before the wake-up, the receiver checks the ring at the end of its slice |
//! | `turn << 2 \| POLLED` | a process polls the ring's descriptor | a sender that reaches the threshold: makes the descriptor readable, then silent. The receiver: silent | if a sender dies before the descriptor is readable, the wake word is still armed, and the next sender rings |
//!
//! Each arming begins another turn, and each turn has another number in the word. So a sender that has read an old word can't ring too early in the
//! new turn.
//!
//! A sleeping receiver checks for messages at the end of each slice; a poller does not. Therefore the order of the steps differs. For a sleeping
//! receiver, a sender silences the word before the wake-up, so only one of many senders wakes the receiver. For a poller, a sender makes the
//! descriptor readable before it silences the word, so two senders may make the descriptor readable at the same time.

use super::{Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::lock::SLICE;
use crate::posix_engine::segment::{ARMED, POLLED, Ring};
use crate::sync::{Ordering, fence};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::{self, Slept};
use crate::sys::thread::{Calm, Thread};
use crate::waiters::pacing::{look_away, spin_timed};

impl Engine {
    /// Returns the number of messages that can be received now. If another thread is moving a message into the store, the message may count twice.
    pub fn available(&self) -> u64 {
        let (stored, ahead) = self.stored_and_ahead();
        stored.saturating_add(ahead)
    }

    /// Returns the number of messages in the store, and the number of messages in the ring.
    fn stored_and_ahead(&self) -> (u64, u64) {
        let fixed = self.segment().fixed();
        // `drained` is read before `sent`, so all messages that count as received also count as sent.
        let stored = fixed.receiver.stored_so_far();
        let drained = fixed.receiver.drained_so_far();
        let sent = fixed.sender.sent();
        // If a sender has stamped its message and not moved the cursor yet, a receiver may be ahead of this cursor.
        (stored, (sent.wrapping_sub(drained) as i64).max(0) as u64)
    }

    /// Returns the number of messages that the receiver of a ring saw at its last check and has not received yet. The function does not read words
    /// that senders write.
    pub fn known(&self) -> u64 {
        let receiver = &self.segment().fixed().receiver;
        let stored = receiver.stored_hint();
        let ahead = receiver.known_sent(receiver.drained_hint());
        stored.saturating_add(ahead.max(0) as u64)
    }

    /// Waits until `count` messages can be received. Only the receiver of a ring may call this function.
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
        while !self.spin_for_messages(me, count, (calm, deadline)) {
            if !self.pacing.only_spins() {
                return self.sleep_for_messages(me, count, (calm, deadline));
            }
            if calm.is_over() {
                return self.give_up_waiting(me, count, Refused::Interrupted);
            }
            if deadline.has_passed() {
                return self.give_up_waiting(me, count, Refused::TimedOut);
            }
            self.repair_sides(me);
        }
        Ok(())
    }

    fn sleep_for_messages(
        &self,
        me: &Thread,
        count: u64,
        (calm, deadline): (Calm<'_>, Deadline),
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
                Slept::TimedOut => self.repair_sides(me),
                // The deadline is also checked after a wake-up, because a hostile peer can ring for ever.
                Slept::Awake if deadline.has_passed() => {
                    return self.give_up_waiting(me, count, Refused::TimedOut);
                }
                Slept::Awake => {}
            }
        }
    }

    /// Sleeps on the wake word for a slice, and adds the length of the sleep to the counter `Event::Asleep`.
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

    /// Repairs both sides at the end of a slice: a sender may have died before it counted its message, or before it woke this thread.
    fn repair_sides(&self, me: &Thread) {
        self.repair_receivers(me);
        self.repair_sender_side(me);
    }

    /// Counts the message of a sender that died after the store to the stamp. If no other process sends, only this thread can make this repair.
    fn repair_sender_side(&self, me: &Thread) {
        if self.segment().fixed().sender.lock.is_orphaned()
            && let Ok(held) = self.lock_sender(me, Deadline::Passed)
        {
            held.unlock();
        }
    }

    /// Ends a wait. If enough messages arrived meanwhile, the call succeeds.
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
        (calm, deadline): (Calm<'_>, Deadline),
    ) -> bool {
        let ready = || self.seems_to_have(count);
        let budget = self.pacing.allowance();
        let counters = &self.segment().fixed().counters;
        let mut paid = false;
        if budget != 0 {
            // In a stream, the receiver lets some messages arrive first: see `pacing`. A handle that only spins never pauses, because it has to get
            // the next message at once.
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
        (paid || self.pacing.give_way(ready)) && self.has(me, count)
    }

    fn gathering_time(&self) -> u64 {
        let max = self.segment().layout().max_messages;
        self.pacing.gathering_time(max)
    }

    /// Returns whether `count` messages can be received. For one message, the function does not read words that every send writes.
    #[inline]
    fn has(&self, me: &Thread, count: u64) -> bool {
        // The later messages of a batch get their stamps before the first message. Only the stamp of the first message sends them.
        self.seems_to_have(count) && (count <= 1 || self.holds(me, count))
    }

    /// Returns whether `count` messages can be received, by the cursors. If the store has messages, checks under the lock: a sender that makes room
    /// may be moving messages into the store, and a moving message would count twice.
    fn holds(&self, me: &Thread, count: u64) -> bool {
        let (stored, ahead) = self.stored_and_ahead();
        let seems_to = stored.saturating_add(ahead) >= count;
        if !seems_to || stored == 0 || count <= 1 {
            return seems_to;
        }
        self.with_receiver_lock(me, Deadline::Passed, |_, _| Ok(self.available() >= count))
            .unwrap_or(false)
    }

    /// Returns whether the last of `count` messages seems to have its stamp. The function reads only the cell of the last message. No process writes
    /// this cell before the message is sent.
    #[inline(always)]
    fn seems_to_have(&self, count: u64) -> bool {
        let receiver = &self.segment().fixed().receiver;
        // These words are hints: the receiver stores them, and a sender that makes room also stores them. The check after the fence of `arm` decides.
        let stored = receiver.stored_hint();
        let Some(ahead) = count.checked_sub(stored.saturating_add(1)) else {
            return true;
        };
        let last = receiver.drained_hint().wrapping_add(ahead);
        !matches!(Ring::of(self.segment()).published(last), Ok(None))
    }

    /// Arms the wake word. Returns `None` if `count` messages can be received already.
    fn arm(&self, me: &Thread, count: u64, how: u32) -> Option<u32> {
        let fixed = self.segment().fixed();
        let wait_flags = &fixed.wait_flags;
        // These words are hints: the receiver stores them, and a sender that makes room also stores them. Such a sender rings regardless of the
        // threshold.
        let stored = fixed.receiver.stored_hint();
        let drained = fixed.receiver.drained_hint();
        let threshold = drained.wrapping_add(count.saturating_sub(stored));
        let armed = wait_flags.arm(threshold, how);
        // ATTENTION: this thread arms the wake word and then reads `sent`. The fence pairs with the barrier between a send and the sender's read of
        // the wait flags.
        fence(Ordering::SeqCst);
        if self.holds(me, count) {
            self.silence();
            return None;
        }
        Some(armed)
    }

    /// Arms the wake word for the descriptor, so that the next message makes the descriptor readable. Returns false if the ring has messages already.
    pub fn arm_for_polling(&self, me: &Thread) -> bool {
        let is_armed = self.arm(me, 1, POLLED).is_some();
        crash_point!(RING_ARMED);
        is_armed
    }

    /// Silences the wake word. The caller is the receiver, which then checks for messages.
    fn silence(&self) {
        self.segment().fixed().wait_flags.silence();
    }

    /// Rings if a thread waits for the wake word. The caller is a sender that has counted its message and released the lock.
    #[inline(always)]
    pub(super) fn ring_if_asked(&self) {
        if self.segment().fixed().wait_flags.seems_armed() {
            self.ring_when_due();
        }
    }

    /// Rings if the number of messages has reached the threshold.
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

    /// Rings regardless of the threshold, if a thread waits for the wake word. The caller has added messages without a send: the caller has admitted
    /// a blocked sender's message, or has repaired a side. The woken receiver counts the messages itself.
    #[cold]
    pub(super) fn ring_anyway(&self) {
        // The messages were added under the receiver lock, and the receiver takes this lock when it counts.
        self.ring(self.segment().fixed().wait_flags.wake_word());
    }

    /// Rings, unless another process has rung or the receiver has armed the wake word again.
    fn ring(&self, wake_word: u32) {
        if wake_word & (ARMED | POLLED) == 0 {
            return;
        }
        crash_point!(RING_DUE);
        if wake_word & ARMED == 0 {
            if !self.notify() {
                // The wake word stays armed, so the next sender rings.
                return;
            }
            crash_point!(RING_PULLED);
        }
        let wait_flags = &self.segment().fixed().wait_flags;
        // If several senders reach the threshold, only one of them wakes the receiver.
        if wait_flags.take_ring(wake_word) && wake_word & ARMED != 0 {
            crash_point!(RING_SILENCED);
            futex::wake(wait_flags.futex(), 1);
        }
    }

    /// Returns the number of times that the wake word was armed.
    #[cfg(any(test, feature = "testing"))]
    pub fn turns(&self) -> u32 {
        self.segment().fixed().wait_flags.turns()
    }

    /// Makes the receiver's descriptor readable. Returns false if this process has no notifier, for example because it only repairs the file of the
    /// ring. Then another sender has to make the descriptor readable.
    fn notify(&self) -> bool {
        self.notifier.as_ref().is_some_and(Notifier::pull)
    }
}

/// A function of `umsg` that makes the receiver's descriptor readable.
pub struct Notifier(Box<dyn Fn() -> bool + Send + Sync>);

impl Notifier {
    /// Creates a notifier. `pull` returns false on failure.
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
