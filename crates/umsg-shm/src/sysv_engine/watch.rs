//! Notification of pollers: the engine's part of [`crate::doorbell`]. The queue's only lock also guards the word that says whether a process polls.
//!
//! A queue is readable while it has a message of any type, and writable while there is room for a byte. A poller that needs a certain type, or more
//! room, tries again at each event of the queue.

use super::{Engine, Refused};
use crate::doorbell::{Level, MESSAGES_LATER, Readiness, Ringer, Watched};
use crate::lock::tokens::ReceiverHeld;
use crate::sync::Ordering;
use crate::waiters::List;

impl Watched for Engine {
    fn ringer(&self) -> Ringer<'_> {
        Ringer {
            watched: self.fixed().rights.watched(),
            words: &self.fixed().control.doorbell,
            doorbell: &self.doorbell,
            deferred: None,
        }
    }

    fn level(&self, _: ReceiverHeld<'_>) -> Level {
        self.level_now()
    }

    /// Returns whether a waiter may take the message or the room that the operation adds. If so, pollers see the level only after the operation.
    fn is_taken(&self, messages: i64, room: i64) -> bool {
        let waits = |list| self.waiters().len(list) != 0;
        messages > 0 && waits(List::Receivers) || room > 0 && waits(List::Senders)
    }

    fn keeps_time(&self) -> bool {
        self.policy.close_with_producers || self.policy.retry_delay[0] != 0
    }

    fn later(&self) -> u32 {
        self.fixed().leases.later()
    }

    fn set_later(&self, receiving: ReceiverHeld<'_>, changes: u32) {
        self.fixed().leases.note_later(receiving, changes);
    }

    fn held(&self, _: ReceiverHeld<'_>) -> u32 {
        // Relaxed: the caller holds the lock.
        let delayed = u64::from(self.fixed().leases.delayed.load(Ordering::Relaxed));
        let held = self.fixed().control.contents().leased.messages;
        match held > delayed {
            true => MESSAGES_LATER,
            false => 0,
        }
    }

    /// Does nothing: every operation reads the word with the pollers' flags, and no second word says that a process polls.
    fn end_watch(&self, _: ReceiverHeld<'_>) {}
}

impl Engine {
    /// Returns the level of the queue, for a call that would receive or send now. A removed queue shows a message and room: a poller then tries a
    /// call, and learns of the removal.
    fn level_now(&self) -> Level {
        if !self.fixed().rights.is_live(self.generation) {
            return Level::new(1, 1);
        }
        let contents = self.fixed().control.contents();
        let messages = contents.queued.messages;
        match self.is_send_closed() {
            // A closed queue shows room: a poller tries to send, and finds the queue closed. At the end of the stream it also shows a message: a
            // poller tries to receive, and finds the end.
            true => {
                let at_end = self.seems_over().into();
                self.ringer().with_looks(messages.max(at_end), 1)
            }
            false => self.ringer().with_looks(messages, contents.room()),
        }
    }

    /// Shows pollers an event because the queue is about to be removed.
    pub(super) fn foretell_removal(&self, receiving: ReceiverHeld<'_>) {
        if self.is_watched() {
            let now = self.level(receiving);
            self.ringer().foretell(receiving, now, now.after(1, 1));
        }
    }

    /// Shows the removal to pollers, without the lock. [`foretell_removal`](Self::foretell_removal) shows it under the lock.
    #[cfg(not(loom))]
    pub(super) fn show_removal(&self) {
        self.ringer().show_unlocked(Level::new(1, 1));
    }

    /// Begins to poll in a model, as [`pollable`](Self::pollable) does. Returns whether the process needs a helper for deadlines.
    #[cfg(loom)]
    pub(crate) fn watch(
        &self,
        me: &crate::sys::thread::Thread,
        wanted: u32,
    ) -> Result<bool, Refused> {
        self.with_lock(me, crate::sys::clock::Deadline::Never, |receiving, _| {
            let needs_time = self.begin_to_watch(receiving);
            self.ringer().begin(1, wanted, self.level(receiving));
            self.doorbell.set_lack_of_helpers(!needs_time);
            Ok(needs_time)
        })
    }

    #[cfg(loom)]
    pub(crate) fn doorbell(&self) -> &crate::doorbell::Doorbell {
        &self.doorbell
    }

    /// Returns the readiness of the queue: the answer of a poll that does not wait.
    pub fn readiness(&self) -> Readiness {
        self.level_now().readiness()
    }
}

#[cfg(not(loom))]
mod polled {
    use super::*;
    use crate::doorbell::{Doorbell, GRACE, Polled, why_not};
    use crate::lock::Held;
    use crate::lock::deferred_wakes::DeferredWakes;
    use crate::sys::clock::Deadline;
    use crate::sys::thread::{self, Thread};
    use crate::sysv_engine::Why;
    use rustix::io::{self, Errno};
    use std::os::fd::BorrowedFd;

    impl Polled for Engine {
        fn doorbell(&self) -> &Doorbell {
            &self.doorbell
        }

        fn mode(&self) -> u32 {
            self.fixed().rights.mode()
        }

        fn for_helper(&self) -> Engine {
            Engine::new(self.segment().share())
        }

        fn for_timekeeper(&self) -> Engine {
            let mut engine = self.for_helper();
            engine.doorbell.ring_as(&self.doorbell);
            engine
        }

        fn next_due(&self) -> u64 {
            self.fixed().leases.next_look()
        }

        fn look_at_time(&self, me: &Thread, deadline: Deadline) -> io::Result<u64> {
            self.with_lock(me, deadline, |receiving, wakes| {
                self.reclaim_if_due(receiving, wakes)?;
                self.close_if_left(receiving, wakes)?;
                Ok(self.next_look(receiving, self.may_be_left(receiving)))
            })
            .map_err(why_not_watched)
        }

        fn change_watch<T>(
            &self,
            me: &Thread,
            deadline: Deadline,
            change: impl FnOnce(ReceiverHeld<'_>) -> T,
        ) -> io::Result<T> {
            self.with_lock(me, deadline, |receiving, _| Ok(change(receiving)))
                .map_err(why_not_watched)
        }
    }

    fn why_not_watched(refused: Refused) -> Errno {
        match refused {
            Refused::Own(Why::Removed) => Errno::INVAL,
            Refused::Fault(fault) => why_not(fault),
            _ => Errno::AGAIN,
        }
    }

    impl Engine {
        /// Returns the descriptor that shows the queue's level. `wanted` contains flags of [`crate::doorbell`].
        #[inline]
        pub fn pollable(&self, me: &Thread, wanted: u32) -> std::io::Result<BorrowedFd<'_>> {
            self.poll(me, wanted)
        }

        /// Ends the polling of this process, even on a removed queue. After the last poller, no process rings any more.
        fn stop_polling(&self, me: &Thread) -> Result<(), Refused> {
            if self.doorbell.close_polled() {
                let mut wakes = DeferredWakes::default();
                let held = self.lock(me, Deadline::after(GRACE), &mut wakes)?;
                self.ringer().forget();
                self.leave(held, &mut wakes, Held::unlock);
            }
            Ok(())
        }
    }

    impl Drop for Engine {
        fn drop(&mut self) {
            // The call fails while the lock's owner is stopped. The next process that rings then finds out that no process polls.
            let _ = self.stop_polling(thread::current());
        }
    }
}
