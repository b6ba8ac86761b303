//! Access by name to the words of a segment, for a diagnosis and for tests that forge words.

use super::{Cell, Fixed};
use crate::posix_engine::RECEIVERS;
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering, words};

words! {
    /// The words that a diagnosis compares, at their offsets in the file. The element `drained & 1` of `bytes` counts the bytes that were taken from
    /// the ring. `repairs` counts the repairs of the sender side and of the receiver side.
    Words of Fixed {
        AtomicU32: mode = header.mode, attention = wait_flags.attention,
            wake_word = wait_flags.wake_word, ring_mask = geometry.ring_mask,
            slots = geometry.slots;
        AtomicU64: run = run.word, sent = sender.sent, batch_end = sender.batch_end,
            freed = published.freed, removed = published.removed,
            removed_bytes = published.removed_bytes, drained = receiver.drained,
            stored = receiver.stored, stored_bytes = receiver.stored_bytes, held = receiver.held;
        Guarded64: freed_seen = sender.freed_seen, removed_seen = sender.removed_seen,
            sequence = receiver.sequence, level2 = receiver.level2;
        [AtomicU64; 2]: bytes = receiver.bytes;
        [Guarded64]: level1 = receiver.level1;
        [AtomicU32; 2]: repairs = repairs;
    }
}

impl Fixed {
    /// Removes pollers and registered processes from a copy of the segment on which a diagnosis tries calls.
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

words! {
    /// The words of a cell that a diagnosis compares.
    CellWords of Cell {
        AtomicU64: stamp;
        Guarded64: key, sequence;
        Guarded32: len, block;
    }
}
