//! Steps with one message under the receiver lock: finding the next message, moving messages from the ring into the store, taking a message from the
//! queue, and freeing its slot.

use super::Engine;
use super::tag::{MARK, priority_of};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::{Cell, PRIORITIES, Ring, has_begun};

/// A received message, whose bytes are in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub len: usize,
    pub key: usize,
    pub mark: u64,
    /// The process id of the sender.
    pub pid: u32,
}

/// The place of a message in the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundIn {
    /// The message is next in the ring.
    Ring,
    /// The message is the first of its priority in the store.
    Store,
    /// The message is the first of its priority in the store of a queue with fair priorities. Taking the message changes which priority has the next
    /// turn, see [`fair`](super::fair).
    StoreInTurn,
}

/// A message whose header was checked, or the room for a message that a sender will write.
#[derive(Clone, Copy)]
pub(crate) struct FoundMessage<'a> {
    pub(crate) slot: u32,
    pub(crate) cell: &'a Cell,
    /// The length of the message in bytes, at most the message size of the queue.
    pub(crate) len: usize,
    /// The priority of the message, below the number of priorities.
    pub(crate) key: usize,
    /// The mark that the sender of a ring stored beside the priority.
    pub(crate) mark: u64,
    /// The process id of the sender. The id is copied when the message is found, because the slot may be reused later.
    pid: u32,
    place: FoundIn,
}

impl<'a> FoundMessage<'a> {
    /// Describes room for a message that the sender will write.
    pub(super) fn in_place(slot: u32, cell: &'a Cell, len: usize) -> Self {
        FoundMessage {
            slot,
            cell,
            len,
            key: 0,
            mark: 0,
            pid: 0,
            place: FoundIn::Ring,
        }
    }

    /// Returns the description of the message for its receiver.
    #[inline(always)]
    pub(super) fn taken(&self) -> Taken {
        Taken {
            len: self.len,
            key: self.key,
            mark: self.mark,
            pid: self.pid,
        }
    }

    /// Returns whether the message is in the store.
    #[inline(always)]
    pub(super) fn is_stored(&self) -> bool {
        self.place != FoundIn::Ring
    }

    /// Returns this message with `place` as its place.
    pub(super) fn at(self, place: FoundIn) -> Self {
        FoundMessage { place, ..self }
    }
}

impl Engine {
    /// Finds the message that is delivered next. The message stays in the queue.
    #[inline(always)]
    pub(super) fn best(
        &self,
        receiving: ReceiverHeld<'_>,
    ) -> Result<Option<FoundMessage<'_>>, Fault> {
        let fixed = self.segment().fixed();
        let receiver = &fixed.receiver;
        let run = fixed.run.before_stamp();
        let drained = receiver.drained(receiving);
        if receiver.stored(receiving) == 0 && has_begun(run, drained) {
            let Some((slot, cell)) = Ring::of(self.segment()).published(drained)? else {
                return Ok(None);
            };
            if fixed.run.is_still(run) {
                return self.found(slot, cell, FoundIn::Ring).map(Some);
            }
        }
        self.best_slow(receiving)
    }

    /// Returns the message in a slot that is in the list of a priority.
    pub(super) fn stored_at(&self, slot: u32, priority: usize) -> Result<FoundMessage<'_>, Fault> {
        let found = self.found(slot, self.segment().cell(slot)?, FoundIn::Store)?;
        if found.key == priority {
            Ok(found)
        } else {
            Err(Fault::Damaged)
        }
    }

    /// Returns the message in a cell, after a check of the cell's header.
    #[inline(always)]
    pub(super) fn found<'a>(
        &self,
        slot: u32,
        cell: &'a Cell,
        place: FoundIn,
    ) -> Result<FoundMessage<'a>, Fault> {
        let (len, label) = (cell.len(), cell.key());
        let key = priority_of(label);
        if len > self.segment().layout().message_size || key >= PRIORITIES {
            return Err(Fault::Damaged);
        }
        Ok(FoundMessage {
            slot,
            cell,
            len,
            key,
            mark: label >> MARK,
            pid: cell.pid(),
            place,
        })
    }

    /// Finds the next message if the ring's messages may have several priorities: drains the ring into the store first.
    #[inline(never)]
    fn best_slow(&self, receiving: ReceiverHeld<'_>) -> Result<Option<FoundMessage<'_>>, Fault> {
        let receiver = &self.segment().fixed().receiver;
        let ring = Ring::of(self.segment());
        let drained = receiver.drained(receiving);
        if receiver.stored(receiving) == 0 {
            let Some((slot, cell)) = ring.published(drained)? else {
                return Ok(None);
            };
            if ring.published(drained.wrapping_add(1))?.is_none() {
                // The ring has only this message, so its priority does not matter.
                return self.found(slot, cell, FoundIn::Ring).map(Some);
            }
        }
        self.drain(receiving)?;
        let order = Priorities::of(self.segment());
        let Some(priority) = order.highest() else {
            return Err(Fault::Damaged);
        };
        self.stored_at(order.first(priority)?, priority).map(Some)
    }

    /// Moves every published message from the ring into the store.
    #[inline]
    pub(super) fn drain(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        let receiver = &self.segment().fixed().receiver;
        let ring = Ring::of(self.segment());
        for streak in 0_u32.. {
            let drained = receiver.drained(receiving);
            let Some((slot, cell)) = ring.published(drained)? else {
                break;
            };
            if streak != 0 {
                self.prefetch_in_ring(streak);
            }
            let found = self.found(slot, cell, FoundIn::Ring)?;
            self.store(receiving, &found)?;
            crash_point!(DRAIN_LINKED);
            receiver.advance(receiving, drained, found.len);
        }
        Ok(())
    }

    /// Adds a message to the store, after all other messages of its priority.
    #[inline(always)]
    pub(super) fn store(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
    ) -> Result<(), Fault> {
        self.mark_stored(receiving, found.cell);
        crash_point!(DRAIN_MARKED);
        Priorities::of(self.segment()).push_back(receiving, found.key, found.slot)?;
        self.count_stored(receiving, found.len as u64, 1);
        Ok(())
    }

    /// Gives a message the next sequence number, and marks the message as stored.
    pub(crate) fn mark_stored(&self, receiving: ReceiverHeld<'_>, cell: &Cell) {
        let receiver = &self.segment().fixed().receiver;
        cell.set_sequence(receiver.next_sequence(receiving));
        cell.set_stored(true);
    }

    /// Adds `messages` (1 or -1), and the bytes of the message, to the counts of the store.
    pub(crate) fn count_stored(&self, receiving: ReceiverHeld<'_>, bytes: u64, messages: i64) {
        let receiver = &self.segment().fixed().receiver;
        receiver.count_stored(receiving, bytes, messages);
    }

    /// Takes a message from the queue. The slot of the message then belongs to the caller.
    #[inline(always)]
    pub(super) fn take(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
    ) -> Result<(), Fault> {
        match found.place {
            FoundIn::Ring => {}
            FoundIn::Store => return self.take_stored(receiving, found),
            FoundIn::StoreInTurn => return self.take_in_turn(receiving, found),
        }
        let receiver = &self.segment().fixed().receiver;
        receiver.advance(receiving, receiver.drained(receiving), found.len);
        crash_point!(RECEIVE_TAKEN);
        Ok(())
    }

    #[inline]
    pub(super) fn take_stored(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
    ) -> Result<(), Fault> {
        found.cell.forget();
        Priorities::of(self.segment()).pop(receiving, found.key)?;
        self.count_stored(receiving, found.len as u64, -1);
        crash_point!(RECEIVE_UNSTORED);
        Ok(())
    }

    /// Frees a slot that is no longer used: writes its number into the ring, after the numbers of the other free slots.
    #[inline(always)]
    pub(crate) fn free_slot(&self, receiving: ReceiverHeld<'_>, slot: u32) {
        let published = &self.segment().fixed().published;
        let freed = published.freed(receiving);
        Ring::of(self.segment()).write(freed, slot);
        crash_point!(RECEIVE_RETURNED);
        published.free_up_to(receiving, freed.wrapping_add(1));
    }

    /// Publishes to senders how many messages have left the queue. The caller has already served the waiters for room.
    #[inline(always)]
    pub(crate) fn publish_counts(&self, receiving: ReceiverHeld<'_>) {
        self.segment().fixed().publish_counts(receiving);
    }

    /// Puts an offered message that was not accepted back into the store, in its old place.
    pub(super) fn put_back(&self, receiving: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        let cell = self.segment().cell(slot)?;
        let found = self.found(slot, cell, FoundIn::Store)?;
        cell.set_stored(true);
        Priorities::of(self.segment()).push_in_order(receiving, found.key, slot)?;
        self.count_stored(receiving, found.len as u64, 1);
        self.publish_counts(receiving);
        Ok(())
    }

    /// Returns the message in a slot that belongs to a node, to a record or to the caller.
    pub(crate) fn in_hand(
        &self,
        _: ReceiverHeld<'_>,
        slot: u32,
    ) -> Result<FoundMessage<'_>, Fault> {
        self.found(slot, self.segment().cell(slot)?, FoundIn::Ring)
    }

    /// Gives an offered message a sequence number, so that the message has a place in the store if the offer is withdrawn.
    pub(super) fn sequence_offered(&self, receiving: ReceiverHeld<'_>, found: &FoundMessage<'_>) {
        if !found.is_stored() {
            let receiver = &self.segment().fixed().receiver;
            found.cell.set_sequence(receiver.next_sequence(receiving));
        }
    }
}
