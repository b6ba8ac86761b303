//! The geometry: how much of the growing regions is in use.

use crate::lock::tokens::BothHeld;
use crate::sync::{AtomicU32, Ordering};

/// How much of the growing regions is in use.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Geometry {
    /// The number of entries of the ring in use, minus one. The number is a power of two.
    pub(super) ring_mask: AtomicU32,
    /// The number of slots in circulation.
    pub(super) slots: AtomicU32,
}

impl Geometry {
    /// Returns the number of slots in circulation. The result is exact under either lock, otherwise a hint.
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

    /// Returns the number of entries of the ring in use, minus one. The result is exact under either lock, otherwise a hint.
    #[inline(always)]
    pub(crate) fn ring_mask(&self) -> u32 {
        // Relaxed: the mask changes only under both locks.
        self.ring_mask.load(Ordering::Relaxed)
    }

    /// Returns the result of [`ring_mask`](Self::ring_mask) to a thread that then reads an entry. The thread sees the entries that the mask covers.
    #[inline(always)]
    pub(crate) fn ring_mask_with_entries(&self) -> u32 {
        // Acquire: WIDER. The mask changes only under both locks, but `seems_filled` reads it without a lock. This pairs
        // with the release in `widen_ring`: a process that sees the larger mask sees the copied half.
        self.ring_mask.load(Ordering::Acquire)
    }

    /// Makes the ring `entries` long. The caller has filled in all entries.
    pub(crate) fn widen_ring(&self, _: BothHeld<'_>, entries: usize) {
        // Release: WIDER. A thread that spins without a lock may use the new mask at once.
        self.ring_mask
            .store((entries - 1) as u32, Ordering::Release);
    }

    /// Sets the length of the ring and the slots of a segment that no other process sees.
    pub(crate) fn begin(&self, entries: usize, slots: usize) {
        // Relaxed: no other process sees the segment before its file is linked.
        self.ring_mask
            .store((entries - 1) as u32, Ordering::Relaxed);
        self.slots.store(slots as u32, Ordering::Relaxed);
    }
}
