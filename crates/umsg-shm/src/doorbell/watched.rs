//! The watch of a queue, shared by both engines. An engine provides the doorbell's words and the level of its queue.

use super::{Level, Ringer};
use crate::lock::tokens::ReceiverHeld;

/// A queue that processes can poll. The lock under which messages are received protects all methods.
pub(crate) trait Watched {
    fn ringer(&self) -> Ringer<'_>;

    /// Returns the level for a call that would receive or send now. It is exact while a process polls.
    fn level(&self, receiving: ReceiverHeld<'_>) -> Level;

    /// Returns whether a blocked thread takes these messages, or this room: then nothing changes for a poller. Linux does the same.
    fn is_taken(&self, messages: i64, room: i64) -> bool;

    /// Ends the watch: no process polls any more.
    fn end_watch(&self, receiving: ReceiverHeld<'_>);

    #[inline(always)]
    fn is_watched(&self) -> bool {
        self.ringer().watched.get() != 0
    }

    /// Shows the level that the next step produces, with these additional messages and this additional room.
    #[inline(always)]
    fn foretell_doorbell(&self, receiving: ReceiverHeld<'_>, messages: i64, room: i64) {
        if self.is_watched() {
            self.foretell_slow(receiving, messages, room);
        }
    }

    #[cold]
    fn foretell_slow(&self, receiving: ReceiverHeld<'_>, messages: i64, room: i64) {
        if !self.is_taken(messages, room) {
            let now = self.level(receiving);
            let then = now.after(messages, room);
            self.ringer().foretell(receiving, now, then);
        }
    }

    /// Shows the present level, as the last step before the lock is released.
    #[inline(always)]
    fn settle_doorbell(&self, receiving: ReceiverHeld<'_>) {
        if self.is_watched() {
            self.settle_slow(receiving);
        }
    }

    #[cold]
    fn settle_slow(&self, receiving: ReceiverHeld<'_>) {
        let ringer = self.ringer();
        ringer.settle(receiving, self.level(receiving));
        if ringer.forget_if_left(receiving) {
            self.end_watch(receiving);
        }
    }

    /// Checks the doorbell after an operation that found nothing to do: the doorbell may have shown a message or room that does not exist.
    #[cold]
    fn look_at_doorbell(&self, receiving: ReceiverHeld<'_>) {
        if self.is_watched() {
            self.ringer().has_looked(receiving);
            let level = self.level(receiving);
            self.ringer().look_after_vain_call(receiving, level);
        }
    }

    /// Returns whether time alone may give pollers a message or the end: then a helper keeps the time for each process that polls.
    fn needs_time(&self) -> bool;

    /// Notes that the queue has delayed messages, for [`needs_time`](Self::needs_time).
    fn note_delay(&self);

    /// Tells pollers that a message is about to be delayed.
    #[cold]
    fn foretell_delay(&self, receiving: ReceiverHeld<'_>) {
        let is_first = !self.needs_time();
        if is_first && self.is_watched() {
            let now = self.level(receiving);
            self.ringer().foretell_first_delay(receiving, now);
        }
        self.note_delay();
        self.ringer().call_timekeepers(receiving);
    }

    /// Shows the present level after a death.
    fn repair_poll_fifo(&self, receiving: ReceiverHeld<'_>) {
        self.ringer().mend(receiving, self.level(receiving));
    }
}

#[cfg(not(loom))]
pub(crate) use polled::Polled;

#[cfg(not(loom))]
mod polled {
    use super::*;
    use crate::doorbell::helper::{self, Feed, Hears};
    use crate::doorbell::{Doorbell, PATIENCE};
    use crate::sync::AtomicU32;
    use crate::sys::clock::{self, Deadline};
    use crate::sys::thread::{self, Thread};
    use rustix::io::{self, Errno};
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;

    /// A queue that provides a descriptor for polling.
    pub(crate) trait Polled: Watched + Send + Sync + Sized + 'static {
        fn doorbell(&self) -> &Doorbell;

        /// Returns the queue's permission bits in the segment.
        fn mode(&self) -> u32;

        /// Returns an engine of the same segment, for a thread that outlives this one.
        fn for_helper(&self) -> Self;

        /// Returns an engine as [`for_helper`](Self::for_helper) does, which rings the shared FIFO itself.
        fn for_timekeeper(&self) -> Self;

        /// Changes the watch under the necessary locks. Fails with `INVAL` if the queue was removed.
        fn change_watch<T>(
            &self,
            me: &Thread,
            deadline: Deadline,
            change: impl FnOnce(ReceiverHeld<'_>) -> T,
        ) -> io::Result<T>;

        /// Does what is due, and returns the time of the monotonic clock, in nanoseconds, at which the next step may be due;
        /// [`u64::MAX`] for never.
        fn look_at_time(&self, me: &Thread, deadline: Deadline) -> io::Result<u64>;

        /// Returns the descriptor that shows the level of the queue. For `wanted`, see [`crate::doorbell`].
        #[inline]
        fn poll(&self, me: &Thread, wanted: u32) -> std::io::Result<BorrowedFd<'_>> {
            self.doorbell()
                .polled_after(wanted, self.needs_time(), || self.begin_to_poll(me, wanted))
        }

        #[cold]
        fn begin_to_poll(&self, me: &Thread, wanted: u32) -> io::Result<()> {
            self.change_watch(me, Deadline::after(PATIENCE), |receiving| {
                let level = self.level(receiving);
                self.ringer()
                    .begin_here(receiving, wanted, level, self.mode())
            })??;
            self.doorbell().get_help(|| Arc::new(self.for_helper()))?;
            if self.needs_time() {
                self.doorbell()
                    .keep_time(|| Arc::new(self.for_timekeeper()));
            }
            Ok(())
        }
    }

    impl<Q: Polled> Hears for Q {
        fn hear(&self, feed: &Feed) -> Option<u32> {
            let deadline = Deadline::Monotonic(clock::monotonic() + helper::PATIENCE);
            let heard = self.change_watch(thread::current(), deadline, |receiving| {
                self.ringer().hear(receiving, feed, self.level(receiving))
            });
            match heard {
                // The queue is removed or corrupted: a poller has to find out.
                Err(Errno::INVAL | Errno::BADMSG) => Some(self.ringer().show_damage(feed)),
                heard => heard.ok(),
            }
        }

        fn pass_time(&self) -> u64 {
            let now = clock::monotonic();
            let deadline = Deadline::Monotonic(now + helper::PATIENCE);

            match self.look_at_time(thread::current(), deadline) {
                // The coarse clock, which decides what is due, may lag.
                Ok(at) => at.max(now + helper::PATIENCE / 10),
                Err(Errno::INVAL | Errno::BADMSG) => u64::MAX,
                Err(_) => now + helper::PATIENCE,
            }
        }

        fn calls(&self) -> &AtomicU32 {
            &self.ringer().words.calls
        }
    }
}
