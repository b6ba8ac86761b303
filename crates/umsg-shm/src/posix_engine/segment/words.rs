//! The words of a segment by name, for a diagnosis and for tests that forge them.

use super::{Cell, Fixed};
use crate::posix_engine::RECEIVERS;
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering, words};

words! {
    /// The words that a diagnosis compares, in their places in the file.
    Words of Fixed {
        mode: AtomicU32 = header.mode,
        attention: AtomicU32 = wait_flags.attention,
        wake_word: AtomicU32 = wait_flags.wake_word,
        run: AtomicU64 = run.word,
        ring_mask: AtomicU32 = geometry.ring_mask,
        slots: AtomicU32 = geometry.slots,
        sent: AtomicU64 = sender.sent,
        batch_end: AtomicU64 = sender.batch_end,
        freed_seen: Guarded64 = sender.freed_seen,
        removed_seen: Guarded64 = sender.removed_seen,
        freed: AtomicU64 = published.freed,
        removed: AtomicU64 = published.removed,
        removed_bytes: AtomicU64 = published.removed_bytes,
        drained: AtomicU64 = receiver.drained,
        /// Bytes taken from the ring; the element `drained & 1` counts.
        bytes: [AtomicU64; 2] = receiver.bytes,
        stored: AtomicU64 = receiver.stored,
        stored_bytes: AtomicU64 = receiver.stored_bytes,
        held: AtomicU64 = receiver.held,
        sequence: Guarded64 = receiver.sequence,
        level1: [Guarded64] = receiver.level1,
        level2: Guarded64 = receiver.level2,
        /// Repairs since creation: of the sender side, of the receiver side.
        repairs: [AtomicU32; 2] = receiver.repairs,
    }
}

impl Fixed {
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

words! {
    /// The words of a cell that a diagnosis compares.
    CellWords of Cell {
        stamp: AtomicU64 = stamp,
        key: Guarded64 = key,
        len: Guarded32 = len,
        block: Guarded32 = block,
        sequence: Guarded64 = sequence,
    }
}
