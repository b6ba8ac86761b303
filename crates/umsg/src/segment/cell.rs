//! The cell of a slot: a message's header, and behind it the bytes of a short message.
//!
//! A cell is one cache line, or two that the prefetcher fetches together: a queue whose messages have at most 16 bytes
//! uses the shorter, which halves its memory. See [`super::Layout::cell_len`].

use crate::sync::{AtomicU64, Guarded32, Guarded64};

/// The header of a cell.
#[repr(C, align(16))]
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
    #[cfg(loom)]
    pub(crate) payload: crate::model::segment::Inline,
}

/// Lengths of the two kinds of cell, in bytes, header and all.
pub(crate) const SHORT_CELL: usize = 64;
/// See [`SHORT_CELL`].
pub(crate) const LONG_CELL: usize = 128;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Cell>() == 48 && size_of::<Cell>() < SHORT_CELL);
