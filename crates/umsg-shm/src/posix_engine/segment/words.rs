//! The words of a segment by name, for a diagnosis and for tests that forge them.

use super::{Cell, Fixed};
use crate::posix_engine::RECEIVERS;
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering};

/// The words that a diagnosis compares, in their places in the file. The engine itself changes them by named steps only.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    pub mode: &'a AtomicU32,
    pub attention: &'a AtomicU32,
    pub wake_word: &'a AtomicU32,
    pub run: &'a AtomicU64,
    pub ring_mask: &'a AtomicU32,
    pub slots: &'a AtomicU32,
    pub sent: &'a AtomicU64,
    pub batch_end: &'a AtomicU64,
    pub freed_seen: &'a Guarded64,
    pub removed_seen: &'a Guarded64,
    pub freed: &'a AtomicU64,
    pub removed: &'a AtomicU64,
    pub removed_bytes: &'a AtomicU64,
    pub drained: &'a AtomicU64,
    /// Bytes taken from the ring; the element `drained & 1` counts.
    pub bytes: &'a [AtomicU64; 2],
    pub stored: &'a AtomicU64,
    pub stored_bytes: &'a AtomicU64,
    pub held: &'a AtomicU64,
    pub sequence: &'a Guarded64,
    pub level1: &'a [Guarded64],
    pub level2: &'a Guarded64,
    /// Repairs since creation: of the sender side, of the receiver side.
    pub repairs: &'a [AtomicU32; 2],
}

impl Fixed {
    /// The words of the segment by name.
    pub fn words(&self) -> Words<'_> {
        let (sender, receiver) = (&self.sender, &self.receiver);
        Words {
            mode: &self.header.mode,
            attention: &self.wait_flags.attention,
            wake_word: &self.wait_flags.wake_word,
            run: &self.run.word,
            ring_mask: &self.geometry.ring_mask,
            slots: &self.geometry.slots,
            sent: &sender.sent,
            batch_end: &sender.batch_end,
            freed_seen: &sender.freed_seen,
            removed_seen: &sender.removed_seen,
            freed: &self.published.freed,
            removed: &self.published.removed,
            removed_bytes: &self.published.removed_bytes,
            drained: &receiver.drained,
            bytes: &receiver.bytes,
            stored: &receiver.stored,
            stored_bytes: &receiver.stored_bytes,
            held: &receiver.held,
            sequence: &receiver.sequence,
            level1: &receiver.level1,
            level2: &receiver.level2,
            repairs: &receiver.repairs,
        }
    }

    /// Forgets processes that poll or are registered, in a copy on which a diagnosis rehearses calls.
    pub fn forget_watchers(&self) {
        // Relaxed throughout: no other process uses the copy.
        self.receiver.watched.set(0);
        self.wait_flags
            .attention
            .fetch_and(RECEIVERS, Ordering::Relaxed);
        self.receiver.registered.store(0, Ordering::Relaxed);
        self.receiver.notices.store(0, Ordering::Relaxed);
        for notice in &self.notices {
            notice.forget();
        }
    }
}

/// The words of a cell that a diagnosis compares.
#[derive(Clone, Copy)]
pub struct CellWords<'a> {
    pub stamp: &'a AtomicU64,
    pub key: &'a Guarded64,
    pub len: &'a Guarded32,
    pub block: &'a Guarded32,
    pub sequence: &'a Guarded64,
}

impl Cell {
    /// The words of the cell by name.
    pub fn words(&self) -> CellWords<'_> {
        CellWords {
            stamp: &self.stamp,
            key: &self.key,
            len: &self.len,
            block: &self.block,
            sequence: &self.sequence,
        }
    }
}
