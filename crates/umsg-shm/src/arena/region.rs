//! The region of a file that is the arena: its place and length.

use super::GRANULE;

/// The alignment of the regions of a file, in bytes.
pub(crate) const ALIGN: usize = 4096;

/// The greatest length of an arena, in bytes: the length of a block is a number of granules with 31 bits.
const ARENA_LIMIT: usize = (GRANULE << 31) - ALIGN;

/// The number of unused bytes before the first block of the arena. Because of this gap, the payload of the first block begins on a cache line.
pub(crate) const ARENA_GAP: usize = 64 - GRANULE;

/// Returns the length of an arena, in bytes, for blocks of this total length. The arena is a quarter longer than the blocks, because of the gaps
/// between them.
pub(crate) fn region_len(blocks: usize) -> usize {
    let len = blocks.saturating_add(blocks / 4).min(ARENA_LIMIT);
    len.next_multiple_of(ALIGN) - ARENA_GAP
}
