//! The identifier that the namespace's owner wants the next System V queue to have: `next_id` of the [`Limits`](crate::Limits), the kernel's
//! `msg_next_id`.
//!
//! The next creation of a queue, by any user, takes the identifier. A process of the owner or of root removes the identifier from the namespace's
//! record. Another user may not write the record. So a process of another user notes the record from which it has taken the identifier, in the file
//! `taken` of the user's own directory. The note has 24 bytes, little-endian: the number of the record's inode, and the time of the record's change.
//! So a hostile user can take the identifier, as with the kernel, but can't choose one.
//!
//! **If a process dies** after it has taken the identifier, and before it has created its queue, no queue gets the identifier.
//!
//! The processes of one user exclude each other by the user's lock. Two users that create queues at the same moment may both take the
//! identifier: then the second one gets the next index.

use std::ops::Range;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io;

use super::files::Files;
use super::lock::Locked;
use super::names::INDICES;
use super::own_directory::create_readable;
use crate::namespace::directory::Directory;
use crate::namespace::file_error::FileError;
use crate::namespace::identified::open_regular;
use crate::namespace::{Namespace, record};

const NAME: &str = "taken";
const SIZE: usize = 24;

impl Namespace {
    /// Returns whether this user has noted that it has taken the identifier of the current record.
    pub(in crate::namespace) fn is_next_id_taken(&self) -> bool {
        let Some(record) = record::identity(self.path(), self.owner()) else {
            return false;
        };
        let Ok(owns) = self.msg_files().and_then(|files| Ok(files.all_owns()?)) else {
            return false;
        };
        owns.values()
            .any(|own| read(own).is_some_and(|noted| noted == encode(record)))
    }

    /// Takes the identifier that is to be given to the next queue. Returns None if the namespace's owner has requested no identifier. `lock` is the
    /// lock of the caller's user.
    ///
    /// # Errors
    /// The errors of a read and a write of the limits, and of the caller's note.
    ///
    /// # If the process dies
    /// The identifier is either taken or not.
    pub(crate) fn take_next_id(
        &self,
        files: &Files,
        lock: &Locked,
    ) -> Result<Option<u32>, FileError> {
        let Some(record) = record::identity(self.path(), self.owner()) else {
            return Ok(None);
        };
        if self.may_set_limits() {
            // The limits are written to a new record, for which other users' notes about the old record are not valid.
            let mut id = None;
            self.update_limits_under(Some(lock), |limits| id = limits.next_id.take())?;
            return Ok(id);
        }
        let id = self.limits()?.next_id;
        if id.is_some() {
            note(&files.own()?, record)?;
        }
        Ok(id)
    }
}

/// Returns the indices to try for a queue that is to get this identifier: first the index of the identifier, then the following indices. Source:
/// ipc/util.c of the kernel, `ipc_idr_alloc`.
pub(crate) fn indices_from(id: u32) -> [Range<u32>; 3] {
    [id % INDICES..INDICES, 0..0, 0..0]
}

fn encode(record: [u64; 3]) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    for (to, number) in bytes.chunks_exact_mut(8).zip(record) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn read(own: &Path) -> Option<[u8; SIZE]> {
    let mut own = Directory::open(own).ok()?;
    let file = open_regular(&mut own, NAME.as_ref(), OFlags::RDONLY).ok()?;
    let mut bytes = [0; SIZE];
    (io::pread(&file, &mut bytes, 0) == Ok(SIZE)).then_some(bytes)
}

fn note(own: &Path, record: [u64; 3]) -> Result<(), FileError> {
    let mut own = Directory::open(own)?;
    let file = match open_regular(&mut own, NAME.as_ref(), OFlags::RDWR) {
        Err(FileError::NotFound) => create_readable(&mut own, NAME)?,
        other => other?,
    };
    match io::pwrite(&file, &encode(record), 0) {
        Ok(SIZE) => Ok(()),
        Ok(_) => Err(FileError::NoSpace),
        Err(e) => Err(FileError::of("pwrite", e)),
    }
}

#[cfg(test)]
mod tests {
    use crate::namespace::testing::{STRANGER, TestDir, as_user};
    use crate::namespace::{Limits, PATIENCE};

    #[test]
    fn an_identifier_is_taken_once_by_its_owner_or_by_a_stranger() {
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let want = |id| {
            let limits = Limits {
                next_id: Some(id),
                ..namespace.limits().unwrap()
            };
            namespace.set_limits(&limits).unwrap();
            assert_eq!(namespace.limits().unwrap().next_id, Some(id));
        };
        let take = || {
            let files = namespace.msg_files().unwrap();
            let lock = files.lock(PATIENCE).unwrap();
            namespace.take_next_id(&files, &lock).unwrap()
        };
        want(98_309);
        assert_eq!([take(), take()], [Some(98_309), None]);
        umsg_testkit::needs_root!();
        for id in [7, 7, 8] {
            want(id);
            as_user(STRANGER, || {
                assert_eq!([take(), take()], [Some(id), None]);
            });
            assert_eq!(namespace.limits().unwrap().next_id, None);
            assert_eq!(take(), None);
        }
        // A later change of other limits does not make a taken identifier available again.
        let limits = namespace.limits().unwrap();
        namespace
            .set_limits(&Limits {
                msgmni: 9,
                ..limits
            })
            .unwrap();
        assert_eq!(take(), None);
    }
}
