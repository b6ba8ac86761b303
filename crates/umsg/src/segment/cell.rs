//! The cell of a slot: a message's header and its first bytes, 128 bytes, two cache lines.

use crate::sync::{AtomicU64, Guarded32, Guarded64};

/// Bytes of a message that lie in the cell itself; a longer one lies wholly in a block of the arena.
pub(crate) const INLINE: usize = 80;

/// See the module. What the fast path touches comes first: a message of up to 16 bytes is one cache line.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Cell {
    /// Position in the ring plus one of the message that was published here last. The one word of the cell that is
    /// read without a lock; its release store is what sends a message.
    pub(crate) stamp: AtomicU64,
    /// POSIX: the priority.
    pub(crate) key: Guarded64,
    /// The message's length in bytes.
    pub(crate) len: Guarded32,
    /// The block of the arena that belongs to the slot, as granule number; 0 for none. A free slot keeps its block.
    pub(crate) block: Guarded32,
    /// Whether the message is in the store: 1, or 0.
    pub(crate) stored: Guarded32,
    /// Process id of the sender.
    pub(crate) pid: Guarded32,
    /// In the store: its place among all that ever were; order within a priority.
    pub(crate) sequence: Guarded64,
    /// CLOCK_REALTIME_COARSE of the send, in nanoseconds since 1970.
    pub(crate) sent_at: Guarded64,
    pub(crate) payload: Inline,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Cell>() == 128);
    assert!(std::mem::offset_of!(Cell, payload) + INLINE == 128);
};

/// The bytes in the cell.
#[cfg(not(loom))]
#[repr(C)]
pub(crate) struct Inline(std::cell::UnsafeCell<[u8; INLINE]>);

// SAFETY: only raw copies go in and out, and the protocol gives the slot to one thread at a time.
#[cfg(not(loom))]
unsafe impl Sync for Inline {}

#[cfg(not(loom))]
impl Default for Inline {
    fn default() -> Self {
        Inline(std::cell::UnsafeCell::new([0; INLINE]))
    }
}

#[cfg(not(loom))]
impl Inline {
    /// The first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.0.get().cast()
    }
}

#[cfg(loom)]
pub(crate) use crate::model::segment::Inline;
