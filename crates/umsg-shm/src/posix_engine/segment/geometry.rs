//! The geometry: the parts of the growing regions that are in use.

use crate::lock::tokens::BothHeld;
use crate::sync::{AtomicU32, Ordering};

/// The sizes of the parts of the growing regions that are in use.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Geometry {
    /// The number of ring entries in use, minus one. The number of entries is a power of two.
    pub(super) ring_mask: AtomicU32,
    /// The number of slots in circulation.
    pub(super) slots: AtomicU32,
}

impl Geometry {
    /// Returns the number of slots in circulation. Under either lock, the result is exact. Without a lock, the result is a hint.
    #[inline(always)]
    pub fn slots(&self) -> u32 {
        // Relaxed: the number changes only under both locks.
        self.slots.load(Ordering::Relaxed)
    }

    /// Sets the number of slots in circulation.
    pub(crate) fn set_slots(&self, _: BothHeld<'_>, slots: u32) {
        // Relaxed: as in `slots`.
        self.slots.store(slots, Ordering::Relaxed);
    }

    /// Returns the number of ring entries in use, minus one. Under either lock, the result is exact. Without a lock, the result is a hint.
    #[inline(always)]
    pub(crate) fn ring_mask(&self) -> u32 {
        // Relaxed: the mask changes only under both locks.
        self.ring_mask.load(Ordering::Relaxed)
    }

    /// Returns the result of [`ring_mask`](Self::ring_mask) to a thread that then reads an entry. The thread sees the contents of all entries within
    /// the mask.
    #[inline(always)]
    pub(crate) fn ring_mask_with_entries(&self) -> u32 {
        // Acquire: WIDER. The mask changes only under both locks, but `seems_filled` reads it without a lock. The load pairs with the release in
        // `widen_ring`: a process that sees the larger mask also sees the entries that were copied to the upper half of the ring.
        self.ring_mask.load(Ordering::Acquire)
    }

    /// Sets the length of the ring to `entries`. The caller has filled in all entries.
    pub(crate) fn widen_ring(&self, _: BothHeld<'_>, entries: usize) {
        // Release: WIDER. A thread that spins without a lock may use the new mask at once.
        self.ring_mask
            .store((entries - 1) as u32, Ordering::Release);
    }

    /// Sets the length of the ring and the number of slots of a segment that no other process sees.
    pub(crate) fn begin(&self, entries: usize, slots: usize) {
        // Relaxed: no other process sees the segment before its file is linked.
        self.ring_mask
            .store((entries - 1) as u32, Ordering::Relaxed);
        self.slots.store(slots as u32, Ordering::Relaxed);
    }
}
