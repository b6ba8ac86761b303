//! The region of a file that is the arena: its place and length.

use super::GRANULE;

/// Alignment of the regions of a file, in bytes.
pub(crate) const ALIGN: usize = 4096;

/// The greatest length of an arena, in bytes: the length of a block is a number of granules with 31 bits.
const ARENA_LIMIT: usize = (GRANULE << 31) - ALIGN;

/// Bytes before the first block of the arena: its payload then begins with a cache line.
pub(crate) const ARENA_GAP: usize = 64 - GRANULE;

/// Returns the length of an arena for blocks of this total length, in bytes: a quarter more, for the gaps between blocks.
pub(crate) fn region_len(blocks: usize) -> usize {
    let len = blocks.saturating_add(blocks / 4).min(ARENA_LIMIT);
    len.next_multiple_of(ALIGN) - ARENA_GAP
}
