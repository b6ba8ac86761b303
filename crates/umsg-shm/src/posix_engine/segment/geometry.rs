//! The part of the growing regions that is in use.

use crate::lock::tokens::BothHeld;
use crate::sync::{AtomicU32, Ordering};

/// The part of the growing regions that is in use.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Geometry {
    /// Entries of the ring in use, a power of two, minus one.
    pub(super) ring_mask: AtomicU32,
    /// Slots in circulation.
    pub(super) slots: AtomicU32,
}

impl Geometry {
    /// Returns the number of slots in circulation. Exact under either lock, otherwise a hint.
    #[inline(always)]
    pub fn slots(&self) -> u32 {
        // Relaxed: changes under both locks only.
        self.slots.load(Ordering::Relaxed)
    }

    /// Sets the number of slots in circulation.
    pub(crate) fn set_slots(&self, _: BothHeld<'_>, slots: u32) {
        // Relaxed: as in `slots`.
        self.slots.store(slots, Ordering::Relaxed);
    }

    /// Returns the number of entries of the ring in use, minus one. Exact under either lock, otherwise a hint.
    #[inline(always)]
    pub(crate) fn ring_mask(&self) -> u32 {
        // Relaxed: changes under both locks only.
        self.ring_mask.load(Ordering::Relaxed)
    }

    /// Returns the same mask, for a thread that then reads an entry: the thread sees the entries that the mask covers.
    #[inline(always)]
    pub(crate) fn ring_mask_with_entries(&self) -> u32 {
        // Acquire: WIDER. The mask changes only under both locks, but `seems_filled` reads it without a lock. This pairs
        // with the release in `widen_ring`: a process that sees the larger mask sees the copied half.
        self.ring_mask.load(Ordering::Acquire)
    }

    /// Makes the ring `entries` long. All entries are filled in.
    pub(crate) fn widen_ring(&self, _: BothHeld<'_>, entries: usize) {
        // Release: WIDER. A spinner without a lock may use the new mask at once.
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
