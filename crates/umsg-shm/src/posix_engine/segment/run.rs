//! The one-priority word: the last message's priority, and the position from which on all messages have this priority.

use crate::lock::tokens::SenderHeld;
use crate::sync::{AtomicU64, Ordering};

/// The one-priority word.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Run {
    /// `position << 16 | priority`: every message from this ring position on has this priority. A sender changes the word only if its message has
    /// another priority.
    pub(super) word: AtomicU64,
}

impl Run {
    /// Returns the word, for a caller that reads a stamp next. RUN: if a message of another priority was sent before this call, the call returns the
    /// changed word.
    #[inline(always)]
    pub(crate) fn before_stamp(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Returns whether the word is still `run`. The caller has read the stamps.
    #[inline(always)]
    pub(crate) fn is_still(&self, run: u64) -> bool {
        // Relaxed: RUN. One of the stamps that the caller has read may belong to the first message of a batch with another priority. That stamp was
        // read with acquire, so this load reads the changed word.
        self.word.load(Ordering::Relaxed) == run
    }

    /// Returns the priority of the last message.
    #[inline(always)]
    pub(crate) fn last_priority(&self, _: SenderHeld<'_>) -> usize {
        // Relaxed: only holders of the sender lock store the word.
        self.word.load(Ordering::Relaxed) as u16 as usize
    }

    /// Notes that every message from `position` on has this priority. The caller stamps the message at `position` after this call.
    pub(crate) fn begin(&self, _: SenderHeld<'_>, position: u64, priority: usize) {
        // Release: RUN. A receiver that sees the stamp of a message with another priority sees the changed word.
        self.word
            .store(position << 16 | priority as u64, Ordering::Release);
    }
}

/// Returns whether every message from ring position `drained` on has the priority of the word `run`. The word has only 48 bits of a position, so the
/// comparison uses only these bits.
#[inline(always)]
pub fn has_begun(run: u64, drained: u64) -> bool {
    drained.wrapping_sub(run >> 16) << 16 >> 63 == 0
}
