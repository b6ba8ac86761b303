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

    /// Sets the words for `slots` free slots. No other process sees the segment.
    pub(crate) fn begin(&self, slots: usize) {
        // Relaxed: no other process sees the segment before its file is linked.
        self.freed.store(slots as u64, Ordering::Relaxed);
    }
}
