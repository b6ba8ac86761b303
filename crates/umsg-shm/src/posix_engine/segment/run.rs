//! The one-priority word: the priority of all recent messages.

use crate::lock::tokens::SenderHeld;
use crate::sync::{AtomicU64, Ordering};

/// The one-priority word.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Run {
    /// `position << 16 | priority`: every message from this ring position on has this priority. The word changes only when
    /// the priority does.
    pub(super) word: AtomicU64,
}

impl Run {
    /// Returns the word, for a caller that reads a stamp next. RUN: a message of another priority that was sent before
    /// this call has changed the word.
    #[inline(always)]
    pub(crate) fn before_stamp(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Returns whether the word still is `run`, after the stamps were read.
    #[inline(always)]
    pub(crate) fn is_still(&self, run: u64) -> bool {
        // Relaxed: RUN. A stamp may be the gate of a batch with another priority: the acquire of that stamp shows another word.
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
        // Release: RUN. A receiver that sees a stamp of another priority sees another word.
        self.word
            .store(position << 16 | priority as u64, Ordering::Release);
    }
}

/// Returns whether every message from ring position `drained` on has the priority of the run. The word has only 48 bits for a position, and the
/// comparison uses these bits.
#[inline(always)]
pub fn has_begun(run: u64, drained: u64) -> bool {
    drained.wrapping_sub(run >> 16) << 16 >> 63 == 0
}
