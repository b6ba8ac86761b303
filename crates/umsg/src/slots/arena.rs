//! Blocks for messages that do not fit into their cell.
//!
//! A two-level segregated fit (Masmano et al., TLSF, ECRTS 2004): constant time, neighbours are merged when freed. The
//! arena is counted in granules of 16 bytes; each block begins with one granule of header:
//!
//! ```text
//! word 0   length of the block in granules, header included, times two; plus 1 if it is free
//! word 1   length of the block before it in granules; 0 for the first
//! word 2   used: the slot that it belongs to        free: next free block of its class, as granule + 1
//! word 3   used: 0                                  free: previous free block of its class, as granule + 1
//! ```
//!
//! A slot keeps its block when its message is received, so that traffic of one size never comes here. What slots keep
//! is collected before the arena is made longer.
//!
//! All of it belongs to the holder of the sender lock. It is derived state: block lengths always chain through the
//! whole arena, whenever the owner dies, because a block is cut by writing the second half's header first; [`rebuild`]
//! walks the chain, keeps the blocks that their slot names, and merges the rest.

use crate::crash::crash_point;
use crate::error::Trouble;
use crate::segment::{ARENA_CLASSES, ARENA_SUBCLASSES, Cell, GRANULE, Segment};
use crate::sync::{AtomicU32, Guarded32, Ordering};

/// Shortest block, in granules: a header and one granule.
const SHORTEST: u32 = 2;

/// Granules in a cache line, and from how many on a block takes whole lines.
const LINE: u32 = (64 / GRANULE) as u32;
const LONG: u32 = 16 * LINE;

/// The arena grows by at least this many granules (64 KiB), or by a sixteenth of what it has.
const STEP: u32 = 4096;

/// A block that is too long by more than a quarter is not used again for a shorter message.
const SLACK: u32 = 4;

/// Makes sure that the cell names a block with room for `len` bytes.
#[inline]
pub(crate) fn ensure(segment: &Segment, slot: u32, cell: &Cell, len: usize) -> Result<(), Trouble> {
    let need = granules(len);
    let block = cell.block.get();
    if block != 0 {
        let has = length(segment, header_of(block)?)?;
        if has >= need && has <= need + need / SLACK + 1 {
            return Ok(());
        }
    }
    ensure_slow(segment, slot, cell, need)
}

#[cold]
fn ensure_slow(segment: &Segment, slot: u32, cell: &Cell, need: u32) -> Result<(), Trouble> {
    changing(segment, || {
        release(segment, cell)?;
        let block = match allocate(segment, need)? {
            Some(block) => block,
            None => {
                collect(segment)?;
                match allocate(segment, need)? {
                    Some(block) => block,
                    None => {
                        extend(segment, need)?;
                        allocate(segment, need)?.ok_or(Trouble::Damaged)?
                    }
                }
            }
        };
        word(segment, block, 2)?.store(slot, Ordering::Release);
        crash_point!(ARENA_SPLIT);
        cell.block.set(block + 1);
        crash_point!(ARENA_NAMED);
        Ok(())
    })
}

/// Runs a change of the lists with the mark that tells a repair to rebuild them.
fn changing<T>(
    segment: &Segment,
    change: impl FnOnce() -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let dirty = &segment.fixed().sender.arena_dirty;
    dirty.set(1);
    let result = change();
    // After an error the mark stays only if the lists are unusable.
    if !matches!(result, Err(Trouble::Damaged)) {
        dirty.set(0);
    }
    result
}

/// Length in granules of a block for `len` bytes, header included. Where all messages are long, each begins on a cache
/// line: the first does, and all lengths are whole lines.
fn granules(len: usize) -> u32 {
    let length = (len.div_ceil(GRANULE) as u32 + 1).max(SHORTEST);
    if length < LONG {
        length
    } else {
        length.next_multiple_of(LINE)
    }
}

/// The header of the block whose payload begins at a granule.
fn header_of(payload: u32) -> Result<u32, Trouble> {
    payload.checked_sub(1).ok_or(Trouble::Damaged)
}

#[inline]
fn word(segment: &Segment, block: u32, index: usize) -> Result<&AtomicU32, Trouble> {
    Ok(&segment.granule(block)?[index])
}

// Relaxed and release throughout: the words are under the sender lock; release keeps a killed owner's stores in order.
fn get(segment: &Segment, block: u32, index: usize) -> Result<u32, Trouble> {
    Ok(word(segment, block, index)?.load(Ordering::Relaxed))
}

fn set(segment: &Segment, block: u32, index: usize, value: u32) -> Result<(), Trouble> {
    word(segment, block, index)?.store(value, Ordering::Release);
    Ok(())
}

/// A block's length, checked to lie within the arena.
#[inline]
fn length(segment: &Segment, block: u32) -> Result<u32, Trouble> {
    let length = get(segment, block, 0)? >> 1;
    let end = block.checked_add(length).ok_or(Trouble::Damaged)?;
    if length == 0 || end > segment.fixed().sender.arena_len.get() {
        return Err(Trouble::Damaged);
    }
    Ok(length)
}

fn is_free(segment: &Segment, block: u32) -> Result<bool, Trouble> {
    Ok(get(segment, block, 0)? & 1 == 1)
}

/// The class and step of blocks of exactly this length.
fn class(length: u32) -> (usize, usize) {
    let class = length.ilog2();
    let step = if class < ARENA_SUBCLASSES.ilog2() {
        0
    } else {
        length >> (class - ARENA_SUBCLASSES.ilog2()) & 7
    };
    (class as usize, step as usize)
}

/// The shortest length of the class and step from which on every block has at least `need` granules.
fn rounded(need: u32) -> u32 {
    let steps = ARENA_SUBCLASSES.ilog2();
    match need.ilog2().checked_sub(steps) {
        Some(shift) => need.saturating_add((1 << shift) - 1) >> shift << shift,
        // Steps are not told apart in the small classes: the whole next class.
        None => need.next_power_of_two(),
    }
}

fn head(segment: &Segment, class: usize, step: usize) -> &Guarded32 {
    &segment.fixed().arena.heads[class % ARENA_CLASSES][step % ARENA_SUBCLASSES]
}

/// Puts a block on the list of its class.
fn list(segment: &Segment, block: u32, length: u32) -> Result<(), Trouble> {
    let (class, step) = class(length);
    let head = head(segment, class, step);
    let first = head.get();
    set(segment, block, 2, first)?;
    set(segment, block, 3, 0)?;
    if first != 0 {
        set(segment, first - 1, 3, block + 1)?;
    }
    head.set(block + 1);
    let roots = &segment.fixed().arena;
    roots.subclasses[class].set(roots.subclasses[class].get() | 1 << step);
    roots.classes.set(roots.classes.get() | 1 << class);
    set(segment, block, 0, length << 1 | 1)
}

/// Takes a block off the list of its class.
fn unlist(segment: &Segment, block: u32, length: u32) -> Result<(), Trouble> {
    let (class, step) = class(length);
    let (next, previous) = (get(segment, block, 2)?, get(segment, block, 3)?);
    if next != 0 {
        set(segment, next - 1, 3, previous)?;
    }
    if previous != 0 {
        return set(segment, previous - 1, 2, next);
    }
    head(segment, class, step).set(next);
    if next == 0 {
        let roots = &segment.fixed().arena;
        let steps = roots.subclasses[class].get() & !(1 << step);
        roots.subclasses[class].set(steps);
        if steps == 0 {
            roots.classes.set(roots.classes.get() & !(1 << class));
        }
    }
    Ok(())
}

/// The first free block that is surely long enough.
fn find(segment: &Segment, need: u32) -> Option<u32> {
    let (class, step) = class(rounded(need));
    let roots = &segment.fixed().arena;
    let steps = roots.subclasses.get(class)?.get() & u32::MAX << step;
    let (class, steps) = if steps != 0 {
        (class, steps)
    } else {
        let classes = roots.classes.get() & u32::MAX.checked_shl(class as u32 + 1).unwrap_or(0);
        let class = (classes != 0).then(|| classes.trailing_zeros() as usize)?;
        (class, roots.subclasses[class].get())
    };
    head(segment, class, steps.trailing_zeros() as usize)
        .get()
        .checked_sub(1)
}

/// Takes a block of `need` granules off the lists; the rest of a longer one stays free.
fn allocate(segment: &Segment, need: u32) -> Result<Option<u32>, Trouble> {
    let Some(block) = find(segment, need) else {
        return Ok(None);
    };
    let has = length(segment, block)?;
    if has < need || !is_free(segment, block)? {
        return Err(Trouble::Damaged);
    }
    unlist(segment, block, has)?;
    let rest = has - need;
    if rest < SHORTEST {
        set(segment, block, 0, has << 1)?;
        return Ok(Some(block));
    }
    // The second half's header first: the chain of lengths holds at every instant.
    let second = block + need;
    set(segment, second, 1, need)?;
    list(segment, second, rest)?;
    set(segment, block, 0, need << 1)?;
    tell_next(segment, second, rest)?;
    Ok(Some(block))
}

/// Notes how long `block` is where the block behind it looks for that; the last one's length is noted in the roots.
fn tell_next(segment: &Segment, block: u32, length: u32) -> Result<(), Trouble> {
    let next = block.wrapping_add(length);
    if next < segment.fixed().sender.arena_len.get() {
        return set(segment, next, 1, length);
    }
    segment.fixed().arena.last.set(length);
    Ok(())
}

/// Gives back the block that a cell names, if it names one.
fn release(segment: &Segment, cell: &Cell) -> Result<(), Trouble> {
    let payload = cell.block.get();
    if payload == 0 {
        return Ok(());
    }
    cell.block.set(0);
    free(segment, header_of(payload)?)
}

/// Frees a used block and merges it with free neighbours.
fn free(segment: &Segment, block: u32) -> Result<(), Trouble> {
    let mut start = block;
    let mut long = length(segment, block)?;
    if is_free(segment, block)? {
        return Err(Trouble::Damaged);
    }
    let end = segment.fixed().sender.arena_len.get();
    let next = block + long;
    if next < end && is_free(segment, next)? {
        let more = length(segment, next)?;
        unlist(segment, next, more)?;
        long = long.wrapping_add(more);
    }
    let before = get(segment, block, 1)?;
    if before != 0 {
        let previous = block.checked_sub(before).ok_or(Trouble::Damaged)?;
        if is_free(segment, previous)? {
            unlist(segment, previous, length(segment, previous)?)?;
            start = previous;
            long = long.wrapping_add(before);
        }
    }
    list(segment, start, long)?;
    tell_next(segment, start, long)
}

/// Collects the blocks that free slots have kept.
fn collect(segment: &Segment) -> Result<(), Trouble> {
    let fixed = segment.fixed();
    let ring = super::Ring::of(segment);
    let mut first = fixed.sender.sent.load(Ordering::Relaxed);
    // A batch that is being written: its slots are not free any more.
    let batch_end = fixed.sender.batch_end.load(Ordering::Relaxed);
    if batch_end.wrapping_sub(first) as i64 > 0 {
        first = batch_end;
    }
    let freed = fixed.published.freed.load(Ordering::Acquire);
    fixed.sender.freed_seen.set(freed);
    let free_slots = (freed.wrapping_sub(first) as i64).clamp(0, segment.layout().slots as i64);
    for position in 0..free_slots as u64 {
        let (_, cell) = ring.slot(first.wrapping_add(position))?;
        release(segment, cell)?;
    }
    Ok(())
}

/// Makes the arena longer, so that a block of `need` granules is found.
fn extend(segment: &Segment, need: u32) -> Result<(), Trouble> {
    let need = rounded(need);
    let len = &segment.fixed().sender.arena_len;
    let (old, limit) = (len.get(), (segment.layout().arena_len / GRANULE) as u32);
    let step = need.max(STEP).max(old / 16).min(limit.saturating_sub(old));
    if step < need {
        return Err(Trouble::NoSpace);
    }
    segment.populate(
        segment.layout().arena + old as usize * GRANULE,
        step as usize * GRANULE,
    )?;
    set(segment, old, 1, segment.fixed().arena.last.get())?;
    set(segment, old, 0, step << 1)?;
    len.set(old + step);
    free(segment, old)
}

/// Rebuilds the lists after a death: keeps the blocks that their slots name, frees and merges the others.
pub(crate) fn rebuild(segment: &Segment) -> Result<(), Trouble> {
    let fixed = segment.fixed();
    fixed.arena.classes.set(0);
    for class in 0..ARENA_CLASSES {
        fixed.arena.subclasses[class].set(0);
        for step in 0..ARENA_SUBCLASSES {
            head(segment, class, step).set(0);
        }
    }
    let end = fixed.sender.arena_len.get();
    let (mut block, mut before, mut free_run) = (0, 0, 0);
    while block < end {
        let long = length(segment, block)?;
        if is_named(segment, block)? {
            before = list_run(segment, block - free_run, free_run, before)?;
            set(segment, block, 0, long << 1)?;
            set(segment, block, 1, before)?;
            (before, free_run) = (long, 0);
        } else {
            free_run += long;
        }
        block += long;
    }
    before = list_run(segment, end - free_run, free_run, before)?;
    fixed.arena.last.set(before);
    fixed.sender.arena_dirty.set(0);
    Ok(())
}

/// Makes one free block of a run of granules; returns the length of the last block up to here.
fn list_run(segment: &Segment, start: u32, long: u32, before: u32) -> Result<u32, Trouble> {
    if long == 0 {
        return Ok(before);
    }
    set(segment, start, 1, before)?;
    list(segment, start, long)?;
    Ok(long)
}

/// Whether a block is in use and the slot it belongs to names it.
fn is_named(segment: &Segment, block: u32) -> Result<bool, Trouble> {
    if is_free(segment, block)? {
        return Ok(false);
    }
    let slot = get(segment, block, 2)?;
    let slots = segment.fixed().geometry.slots.load(Ordering::Relaxed);
    Ok(slot < slots && segment.cell(slot)?.block.get() == block + 1)
}

/// Granules in use by slots, and in all: for `status`.
pub(crate) fn allocated(segment: &Segment) -> usize {
    segment.fixed().sender.arena_len.get() as usize * GRANULE
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::segment::testing;
    use proptest::prelude::*;

    const SLOTS: u32 = 24;
    const LONGEST: usize = 40_000;

    /// Payload granules of every slot's block, checked to lie apart from all others.
    fn check_apart(segment: &Segment) {
        let mut taken = std::collections::BTreeMap::new();
        for slot in 0..SLOTS {
            let block = segment.cell(slot).unwrap().block.get();
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
        assert!(end <= segment.fixed().sender.arena_len.get());
    }

    /// Walks the chain of blocks and returns the lengths of the free ones.
    fn free_blocks(segment: &Segment) -> Vec<u32> {
        let (mut block, mut before, mut found) = (0, 0, Vec::new());
        while block < segment.fixed().sender.arena_len.get() {
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
        free.len() <= 1 && free.iter().sum::<u32>() == segment.fixed().sender.arena_len.get()
    }

    fn release_all(segment: &Segment) {
        for slot in 0..SLOTS {
            release(segment, segment.cell(slot).unwrap()).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn blocks_never_overlap_and_all_memory_comes_back(
            steps in prop::collection::vec((0..SLOTS, 0..LONGEST, prop::bool::weighted(0.3)), 1..200),
        ) {
            let segment = testing::segment(100, LONGEST);
            for (slot, len, give_back) in steps {
                let cell = segment.cell(slot).unwrap();
                if give_back {
                    release(&segment, cell).unwrap();
                } else {
                    ensure(&segment, slot, cell, len).unwrap();
                    prop_assert!(length(&segment, cell.block.get() - 1).unwrap() >= granules(len));
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
                ensure(&segment, slot as u32, segment.cell(slot as u32).unwrap(), len).unwrap();
            }
            // A death between taking a block and naming it leaves it used and nobody's.
            for index in forgotten {
                segment.cell(index.index(lens.len()) as u32).unwrap().block.set(0);
            }
            rebuild(&segment).unwrap();
            check_apart(&segment);
            free_blocks(&segment);
            release_all(&segment);
            prop_assert!(is_one_free_block(&segment));
        }
    }

    #[test]
    fn a_block_found_for_a_length_is_never_shorter() {
        for need in SHORTEST..5000 {
            let (rounded_class, rounded_step) = class(rounded(need));
            let (own_class, own_step) = class(need);
            assert!(
                rounded(need) >= need && (rounded_class, rounded_step) >= (own_class, own_step)
            );
            // Every length of the class and step is long enough.
            assert!(
                (need..rounded(need)).all(|shorter| class(shorter) < (rounded_class, rounded_step))
            );
        }
    }

    #[test]
    fn a_message_of_the_largest_size_finds_room_in_a_fresh_arena() {
        let segment = testing::segment(1, 16 << 20);
        ensure(&segment, 0, segment.cell(0).unwrap(), 16 << 20).unwrap();
    }

    #[test]
    fn a_full_arena_is_an_error_and_keeps_what_it_holds() {
        let segment = testing::segment(1, LONGEST);
        let mut slot = 0;
        while ensure(
            &segment,
            slot % 32,
            segment.cell(slot % 32).unwrap(),
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
