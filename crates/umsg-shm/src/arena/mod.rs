//! Blocks for messages that are too long for their cells.
//!
//! The allocator is a two-level segregated fit (Masmano et al., TLSF, ECRTS 2004). Its steps take constant time, and a freed block is merged with
//! free neighbours. The unit is a granule of 16 bytes. Each block begins with a header of one granule:
//!
//! ```text
//! word 0   length of the block in granules, header included, times two; plus 1 if it is free
//! word 1   length of the block before it in granules; 0 for the first
//! word 2   used: the slot that it belongs to        free: next free block of its class, as granule + 1
//! word 3   used: 0                                  free: previous free block of its class, as granule + 1
//! ```
//!
//! A slot keeps its block when its message is received. So messages of one size need no allocation. Before the arena grows, the blocks of
//! free slots are collected.
//!
//! An [`ArenaStore`] says where an engine keeps the parts of its arena and the free slots, and which lock protects the arena. Senders write messages
//! under this lock: the sender lock of a POSIX queue, or the only lock of a System V queue.
//!
//! The lists of free blocks are derived state. The lengths of the blocks form a chain through the whole arena at every instant, because a cut writes
//! the header of the second half first. After a death, [`rebuild`] follows this chain.

mod anew;
mod region;
mod roots;

pub(crate) use anew::rebuild;
#[cfg(not(loom))]
pub(crate) use anew::{Tenant, lay};
pub(crate) use region::{ALIGN, ARENA_GAP, region_len};
pub use roots::{ARENA_CLASSES, ARENA_SUBCLASSES, ArenaRoots, GRANULE};

use crate::crash::crash_point;
use crate::fault::Fault;
use crate::sync::{AtomicU32, Guarded32, Ordering};

/// The shortest block, in granules: the header and one granule for the message.
const SHORTEST: u32 = 2;

/// The number of granules in a cache line.
const LINE: u32 = (64 / GRANULE) as u32;
/// A block of at least this number of granules takes whole cache lines.
const LONG: u32 = 16 * LINE;

/// The arena grows by at least this many granules (64 KiB), or by a sixteenth of its length.
const STEP: u32 = 4096;

/// A block is not reused for a message if it is more than a quarter longer than necessary.
const SLACK: u32 = 4;

/// An arena in a segment, and the slots that own its blocks.
pub trait ArenaStore {
    /// The proof that the calling thread holds the lock of the arena.
    type Held<'a>: Copy;

    /// Returns the words of the block header that begins at this granule.
    fn granule(&self, granule: u32) -> Result<&[AtomicU32; 4], Fault>;

    fn roots(&self) -> &ArenaRoots;

    /// The length of the part of the arena that is divided into blocks, in granules.
    fn arena_len(&self) -> &Guarded32;
    fn arena_limit(&self) -> u32;

    /// 1 during a change of the lists. If the lock's owner dies during the change, the repair has to [`rebuild`] the lists.
    fn arena_dirty(&self) -> &Guarded32;

    /// Allocates the pages of this many granules.
    fn populate_arena(&self, first: u32, granules: u32) -> Result<(), Fault>;

    /// Returns whether the slot is in use and its cell names this block.
    fn is_block_of(&self, slot: u32, block: u32) -> Result<bool, Fault>;

    /// Calls the given function with a word of each free slot's cell: the word that names the slot's block.
    fn free_blocks(
        &self,
        release: &mut dyn FnMut(&Guarded32) -> Result<(), Fault>,
    ) -> Result<(), Fault>;
}

/// Makes sure that the slot has a block with room for `len` bytes. `named` is a word in the slot's cell: the number of the slot's block plus 1, or 0
/// for none.
///
/// Out of line: otherwise the compiler would compute the length of a block even for messages that need no block.
#[inline(never)]
pub(crate) fn ensure<S: ArenaStore>(
    store: &S,
    _: S::Held<'_>,
    slot: u32,
    named: &Guarded32,
    len: usize,
) -> Result<(), Fault> {
    let need = granules(len);
    let block = named.get();
    if block != 0 {
        let has = length(store, header_of(block)?)?;
        if has >= need && has <= need + need / SLACK + 1 {
            return Ok(());
        }
    }
    ensure_slow(store, slot, named, need)
}

#[cold]
fn ensure_slow(
    store: &impl ArenaStore,
    slot: u32,
    named: &Guarded32,
    need: u32,
) -> Result<(), Fault> {
    changing(store, || {
        release(store, named)?;
        let block = match allocate(store, need)? {
            Some(block) => block,
            None => {
                collect(store)?;
                match allocate(store, need)? {
                    Some(block) => block,
                    None => {
                        extend(store, need)?;
                        allocate(store, need)?.ok_or(Fault::Damaged)?
                    }
                }
            }
        };
        word(store, block, 2)?.store(slot, Ordering::Release);
        crash_point!(ARENA_SPLIT);
        named.set(block + 1);
        crash_point!(ARENA_NAMED);
        Ok(())
    })
}

/// Changes the lists. Meanwhile `arena_dirty` tells a repair to rebuild the lists.
fn changing<T>(
    store: &impl ArenaStore,
    change: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let dirty = &store.arena_dirty();
    dirty.set(1);
    let result = change();
    // After an error, `arena_dirty` stays set only if the lists are unusable.
    if !matches!(result, Err(Fault::Damaged)) {
        dirty.set(0);
    }
    result
}

/// Returns the length, in granules, of a block for `len` bytes with its header. If all messages are long, each begins on a cache line: the first
/// block begins on a cache line, and the length of each block is a multiple of a line.
fn granules(len: usize) -> u32 {
    let length = (len.div_ceil(GRANULE) as u32 + 1).max(SHORTEST);
    if length < LONG {
        length
    } else {
        length.next_multiple_of(LINE)
    }
}

/// Returns the header of the block whose payload begins at a granule.
fn header_of(payload: u32) -> Result<u32, Fault> {
    payload.checked_sub(1).ok_or(Fault::Damaged)
}

#[inline]
fn word(store: &impl ArenaStore, block: u32, index: usize) -> Result<&AtomicU32, Fault> {
    Ok(&store.granule(block)?[index])
}

// Relaxed loads and release stores: the lock protects the words. If the owner is killed, the release stores still take effect in their order.
fn get(store: &impl ArenaStore, block: u32, index: usize) -> Result<u32, Fault> {
    Ok(word(store, block, index)?.load(Ordering::Relaxed))
}

fn set(store: &impl ArenaStore, block: u32, index: usize, value: u32) -> Result<(), Fault> {
    word(store, block, index)?.store(value, Ordering::Release);
    Ok(())
}

/// Returns a block's length, after a check that the block is inside the arena.
#[inline]
fn length(store: &impl ArenaStore, block: u32) -> Result<u32, Fault> {
    let length = get(store, block, 0)? >> 1;
    let end = block.checked_add(length).ok_or(Fault::Damaged)?;
    if length == 0 || end > store.arena_len().get() {
        return Err(Fault::Damaged);
    }
    Ok(length)
}

fn is_free(store: &impl ArenaStore, block: u32) -> Result<bool, Fault> {
    Ok(get(store, block, 0)? & 1 == 1)
}

/// Returns the class of blocks of this length, and the step in this class.
pub fn class(length: u32) -> (usize, usize) {
    let class = length.ilog2();
    let step = if class < ARENA_SUBCLASSES.ilog2() {
        0
    } else {
        length >> (class - ARENA_SUBCLASSES.ilog2()) & 7
    };
    (class as usize, step as usize)
}

/// Returns the first class and step in which every block has at least `need` granules.
fn rounded(need: u32) -> u32 {
    let steps = ARENA_SUBCLASSES.ilog2();
    match need.ilog2().checked_sub(steps) {
        Some(shift) => need.saturating_add((1 << shift) - 1) >> shift << shift,
        // The small classes have no steps: the next power of two is the next class.
        None => need.next_power_of_two(),
    }
}

fn head(store: &impl ArenaStore, class: usize, step: usize) -> &Guarded32 {
    &store.roots().heads[class % ARENA_CLASSES][step % ARENA_SUBCLASSES]
}

/// Adds a block to the list of its class.
fn list(store: &impl ArenaStore, block: u32, length: u32) -> Result<(), Fault> {
    let (class, step) = class(length);
    let head = head(store, class, step);
    let first = head.get();
    set(store, block, 2, first)?;
    set(store, block, 3, 0)?;
    if first != 0 {
        set(store, first - 1, 3, block + 1)?;
    }
    head.set(block + 1);
    let roots = &store.roots();
    roots.subclasses[class].set(roots.subclasses[class].get() | 1 << step);
    roots.classes.set(roots.classes.get() | 1 << class);
    set(store, block, 0, length << 1 | 1)
}

/// Removes a block from the list of its class.
fn unlist(store: &impl ArenaStore, block: u32, length: u32) -> Result<(), Fault> {
    let (class, step) = class(length);
    let (next, previous) = (get(store, block, 2)?, get(store, block, 3)?);
    if next != 0 {
        set(store, next - 1, 3, previous)?;
    }
    if previous != 0 {
        return set(store, previous - 1, 2, next);
    }
    head(store, class, step).set(next);
    if next == 0 {
        let roots = &store.roots();
        let steps = roots.subclasses[class].get() & !(1 << step);
        roots.subclasses[class].set(steps);
        if steps == 0 {
            roots.classes.set(roots.classes.get() & !(1 << class));
        }
    }
    Ok(())
}

/// Returns a free block of at least `need` granules: the first block in the first list that is not empty and has only such blocks.
fn find(store: &impl ArenaStore, need: u32) -> Option<u32> {
    let (class, step) = class(rounded(need));
    let roots = &store.roots();
    let steps = roots.subclasses.get(class)?.get() & u32::MAX << step;
    let (class, steps) = if steps != 0 {
        (class, steps)
    } else {
        let classes = roots.classes.get() & u32::MAX.checked_shl(class as u32 + 1).unwrap_or(0);
        let class = (classes != 0).then(|| classes.trailing_zeros() as usize)?;
        (class, roots.subclasses[class].get())
    };
    head(store, class, steps.trailing_zeros() as usize)
        .get()
        .checked_sub(1)
}

/// Removes a block of `need` granules from the lists. The rest of a longer block stays free.
fn allocate(store: &impl ArenaStore, need: u32) -> Result<Option<u32>, Fault> {
    let Some(block) = find(store, need) else {
        return Ok(None);
    };
    let has = length(store, block)?;
    if has < need || !is_free(store, block)? {
        return Err(Fault::Damaged);
    }
    unlist(store, block, has)?;
    let rest = has - need;
    if rest < SHORTEST {
        set(store, block, 0, has << 1)?;
        return Ok(Some(block));
    }
    // The header of the second half is written first, so the chain of lengths is whole at every instant.
    let second = block + need;
    set(store, second, 1, need)?;
    list(store, second, rest)?;
    set(store, block, 0, need << 1)?;
    tell_next(store, second, rest)?;
    Ok(Some(block))
}

/// Writes the length of `block` into the next block, or into the roots if `block` is the last one.
fn tell_next(store: &impl ArenaStore, block: u32, length: u32) -> Result<(), Fault> {
    let next = block.wrapping_add(length);
    if next < store.arena_len().get() {
        return set(store, next, 1, length);
    }
    store.roots().last.set(length);
    Ok(())
}

/// Frees the block that this word of a cell names, if the word names one.
fn release(store: &impl ArenaStore, named: &Guarded32) -> Result<(), Fault> {
    let payload = named.get();
    if payload == 0 {
        return Ok(());
    }
    named.set(0);
    free(store, header_of(payload)?)
}

/// Frees a used block and merges it with free neighbours.
fn free(store: &impl ArenaStore, block: u32) -> Result<(), Fault> {
    let mut start = block;
    let mut long = length(store, block)?;
    if is_free(store, block)? {
        return Err(Fault::Damaged);
    }
    let end = store.arena_len().get();
    let next = block + long;
    if next < end && is_free(store, next)? {
        let more = length(store, next)?;
        unlist(store, next, more)?;
        long = long.wrapping_add(more);
    }
    let before = get(store, block, 1)?;
    if before != 0 {
        let previous = block.checked_sub(before).ok_or(Fault::Damaged)?;
        if is_free(store, previous)? {
            unlist(store, previous, length(store, previous)?)?;
            start = previous;
            long = long.wrapping_add(before);
        }
    }
    list(store, start, long)?;
    tell_next(store, start, long)
}

/// Frees the blocks that free slots have kept.
fn collect(store: &impl ArenaStore) -> Result<(), Fault> {
    store.free_blocks(&mut |named| release(store, named))
}

/// Grows the arena for a block of `need` granules.
fn extend(store: &impl ArenaStore, need: u32) -> Result<(), Fault> {
    let need = rounded(need);
    let len = &store.arena_len();
    let (old, limit) = (len.get(), store.arena_limit());
    let step = need.max(STEP).max(old / 16).min(limit.saturating_sub(old));
    if step < need {
        return Err(Fault::UsedUp);
    }
    store.populate_arena(old, step)?;
    set(store, old, 1, store.roots().last.get())?;
    set(store, old, 0, step << 1)?;
    len.set(old + step);
    free(store, old)
}

/// Returns the number of allocated bytes of the arena, for `status`.
pub fn allocated(store: &impl ArenaStore) -> usize {
    store.arena_len().get() as usize * GRANULE
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lock::tokens::{ReceiverHeld, SenderHeld};
    use crate::posix_engine::segment::{Segment, testing};
    use proptest::prelude::*;

    const SLOTS: u32 = 24;
    const LONGEST: usize = 40_000;

    fn held() -> SenderHeld<'static> {
        ReceiverHeld::in_test().with_loan().sender()
    }

    /// Checks that the block of every slot is in use and inside the arena, and that no two blocks overlap.
    fn check_apart(segment: &Segment) {
        let mut taken = std::collections::BTreeMap::new();
        for slot in 0..SLOTS {
            let block = segment.cell(slot).unwrap().block().get();
            if block != 0 {
                let long = length(segment, block - 1).unwrap();
                assert!(!is_free(segment, block - 1).unwrap());
                assert!(taken.insert(block - 1, long).is_none());
            }
        }
        let mut end = 0;
        for (start, long) in taken {
            assert!(start >= end, "blocks overlap at granule {start}");
            end = start + long;
        }
        assert!(end <= segment.arena_len().get());
    }

    /// Follows the chain of blocks and returns the lengths of the free blocks.
    fn free_blocks(segment: &Segment) -> Vec<u32> {
        let (mut block, mut before, mut found) = (0, 0, Vec::new());
        while block < segment.arena_len().get() {
            assert_eq!(
                get(segment, block, 1).unwrap(),
                before,
                "length of the block before {block}"
            );
            before = length(segment, block).unwrap();
            if is_free(segment, block).unwrap() {
                found.push(before);
            }
            block += before;
        }
        assert_eq!(segment.fixed().arena.last.get(), before);
        found
    }

    fn is_one_free_block(segment: &Segment) -> bool {
        let free = free_blocks(segment);
        free.len() <= 1 && free.iter().sum::<u32>() == segment.arena_len().get()
    }

    fn release_all(segment: &Segment) {
        for slot in 0..SLOTS {
            release(segment, segment.cell(slot).unwrap().block()).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

        #[test]
        fn blocks_never_overlap_and_all_memory_comes_back(
            steps in prop::collection::vec((0..SLOTS, 0..LONGEST, prop::bool::weighted(0.3)), 1..200),
        ) {
            let segment = testing::segment(100, LONGEST);
            for (slot, len, give_back) in steps {
                let named = segment.cell(slot).unwrap().block();
                if give_back {
                    release(&segment, named).unwrap();
                } else {
                    ensure(&segment, held(), slot, named, len).unwrap();
                    prop_assert!(length(&segment, named.get() - 1).unwrap() >= granules(len));
                }
                check_apart(&segment);
            }
            free_blocks(&segment);
            release_all(&segment);
            prop_assert!(is_one_free_block(&segment));
        }

        #[test]
        fn a_rebuilt_arena_keeps_every_named_block_and_frees_the_rest(
            lens in prop::collection::vec(0..LONGEST, 1..SLOTS as usize),
            forgotten in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let segment = testing::segment(100, LONGEST);
            for (slot, &len) in lens.iter().enumerate() {
                ensure(&segment, held(), slot as u32, segment.cell(slot as u32).unwrap().block(), len).unwrap();
            }
            // After a death between the allocation of a block and its naming, the block is in use and no slot names it.
            for index in forgotten {
                segment.cell(index.index(lens.len()) as u32).unwrap().block().set(0);
            }
            rebuild(&segment, held()).unwrap();
            check_apart(&segment);
            free_blocks(&segment);
            release_all(&segment);
            prop_assert!(is_one_free_block(&segment));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "numbers only, and many")]
    fn a_block_found_for_a_length_is_never_shorter() {
        for need in SHORTEST..5000 {
            let (rounded_class, rounded_step) = class(rounded(need));
            let (own_class, own_step) = class(need);
            assert!(
                rounded(need) >= need && (rounded_class, rounded_step) >= (own_class, own_step)
            );
            // `rounded(need)` is the shortest length of its class and step, so every block in that step is long enough.
            assert!(
                (need..rounded(need)).all(|shorter| class(shorter) < (rounded_class, rounded_step))
            );
        }
    }

    #[test]
    #[cfg_attr(
        miri,
        ignore = "Miri remembers so much of each byte that it takes all memory"
    )]
    fn a_message_of_the_largest_size_finds_room_in_a_fresh_arena() {
        let segment = testing::segment(1, 16 << 20);
        ensure(
            &segment,
            held(),
            0,
            segment.cell(0).unwrap().block(),
            16 << 20,
        )
        .unwrap();
    }

    #[test]
    fn a_full_arena_is_an_error_and_keeps_what_it_holds() {
        let segment = testing::segment(1, LONGEST);
        let mut slot = 0;
        while ensure(
            &segment,
            held(),
            slot % 32,
            segment.cell(slot % 32).unwrap().block(),
            LONGEST,
        )
        .is_ok()
            && slot < 32
        {
            slot += 1;
        }
        check_apart(&segment);
    }
}
