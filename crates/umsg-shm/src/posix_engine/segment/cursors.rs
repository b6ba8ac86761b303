//! Functions that access both sides of the ring.

use super::Fixed;
use crate::lock::tokens::{BothHeld, ReceiverHeld, SenderHeld};
use crate::repair::log;
use crate::sync::Ordering;

impl Fixed {
    /// Returns whether `count` slots are free from ring position `first` on. Reads the receivers' side only if the words of the senders' side show
    /// too few free slots.
    #[inline(always)]
    pub(crate) fn has_free_slots(&self, sending: SenderHeld<'_>, first: u64, count: u64) -> bool {
        if self.sender.known_free(first) >= count {
            return true;
        }
        self.sender
            .see_freed(sending, self.published.freed_so_far());
        self.sender.known_free(first) >= count
    }

    /// Returns the number of free slots.
    pub(crate) fn free_slots(&self, both: BothHeld<'_>) -> u64 {
        let sent = self.sender.next_position(both.sender());
        self.published.freed(both.receiver()).wrapping_sub(sent)
    }

    /// Moves the end of the free slots. The caller has added entries before the new end, or has taken the last free slot.
    pub(crate) fn move_free_end(&self, both: BothHeld<'_>, freed: u64) {
        self.published.free_up_to(both.receiver(), freed);
        self.sender.see_freed(both.sender(), freed);
    }

    /// Publishes the numbers of messages and bytes that have left the queue, for senders.
    #[inline(always)]
    pub(crate) fn publish_counts(&self, receiving: ReceiverHeld<'_>) {
        let (removed, bytes) = self.receiver.removed_with_bytes(receiving);
        self.published.publish(receiving, removed, bytes);
    }

    /// Corrects the room that senders remember from their last check, if it is more than the present room. Room that is kept for a batch stays kept.
    pub(crate) fn forget_room(&self, _: BothHeld<'_>) {
        let removed = self.published.removed();
        if self.sender.removed_seen().wrapping_sub(removed) as i64 > 0 {
            self.sender.see_removed(removed);
        }
    }

    /// Makes an empty ring at ring position `first` with `free` free slots, for a queue of `max` messages.
    ///
    /// Like the other functions of this module, this function stores all words with release, because processes read the words without a lock.
    pub(crate) fn restart_ring(&self, both: BothHeld<'_>, first: u64, free: u64, max: usize) {
        let sending = both.sender();
        self.run.begin(sending, first, 0);
        self.sender.restart(sending, first);
        self.receiver.restart(first);
        self.sender.move_cursor(sending, first);
        // The next sender checks whether the queue has room.
        self.sender.keep_room(sending, max);
        self.move_free_end(both, first.wrapping_add(free));
    }

    /// Counts and logs a repair of the senders' side.
    pub(crate) fn note_sender_repair(&self, _: SenderHeld<'_>) {
        self.log_repair(0);
    }

    /// Counts and logs a repair of the receivers' side.
    pub(crate) fn note_receiver_repair(&self, _: ReceiverHeld<'_>) {
        self.log_repair(1);
    }

    /// Returns the number of repairs of the sender side, and of the receiver side, since the creation of the queue.
    pub fn repairs(&self) -> [u32; 2] {
        // Relaxed: the numbers are only displayed.
        [0, 1].map(|side: usize| self.repairs[side].load(Ordering::Relaxed))
    }

    fn log_repair(&self, side: usize) {
        let lock = [&self.sender.lock, &self.receiver.lock][side];
        log::note(lock, &self.repairs[side], &self.repair_log[side]);
    }
}
