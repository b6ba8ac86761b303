//! The words that the receivers' side publishes for the senders' side.

use crate::doorbell::DeferredRing;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU64, Ordering};

/// The words that the receivers' side publishes for the senders' side.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Published {
    /// The ring position up to which senders may fill slots.
    pub(super) freed: AtomicU64,
    /// The number of messages that have left the queue: `sent - removed` messages are queued.
    pub(super) removed: AtomicU64,
    /// The number of bytes that have left the queue: `bytes sent - removed_bytes` bytes are queued.
    pub(super) removed_bytes: AtomicU64,
    /// The note of a sender that has deferred the ring of the doorbell. Only calls on a polled queue use the word.
    pub(crate) deferred_ring: DeferredRing,
    /// The number of messages that entered the queue without a ring position: messages of blocked senders, and reserved slots. Each such
    /// message is subtracted from `removed`, so `removed + entered` messages have ever left the queue.
    entered: AtomicU64,
    /// The number of bytes in these messages.
    entered_bytes: AtomicU64,
}

impl Published {
    /// Returns the ring position after the last free slot.
    #[inline(always)]
    pub(crate) fn freed(&self, _: ReceiverHeld<'_>) -> u64 {
        // Relaxed: only holders of the receiver lock store the word.
        self.freed.load(Ordering::Relaxed)
    }

    /// Returns the ring position after the last free slot, to a sender. The sender also sees the ring entries and the free cells before this
    /// position.
    #[inline(always)]
    pub(crate) fn freed_so_far(&self) -> u64 {
        // Acquire: FREED. Pairs with the release in `free_up_to`.
        self.freed.load(Ordering::Acquire)
    }

    /// Frees the slots before ring position `freed` for senders. The entries of these slots are written.
    #[inline(always)]
    pub(crate) fn free_up_to(&self, _: ReceiverHeld<'_>, freed: u64) {
        // Release: FREED. Pairs with the acquire in `freed_so_far`: the entry is written, and the receiver no longer uses the cell.
        self.freed.store(freed, Ordering::Release);
    }

    /// Returns the number of messages that have left the queue. The caller sees that the slots of all these messages are free.
    #[inline(always)]
    pub(crate) fn removed(&self) -> u64 {
        // Acquire: ROOM. `freed` is stored before `removed`.
        self.removed.load(Ordering::Acquire)
    }

    /// Returns the number of bytes that have left the queue.
    pub(crate) fn removed_bytes(&self) -> u64 {
        self.removed_bytes.load(Ordering::Acquire)
    }

    /// Publishes the numbers of messages and bytes that have left the queue, for senders.
    #[inline(always)]
    pub(super) fn publish(&self, _: ReceiverHeld<'_>, removed: u64, bytes: u64) {
        // Relaxed: the store to `removed` publishes this store.
        self.removed_bytes.store(bytes, Ordering::Relaxed);
        // Release: ROOM. Pairs with the acquire in `removed`.
        self.removed.store(removed, Ordering::Release);
    }

    /// Counts a message of `len` bytes that enters the queue without a ring position. The caller counts the message before it enters, so that no total
    /// goes back if the caller dies: a message that does not enter may be counted.
    pub(crate) fn count_entered(&self, receiving: ReceiverHeld<'_>, len: usize) {
        // Relaxed, here and in the next functions: the words are only displayed, and only holders of the receiver lock store them.
        let entered = self.entered.load(Ordering::Relaxed);
        self.entered
            .store(entered.wrapping_add(1), Ordering::Relaxed);
        self.count_entered_bytes(receiving, len);
    }

    /// Takes back the count of a message that did not enter the queue.
    pub(crate) fn uncount_entered(&self, _: ReceiverHeld<'_>, len: usize) {
        let (entered, bytes) = self.entered();
        self.entered
            .store(entered.wrapping_sub(1), Ordering::Relaxed);
        self.entered_bytes
            .store(bytes.wrapping_sub(len as u64), Ordering::Relaxed);
    }

    /// Counts the bytes of a message in a reserved slot, before the message enters the queue.
    pub(crate) fn count_entered_bytes(&self, _: ReceiverHeld<'_>, len: usize) {
        let bytes = self.entered_bytes.load(Ordering::Relaxed);
        self.entered_bytes
            .store(bytes.wrapping_add(len as u64), Ordering::Relaxed);
    }

    /// Sets the counts of the messages that entered the queue without a ring position, and of their bytes. A salvage sets the counts.
    pub(crate) fn restart_entered(&self, _: ReceiverHeld<'_>, messages: u64, bytes: u64) {
        self.entered.store(messages, Ordering::Relaxed);
        self.entered_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of messages that entered the queue without a ring position, and the number of their bytes.
    pub(crate) fn entered(&self) -> (u64, u64) {
        (
            self.entered.load(Ordering::Relaxed),
            self.entered_bytes.load(Ordering::Relaxed),
        )
    }

    /// Sets the words for `slots` free slots. No other process sees the segment.
    pub(crate) fn begin(&self, slots: usize) {
        // Relaxed: no other process sees the segment before its file is linked.
        self.freed.store(slots as u64, Ordering::Relaxed);
    }
}
