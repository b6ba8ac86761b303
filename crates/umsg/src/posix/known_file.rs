//! Opening a queue that the process has already mapped, for the drop-in.
//!
//! A full opening opens the directory and the file, checks the directory and the file, maps the file and checks its header. A process that still has
//! the file mapped needs less: the mapping keeps the file's inode from being used again. So a name that leads to the same device and inode leads to
//! the same queue, whose header was checked when the file was mapped.

use super::access::{Access, is_decided, is_granted};
use super::queue::Queue;
use crate::namespace::{FileAccess, Namespace};
use rustix::fs::{FileType, Gid, OFlags, Stat, Uid};
use rustix::io;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;

/// A file that was opened by a queue's name, and not checked yet.
#[derive(Debug)]
pub struct KnownFile {
    descriptor: OwnedFd,
    stat: Stat,
    access: Access,
    /// Two flags: the first is true if the descriptor has O_NONBLOCK, the second if the caller wants O_NONBLOCK.
    nonblocking: (bool, bool),
}

/// The size of a queue's file in bytes, and the properties that show whether the system still grants the same access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    size: u64,
    mode: u32,
    owner: (u32, u32),
    /// The time of the last change of the inode. The mode does not show a change of an access control list.
    changed: (i64, i64),
}

impl FileState {
    /// Returns the state of the file of a queue that was just opened in full. Returns None if opening the queue does more than map its file: the
    /// queue is removed with its last user, or has a dead-letter queue.
    #[must_use]
    pub fn of(queue: &Queue, file: &OwnedFd) -> Option<FileState> {
        let policy = queue.engine.segment().policy();
        if policy.remove_on_last_close || policy.sets_aside() {
            return None;
        }
        let stat = rustix::fs::fstat(file).ok()?;
        Some(FileState::from(&stat))
    }

    /// Returns whether the file has this owner and group.
    pub(super) fn is_of(&self, user: Uid, group: Gid) -> bool {
        self.owner == (user.as_raw(), group.as_raw())
    }

    /// Returns the time of the last change of the inode.
    pub(super) fn changed(&self) -> (i64, i64) {
        self.changed
    }

    /// Returns the size of the file, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl From<&Stat> for FileState {
    fn from(stat: &Stat) -> FileState {
        FileState {
            size: stat.st_size as u64,
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

impl KnownFile {
    /// Opens the file that has a queue's name (without its slash) for reading, writing or both. The descriptor gets the lowest free number. The
    /// descriptor of [`open_queue`](Self::open_queue) has O_NONBLOCK if `nonblocking`.
    ///
    /// # Errors
    /// The errors of open(2) and fstat(2). `ENOENT`: no queue has the name.
    pub fn open(
        namespace: &Namespace,
        name: &OsStr,
        read: bool,
        write: bool,
        nonblocking: bool,
    ) -> io::Result<KnownFile> {
        let access = Access { read, write };
        let (descriptor, has) =
            namespace.open_unchecked(name, FileAccess::from(access), nonblocking)?;
        let stat = rustix::fs::fstat(&descriptor)?;
        Ok(KnownFile {
            descriptor,
            stat,
            access,
            nonblocking: (has, nonblocking),
        })
    }

    /// Returns the device and the inode number of the file.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Returns whether the file still has the state `earlier`.
    pub(super) fn is_in_state(&self, earlier: FileState) -> bool {
        FileState::from(&self.stat) == earlier
    }

    /// Returns the descriptor if the file is that of `queue` and a full opening would succeed. `earlier` is the file's state at
    /// the time of the queue's full opening.
    ///
    /// A descriptor for reading and writing was opened with the rights that a mapping needs. For any other descriptor, the file must have
    /// the same state as at the full opening.
    pub fn open_queue(self, queue: &Queue, earlier: FileState) -> Option<OwnedFd> {
        let Access { read, write } = self.access;
        let is_mappable = read && write || FileState::from(&self.stat) == earlier;
        let is_same = self.identity() == queue.identity()
            && FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
            && self.stat.st_nlink == 1
            && self.stat.st_size as u64 >= earlier.size;
        // If another process changes the mode at the same time, the result may be that of the old or of the new mode.
        let mode = queue.mode();
        let is_granted = || {
            is_decided(self.access, mode, &self.stat) || is_granted(self.access, mode, &self.stat)
        };
        if !(is_mappable && is_same && is_granted()) {
            return None;
        }
        if self.nonblocking == (true, false) {
            rustix::fs::fcntl_setfl(&self.descriptor, OFlags::empty()).ok()?;
        }
        Some(self.descriptor)
    }
}
