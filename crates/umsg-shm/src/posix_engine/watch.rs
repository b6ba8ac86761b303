//! Telling pollers: the engine's part of [`crate::doorbell`].
//!
//! A queue that a process polls is changed under the receiver lock only. A sender learns that under the sender lock, before it publishes:
//! the flag is set under both locks, so no send that had not seen it is under way when the doorbell first shows what is there. Then it
//! lets go, takes the receiver lock, borrows its own again, and has the doorbell say what it is about to do.
//!
//! A send that is for a blocked receiver, and a receive that makes room for a blocked sender, change nothing for a poller, and tell
//! nobody. (Linux does the same.)

use super::{Engine, Refused, WATCHED};
#[cfg(loom)]
use crate::doorbell::Feed;
use crate::doorbell::{Level, Readiness, Ringer, Watched};
use crate::lock::tokens::{BothHeld, ReceiverHeld, SenderHeld};
use crate::posix_engine::segment::OnFull;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::{List, Waiters};

impl Watched for Engine {
    fn ringer(&self) -> Ringer<'_> {
        let receiver = &self.segment().fixed().receiver;
        receiver.ringer(&self.doorbell)
    }

    fn level(&self, receiving: ReceiverHeld<'_>) -> Level {
        let room = match self.policy().on_full {
            OnFull::DropOldest => 1,
            // Room that is kept for a batch is no other process's.
            _ if !self.nobody_waits_for_room() => 0,
            _ => self.room_now(receiving).max(0) as u64,
        };
        Level::new(self.available(), room)
    }

    fn is_taken(&self, messages: i64, room: i64) -> bool {
        let waiters = Waiters::of(self.segment());
        messages > 0 && waiters.len(List::Receivers) != 0
            || room > 0 && waiters.len(List::Senders) != 0
    }

    fn end_watch(&self, receiving: ReceiverHeld<'_>) {
        self.set_attention(receiving, WATCHED, 0);
    }
}

impl Engine {
    /// Whether a process polls. Under the sender lock a "no" holds as long as that is held.
    #[inline(always)]
    pub(super) fn must_ring(&self) -> bool {
        self.segment().fixed().wait_flags.attention() & WATCHED != 0
    }

    /// A process that is told that something is about to be possible may run before a process that tells it goes on, on the same processor: it lets that one,
    /// by sleeping. It does not yield: for that the scheduler would make it wait the next time, too.
    pub(super) fn let_ringer_finish(&self, me: &Thread) {
        if self.must_ring() && self.ringer().is_rung_here() {
            self.segment().fixed().receiver.lock.sleep_while_held(me);
        }
    }

    /// Shows that messages are about to be sent.
    #[inline(always)]
    pub(super) fn foretell_arrival(&self, receiving: ReceiverHeld<'_>, messages: i64) {
        self.foretell_doorbell(receiving, messages, -messages);
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
            if self.has_room(sender.next_position(both.sender())) {
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
            if !self.is_watched() {
                // A process that saw that no process polls died before it could say so.
                self.set_attention(receiving, WATCHED, 0);
            }
            result
        })
    }

    /// Changes the watch under both locks, and with the flag that tells senders.
    fn with_both_locks<T>(
        &self,
        me: &Thread,
        deadline: Deadline,
        change: impl FnOnce(BothHeld<'_>) -> T,
    ) -> Result<T, Refused> {
        self.with_receiver_lock(me, deadline, |receiving, _| {
            let both = self.borrow_sender_lock(receiving, me, deadline)?;
            let outcome = change(both);
            self.set_attention(receiving, WATCHED, WATCHED);
            self.segment().fixed().sender.lock.give_back();
            Ok(outcome)
        })
    }

    /// As [`pollable`](Self::pollable), of a model.
    #[cfg(loom)]
    pub(crate) fn watch(&self, me: &Thread, wanted: u32) -> Result<(), Refused> {
        let begin =
            |both: BothHeld<'_>| self.ringer().begin(1, wanted, self.level(both.receiver()));
        self.with_both_locks(me, Deadline::Never, begin)
    }

    /// As [`watch`](Self::watch), with another FIFO in place of one that is gone.
    #[cfg(loom)]
    pub(crate) fn watch_anew(&self, me: &Thread, wanted: u32) -> Result<(), Refused> {
        self.with_both_locks(me, Deadline::Never, |both| {
            self.doorbell.set_gone(false);
            self.ringer().begin(2, wanted, self.level(both.receiver()));
        })
    }

    /// Has a helper's FIFO show what there is, in a model. The number on which the helper sleeps.
    #[cfg(loom)]
    pub(crate) fn hear(&self, me: &Thread, feed: &Feed) -> Result<u32, Refused> {
        self.with_both_locks(me, Deadline::Never, |both| {
            let level = self.level(both.receiver());
            self.ringer().hear(both.receiver(), feed, level)
        })
    }

    /// The word on which helpers sleep.
    #[cfg(loom)]
    pub(crate) fn helpers_word(&self) -> &crate::sync::AtomicU32 {
        &self.segment().fixed().receiver.doorbell().calls
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
    use crate::doorbell::{Doorbell, GRACE, Polled, why_not};
    use crate::sys::thread;
    use rustix::io::{self, Errno};
    use std::os::fd::BorrowedFd;

    impl Polled for Engine {
        fn doorbell(&self) -> &Doorbell {
            &self.doorbell
        }

        fn mode(&self) -> u32 {
            self.segment().fixed().header.mode()
        }

        fn for_helper(&self) -> Engine {
            Engine::new(self.segment().share())
        }

        fn change_watch<T>(
            &self,
            me: &Thread,
            deadline: Deadline,
            change: impl FnOnce(ReceiverHeld<'_>) -> T,
        ) -> io::Result<T> {
            self.with_both_locks(me, deadline, |both| change(both.receiver()))
                .map_err(|refused| match refused {
                    Refused::Fault(trouble) => why_not(trouble),
                    _ => Errno::AGAIN,
                })
        }
    }

    impl Engine {
        /// The descriptor that shows what the queue is ready for. `wanted`: see [`crate::doorbell`].
        #[inline]
        pub fn pollable(&self, me: &Thread, wanted: u32) -> std::io::Result<BorrowedFd<'_>> {
            self.poll(me, wanted)
        }

        /// This process polls no more; if it was the last, no process rings any more.
        pub(crate) fn stop_polling(&self, me: &Thread) {
            if !self.doorbell.close_polled() {
                return;
            }
            let _ = self.with_receiver_lock(me, Deadline::after(GRACE), |receiving, _| {
                if self.ringer().forget() {
                    self.end_watch(receiving);
                }
                Ok(())
            });
        }
    }

    impl Drop for Engine {
        fn drop(&mut self) {
            self.stop_polling(thread::current());
        }
    }
}
