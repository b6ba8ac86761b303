//! The directory of a namespace's System V queues.
//!
//! ```text
//! msg/
//! ├── 3                a queue's file, named by its index: identifier modulo 32768
//! ├── k-00001234       its key symlink, a symbolic link to "32771", which is its identifier: found by key 0x1234
//! ├── 4                another queue, made without a key (IPC_PRIVATE)
//! └── p-4              and its key symlink, to "4"
//! ```
//!
//! The names in the directory are the only list of queues. In a separate table, a process that may create a queue could corrupt the entries of
//! others. But it can't remove another user's name from a sticky directory.
//!
//! | file | key symlink | then |
//! |---|---|---|
//! | no | no | there is no queue |
//! | yes | no | its creator died: there is no queue. The next process that needs the index removes the file, if it has the permission |
//! | yes | yes | there is a queue, except if its header says that it was removed, or has the key and identifier of another queue. If the header is invalid, the queue is corrupted |
//! | no | yes | a process interfered: there is no queue |
//!
//! A key symlink whose text ends with `+` leads to a segment that may hold several queues, one after the other. Then the header has the identifier of
//! the current queue.
//!
//! A process without permission to open the file can read its key symlink. The same is true in the kernel: the identifier of a queue is not secret,
//! and the errors for a removed queue and for a forbidden queue differ.
//!
//! Each key has one key symlink, so the symlink's owner decides to which queue the key leads. In a sticky directory, only this user, root and the
//! directory's owner can replace the key symlink, or the queue's file to which it leads. A stale key symlink of another user blocks the key.
//!
//! No protocol needs a lock that another user could hold. Concurrent steps of two processes are decided as follows:
//!
//! | at once | decided by |
//! |---|---|
//! | two creators take an index | link(2): one gets EEXIST and tries the next |
//! | two makers of one key | symlink(2): one gets EEXIST, removes its file and looks for the queue again |
//! | two processes of one user remove stale files | the user's lock, see `lock.rs`; root takes the lock of the files' owner |
//! | a creator, and a process of the same user that sweeps files without a key symlink | the user's lock: while the sweeping process holds it, no creator of that user is at work |
//! | two creators assign identifiers | each index has one creator at a time, whose identifier is larger than all that were noted: see `next.rs` |
//! | two creators at the limit of queues | nothing: if several users create queues at the same moment, each may exceed the limit by one queue |
//! | two processes change a queue's rights | the queue's own lock; each process gives the file the rights in the header, and repeats this until file and header agree |

mod entries;
mod files;
mod key_symlink;
mod lock;
mod names;
mod next;
mod own_directory;
mod wanted;

use std::ffi::CStr;

use rustix::fs::{self, Stat};

use super::Namespace;
use super::directory::Directory;
use super::entries::allocated;
use super::error::NamespaceError;
use super::queues::SYSV;

pub(crate) use entries::Entry;
pub(super) use entries::count_below;
pub(crate) use files::{Files, NewFile};
pub(crate) use key_symlink::KeySymlink;
pub(crate) use lock::{Locked, PATIENCE};
pub(crate) use names::{INDICES, key_symlink_name};
pub(crate) use next::Next;
pub(crate) use wanted::indices_from;

/// Describes the entry if it is neither a queue's file nor a key symlink; otherwise returns None.
pub(super) fn what_else(queues: &Directory, name: &CStr, stat: &Stat) -> Option<&'static str> {
    let what = super::intruders::what(stat);
    let is_key_symlink = || {
        let (at, path) = queues.locate(name.to_str().ok()?);
        let text = fs::readlinkat(at, &path, []).ok()?;
        let is_one = KeySymlink::of_text(text.to_bytes()) != KeySymlink::Foreign;
        is_one.then_some(())
    };
    match what {
        None => match names::index_of(name) {
            Some(_) => None,
            None => Some("a file with an invalid name"),
        },
        Some(_) if names::key_of(name).is_some() && is_key_symlink().is_some() => None,
        what => what,
    }
}

impl Namespace {
    /// Returns the allocated memory of the System V queues, in bytes. Without a trusted directory there are no queues.
    pub(super) fn msg_allocated_bytes(&self) -> Result<u64, NamespaceError> {
        let Ok(queues) = self.queues_of(SYSV) else {
            return Ok(0);
        };
        let mut bytes = 0u64;
        entries::for_each_index(&queues, |index| {
            let name = names::of_index(index);
            bytes = bytes.saturating_add(allocated(&queues, name.as_ref())?);
            Ok(())
        })?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::queues::RINGS;
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, chown};

    #[test]
    fn the_bytes_of_queues_of_all_kinds_are_counted() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let at = |name: &str| dir.path().join(SYSV).join(name);
        std::fs::write(at("3"), [1; 10_000]).unwrap();
        std::os::unix::fs::symlink("3", at("k-00001234")).unwrap();
        assert_eq!(namespace.msg_allocated_bytes().unwrap(), 3 * 4096);
        std::fs::write(dir.queue("posix"), [1; 4096]).unwrap();
        assert_eq!(namespace.allocated_bytes().unwrap(), 4 * 4096);
        let rings = dir.path().join(RINGS);
        std::fs::write(rings.join("ring"), [1; 4096]).unwrap();
        assert_eq!(namespace.allocated_bytes().unwrap(), 5 * 4096);
        std::fs::remove_dir_all(&rings).unwrap();
        assert_eq!(namespace.allocated_bytes().unwrap(), 4 * 4096);
    }

    #[test]
    fn a_strangers_directory_keeps_no_process_from_posix_queues() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        std::fs::create_dir(dir.path().join(SYSV)).unwrap();
        chown(&dir.path().join(SYSV), STRANGER);
        let namespace = dir.namespace();
        assert_eq!(namespace.allocated_bytes().unwrap(), 0);
        let error = namespace.queues_of(SYSV).unwrap_err();
        assert!(matches!(error, NamespaceError::Stranger { .. }), "{error}");
    }

    #[test]
    fn a_namespace_older_than_system_v_queues_gets_its_directory_from_the_next_permitted_process() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::remove_dir(dir.path().join(SYSV)).unwrap();
        assert!(matches!(
            namespace.queues_of(SYSV).unwrap_err(),
            NamespaceError::NoQueuesDirectory { .. }
        ));
        dir.namespace();
        namespace.queues_of(SYSV).unwrap();
    }
}
