//! The end of the stream: a queue that is closed for sending.
//!
//! | `SEND_CLOSED` | a send | a receive | may change it |
//! |---|---|---|---|
//! | 0 | sends | waits while the queue is empty | any process that may send: to 1 |
//! | 1 | fails | takes the remaining messages, then fails | any process that may send: to 0 |
//!
//! `SEND_CLOSED` is a bit of the attention word, like the bit of pollers. Both bits change only under both locks, so their values are exact under
//! either lock. A send reads both bits at once, so a queue that is never closed for sending pays nothing.
//!
//! A stream is at its end if the queue is closed for sending, no message is left, and no lease or offer can return a message. If a process dies after
//! it has set the bit `SEND_CLOSED`, the queue is closed for sending. The waiters that this process did not wake check the queue at the end of their
//! slice.

use super::{COUNTED, DELAYED, DeferredWakes, Engine, Refused, SEND_CLOSED};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::leases;
use crate::lock::tokens::{BothHeld, ReceiverHeld};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::wait::End;
use crate::waiters::{List, Waiters};

impl Engine {
    /// Returns whether the queue is closed for sending. Under either lock, the result is exact. Without a lock, the result is a hint.
    #[inline(always)]
    pub fn is_send_closed(&self) -> bool {
        self.segment().fixed().wait_flags.attention() & SEND_CLOSED != 0
    }

    /// Returns [`Refused::Closed`] if the queue is closed for sending. The parameter proves that the caller holds a lock: without a lock, the result
    /// could be outdated at once.
    #[inline(always)]
    pub(super) fn check_open(&self, _: ReceiverHeld<'_>) -> Result<(), Refused> {
        match self.is_send_closed() {
            true => Err(Refused::Closed),
            false => Ok(()),
        }
    }

    /// Begins a send under the receiver lock. Returns [`Refused::Closed`] if the queue is closed for sending. Stores the delayed messages whose time
    /// has come, so that the new message follows them.
    #[inline(always)]
    pub(super) fn begin_to_send(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        match self.segment().fixed().wait_flags.attention() & (SEND_CLOSED | COUNTED | DELAYED) {
            0 => Ok(()),
            _ => self.begin_to_send_slow(receiving, me, wakes),
        }
    }

    #[cold]
    fn begin_to_send_slow(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        self.check_producers(receiving, me, wakes)?;
        if !self.may_be_due() {
            return Ok(());
        }
        match self.reclaim_and_serve(receiving, wakes) {
            // Without memory, the engine can't set an expired message aside. The caller sends anyway, as after an error in `store_due`.
            Err(Fault::NoMemory) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Returns whether the queue is closed for sending, no message is left, and no message can return from a lease or an offer.
    pub(super) fn is_at_end(&self, _: ReceiverHeld<'_>) -> bool {
        self.seems_at_end()
    }

    /// Returns whether the stream seems to be at its end. The result is a hint, read without the lock, of [`is_at_end`](Self::is_at_end).
    pub(super) fn seems_at_end(&self) -> bool {
        if !self.is_send_closed() {
            return false;
        }
        let fixed = self.segment().fixed();
        // Relaxed: exact under the receiver lock, otherwise a hint.
        let reserved = u64::from(fixed.leases.reserved.load(Ordering::Relaxed));
        let aside = fixed.leases.aside.load(Ordering::Relaxed);
        let others = reserved + u64::from(leases::in_the_way(aside));
        self.available() == 0
            && fixed.receiver.held() <= others
            && Waiters::of(self.segment()).len(List::Offered) == 0
    }

    /// Returns the error of a call that found no message or no room: the end of the stream, or a queue that is empty or full.
    #[cold]
    pub(super) fn not_now(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Refused {
        self.close_if_left(receiving, me, wakes);
        match self.is_at_end(receiving) {
            true => Refused::Closed,
            false => Refused::NotNow,
        }
    }

    /// Returns the error of a call whose wait failed. A call that waits without the lock gives up only because the queue was closed for sending.
    pub(super) fn refusal(&self, end: End) -> Refused {
        match end {
            End::Abandoned if self.is_send_closed() => Refused::Closed,
            // `Abandoned` means here that the ring has no receiving process. The sender of the ring gets this time-out, and then finds the real
            // reason.
            end => end.refused(Refused::TimedOut),
        }
    }

    /// Wakes the waiting receivers if the queue is closed for sending, and its last message has left the queue permanently.
    pub(super) fn wake_at_end(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        let waiters = Waiters::of(self.segment());
        if waiters.len(List::Receivers) != 0 && self.is_at_end(receiving) {
            wakes.add_everybody(waiters.usable());
        }
    }

    /// Closes the queue for sending. Returns false if the queue was already closed for sending.
    pub fn close_send(&self, me: &Thread) -> Result<bool, Refused> {
        self.change_closing(me, |engine, both, wakes| {
            if engine.is_send_closed() {
                return false;
            }
            engine.set_send_closed(both, me, wakes);
            true
        })
    }

    /// Closes the queue for sending, and wakes all waiters. The queue must not be closed for sending already.
    pub(super) fn set_send_closed(
        &self,
        both: BothHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) {
        let receiving = both.receiver();
        self.foretell_close(receiving);
        self.set_attention(receiving, SEND_CLOSED, SEND_CLOSED);
        crash_point!(SEND_CLOSED_SET);
        self.fire_at_close(receiving, me.pid(), wakes);
        // All waiters wake: blocked senders find that the queue is closed for sending, and blocked receivers find the end of the stream.
        wakes.add_everybody(Waiters::of(self.segment()).usable());
    }

    /// Opens the queue for sending again. Returns whether the queue was closed for sending before the call.
    pub fn reopen_send(&self, me: &Thread) -> Result<bool, Refused> {
        self.change_closing(me, |engine, both, _| {
            let was_closed = engine.is_send_closed();
            engine.forget_dead_producers(both);
            engine.set_attention(both.receiver(), SEND_CLOSED, 0);
            crash_point!(SEND_REOPENED);
            was_closed
        })
    }

    /// Takes both locks, and runs `change`, which may change whether the queue is closed for sending. Tries again if the owner of the sender lock is
    /// stopped.
    pub(super) fn change_closing(
        &self,
        me: &Thread,
        change: impl Fn(&Engine, BothHeld<'_>, &mut DeferredWakes) -> bool,
    ) -> Result<bool, Refused> {
        loop {
            let changed = self.with_receiver_lock(me, Deadline::Never, |receiving, wakes| {
                let both = self.borrow_sender_lock(receiving, me, Deadline::Never)?;
                let changed = change(self, both, wakes);
                self.segment().fixed().sender.lock.give_back();
                Ok(changed)
            });
            match changed {
                // The sender lock belongs to a thread that is stopped. This thread releases the receiver lock and waits for the sender lock alone, so
                // that it blocks no receiver.
                Err(Refused::Fault(Fault::Busy)) => self.lock_sender(me, Deadline::Never)?.unlock(),
                other => return other,
            }
        }
    }
}
