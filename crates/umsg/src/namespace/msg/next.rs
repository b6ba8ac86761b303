//! Where the next identifier comes from: the file `.next`, 16 bytes, little-endian, for everybody to write.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | the index that was given out last, 0xffffffff for none |
//! | 4 | 4 | the sequence number that went with it, 0 to 65,534 |
//! | 8 | 8 | 0 |
//!
//! It only makes identifiers differ from earlier ones. What is in it is no more than a proposal: whoever scribbles in it makes
//! identifiers come back earlier than need be. One that is missing, or not to be used, in a directory with queues is replaced by the clock.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::{self, Errno};

use super::files::Files;
use super::names::{INDICES, NEXT};
use crate::namespace::file_error::FileError;
use crate::namespace::identified::open_regular;
use crate::namespace::staged::Staged;
use crate::sys::clock;

const SIZE: usize = 16;
const NONE: u32 = u32::MAX;
/// Sequence numbers are below this. Source: ipc/util.h of the kernel, `ipcid_seq_max`.
const SEQUENCES: u32 = i32::MAX as u32 >> 15;
/// Indices are taken in turn from at least this many. Source: ipc/util.h of the kernel, `ipc_min_cycle`.
const LEAST_CYCLE: u32 = 64;
/// For everybody who may use the directory.
const MODE: u32 = 0o666;

/// The last identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    index: Option<u32>,
    sequence: u32,
}

impl Next {
    /// Before the first identifier.
    const FIRST: Next = Next {
        index: None,
        sequence: 0,
    };

    /// The indices to try, in turn: the next ones first, of as many as there are half as many queues again.
    /// Source: ipc/util.c of the kernel, `ipc_idr_alloc`.
    pub(crate) fn indices(self, in_use: u32) -> impl Iterator<Item = u32> {
        let end = (in_use.saturating_mul(3) / 2).clamp(LEAST_CYCLE, INDICES);
        let begin = self.index.map_or(0, |index| index + 1);
        // All of those behind them, last: indices that are not free, but for no queue of ours, are not counted.
        (begin..end).chain(0..begin.min(end)).chain(end..INDICES)
    }

    /// After an identifier with this index: the sequence number counts how often indices began anew.
    pub(crate) fn with(self, index: u32) -> Next {
        let begins_anew = self.index.is_some_and(|last| index <= last);
        let sequence = (self.sequence + u32::from(begins_anew)) % SEQUENCES;
        Next {
            index: Some(index),
            sequence,
        }
    }

    /// The identifier that was given out last.
    pub(crate) fn id(self) -> i32 {
        (self.sequence * INDICES + self.index.unwrap_or(0)) as i32
    }

    fn encode(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&self.index.unwrap_or(NONE).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SIZE]) -> Option<Next> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let next = Next {
            index: Some(word(0)).filter(|index| *index != NONE),
            sequence: word(4),
        };
        let makes_sense =
            next.index.is_none_or(|index| index < INDICES) && next.sequence < SEQUENCES;
        (makes_sense && next.encode() == *bytes).then_some(next)
    }

    /// Of a directory that has queues and does not say which identifiers it had.
    fn by_the_clock() -> Next {
        let milliseconds = clock::realtime() / 1_000_000;
        Next {
            index: None,
            sequence: (milliseconds % u64::from(SEQUENCES)) as u32,
        }
    }
}

impl Files {
    /// The last identifier of a directory with so many queues. Under the lock.
    ///
    /// # Errors
    /// `NoMemory`, `TooManyFiles`. What else the note is, it is not believed.
    pub(crate) fn next(&mut self, in_use: u32) -> Result<Next, FileError> {
        match self.read_next() {
            Ok(Some(next)) => Ok(next),
            Err(error) if is_want(&error) => Err(error),
            _ if in_use == 0 => Ok(Next::FIRST),
            _ => Ok(Next::by_the_clock()),
        }
    }

    fn read_next(&mut self) -> Result<Option<Next>, FileError> {
        let file = self.open_next()?;
        let mut bytes = [0; SIZE + 1];
        let len = io::pread(&file, &mut bytes, 0).map_err(|e| FileError::of("pread", e))?;
        Ok(bytes[..len].try_into().ok().and_then(Next::decode))
    }

    /// Notes the last identifier, before there is a queue with it. Under the lock.
    ///
    /// # Errors
    /// `NoSpace`, `NoMemory`, `TooManyFiles`. A file that the caller may not write stays as it is.
    ///
    /// # If the process dies
    /// 16 bytes are written whole or not at all.
    pub(crate) fn note_next(&mut self, next: Next) -> Result<(), FileError> {
        let file = match self.open_next() {
            Ok(file) => file,
            Err(FileError::NotFound) => return self.make_next(next),
            Err(error) if is_want(&error) => return Err(error),
            Err(_) => return Ok(()),
        };
        io::pwrite(&file, &next.encode(), 0).map_err(|e| FileError::of("pwrite", e))?;
        let stat = fs::fstat(&file).map_err(|e| FileError::of("fstat", e))?;
        if stat.st_size != SIZE as i64 {
            fs::ftruncate(&file, SIZE as u64).map_err(|e| FileError::of("ftruncate", e))?;
        }
        Ok(())
    }

    fn open_next(&mut self) -> Result<OwnedFd, FileError> {
        open_regular(self.directory_mut(), NEXT.as_ref(), OFlags::RDWR)
    }

    fn make_next(&mut self, next: Next) -> Result<(), FileError> {
        let staged = self.stage(MODE).map_err(|e| FileError::of("open", e))?;
        let outcome =
            write(&staged, next).and_then(|()| staged.link_too(self.directory(), OsStr::new(NEXT)));
        staged.discard(self.directory());
        outcome.map_err(|e| FileError::of("link", e))
    }
}

/// The caller has too little of something, which says nothing of the file.
fn is_want(error: &FileError) -> bool {
    matches!(error, FileError::TooManyFiles { .. } | FileError::NoMemory)
}

fn write(staged: &Staged, next: Next) -> io::Result<()> {
    if io::write(staged.file(), &next.encode())? != SIZE {
        return Err(Errno::NOSPC);
    }
    // Whatever the umask: who may make queues numbers them.
    fs::fchmod(staged.file(), Mode::from_raw_mode(MODE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, as_user, chmod, is_root, mode};

    /// The first indices that are tried, and the identifier that the first of them makes.
    fn proposed(next: Next, in_use: u32) -> (Vec<u32>, i32) {
        let first: Vec<u32> = next.indices(in_use).take(3).collect();
        let id = next.with(first[0]).id();
        (first, id)
    }

    fn last(index: u32, sequence: u32) -> Next {
        Next {
            index: Some(index),
            sequence,
        }
    }

    #[test]
    fn indices_are_taken_in_turn_and_the_sequence_counts_the_turns() {
        assert_eq!(proposed(Next::FIRST, 0), (vec![0, 1, 2], 0));
        assert_eq!(proposed(last(62, 0), 5), (vec![63, 0, 1], 63));
        assert_eq!(proposed(last(63, 0), 5), (vec![0, 1, 2], 32_768));
        assert_eq!(proposed(last(63, 0), 100), (vec![64, 65, 66], 64));
        assert_eq!(proposed(last(148, 2), 100), (vec![149, 0, 1], 65_685));
        assert_eq!(proposed(last(32_767, 0), 32_000).1, 32_768);
        assert_eq!(proposed(last(63, SEQUENCES - 1), 0).1, 0);
    }

    #[test]
    fn every_index_is_tried_once() {
        for (next, in_use) in [
            (Next::FIRST, 0),
            (last(70, 0), 3),
            (last(30, 0), 3),
            (last(32_767, 0), 32_000),
        ] {
            let mut indices: Vec<u32> = next.indices(in_use).collect();
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices.len(), INDICES as usize, "{next:?}");
            assert_eq!(next.indices(in_use).count(), INDICES as usize, "{next:?}");
        }
    }

    #[test]
    fn what_is_noted_is_read_by_everybody_whatever_the_umask() {
        let dir = TestDir::shared();
        dir.namespace()
            .msg_files()
            .unwrap()
            .note_next(last(5, 6))
            .unwrap();
        assert_eq!(mode(&dir.path().join("msg/.next")), 0o666);
        let namespace = dir.namespace();
        let change = || {
            let mut files = namespace.msg_files().unwrap();
            assert_eq!(files.next(1).unwrap(), last(5, 6));
            files.note_next(last(7, 8)).unwrap();
        };
        if is_root() {
            as_user(STRANGER, change);
        } else {
            change();
        }
        assert_eq!(
            dir.namespace().msg_files().unwrap().next(1).unwrap(),
            last(7, 8)
        );
    }

    #[test]
    fn a_note_that_makes_no_sense_is_not_believed_and_overwritten() {
        let dir = TestDir::new();
        let path = dir.path().join("msg/.next");
        let mut files = dir.namespace().msg_files().unwrap();
        let good = last(5, 6).encode();
        let changed = |at: usize, to: u8| {
            let mut bytes = good.to_vec();
            bytes[at] = to;
            bytes
        };
        let longer = [&good[..], &[0]].concat();
        for bad in [
            vec![],
            good[..15].to_vec(),
            longer,
            changed(1, 0x80),
            changed(6, 1),
            changed(15, 1),
        ] {
            std::fs::write(&path, &bad).unwrap();
            let next = files.next(1).unwrap();
            assert_eq!(next.index, None, "{bad:?}");
            assert_eq!(files.next(0).unwrap(), Next::FIRST);
            files.note_next(next.with(0)).unwrap();
            let noted = std::fs::read(&path).unwrap();
            assert_eq!(noted[..16], next.with(0).encode(), "{bad:?}");
        }
    }

    #[test]
    fn a_note_that_is_another_users_or_no_file_keeps_nobody_from_making_queues() {
        if !is_root() {
            return;
        }
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let mut files = namespace.msg_files().unwrap();
        files.note_next(last(5, 6)).unwrap();
        chmod(&dir.path().join("msg/.next"), 0o600);
        as_user(STRANGER, || {
            let mut files = namespace.msg_files().unwrap();
            assert_eq!(files.next(1).unwrap().index, None);
            files.note_next(last(7, 8)).unwrap();
        });
        assert_eq!(files.next(1).unwrap(), last(5, 6));
        std::fs::remove_file(dir.path().join("msg/.next")).unwrap();
        std::fs::create_dir(dir.path().join("msg/.next")).unwrap();
        let next = files.next(1).unwrap();
        files.note_next(next.with(0)).unwrap();
    }
}
