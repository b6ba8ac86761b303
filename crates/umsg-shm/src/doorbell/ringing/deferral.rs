//! Rings that a sender defers until it has released the locks: see [`deferred`](crate::doorbell::deferred).

use super::super::{
    Deferred, DeferredRing, LEVELS, LOOK_FOR_MESSAGES, LOOK_FOR_ROOM, Lookup, MESSAGES, PRIVATE,
    PollFifo, Ticket,
};
use super::{Level, Ringer};
use crate::lock::tokens::ReceiverHeld;
use crate::sync::spin_hint;

/// The number of times that a process checks a pending ring whose sender is about to ring on another processor.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

impl<'a> Ringer<'a> {
    /// Defers the ring for the message at ring position `position` of an empty queue: the caller sends the message, releases the locks and rings. None
    /// if the caller has to ring under the lock. `then` is the level after the send.
    pub(crate) fn defer(
        &self,
        receiving: ReceiverHeld<'_>,
        (now, then): (Level, Level),
        position: u64,
    ) -> Option<Deferred<'a>> {
        let deferred = self.deferred?;
        let watched = self.watched.get();
        let others = PRIVATE | LOOK_FOR_MESSAGES | LOOK_FOR_ROOM;
        let is_plain = watched & (LEVELS | others) == LEVELS && self.words.shown.get() == 0;
        if !is_plain || (now.messages, then.messages) != (0, 1) || then.room == 0 {
            return None;
        }
        let Lookup::Found(fifo) = self.doorbell.fifo(self.words.name.get()) else {
            return None;
        };
        let ticket = deferred.begin(receiving, position)?;
        self.doorbell.note_progress();
        let tells = self.reports_edges(then);
        if tells {
            self.words.told.set(then.word());
        }
        self.words.shown.set(1);
        Some(Deferred {
            ticket,
            fifo,
            // A write wakes pollers for messages alone.
            loudly: tells && watched & then.edges() & !MESSAGES != 0,
        })
    }

    /// Takes back a deferred ring, because the message was not sent.
    pub(crate) fn take_back_deferred(&self, _: ReceiverHeld<'_>, _: Deferred<'_>) {
        self.words.shown.set(0);
        if let Some(deferred) = self.deferred {
            deferred.forget();
        }
    }

    /// Ends a deferred ring that was late or failed: counts the packets.
    pub(crate) fn end_late_ring(&self, receiving: ReceiverHeld<'_>, ticket: Ticket, now: Level) {
        if let Some(deferred) = self.deferred
            && let Some(has_failed) = deferred.end_late(receiving, ticket)
        {
            self.hold(now, has_failed);
        }
    }

    /// Returns the deferred ring and its ticket, if the ring is pending.
    pub(super) fn pending(&self) -> Option<(&DeferredRing, Ticket)> {
        let deferred = self.deferred?;
        deferred.pending().map(|ticket| (deferred, ticket))
    }

    /// Waits for a moment until a sender on another processor has rung. Returns whether the sender has rung.
    fn wait_for_sender((deferred, ticket): (&DeferredRing, Ticket)) -> bool {
        (0..SPINS).any(|_| {
            spin_hint();
            deferred.pending() != Some(ticket)
        })
    }

    /// Makes sure that pollers have been told of the message whose ring is pending. `now` is the present level.
    pub(super) fn show_deferred(&self, now: Level) {
        if let Some(pending) = self.pending() {
            self.show_pending(pending, now);
        }
    }

    #[cold]
    pub(super) fn show_pending(&self, pending: (&DeferredRing, Ticket), now: Level) {
        if Self::wait_for_sender(pending) {
            return;
        }
        let (deferred, ticket) = pending;
        if self.fifo().is_some_and(|fifo| fifo.shows(1)) {
            deferred.note_seen(ticket);
        } else {
            self.hold(now, false);
        }
    }

    /// Makes the FIFO hold `to` packets while its number of packets is uncertain because of a deferred ring. Returns false if the number is certain.
    pub(super) fn change_beside_deferred(
        &self,
        fifo: &PollFifo<'_>,
        to: u32,
        loudly: bool,
    ) -> bool {
        let Some(deferred) = self.deferred else {
            return false;
        };
        if let Some(ticket) = deferred.pending() {
            // If `to` is 0, the message was received. Its packet is removed, if the FIFO has it.
            if to == 0 && fifo.remove(loudly) {
                deferred.note_seen(ticket);
                return true;
            }
            if Self::wait_for_sender((deferred, ticket)) || !deferred.note_late(ticket) {
                // The sender has written the packet meanwhile, so the number of packets is certain.
                return false;
            }
        } else if !deferred.is_late() {
            return false;
        }
        fifo.hold(to);
        // A packet that came late may already show a message of which pollers were not told.
        fifo.nudge();
        true
    }
}
