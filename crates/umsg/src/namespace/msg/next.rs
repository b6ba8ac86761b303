//! The source of identifiers: each user's last identifier, in the file `next` of that user's directory (`own_directory.rs`).
//!
//! The file has 8 bytes, little-endian. They are the *count*: one more than `turn * 32768 + index`, or 0 for none. The turn counts how often the
//! indices wrapped around. The sequence number of an identifier is the turn modulo 65,535.
//!
//! The largest count of all users is valid. A user's count only grows, because it is written under the user's lock. An identifier is written before
//! its queue exists. If a creator first takes an index and then reads the counts, the creator gets an identifier that this index never had.
//!
//! A segment that holds several queues, one after the other, keeps its index, and uses a turn for each queue. The turns are noted before they are
//! used ([`Files::note_turns`]).
//!
//! A user can write any number into its own file. A clock that has counted one turn every 10 microseconds since 1970 is ahead of any real count, so
//! a turn ahead of that clock is ignored.
//! A forged count skips identifiers, and never repeats earlier ones. If a directory with queues has no count, the clock supplies the turn.

use std::ops::Range;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io;

use super::files::Files;
use super::names::INDICES;
use super::own_directory::create_readable;
use crate::namespace::caller;
use crate::namespace::directory::Directory;
use crate::namespace::error::NamespaceError;
use crate::namespace::file_error::FileError;
use crate::namespace::identified::open_regular;
use umsg_shm::sys::clock;

const NAME: &str = "next";
const SIZE: usize = 8;
/// All sequence numbers are below this limit. Source: ipc/util.h of the kernel, `ipcid_seq_max`.
const SEQUENCES: u64 = i32::MAX as u64 >> 15;
/// Indices are assigned in rotation from a set of at least this size. Source: ipc/util.h of the kernel, `ipc_min_cycle`.
const LEAST_CYCLE: u32 = 64;
/// The assumed minimum time of a turn, in nanoseconds, on average since 1970. A count that has grown faster is forged.
const TURN: u64 = 10_000;

/// The identifier that was assigned last. The next one follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Next {
    turn: u64,
    index: Option<u32>,
}

impl Next {
    /// The value before any identifier is assigned.
    const FIRST: Next = Next {
        index: None,
        turn: 0,
    };

    /// Returns the indices to try, in order, from the next index on. The first two ranges together have one and a half times as many indices as there
    /// are queues. Source: ipc/util.c of the kernel, `ipc_idr_alloc`.
    pub(crate) fn indices(self, in_use: u32) -> [Range<u32>; 3] {
        let end = (in_use.saturating_mul(3) / 2).clamp(LEAST_CYCLE, INDICES);
        let begin = self.index.map_or(0, |index| index + 1);
        // The third range has all other indices, because files that are not counted as queues may occupy the indices of the first two ranges.
        [begin..end, 0..begin.min(end), end..INDICES]
    }

    /// Returns the value after the assignment of an identifier with this index. The turn counts how often the indices wrapped around.
    pub(crate) fn with(self, index: u32) -> Next {
        let begins_anew = self.index.is_some_and(|last| index <= last);
        Next {
            index: Some(index),
            turn: self.turn.wrapping_add(u64::from(begins_anew)),
        }
    }

    /// Returns the last identifier.
    pub(crate) fn id(self) -> i32 {
        Next::id_of(self.turn, self.index.unwrap_or(0))
    }

    /// Returns the identifier of an index in a turn.
    pub(crate) fn id_of(turn: u64, index: u32) -> i32 {
        let sequence = (turn % SEQUENCES) as u32;
        (sequence * INDICES + index) as i32
    }

    /// Returns the turn of the last identifier.
    pub(crate) fn turn(self) -> u64 {
        self.turn
    }

    fn encode(self) -> [u8; SIZE] {
        // The multiplication wraps around only for a user that has overwritten its own count.
        let turns = self.turn.wrapping_mul(u64::from(INDICES));
        let count = self
            .index
            .map(|index| turns.wrapping_add(u64::from(index) + 1));
        count.unwrap_or(0).to_le_bytes()
    }

    fn decode(bytes: [u8; SIZE]) -> Option<Next> {
        let last = u64::from_le_bytes(bytes).checked_sub(1)?;
        Some(Next {
            index: Some((last % u64::from(INDICES)) as u32),
            turn: last / u64::from(INDICES),
        })
    }

    /// Returns whether the indices can have wrapped around this often since 1970. A larger turn is forged.
    fn is_credible(self) -> bool {
        self.turn <= clock::realtime() / TURN
    }

    /// Returns the value for a directory that has queues, but no user's file `next`: the clock supplies the turn.
    fn by_the_clock() -> Next {
        Next {
            index: None,
            turn: clock::realtime() / 1_000_000,
        }
    }
}

impl Files {
    /// Returns the identifier that was assigned last. `in_use` is the number of queues in the directory.
    ///
    /// # Errors
    /// `Namespace`, `NoMemory`, `TooManyFiles`. A user's count that can't be read for another reason is ignored.
    pub(crate) fn next(&self, in_use: u32) -> Result<Next, FileError> {
        let mut newest = None;
        for (user, path) in self.all_owns()? {
            let noted = match user == caller() {
                true => read_own(&path)?,
                false => read(&path)?.filter(|next| next.is_credible()),
            };
            newest = newest.max(noted);
        }
        Ok(match newest {
            Some(next) => next,
            None if in_use == 0 => Next::FIRST,
            None => Next::by_the_clock(),
        })
    }

    /// Returns the last identifier, as [`next`](Self::next) does. The caller has held its user's lock since it read `last`.
    ///
    /// # Errors
    /// The errors of `next`.
    pub(crate) fn next_again(&self, last: Next, in_use: u32) -> Result<Next, FileError> {
        match self.is_only_user() {
            true => Ok(last),
            false => self.next(in_use),
        }
    }

    /// Notes that an index has had all turns up to `turn`. The caller holds its user's lock.
    ///
    /// # Errors
    /// The errors of `next` and `note_next`.
    pub(crate) fn note_turns(&self, index: u32, turn: u64) -> Result<(), FileError> {
        let index = Some(index);
        let last = Next { turn, index };
        match self.next(1)? {
            next if next >= last => Ok(()),
            _ => self.note_next(last),
        }
    }

    /// Writes the last identifier, before its queue exists. The caller holds its user's lock.
    ///
    /// # Errors
    /// `NoSpace`, `NoMemory`, `TooManyFiles`, `System`.
    ///
    /// # If the process dies
    /// A write of 8 bytes is complete, or writes nothing.
    pub(crate) fn note_next(&self, next: Next) -> Result<(), FileError> {
        let own = self.own()?;
        if let Ok(file) = open_own(&own, OFlags::RDWR)
            && io::pwrite(&file, &next.encode(), 0) == Ok(SIZE)
        {
            return Ok(());
        }
        let mut own = Directory::open(&own)?;
        let file = match open_regular(&mut own, NAME.as_ref(), OFlags::RDWR) {
            Err(FileError::NotFound) => create_readable(&mut own, NAME)?,
            other => other?,
        };
        match io::pwrite(&file, &next.encode(), 0) {
            Ok(SIZE) => Ok(()),
            Ok(_) => Err(FileError::NoSpace),
            Err(e) => Err(FileError::of("pwrite", e)),
        }
    }
}

/// Opens the caller's file `next` by its path: only the caller and root can put a file there.
fn open_own(own: &Path, access: OFlags) -> io::Result<rustix::fd::OwnedFd> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::open(own.join(NAME), flags, Mode::empty())
}

/// Reads the caller's file `next`; None if its contents are invalid.
fn read_own(own: &Path) -> Result<Option<Next>, FileError> {
    let mut bytes = [0; SIZE];
    match open_own(own, OFlags::RDONLY) {
        Ok(file) if io::pread(&file, &mut bytes, 0) == Ok(SIZE) => Ok(Next::decode(bytes)),
        _ => read(own),
    }
}

/// Reads a user's file `next`. None if the file does not exist, or if its contents are invalid.
fn read(own: &Path) -> Result<Option<Next>, FileError> {
    let mut own = match Directory::open(own) {
        Ok(own) => own,
        Err(error @ NamespaceError::TooManyFiles { .. }) => return Err(error.into()),
        Err(_) => return Ok(None),
    };
    let file = match open_regular(&mut own, NAME.as_ref(), OFlags::RDONLY) {
        Ok(file) => file,
        Err(error @ (FileError::TooManyFiles { .. } | FileError::NoMemory)) => return Err(error),
        Err(_) => return Ok(None),
    };
    let mut bytes = [0; SIZE];
    match io::pread(&file, &mut bytes, 0) {
        Ok(SIZE) => Ok(Next::decode(bytes)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, as_user, mode};
    use umsg_testkit::users::is_root;

    /// Returns the first indices that are tried, and the identifier that the first of them makes.
    fn proposed(next: Next, in_use: u32) -> (Vec<u32>, i32) {
        let first: Vec<u32> = next.indices(in_use).into_iter().flatten().take(3).collect();
        let id = next.with(first[0]).id();
        (first, id)
    }

    fn last(index: u32, turn: u64) -> Next {
        Next {
            index: Some(index),
            turn,
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
        assert_eq!(proposed(last(63, 7 * SEQUENCES + 1), 0).1, 2 * 32_768);
    }

    #[test]
    fn every_index_is_tried_once() {
        for (next, in_use) in [
            (Next::FIRST, 0),
            (last(70, 0), 3),
            (last(30, 0), 3),
            (last(32_767, 0), 32_000),
        ] {
            let mut indices: Vec<u32> = next.indices(in_use).into_iter().flatten().collect();
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices.len(), INDICES as usize, "{next:?}");
            let count: usize = next.indices(in_use).into_iter().map(Range::count).sum();
            assert_eq!(count, INDICES as usize, "{next:?}");
        }
    }

    fn noted(dir: &TestDir) -> std::path::PathBuf {
        dir.path().join(format!("own/{}/next", caller()))
    }

    #[test]
    fn what_is_noted_is_read_by_everybody_and_written_by_its_user_only() {
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let files = || namespace.msg_files().unwrap();
        files().note_next(last(5, 6)).unwrap();
        assert_eq!(mode(&noted(&dir)), 0o644);
        if is_root() {
            as_user(STRANGER, || {
                assert_eq!(files().next(1).unwrap(), last(5, 6));
                files().note_next(last(7, 6)).unwrap();
            });
            assert_eq!(files().next(1).unwrap(), last(7, 6));
            as_user(STRANGER, || files().note_next(last(4, 6)).unwrap());
        }
        assert_eq!(files().next(1).unwrap(), last(5, 6));
    }

    #[test]
    fn a_note_that_makes_no_sense_is_not_believed_and_overwritten() {
        let dir = TestDir::new();
        let files = dir.namespace().msg_files().unwrap();
        files.note_next(last(5, 6)).unwrap();
        for bad in [vec![], vec![1; 7], vec![0; 8]] {
            std::fs::write(noted(&dir), &bad).unwrap();
            let next = files.next(1).unwrap();
            assert_eq!(next.index, None, "{bad:?}");
            assert_eq!(files.next(0).unwrap(), Next::FIRST);
            files.note_next(next.with(0)).unwrap();
            let noted = std::fs::read(noted(&dir)).unwrap();
            assert_eq!(noted[..SIZE], next.with(0).encode(), "{bad:?}");
        }
    }

    #[test]
    fn what_a_stranger_notes_leaves_identifiers_out_and_brings_none_back() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let files = || namespace.msg_files().unwrap();
        files().note_next(last(5, 6)).unwrap();
        let path = dir.path().join(format!("own/{STRANGER}/next"));
        as_user(STRANGER, || files().note_next(last(7, 8)).unwrap());
        for count in [0, 1, u64::MAX, u64::MAX / 2] {
            std::fs::write(&path, count.to_le_bytes()).unwrap();
            assert_eq!(files().next(1).unwrap(), last(5, 6), "{count}");
        }
        std::fs::remove_file(&path).unwrap();
        fs::mkfifoat(fs::CWD, &path, Mode::RWXU).unwrap();
        assert_eq!(files().next(1).unwrap(), last(5, 6));
        // A value near the largest credible one. No process has had the skipped identifiers.
        std::fs::remove_file(&path).unwrap();
        let far = last(9, clock::realtime() / TURN - 1_000_000);
        std::fs::write(&path, far.encode()).unwrap();
        assert_eq!(files().next(1).unwrap(), far);
        files().note_next(far.with(10)).unwrap();
        assert_eq!(files().next(1).unwrap(), last(10, far.turn));
    }

    #[test]
    fn any_number_of_names_beside_the_notes_hides_none() {
        let dir = TestDir::shared();
        let files = dir.namespace().msg_files().unwrap();
        files.note_next(last(5, 6)).unwrap();
        let own = dir.path().join("own");
        for number in 0..5000 {
            std::fs::create_dir(own.join(format!("j{number}"))).unwrap();
        }
        for number in 0..50 {
            std::fs::create_dir(own.join(format!("{}-{number:016x}", caller()))).unwrap();
        }
        assert_eq!(files.next(1).unwrap(), last(5, 6));
    }
}
