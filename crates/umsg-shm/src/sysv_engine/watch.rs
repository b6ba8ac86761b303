//! Telling pollers: the engine's part of [`crate::doorbell`]. One lock guards everything, so a process that changes the queue learns under it
//! whether a process polls.
//!
//! A poller for messages is told of any, whatever types it wants; one for room, while a byte fits. A poller that needs more, and does not
//! get it, waits for the next edge.

use super::segment::LIVE;
use super::{Engine, Refused, Why};
use crate::doorbell::{Level, Readiness, Ringer};
use crate::lock::tokens::ReceiverHeld;
use crate::sync::Ordering;
use crate::waiters::List;

impl Engine {
    fn chain(&self) -> Ringer<'_> {
        Ringer {
            watched: &self.fixed().rights.watched,
            words: &self.fixed().control.doorbell,
            bell: &self.doorbell,
        }
    }

    /// The level for a call that would receive or send now. A removed queue has both: a process that tries learns that it is gone.
    fn level(&self) -> Level {
        let control = &self.fixed().control;
        // Relaxed: under the lock; for `readiness` as of a moment ago.
        let word = |word: &crate::sync::AtomicU64| word.load(Ordering::Relaxed);
        if self.fixed().rights.state.load(Ordering::Relaxed) != LIVE {
            return Level::new(1, 1);
        }
        let messages = u64::from(control.messages.load(Ordering::Relaxed));
        let capacity = word(&control.capacity);
        let left = |some: u64, held: u64| capacity.saturating_sub(some.saturating_add(held));
        let room = match left(messages, word(&control.held)) {
            0 => 0,
            _ => left(word(&control.bytes), word(&control.held_bytes)),
        };
        Level::new(messages, room)
    }

    /// Shows what the next step makes possible: so many messages, and so many bytes of room.
    #[inline(always)]
    pub(super) fn foretell_doorbell(&self, receiving: ReceiverHeld<'_>, messages: i64, room: i64) {
        if self.fixed().rights.watched.get() != 0 {
            self.foretell_slow(receiving, messages, room);
        }
    }

    #[cold]
    fn foretell_slow(&self, receiving: ReceiverHeld<'_>, messages: i64, room: i64) {
        let waits = |list| self.waiters().len(list) != 0;
        // Of a message that may be for a process that waits it is said afterwards where it went.
        if !(messages > 0 && waits(List::Receivers) || room > 0 && waits(List::Senders)) {
            let now = self.level();
            self.chain()
                .foretell(receiving, now, now.after(messages, room));
        }
    }

    /// Shows that the queue is going to be removed: a poller is to find out.
    pub(super) fn foretell_removal(&self, receiving: ReceiverHeld<'_>) {
        if self.fixed().rights.watched.get() != 0 {
            let now = self.level();
            self.chain().foretell(receiving, now, now.after(1, 1));
        }
    }

    /// As [`foretell_removal`](Self::foretell_removal), without the lock.
    #[cfg(not(loom))]
    pub(super) fn show_removal(&self) {
        self.chain().show_unlocked(Level::new(1, 1));
    }

    /// Shows what is. Under the lock, before it is dropped.
    #[inline(always)]
    pub(super) fn settle_doorbell(&self, receiving: ReceiverHeld<'_>) {
        if self.fixed().rights.watched.get() != 0 {
            self.settle_slow(receiving);
        }
    }

    #[cold]
    fn settle_slow(&self, receiving: ReceiverHeld<'_>) {
        let chain = self.chain();
        chain.settle(receiving, self.level());
        chain.forget_if_left(receiving);
    }

    /// After an operation that found nothing to do: a poller may have been told of what is not there.
    #[cold]
    pub(super) fn look_at_doorbell(&self, receiving: ReceiverHeld<'_>) {
        if self.fixed().rights.watched.get() != 0 {
            self.chain().look_after_vain_call(receiving, self.level());
        }
    }

    /// Shows what is, whatever the dead have left.
    pub(super) fn mend_doorbell(&self, receiving: ReceiverHeld<'_>) {
        self.chain().mend(receiving, self.level());
    }

    /// As [`pollable`](Self::pollable), of a model.
    #[cfg(loom)]
    pub(crate) fn watch(
        &self,
        me: &crate::sys::thread::Thread,
        wanted: u32,
    ) -> Result<(), Refused> {
        self.with_lock(me, crate::sys::clock::Deadline::Never, |_, _| {
            self.chain().begin(1, wanted, self.level());
            Ok(())
        })
    }

    #[cfg(loom)]
    pub(crate) fn doorbell(&self) -> &crate::doorbell::Doorbell {
        &self.doorbell
    }

    /// What a poll that does not wait would say.
    pub fn readiness(&self) -> Readiness {
        self.level().readiness()
    }
}

#[cfg(not(loom))]
mod polled {
    use super::*;
    use crate::doorbell::helper::{self, Feed, Hears};
    use crate::doorbell::{GRACE, PATIENCE, why_not};
    use crate::fault::Fault;
    use crate::lock::Held;
    use crate::lock::deferred_wakes::DeferredWakes;
    use crate::sync::AtomicU32;
    use crate::sys::clock::{self, Deadline};
    use crate::sys::thread::{self, Thread};
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
            self.fixed().rights.mode.load(Ordering::Relaxed)
        }

        #[cold]
        fn begin_to_poll(&self, me: &Thread, wanted: u32) -> io::Result<()> {
            let mut outcome = Ok(());
            let locked = self.with_lock(me, Deadline::after(PATIENCE), |receiving, _| {
                outcome = self
                    .chain()
                    .begin_here(receiving, wanted, self.level(), self.mode());
                Ok(())
            });
            match locked {
                Ok(()) => outcome?,
                Err(Refused::Own(Why::Removed)) => return Err(Errno::INVAL),
                Err(Refused::Fault(trouble)) => return Err(why_not(trouble)),
                Err(_) => return Err(Errno::AGAIN),
            }
            self.doorbell
                .get_help(|| Arc::new(Engine::new(self.segment().share())))
        }

        /// This process polls no more; if it was the last, no process rings any more. Of a removed queue too.
        fn stop_polling(&self, me: &Thread) -> Result<(), Refused> {
            if self.doorbell.close_polled() {
                let mut wakes = DeferredWakes::default();
                let held = self.lock(me, Deadline::after(GRACE), &mut wakes)?;
                self.chain().forget();
                self.leave(held, &wakes, Held::unlock);
            }
            Ok(())
        }
    }

    impl Hears for Engine {
        fn hear(&self, feed: &Feed) -> Option<u32> {
            let deadline = Deadline::Monotonic(clock::monotonic() + helper::PATIENCE);
            let locked = self.with_lock(thread::current(), deadline, |receiving, _| {
                Ok(self.chain().hear(receiving, feed, self.level()))
            });
            match locked {
                Ok(value) => Some(value),
                // A poller is to find out.
                Err(Refused::Own(Why::Removed) | Refused::Fault(Fault::Damaged)) => {
                    Some(self.chain().show_damage(feed))
                }
                Err(_) => None,
            }
        }

        fn calls(&self) -> &AtomicU32 {
            &self.fixed().control.doorbell.calls
        }
    }

    impl Drop for Engine {
        fn drop(&mut self) {
            // In vain beside a stopped process: who rings next finds out.
            let _ = self.stop_polling(crate::sys::thread::current());
        }
    }
}
