//! The producers of a POSIX queue, see [`crate::producers`].

use super::{COUNTED, DeferredWakes, Engine, Refused, SEND_CLOSED};
use crate::doorbell::Watched;
use crate::lock::STOPPED;
use crate::lock::tokens::{BothHeld, ReceiverHeld};
use crate::sys::clock::Deadline;
use crate::sys::liveness;
use crate::sys::thread::Thread;

impl Engine {
    /// Returns the number of living processes that count as producers.
    pub fn producers(&self, me: &Thread) -> Result<usize, Refused> {
        self.with_receiver_lock(me, Deadline::Passed, |receiving, _| {
            let producers = &self.segment().fixed().producers;
            Ok(producers.living(receiving, self.segment()))
        })
    }

    /// Counts the calling process as a producer. If the process is already a producer, gives it one more guard. Returns false if the process has no
    /// record and all records belong to other producers.
    pub fn begin_to_produce(&self, me: &Thread) -> Result<bool, Refused> {
        liveness::register(self.segment());
        self.with_receiver_lock(me, Deadline::Never, |receiving, wakes| {
            self.check_producers(receiving, me, wakes)?;
            if self.policy().close_with_producers {
                // The bit is set before the record is written. If the process dies between the two steps, senders still check the record.
                self.set_attention(receiving, COUNTED, COUNTED);
            }
            let producers = &self.segment().fixed().producers;
            let counts = producers.begin(receiving, self.segment(), me);
            self.ringer().call_timekeepers(receiving);
            Ok(counts)
        })
    }

    /// Removes one guard of the calling process. When the last producer ends, the queue is closed for sending. Returns false if the process was not a
    /// producer.
    pub fn end_producing(&self, me: &Thread) -> Result<bool, Refused> {
        self.change_closing(me, |engine, both, wakes| {
            let (receiving, producers) = (both.receiver(), &engine.segment().fixed().producers);
            let left = producers.end(receiving, engine.segment(), me);
            if left == Some(0) && engine.is_left(receiving) {
                engine.set_send_closed(both, me, wakes);
            }
            left.is_some()
        })
    }

    /// Returns whether the queue is open for sending although all its producers have died. The next send or receive that checks the producers closes
    /// the queue for sending.
    pub fn has_lost_producers(&self, me: &Thread) -> bool {
        let is_left = self.with_receiver_lock(me, Deadline::Passed, |receiving, _| {
            Ok(self.is_left(receiving))
        });
        is_left.unwrap_or(false)
    }

    /// Closes the queue for sending if all its producers have died. A send calls this function first.
    pub(super) fn look_for_producers(&self, me: &Thread, deadline: Deadline) {
        let attention = self.segment().fixed().wait_flags.attention();
        if attention & (COUNTED | SEND_CLOSED) == COUNTED && self.next_query_to_send.seems_due() {
            // An error is ignored. If the lock's owner is stopped, the send needs no receiver lock, or reports the stopped owner itself. A stopped
            // receiver must not block senders.
            let patience = deadline.or_slice(STOPPED);
            let _ = self.with_receiver_lock(me, patience, |receiving, wakes| {
                self.close_for_sender(receiving, me, wakes);
                Ok(())
            });
        }
    }

    /// Closes the queue for sending if all its producers have died. Returns an error if the queue is closed for sending. The caller does not hold the
    /// sender lock.
    #[inline(always)]
    pub(super) fn check_producers(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        match self.may_be_closed() {
            true => self.check_producers_slow(receiving, me, wakes),
            false => Ok(()),
        }
    }

    #[cold]
    fn check_producers_slow(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        self.close_for_sender(receiving, me, wakes);
        self.check_open(receiving)
    }

    /// Returns whether the queue is closed for sending, or will be when its producers die.
    #[inline(always)]
    pub(super) fn may_be_closed(&self) -> bool {
        let attention = self.segment().fixed().wait_flags.attention();
        attention & (SEND_CLOSED | COUNTED) != 0
    }

    /// Closes the queue for sending if all its producers have died. Makes the check for dead producers only after a pause since the last check.
    pub(super) fn close_if_left(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) {
        if self.may_be_left(receiving) && self.next_query.is_due(receiving) {
            self.close_left(receiving, me, wakes);
        }
    }

    /// Closes the queue for sending before a send, like [`close_if_left`](Self::close_if_left) after a receive. A handle has separate pauses for its
    /// sends and its receives.
    fn close_for_sender(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) {
        if self.may_be_left(receiving) && self.next_query_to_send.is_due(receiving) {
            self.close_left(receiving, me, wakes);
        }
    }

    fn close_left(&self, receiving: ReceiverHeld<'_>, me: &Thread, wakes: &mut DeferredWakes) {
        if !self.is_left(receiving) {
            return;
        }
        // If a stopped sender holds the sender lock, the loan fails, and a later call closes the queue for sending.
        if let Ok(both) = self.borrow_sender_lock(receiving, me, Deadline::Passed) {
            self.set_send_closed(both, me, wakes);
            self.segment().fixed().sender.lock.give_back();
        }
    }

    /// Returns whether the queue is open for sending and had producers: then the end of the last producer closes the queue for sending.
    pub(super) fn may_be_left(&self, receiving: ReceiverHeld<'_>) -> bool {
        self.policy().close_with_producers
            && !self.is_send_closed()
            && self.segment().fixed().producers.had_any(receiving)
    }

    /// Returns whether the queue is open for sending, and had producers that are all dead. Makes system calls.
    fn is_left(&self, receiving: ReceiverHeld<'_>) -> bool {
        let producers = &self.segment().fixed().producers;
        self.may_be_left(receiving) && producers.are_gone(receiving, self.segment())
    }

    /// Removes the dead producers when a queue that was closed for sending is reopened. Only producers that live at that time keep counting.
    pub(super) fn forget_dead_producers(&self, both: BothHeld<'_>) {
        let producers = &self.segment().fixed().producers;
        producers.forget_dead(both.receiver(), self.segment());
    }
}
