//! Telling pollers: the engine's part of [`crate::doorbell`].
//!
//! A queue that a process polls is changed under the receiver lock only. A sender learns that under the sender lock, before it publishes:
//! the flag is set under both locks, so no send that had not seen it is under way when the doorbell first shows what is there. Then it
//! lets go, takes the receiver lock, borrows its own again, and has the doorbell say what it is about to do.
//!
//! A send that is for a blocked receiver, and a receive that makes room for a blocked sender, change nothing for a poller, and tell
//! nobody. (Linux does the same.)

use super::{Engine, Refused, WATCHED};
use crate::doorbell::{Feed, Level, Readiness, Ringer};
use crate::lock::tokens::{BothHeld, ReceiverHeld, SenderHeld};
use crate::posix_engine::segment::OnFull;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::{List, Waiters};

impl Engine {
    /// Whether a process polls. Under the sender lock a "no" holds as long as that is held.
    #[inline(always)]
    pub(super) fn must_ring(&self) -> bool {
        // Relaxed: set under both locks.
        self.segment()
            .fixed()
            .wait_flags
            .attention
            .load(Ordering::Relaxed)
            & WATCHED
            != 0
    }

    /// A process that is told that something is about to be possible may run before a process that tells it goes on, on the same processor: it lets that one,
    /// by sleeping. It does not yield: for that the scheduler would make it wait the next time, too.
    pub(super) fn let_ringer_finish(&self, me: &Thread) {
        if self.must_ring() && self.chain().is_rung_here() {
            self.segment().fixed().receiver.lock.sleep_while_held(me);
        }
    }

    fn chain(&self) -> Ringer<'_> {
        let receiver = &self.segment().fixed().receiver;
        Ringer {
            watched: &receiver.watched,
            words: &receiver.doorbell,
            bell: &self.doorbell,
        }
    }

    /// The level for a call that would receive or send now. Under the receiver lock, and exact while a process polls.
    fn level(&self, receiving: ReceiverHeld<'_>) -> Level {
        let room = match self.policy().on_full {
            OnFull::DropOldest => 1,
            // Room that is kept for a batch is no other process's.
            _ if !self.nobody_waits_for_room() => 0,
            _ => self.room_now(receiving).max(0) as u64,
        };
        Level::new(self.available(), room)
    }

    /// Shows what the next step makes possible: so many messages, and so much room.
    #[inline(always)]
    pub(super) fn foretell_doorbell(&self, receiving: ReceiverHeld<'_>, messages: i64, room: i64) {
        if self.segment().fixed().receiver.watched.get() != 0 {
            self.foretell_slow(receiving, messages, room);
        }
    }

    #[cold]
    fn foretell_slow(&self, receiving: ReceiverHeld<'_>, messages: i64, room: i64) {
        let waiters = Waiters::of(self.segment());
        let is_taken = messages > 0 && waiters.len(List::Receivers) != 0
            || room > 0 && waiters.len(List::Senders) != 0;
        if !is_taken {
            let now = self.level(receiving);
            self.chain()
                .foretell(receiving, now, now.after(messages, room));
        }
    }

    /// As [`foretell_doorbell`](Self::foretell_doorbell), for messages that are sent.
    #[inline(always)]
    pub(super) fn foretell_arrival(&self, receiving: ReceiverHeld<'_>, messages: i64) {
        self.foretell_doorbell(receiving, messages, -messages);
    }

    /// Shows what is. Under the receiver lock, before it is dropped.
    #[inline(always)]
    pub(super) fn settle_doorbell(&self, receiving: ReceiverHeld<'_>) {
        if self.segment().fixed().receiver.watched.get() != 0 {
            self.settle_slow(receiving);
        }
    }

    #[cold]
    fn settle_slow(&self, receiving: ReceiverHeld<'_>) {
        let chain = self.chain();
        chain.settle(receiving, self.level(receiving));
        if chain.forget_if_left(receiving) {
            self.set_attention(receiving, WATCHED, 0);
        }
    }

    /// After an operation that found nothing to do: a poller may have been told of what is not there.
    #[cold]
    pub(super) fn look_at_doorbell(&self, receiving: ReceiverHeld<'_>) {
        if self.segment().fixed().receiver.watched.get() != 0 {
            self.chain()
                .look_after_vain_call(receiving, self.level(receiving));
        }
    }

    /// Shows what is, whatever the dead have left.
    pub(super) fn mend_doorbell(&self, receiving: ReceiverHeld<'_>) {
        self.chain().mend(receiving, self.level(receiving));
    }

    /// Sends one message, if there is room, and tells a poller.
    #[cold]
    pub(super) fn send_watched(
        &self,
        me: &Thread,
        message: &[u8],
        key: usize,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        let send = |engine: &Engine, sending: SenderHeld<'_>| {
            engine.send_locked(sending, me, message, key)
        };
        self.send_ringing(me, 1, deadline, send)
    }

    /// Does `send`, which sends up to so many messages, under both locks, and tells a poller.
    pub(super) fn send_ringing<T>(
        &self,
        me: &Thread,
        messages: i64,
        deadline: Deadline,
        send: impl FnOnce(&Engine, SenderHeld<'_>) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.let_ringer_finish(me);
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            let sender = &self.segment().fixed().sender;
            if self.has_room(sender.sent.load(Ordering::Relaxed)) {
                self.foretell_arrival(receiving, messages);
            }
            let result = send(self, both.sender());
            sender.lock.give_back();
            if result.is_ok() {
                // What was sent is sent, whatever is wrong with waiters.
                if self.serve(receiving, wakes).is_err() {
                    self.note_damage();
                }
                self.update_wait_flags(receiving);
            }
            if self.segment().fixed().receiver.watched.get() == 0 {
                // A process that saw that no process polls died before it could say so.
                self.set_attention(receiving, WATCHED, 0);
            }
            result
        })
    }

    /// Changes a poller: under both locks, and with the flag that tells senders.
    fn with_both_locks(
        &self,
        me: &Thread,
        deadline: Deadline,
        change: impl FnOnce(BothHeld<'_>),
    ) -> Result<(), Refused> {
        self.with_receiver_lock(me, deadline, |receiving, _| {
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            change(both);
            self.set_attention(receiving, WATCHED, WATCHED);
            self.segment().fixed().sender.lock.give_back();
            Ok(())
        })
    }

    /// Has a helper's FIFO show what there is. The number on which the helper sleeps.
    fn heard_by(&self, me: &Thread, feed: &Feed, deadline: Deadline) -> Result<u32, Refused> {
        let mut value = 0;
        let hear = |both: BothHeld<'_>| {
            value = self
                .chain()
                .hear(both.receiver(), feed, self.level(both.receiver()));
        };
        self.with_both_locks(me, deadline, hear)?;
        Ok(value)
    }

    /// As [`pollable`](Self::pollable), of a model.
    #[cfg(loom)]
    pub(crate) fn watch(&self, me: &Thread, wanted: u32) -> Result<(), Refused> {
        let begin = |both: BothHeld<'_>| self.chain().begin(1, wanted, self.level(both.receiver()));
        self.with_both_locks(me, Deadline::Never, begin)
    }

    /// As [`watch`](Self::watch), with another FIFO in place of one that is gone.
    #[cfg(loom)]
    pub(crate) fn watch_anew(&self, me: &Thread, wanted: u32) -> Result<(), Refused> {
        self.with_both_locks(me, Deadline::Never, |both| {
            self.doorbell.set_gone(false);
            self.chain().begin(2, wanted, self.level(both.receiver()));
        })
    }

    /// As [`heard_by`](Self::heard_by), of a model.
    #[cfg(loom)]
    pub(crate) fn hear(&self, me: &Thread, feed: &Feed) -> Result<u32, Refused> {
        self.heard_by(me, feed, Deadline::Never)
    }

    /// The word on which helpers sleep.
    pub(crate) fn helpers_word(&self) -> &AtomicU32 {
        &self.segment().fixed().receiver.doorbell.calls
    }

    #[cfg(loom)]
    pub(crate) fn doorbell(&self) -> &crate::doorbell::Doorbell {
        &self.doorbell
    }

    /// What a poll that does not wait would say.
    pub fn readiness(&self, me: &Thread) -> Readiness {
        let waiters = Waiters::of(self.segment());
        let mut readable = self.available() != 0;
        if readable && waiters.len(List::Receivers) != 0 {
            // It is about to be handed over, unless no process is left that does that, or that wants it.
            let served = self.with_receiver_lock(me, Deadline::Passed, |receiving, wakes| {
                self.serve(receiving, wakes)?;
                self.update_wait_flags(receiving);
                Ok(self.available() != 0)
            });
            readable = served.unwrap_or(false);
        }
        Readiness {
            readable,
            writable: self.policy().on_full == OnFull::DropOldest || self.seems_roomy(1),
        }
    }
}

#[cfg(not(loom))]
mod polled {
    use super::*;
    use crate::doorbell::helper::{self, Hears};
    use crate::doorbell::{GRACE, PATIENCE, why_not};
    use crate::fault::Fault;
    use crate::sys::{clock, thread};
    use rustix::io::{self, Errno};
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;

    impl Engine {
        /// The descriptor that shows what the queue is ready for. `wanted`: see [`crate::doorbell`].
        #[inline]
        pub fn pollable(&self, me: &Thread, wanted: u32) -> std::io::Result<BorrowedFd<'_>> {
            self.doorbell
                .polled_after(wanted, || self.begin_to_poll(me, wanted))
        }

        /// The queue's permission bits, as its segment says.
        fn mode(&self) -> u32 {
            // Relaxed: a single word.
            self.segment().fixed().header.mode.load(Ordering::Relaxed)
        }

        #[cold]
        fn begin_to_poll(&self, me: &Thread, wanted: u32) -> io::Result<()> {
            let deadline = Deadline::after(PATIENCE);
            let mut outcome = Ok(());
            let locked = self.with_both_locks(me, deadline, |both| {
                let level = self.level(both.receiver());
                outcome = self
                    .chain()
                    .begin_here(both.receiver(), wanted, level, self.mode());
            });
            match locked {
                Ok(()) => outcome?,
                Err(Refused::Fault(trouble)) => return Err(why_not(trouble)),
                Err(_) => return Err(Errno::AGAIN),
            }
            self.doorbell
                .get_help(|| Arc::new(Engine::new(self.segment().share())))
        }

        /// This process polls no more; if it was the last, no process rings any more.
        pub(crate) fn stop_polling(&self, me: &Thread) {
            if !self.doorbell.close_polled() {
                return;
            }
            let _ = self.with_receiver_lock(me, Deadline::after(GRACE), |receiving, _| {
                if self.chain().forget() {
                    self.set_attention(receiving, WATCHED, 0);
                }
                Ok(())
            });
        }
    }

    impl Hears for Engine {
        fn hear(&self, feed: &Feed) -> Option<u32> {
            let deadline = Deadline::Monotonic(clock::monotonic() + helper::PATIENCE);
            match self.heard_by(thread::current(), feed, deadline) {
                Err(Refused::Fault(Fault::Damaged)) => Some(self.chain().show_damage(feed)),
                other => other.ok(),
            }
        }

        fn calls(&self) -> &AtomicU32 {
            self.helpers_word()
        }
    }

    impl Drop for Engine {
        fn drop(&mut self) {
            self.stop_polling(crate::sys::thread::current());
        }
    }
}
