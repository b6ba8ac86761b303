//! Checks of the arena, in which blocks follow each other without gaps. For each block in use, one slot names the block.

use super::findings::Findings;
use super::slots::{SlotPlace, Survey};
use super::subject::Subject;
use rustix::fd::BorrowedFd;
use std::collections::BTreeMap;
use umsg_shm::arena::{ARENA_CLASSES, ARENA_SUBCLASSES, ArenaRoots, GRANULE};
use umsg_shm::arena::{ArenaStore, class};
use umsg_shm::sync::Guarded32;

/// The maximum number of blocks that are checked.
const MOST: usize = 1 << 20;

/// Checks the arena, and the blocks that slots name, while no thread holds a lock.
pub(super) fn check<S: Subject>(
    file: BorrowedFd<'_>,
    segment: &S,
    survey: &Survey,
    findings: &mut Findings,
) {
    let dirty = segment.arena_dirty();
    if dirty.get() != 0 {
        let what = "no thread is changing the arena";
        return findings.add(what, dirty, 0, dirty.get());
    }
    let arena = Arena {
        file,
        offset: segment.arena() as u64,
    };
    let Some(blocks) = arena.walk(segment, findings) else {
        return;
    };
    check_roots(segment.roots(), &blocks, findings);
    let (used, usable) = segment.slots_in_use();
    for slot in 0..usable {
        let Some((named, len)) = segment.block(slot) else {
            return;
        };
        let block = named.get();
        if block == 0 {
            continue;
        }
        if slot >= used {
            findings.add("a slot that was never used has no block", named, 0, block);
            continue;
        }
        let has_message = matches!(survey.place(slot), Some(SlotPlace::Ring | SlotPlace::Store));
        let is_long = has_message && len > segment.inline();
        check_block(
            &blocks,
            slot,
            named,
            if is_long { len } else { 0 },
            findings,
        );
    }
}

/// An arena in a queue's file.
struct Arena<'a> {
    file: BorrowedFd<'a>,
    /// The beginning of the arena, in bytes from the beginning of the file.
    offset: u64,
}

/// The blocks of an arena, each identified by the number of its first granule.
#[derive(Default)]
struct Blocks {
    /// The blocks in use: the owning slot of each, and its length in granules.
    used: BTreeMap<u32, (u32, u32)>,
    free: BTreeMap<u32, Free>,
    /// The length of the last block, in granules.
    last: u32,
}

/// A free block: its length, and its neighbours in the list of its class, as granule numbers plus one.
struct Free {
    long: u32,
    next: u32,
    previous: u32,
}

impl Arena<'_> {
    /// Walks the chain of blocks. Returns None if the chain is broken.
    fn walk(&self, ground: &impl ArenaStore, findings: &mut Findings) -> Option<Blocks> {
        let (len, limit) = (ground.arena_len().get(), ground.arena_limit());
        if len > limit {
            findings.add(
                "the arena's length is at most the maximum",
                ground.arena_len(),
                format_args!("at most {limit}"),
                len,
            );
            return None;
        }
        let (mut block, mut before, mut blocks) = (0, 0, Blocks::default());
        for _ in 0..MOST {
            if block >= len {
                blocks.last = before;
                return Some(blocks);
            }
            let [first, previous, third, fourth] = self.header(block)?;
            let (long, is_free) = (first >> 1, first & 1 == 1);
            if long == 0 || u64::from(block) + u64::from(long) > u64::from(len) {
                let most = len - block;
                findings.add_at(
                    "a block of the arena ends where the next begins",
                    self.at(block),
                    format_args!("a length of 1 to {most} granules"),
                    long,
                );
                return None;
            }
            if previous != before {
                findings.add_at(
                    "a block of the arena holds the length of the block before it",
                    self.at(block) + 4,
                    before,
                    previous,
                );
            }
            if is_free {
                let (next, previous) = (third, fourth);
                let free = Free {
                    long,
                    next,
                    previous,
                };
                blocks.free.insert(block, free);
            } else {
                blocks.used.insert(block, (third, long));
            }
            (block, before) = (block + long, long);
        }
        None
    }

    fn at(&self, block: u32) -> u64 {
        self.offset + u64::from(block) * GRANULE as u64
    }

    /// Returns the four words at the beginning of a block.
    fn header(&self, block: u32) -> Option<[u32; 4]> {
        let mut bytes = [0; GRANULE];
        let read = rustix::io::pread(self.file, &mut bytes, self.at(block)).ok()?;
        (read == GRANULE).then(|| {
            let word =
                |n: usize| u32::from_ne_bytes([bytes[n], bytes[n + 1], bytes[n + 2], bytes[n + 3]]);
            [word(0), word(4), word(8), word(12)]
        })
    }
}

/// Checks the block that a slot names in the word at `named`: no other slot has the block, and the block has room for the message.
fn check_block(blocks: &Blocks, slot: u32, named: &Guarded32, len: usize, findings: &mut Findings) {
    let block = named.get();
    let found = block
        .checked_sub(1)
        .and_then(|header| blocks.used.get(&header));
    match found {
        None => findings.add(
            "a slot names a block that begins there",
            named,
            "a block in use",
            block,
        ),
        Some(&(owner, _)) if owner != slot => {
            findings.add(
                "a slot names a block of its own",
                named,
                format_args!("a block of slot {slot}"),
                format_args!("one of slot {owner}"),
            );
        }
        Some(&(_, long)) if (long as usize - 1) * GRANULE < len => {
            findings.add(
                "a block has room for its message",
                named,
                format_args!("{len} bytes"),
                format_args!("{} bytes", (long as usize - 1) * GRANULE),
            );
        }
        Some(_) => {}
    }
}

/// Checks that each free block is in the list of its length, and that the lists contain only free blocks.
fn check_roots(roots: &ArenaRoots, blocks: &Blocks, findings: &mut Findings) {
    findings.holds(
        "the arena's roots hold the length of the last block",
        &roots.last,
        blocks.last,
    );
    let mut listed = 0;
    let mut classes = 0;
    for class in 0..ARENA_CLASSES {
        let mut steps = 0;
        for step in 0..ARENA_SUBCLASSES {
            let head = &roots.heads[class][step];
            steps |= u32::from(head.get() != 0) << step;
            listed += check_list(head, (class, step), blocks, findings);
        }
        let found = roots.subclasses[class].get();
        findings.equal(
            "the arena's bitmap shows which lengths have free blocks",
            &roots.subclasses[class],
            steps,
            found,
        );
        classes |= u32::from(steps != 0) << class;
    }
    findings.holds(
        "the arena's bitmap shows which lengths have free blocks",
        &roots.classes,
        classes,
    );
    findings.equal(
        "each free block is in a list",
        &roots.classes,
        blocks.free.len(),
        listed,
    );
}

/// Follows a list of free blocks, and returns the number of its blocks.
fn check_list(
    head: &Guarded32,
    of: (usize, usize),
    blocks: &Blocks,
    findings: &mut Findings,
) -> usize {
    let (mut link, mut before, mut count) = (head.get(), 0, 0);
    while let Some(block) = link.checked_sub(1) {
        let free = blocks.free.get(&block);
        let Some(free) = free.filter(|free| class(free.long) == of && free.previous == before)
        else {
            findings.add(
                "a list of free blocks leads to such blocks",
                head,
                "free blocks of its length",
                format_args!("granule {block}"),
            );
            return count;
        };
        count += 1;
        if count > blocks.free.len() {
            findings.add(
                "a list of free blocks has an end",
                head,
                blocks.free.len(),
                "more blocks",
            );
            return count;
        }
        (before, link) = (link, free.next);
    }
    count
}
