//! The arena: blocks that follow each other without gaps, each of which a slot names.

use super::findings::Findings;
use crate::segment::GRANULE;
use rustix::fd::BorrowedFd;
use std::collections::BTreeMap;

/// So many blocks are looked at.
const MOST: usize = 1 << 20;

/// Where an arena is, and what the segment says of it.
pub(super) struct Arena<'a> {
    pub(super) file: BorrowedFd<'a>,
    /// Where it begins, in bytes from the beginning of the file.
    pub(super) offset: u64,
    /// Granules in use, and how many there may be.
    pub(super) len: u32,
    pub(super) limit: u32,
    /// Where the number of those in use stands.
    pub(super) len_at: u64,
}

/// The blocks in use: the slot that owns each, and its length in granules.
pub(super) type Blocks = BTreeMap<u32, (u32, u32)>;

impl Arena<'_> {
    /// Walks the chain of blocks. None if it breaks.
    pub(super) fn walk(&self, findings: &mut Findings) -> Option<Blocks> {
        if self.len > self.limit {
            findings.add_at(
                "the arena is not longer than there is room for",
                self.len_at,
                format_args!("at most {}", self.limit),
                self.len,
            );
            return None;
        }
        let (mut block, mut before, mut used) = (0, 0, Blocks::new());
        for _ in 0..MOST {
            if block >= self.len {
                return Some(used);
            }
            let [first, previous, slot, _] = self.header(block)?;
            let (long, is_free) = (first >> 1, first & 1 == 1);
            if long == 0 || u64::from(block) + u64::from(long) > u64::from(self.len) {
                let most = self.len - block;
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
                    "a block of the arena knows the length of the one before it",
                    self.at(block) + 4,
                    before,
                    previous,
                );
            }
            if !is_free {
                used.insert(block, (slot, long));
            }
            (block, before) = (block + long, long);
        }
        None
    }

    fn at(&self, block: u32) -> u64 {
        self.offset + u64::from(block) * GRANULE as u64
    }

    /// The four words that head a block.
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

/// Whether the block that a slot names, as the word at `named` says, is its own and has room for what lies there.
pub(super) fn check_block<T>(
    blocks: &Blocks,
    slot: u32,
    named: &T,
    block: u32,
    len: usize,
    findings: &mut Findings,
) {
    let found = block.checked_sub(1).and_then(|header| blocks.get(&header));
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
