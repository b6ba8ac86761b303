//! The words of a segment by name, for a diagnosis and for tests that forge them.

use super::Fixed;
use crate::sync::{AtomicU32, AtomicU64};

/// The words that a diagnosis compares, in their places in the file. The engine itself changes them by named steps only.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    pub attention: &'a AtomicU32,
    pub wake_word: &'a AtomicU32,
    pub run: &'a AtomicU64,
    pub ring_mask: &'a AtomicU32,
    pub slots: &'a AtomicU32,
}

impl Fixed {
    /// The words of the segment by name.
    pub fn words(&self) -> Words<'_> {
        Words {
            attention: &self.wait_flags.attention,
            wake_word: &self.wait_flags.wake_word,
            run: &self.run.word,
            ring_mask: &self.geometry.ring_mask,
            slots: &self.geometry.slots,
        }
    }
}
