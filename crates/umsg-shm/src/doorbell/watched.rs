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
            let level = self.level(receiving);
            self.ringer().look_after_vain_call(receiving, level);
        }
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

        /// Changes the watch under the necessary locks. Fails with `INVAL` if the queue was removed.
        fn change_watch<T>(
            &self,
            me: &Thread,
            deadline: Deadline,
            change: impl FnOnce(ReceiverHeld<'_>) -> T,
        ) -> io::Result<T>;

        /// Returns the descriptor that shows the level of the queue. For `wanted`, see [`crate::doorbell`].
        #[inline]
        fn poll(&self, me: &Thread, wanted: u32) -> std::io::Result<BorrowedFd<'_>> {
            self.doorbell()
                .polled_after(wanted, || self.begin_to_poll(me, wanted))
        }

        #[cold]
        fn begin_to_poll(&self, me: &Thread, wanted: u32) -> io::Result<()> {
            self.change_watch(me, Deadline::after(PATIENCE), |receiving| {
                let level = self.level(receiving);
                self.ringer()
                    .begin_here(receiving, wanted, level, self.mode())
            })??;
            self.doorbell().get_help(|| Arc::new(self.for_helper()))
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

        fn calls(&self) -> &AtomicU32 {
            &self.ringer().words.calls
        }
    }
}
