//! The free blocks of an arena, as a segment of either kind lists them.

use crate::sync::Guarded32;

/// The arena is counted in granules of this many bytes.
pub const GRANULE: usize = 16;

/// Free blocks are kept by size: a class a power of two of granules, each in this many steps.
pub const ARENA_SUBCLASSES: usize = 8;
/// See [`ARENA_SUBCLASSES`].
#[cfg(not(loom))]
pub const ARENA_CLASSES: usize = 32;
#[cfg(loom)]
pub const ARENA_CLASSES: usize = 1;

/// Free blocks of the arena by size; see [`super`].
#[repr(C, align(128))]
#[derive(Default)]
pub struct ArenaRoots {
    /// Which classes have free blocks.
    pub classes: Guarded32,
    /// Length of the last block, in granules; 0 for an empty arena.
    pub last: Guarded32,
    /// Which steps of each class have.
    pub subclasses: [Guarded32; ARENA_CLASSES],
    /// First free block, as granule number + 1.
    pub heads: [[Guarded32; ARENA_SUBCLASSES]; ARENA_CLASSES],
}
