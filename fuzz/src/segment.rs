//! The file of a queue, and words to be written in it.

use super::input::Input;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The length of the first part of a segment, in which nearly every word has an effect.
const FIXED: u64 = 3072;
/// The bits of an owner in the word of a lock. The fuzzer never writes these bits, because a lock that names a living owner would only cost a wait of
/// a second.
const OWNER: u32 = 0x3fff_ffff;

/// The file of a queue that its users have mapped.
pub(crate) struct Segment {
    file: File,
    len: u64,
    /// The offsets of the segment's locks. Source: docs/format.md.
    locks: &'static [u64],
}

/// The offsets of the locks of POSIX queues and rings.
pub(crate) const TWO_SIDES: &[u64] = &[512, 768];
/// The offset of the lock of System V queues.
pub(crate) const ONE_HUB: &[u64] = &[256];

impl Segment {
    pub(crate) fn open(path: &Path, locks: &'static [u64]) -> Segment {
        let file = File::options().read(true).write(true).open(path);
        let file = file.expect("the file of a queue");
        let len = file.metadata().expect("metadata").len();
        Segment { file, len, locks }
    }

    /// Writes one word as the input says.
    pub(crate) fn scribble(&self, input: &mut Input<'_>) {
        let place = u64::from(input.half()) * 4;
        let offset = match input.byte() % 4 {
            0..=1 => place % FIXED,
            2 => place % self.len,
            // Words in all parts of the file: neighbouring values of `place` are a page apart.
            _ => place * 1024 % self.len,
        };
        let offset = (offset / 4 * 4).min(self.len - 4);
        let value = self.value(input, offset);
        let value = match self.locks.contains(&offset) {
            true => value & !OWNER,
            false => value,
        };
        self.write(offset, value);
    }

    fn value(&self, input: &mut Input<'_>, offset: u64) -> u32 {
        let there = self.read(offset);
        match input.byte() % 8 {
            0 => 0,
            1 => u32::MAX,
            2 => there.wrapping_add(1),
            3 => there.wrapping_sub(1),
            4 => there ^ 1 << (input.byte() % 32),
            5 => u32::from(input.byte()),
            6 => self.read(u64::from(input.half()) * 4 % self.len / 4 * 4),
            _ => input.word(),
        }
    }

    fn read(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        let _ = self.file.read_at(&mut bytes, offset);
        u32::from_le_bytes(bytes)
    }

    fn write(&self, offset: u64, value: u32) {
        let written = self.file.write_all_at(&value.to_le_bytes(), offset);
        written.expect("memory for a page");
    }
}
