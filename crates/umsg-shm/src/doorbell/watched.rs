//! The watch of a queue, shared by both engines. An engine provides the doorbell's words and the level of its queue.

use super::{Level, MESSAGES_LATER, Ringer};
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;

/// A queue that processes can poll. A method with a token runs under the lock under which messages are received.
pub(crate) trait Watched {
    fn ringer(&self) -> Ringer<'_>;

    /// Returns the level of the queue, for a call that would receive or send now. The level is exact while a process polls.
    fn level(&self, receiving: ReceiverHeld<'_>) -> Level;

    /// Returns whether a blocked thread takes these messages, or this room. If so, the level stays unchanged for pollers, as in Linux.
    fn is_taken(&self, messages: i64, room: i64) -> bool;

    /// Ends the watch: no process polls any more.
    fn end_watch(&self, receiving: ReceiverHeld<'_>);

    #[inline(always)]
    fn is_watched(&self) -> bool {
        self.ringer().watched.get() != 0
    }

    /// Shows the level that the next step produces: the current level, with these additional messages and this additional room.
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

    /// Shows the current level, as the last step before the lock is released.
    #[inline(always)]
    fn settle_doorbell(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        if self.is_watched() {
            self.settle_slow(receiving, wakes);
        }
    }

    /// Shows the current level, as [`settle_doorbell`](Self::settle_doorbell) does. If this process polls without a helper, and time may bring
    /// changes, the process starts a helper after the unlock.
    #[cold]
    fn settle_slow(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        self.watch_holders(receiving);
        let ringer = self.ringer();
        ringer.settle(receiving, self.level(receiving));
        if ringer.forget_if_left(receiving) {
            self.end_watch(receiving);
        }
        if self.needs_time() && self.ringer().doorbell.polls_without_time() {
            wakes.add_timekeeper();
        }
    }

    /// Checks the doorbell after an operation that found no message or no room: the doorbell may show a message or room that does not exist.
    #[cold]
    fn look_at_doorbell(&self, receiving: ReceiverHeld<'_>) {
        if self.is_watched() {
            self.ringer().has_looked(receiving);
            let level = self.level(receiving);
            self.ringer().look_after_vain_call(receiving, level);
        }
    }

    /// Returns whether the queue's policy makes each process that polls have a helper for deadlines.
    fn keeps_time(&self) -> bool;

    /// Returns the kinds of changes that time or a death alone may bring, as far as the queue has noted them: [`MESSAGES_LATER`],
    /// [`super::ROOM_LATER`].
    fn later(&self) -> u32;

    /// Notes kinds of changes that time or a death alone may bring.
    fn set_later(&self, receiving: ReceiverHeld<'_>, changes: u32);

    /// Returns the kinds of changes that the death of a process may bring if it holds a message or reserved room at present.
    fn held(&self, receiving: ReceiverHeld<'_>) -> u32;

    /// Returns whether time or a death alone may bring pollers messages, room or the end of the stream. If so, a helper checks the queue for each
    /// process that polls.
    fn needs_time(&self) -> bool {
        self.keeps_time() || self.later() != 0
    }

    /// Tells pollers that a message is about to be delayed.
    #[cold]
    fn foretell_delay(&self, receiving: ReceiverHeld<'_>) {
        self.note_later(receiving, MESSAGES_LATER);
        self.ringer().call_timekeepers(receiving);
    }

    /// Notes kinds of changes that time or a death may bring. For a kind that was not noted before, shows an event to processes that poll without a
    /// helper. Each of these processes then makes a call, finds no message or room, and starts a helper.
    fn note_later(&self, receiving: ReceiverHeld<'_>, changes: u32) {
        let new = changes & !self.later();
        if new == 0 {
            return;
        }
        let ringer = self.ringer();
        if !self.keeps_time() && ringer.seems_to_lack_helpers() {
            ringer.ask_to_look(receiving, new, self.level(receiving));
        }
        self.set_later(receiving, new);
    }

    /// Notes the changes that held messages and reservations may bring, when a process begins to poll. Returns whether the process needs a helper for
    /// deadlines.
    fn begin_to_watch(&self, receiving: ReceiverHeld<'_>) -> bool {
        self.note_later(receiving, self.held(receiving));
        self.needs_time()
    }

    /// Returns whether the current helper has to check the queue once a slice, because a process holds a message or room and may die. If the function
    /// returns false, the next process that leases or reserves calls the helper.
    fn needs_slices(&self, receiving: ReceiverHeld<'_>) -> bool {
        let is_held = self.held(receiving) != 0;
        self.ringer().note_slices(receiving, is_held);
        is_held
    }

    /// Makes pollers notice the death of a process that holds a message or room.
    fn watch_holders(&self, receiving: ReceiverHeld<'_>) {
        let held = self.held(receiving);
        if held != 0 {
            self.note_later(receiving, held);
            self.ringer().ask_for_slices(receiving);
        }
    }

    /// Shows the current level after a death, and calls the helpers for deadlines. The dead process may have changed the times for which these
    /// helpers wait.
    fn repair_poll_fifo(&self, receiving: ReceiverHeld<'_>) {
        self.ringer().mend(receiving, self.level(receiving));
        self.ringer().call_timekeepers(receiving);
    }
}

#[cfg(not(loom))]
pub(crate) use polled::Polled;

#[cfg(not(loom))]
mod polled {
    use super::*;
    use crate::doorbell::helper::{self, Feed, Hears};
    use crate::doorbell::{Doorbell, PATIENCE};
    use crate::lock::SLICE;
    use crate::sync::AtomicU32;
    use crate::sys::clock::{self, Deadline};
    use crate::sys::stack::roomy;
    use crate::sys::thread::{self, Thread};
    use rustix::io::{self, Errno};
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;

    /// A queue that provides a descriptor for polling.
    pub(crate) trait Polled: Watched + Send + Sync + Sized + 'static {
        fn doorbell(&self) -> &Doorbell;

        /// Returns the queue's permission bits in the segment.
        fn mode(&self) -> u32;

        /// Returns an engine of the same segment, for a thread that outlives the calling thread.
        fn for_helper(&self) -> Self;

        /// Returns an engine of the same segment for a thread that outlives the calling thread. In contrast to [`for_helper`](Self::for_helper), this
        /// engine rings the shared FIFO itself.
        fn for_timekeeper(&self) -> Self;

        /// Runs a change of the watch under the locks that it needs. Fails with `INVAL` if the queue was removed.
        fn change_watch<T>(
            &self,
            me: &Thread,
            deadline: Deadline,
            change: impl FnOnce(ReceiverHeld<'_>) -> T,
        ) -> io::Result<T>;

        /// Returns the time of the monotonic clock, in nanoseconds, at which the next delayed message is delivered or the next time limit ends;
        /// [`u64::MAX`] for never.
        fn next_due(&self) -> u64;

        /// Makes the changes for which the time has come. Returns the time of the monotonic clock, in nanoseconds, at which the next change may be
        /// made; [`u64::MAX`] for never.
        fn look_at_time(&self, me: &Thread, deadline: Deadline) -> io::Result<u64>;

        /// Returns the descriptor that shows the level of the queue. `wanted` contains the flags [`crate::doorbell::MESSAGES`] and
        /// [`crate::doorbell::ROOM`], or neither.
        #[inline]
        fn poll(&self, me: &Thread, wanted: u32) -> std::io::Result<BorrowedFd<'_>> {
            self.doorbell()
                .polled_after(wanted, self.needs_time(), || self.begin_to_poll(me, wanted))
        }

        #[cold]
        fn begin_to_poll(&self, me: &Thread, wanted: u32) -> io::Result<()> {
            self.change_watch(me, Deadline::after(PATIENCE), |receiving| {
                let needs_time = self.begin_to_watch(receiving);
                let level = self.level(receiving);
                self.ringer()
                    .begin_here(receiving, wanted, level, (self.mode(), needs_time))
            })??;
            self.doorbell().get_help(|| Arc::new(self.for_helper()))?;
            if self.needs_time() || self.doorbell().needs_help() {
                self.keep_time();
            }
            Ok(())
        }

        /// Starts the helper for deadlines of this process, unless it already runs. The caller does not hold the queue's lock.
        #[cold]
        fn keep_time(&self) {
            self.doorbell()
                .keep_time(|| Arc::new(self.for_timekeeper()));
        }

        /// Starts the helper for deadlines, as [`keep_time`](Self::keep_time) does, after a call that did not request a descriptor. In a signal
        /// handler, the function has no effect: the next call outside of a handler starts the helper.
        #[cold]
        fn keep_time_after_call(&self) {
            if self.doorbell().may_start_helper() {
                roomy(|| self.keep_time());
            }
        }

        /// Returns the time of the next check by a helper for deadlines, on the monotonic clock in nanoseconds; [`u64::MAX`] for never.
        /// `is_left` says whether the death of a producer may end the stream.
        fn next_look(&self, receiving: ReceiverHeld<'_>, is_left: bool) -> u64 {
            let now = clock::monotonic();
            let next = match self.needs_slices(receiving) || is_left {
                true => now.saturating_add(SLICE),
                false => u64::MAX,
            };
            next.min(self.next_due())
                .min(self.look_for_lack(receiving, now))
        }

        /// Shows processes that still poll without a helper events after which they check the queue. An earlier event may have vanished before such a
        /// process ran, because another process checked the queue first. Returns the time of the next check.
        fn look_for_lack(&self, receiving: ReceiverHeld<'_>, now: u64) -> u64 {
            if self.keeps_time() {
                return u64::MAX;
            }
            let ringer = self.ringer();
            self.doorbell().look_for_lack(now, || {
                let lack = ringer.seems_to_lack_helpers();
                if lack {
                    ringer.ask_to_look(receiving, self.later(), self.level(receiving));
                }
                lack
            })
        }
    }

    impl<Q: Polled> Hears for Q {
        fn hear(&self, feed: &Feed) -> Option<u32> {
            let deadline = Deadline::Monotonic(clock::monotonic() + helper::PATIENCE);
            let heard = self.change_watch(thread::current(), deadline, |receiving| {
                self.ringer()
                    .hear(receiving, feed, self.level(receiving), true)
            });
            match heard {
                // The queue is removed or corrupted: the doorbell makes a poller try the queue.
                Err(Errno::INVAL | Errno::BADMSG) => Some(self.ringer().show_damage(feed)),
                heard => heard.ok(),
            }
        }

        fn pass_time(&self) -> u64 {
            if !self.needs_time() {
                return u64::MAX;
            }
            let now = clock::monotonic();
            let deadline = Deadline::Monotonic(now + helper::PATIENCE);
            match self.look_at_time(thread::current(), deadline) {
                // The coarse clock, which may lag, decides whether the delivery time of a message has come. So the next check is at least a moment
                // later.
                Ok(at) => at.max(now + helper::PATIENCE / 10),
                Err(Errno::INVAL) => u64::MAX,
                // A corrupted queue may be repaired, or lose its mark of corruption, without a call on it. So the helper checks the queue again.
                Err(Errno::BADMSG) => now + helper::SLICE,
                Err(_) => now + helper::PATIENCE,
            }
        }

        fn calls(&self) -> &AtomicU32 {
            &self.ringer().words.calls
        }
    }
}
