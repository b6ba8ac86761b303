//! The roots of the lists of free blocks, in the segments of both engines.

use crate::sync::Guarded32;

/// The number of bytes in a granule.
pub const GRANULE: usize = 16;

/// The number of steps in each class. A class is the range of block lengths from one power of two granules to the next one, and its steps divide the
/// range.
pub const ARENA_SUBCLASSES: usize = 8;
/// The number of classes.
#[cfg(not(loom))]
pub const ARENA_CLASSES: usize = 32;
#[cfg(loom)]
pub const ARENA_CLASSES: usize = 1;

/// The roots of the lists of free blocks by size: see [`super`].
#[repr(C, align(128))]
#[derive(Default)]
pub struct ArenaRoots {
    /// A bit for each class, set if the class has free blocks.
    pub classes: Guarded32,
    /// The length of the last block of the arena, in granules; 0 for an empty arena.
    pub last: Guarded32,
    /// For each class, a bit for each step, set if the step has free blocks.
    pub subclasses: [Guarded32; ARENA_CLASSES],
    /// For each class and step, the first free block, as its granule number plus 1; 0 if the list is empty.
    pub heads: [[Guarded32; ARENA_SUBCLASSES]; ARENA_CLASSES],
}

impl ArenaRoots {
    /// Makes the roots of an empty arena. The caller has the lock of the arena.
    pub(crate) fn empty(&self) {
        let heads = self.heads.iter().flatten();
        let words = [&self.classes, &self.last];
        let words = words.into_iter().chain(&self.subclasses).chain(heads);
        words.for_each(|word| word.set(0));
    }
}
