//! Rebuilds the lists of free blocks after a death, and the whole arena when a corrupted queue is rebuilt.

#[cfg(not(loom))]
use super::granules;
use super::{ArenaStore, get, head, is_free, length, list, set};
use crate::arena::{ARENA_CLASSES, ARENA_SUBCLASSES};
use crate::fault::Fault;
#[cfg(not(loom))]
use crate::sync::Guarded32;

/// Rebuilds the lists of free blocks after a death. Keeps each block that a slot names. Frees all other blocks, and merges neighbours.
pub(crate) fn rebuild<S: ArenaStore>(store: &S, _: S::Held<'_>) -> Result<(), Fault> {
    let roots = store.roots();
    roots.classes.set(0);
    for class in 0..ARENA_CLASSES {
        roots.subclasses[class].set(0);
        for step in 0..ARENA_SUBCLASSES {
            head(store, class, step).set(0);
        }
    }
    let end = store.arena_len().get();
    let (mut block, mut before, mut free_run) = (0, 0, 0);
    while block < end {
        let long = length(store, block)?;
        // `length` checks the block against a second reading of the arena's length. A hostile process may have overwritten that length since `end`
        // was read.
        if long > end - block {
            return Err(Fault::Damaged);
        }
        if is_named(store, block)? {
            before = list_run(store, block - free_run, free_run, before)?;
            set(store, block, 0, long << 1)?;
            set(store, block, 1, before)?;
            (before, free_run) = (long, 0);
        } else {
            free_run += long;
        }
        block += long;
    }
    before = list_run(store, end - free_run, free_run, before)?;
    roots.last.set(before);
    store.arena_dirty().set(0);
    Ok(())
}

/// A slot of a queue that is being rebuilt.
#[cfg(not(loom))]
pub(crate) struct Tenant<'a> {
    pub(crate) slot: u32,
    /// The word of the cell that names the block.
    pub(crate) named: &'a Guarded32,
    /// The length of the slot's message in the block, in bytes. None if the slot has no message to keep, or if the message fits into the cell.
    pub(crate) len: Option<usize>,
}

/// A block that keeps its place.
#[cfg(not(loom))]
struct Block<'a> {
    /// The first granule of the block, and the block's length in granules.
    header: u32,
    length: u32,
    /// The slot that owns the block.
    tenant: Tenant<'a>,
}

#[cfg(not(loom))]
impl<'a> Block<'a> {
    /// Returns the block of a slot. If the slot needs no block, the function clears the cell's word for a block, and returns `None`.
    fn of(tenant: Tenant<'a>) -> Option<Block<'a>> {
        let Some(len) = tenant.len else {
            tenant.named.set(0);
            return None;
        };
        Some(Block {
            header: tenant.named.get().wrapping_sub(1),
            length: granules(len),
            tenant,
        })
    }
}

/// Rebuilds the whole arena, whatever it contains. The blocks of `tenants` keep their places, and free blocks fill the gaps. `real` is the number of
/// allocated granules. Returns the slots whose blocks lay outside of the arena or overlapped other blocks. These slots lose their blocks and
/// messages.
#[cfg(not(loom))]
pub(crate) fn lay<'a, S: ArenaStore>(
    store: &S,
    held: S::Held<'_>,
    tenants: impl Iterator<Item = Tenant<'a>>,
    real: u32,
) -> Result<Vec<u32>, Fault> {
    let limit = store.arena_limit().min(real);
    let (mut end, mut before, mut lost) = (0, 0, Vec::new());
    let mut blocks: Vec<Block<'_>> = tenants.filter_map(Block::of).collect();
    store.arena_len().set(limit);
    store.arena_dirty().set(1);
    blocks.sort_unstable_by_key(|block| (block.header, block.length, block.tenant.slot));
    for block in blocks {
        let Tenant { slot, named, .. } = block.tenant;
        let behind = u64::from(block.header) + u64::from(block.length);
        if block.header < end || behind > u64::from(limit) {
            named.set(0);
            lost.push(slot);
            continue;
        }
        before = lay_free(store, end, block.header - end, before)?;
        set(store, block.header, 1, before)?;
        set(store, block.header, 2, slot)?;
        set(store, block.header, 3, 0)?;
        set(store, block.header, 0, block.length << 1)?;
        (end, before) = (block.header + block.length, block.length);
    }
    lay_free(store, end, limit - end, before)?;
    rebuild(store, held)?;
    Ok(lost)
}

/// Writes a run of granules that no slot owns as one used block, which [`rebuild`] frees later. Returns the length of the block that ends with the
/// run; for an empty run, that is `before`.
#[cfg(not(loom))]
fn lay_free(store: &impl ArenaStore, start: u32, long: u32, before: u32) -> Result<u32, Fault> {
    if long == 0 {
        return Ok(before);
    }
    set(store, start, 1, before)?;
    set(store, start, 2, u32::MAX)?;
    set(store, start, 0, long << 1)?;
    Ok(long)
}

/// Makes one free block of a run of granules. Returns the length of the block that ends with the run; for an empty run, that is `before`.
fn list_run(store: &impl ArenaStore, start: u32, long: u32, before: u32) -> Result<u32, Fault> {
    if long == 0 {
        return Ok(before);
    }
    set(store, start, 1, before)?;
    list(store, start, long)?;
    Ok(long)
}

/// Returns whether a block is in use and its slot names it.
fn is_named(store: &impl ArenaStore, block: u32) -> Result<bool, Fault> {
    if is_free(store, block)? {
        return Ok(false);
    }
    let slot = get(store, block, 2)?;
    store.is_block_of(slot, block)
}
