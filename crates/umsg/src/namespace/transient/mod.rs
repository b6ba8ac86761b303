//! Transient queues: queues that are removed when no process has them open any more. Each is a directory with the queue's name, which
//! contains the queue's file.
//!
//! ```text
//! mq
//! ├── log            a queue that stays until it is unlinked: a file
//! └── jobs           one that goes: a directory of its maker, mode 0711
//!     └── queue      its file
//! ```
//!
//! unlink(2) removes a name from any file that has it at that moment. A process may find a queue without users and then unlink its name. Between
//! these two steps, another process may have replaced the queue by a new one. So each transient queue has a directory of its own, in which the file
//! keeps its name. The file is created in the directory first. Then the directory gets its name by rename(2), which replaces only an empty directory.
//! No second file ever enters the directory. A process removes the file through the directory that it has open, and rmdir(2) does not remove a
//! directory that contains a file. The directory also marks a queue as transient: a process with write access to the queue's file can't forge this
//! mark. The empty directory of a removed queue is recognised by its mode. An empty directory with another mode stays.
//!
//! A process that opens the queue takes a shared flock(2) on its own descriptor of the file, and maps the file through this descriptor. The
//! lock belongs to the open file description, and the mapping keeps the description. So the lock outlasts the descriptor, and forked
//! children share it. The lock ends with munmap, with exec, or with any end of the process.
//!
//! | the directory | the file's lock | is due | state |
//! |---|---|---|---|
//! | is missing, or empty | | | there is no such queue; a process that creates one replaces an empty directory |
//! | has the file | shared | | a process has the queue open |
//! | has the file | none | no | the queue was created for other processes, and none has opened it yet |
//! | has the file | none | yes | no process has the queue open any more: the next process that passes removes it |
//! | has the file | exclusive | yes | a process is removing it |
//!
//! A process passes the queue when it closes the queue, opens this or another transient queue, or lists the namespace. A process without the
//! permission to remove the queue locks nothing. The process that locked the queue exclusively also unlocks it, because a child that was forked
//! meanwhile would keep the open file description.
//!
//! **If a process dies** while it creates a transient queue, a temporary directory stays until [`super::temporary::sweep`]. If a process dies while
//! it removes a transient queue, the file or the empty directory stays for the next process that passes the queue.

mod publish;
mod removal;
#[cfg(test)]
mod tests;
mod whereabouts;

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, FlockOperation};
use rustix::io::{self, Errno};

use super::Namespace;
use super::directory::{Directory, permissions};
use super::entries::for_each_entry;
use super::error::NamespaceError;
use super::file_error::FileError;
use super::names::QueueName;
use super::open::{FileAccess, open_in};
use super::queues::POSIX;

pub(crate) use publish::Patience;
pub(super) use publish::{make_way, publish};
pub(crate) use removal::Removal;
pub(super) use removal::{remove_temporary, unlink};
pub(crate) use whereabouts::whereabouts;

/// The name of the queue's file in the directory.
const FILE: &str = "queue";
/// The mode of the directory. Other users find the file, and its own mode grants their access.
const MODE: u32 = 0o711;

/// The number of look-ups of a name that changes between a file and a directory.
const ATTEMPTS: u32 = 100;

/// The result of locking a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The file is locked, and has its name.
    Held,
    /// The file has no name any more.
    Gone,
    /// A process is removing the file, at this moment.
    Leaving,
}

impl Namespace {
    /// Opens a queue's file as [`open_queue_file`](Self::open_queue_file) does. Returns also whether the queue is transient.
    ///
    /// # Errors
    /// The errors of `open_queue_file`.
    pub(crate) fn open_queue(
        &self,
        name: &QueueName,
        access: FileAccess,
        nonblocking: bool,
    ) -> Result<(OwnedFd, bool), FileError> {
        for _ in 0..ATTEMPTS {
            match self.open_file_in(POSIX, name, access, nonblocking) {
                Err(error @ (FileError::Directory | FileError::Denied)) => {
                    // If the caller only reads, and may not list the directory, the kernel refuses the call before the caller learns that the entry
                    // is a directory.
                    if error == FileError::Denied
                        && !is_directory(&self.queues()?, name.as_os_str())
                    {
                        return Err(error);
                    }
                }
                other => return Ok((other?, false)),
            }
            // The directory of queues is closed before the file is opened, because the process may have only one descriptor left.
            let found = {
                let queues = self.queues()?;
                home(&queues, name.as_os_str())
            };
            match found {
                // A regular file has replaced the directory meanwhile: the loop opens the name again.
                Err(FileError::AlreadyExists) => {}
                found => {
                    let mut home = found?;
                    let opened = open_in(&mut home, FILE.as_ref(), access, nonblocking);
                    return match opened {
                        Err(FileError::NotFound) if is_foreign(&home) => Err(FileError::Directory),
                        opened => opened.map(|file| (file, true)),
                    };
                }
            }
        }
        Err(FileError::of("open", Errno::AGAIN))
    }
}

/// Locks a queue's file for a process that is going to map it through this open file description.
pub(crate) fn hold(file: BorrowedFd<'_>) -> io::Result<Hold> {
    match fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => return Ok(Hold::Leaving),
        other => other?,
    }
    // A process that removes an unused queue holds the exclusive lock. So if the file has its name now, while this process holds the shared lock, the
    // queue stays. Only an explicit unlink can remove the queue, because an unlink takes no lock.
    match fs::fstat(file)?.st_nlink {
        0 => Ok(Hold::Gone),
        _ => Ok(Hold::Held),
    }
}

/// Locks a file that has no name yet.
pub(crate) fn hold_unnamed(file: BorrowedFd<'_>) -> io::Result<()> {
    fs::flock(file, FlockOperation::NonBlockingLockShared)
}

/// Opens the directory of a transient queue. `AlreadyExists`: the entry is no directory.
fn home(queues: &Directory, name: &OsStr) -> Result<Directory, FileError> {
    Directory::open(&queues.path().join(name)).map_err(|error| match error {
        NamespaceError::Missing { .. } => FileError::NotFound,
        NamespaceError::NotADirectory { .. } => FileError::AlreadyExists,
        NamespaceError::Symlink { .. } => FileError::Symlink,
        error => error.into(),
    })
}

/// Returns whether a directory belongs to no queue: its mode differs from [`MODE`], or the caller can list the directory and finds an unknown entry.
fn is_foreign(home: &Directory) -> bool {
    if home.mode() != MODE {
        return true;
    }
    let mut found = false;
    let _ = for_each_entry(home, |entry, _| {
        let name = entry.file_name().to_bytes();
        found |= !matches!(name, b"." | b"..") && name != FILE.as_bytes();
        Ok(())
    });
    found
}

/// Returns the result of lstat(2) for the file in the directory of a transient queue. None if there is no such file.
pub(in crate::namespace) fn file_of(queues: &Directory, name: &OsStr) -> Option<fs::Stat> {
    let (at, path) = queues.locate(name);
    let stat = fs::statat(at, path.join(FILE), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat)
}

fn is_directory(queues: &Directory, name: &OsStr) -> bool {
    mode_of_directory(queues, name).is_some()
}

/// Returns whether a name belongs to a transient queue, or to the remains of one.
pub(in crate::namespace) fn is_ones(queues: &Directory, name: &OsStr) -> bool {
    is_directory(queues, name) && !is_foreign_at(queues, name) && {
        let home = home(queues, name);
        file_of(queues, name).is_some() || home.is_ok_and(|home| !is_foreign(&home))
    }
}

/// Returns whether a name belongs to a directory that can't be the remains of a queue.
fn is_foreign_at(queues: &Directory, name: &OsStr) -> bool {
    mode_of_directory(queues, name).is_some_and(|mode| mode != MODE)
        && file_of(queues, name).is_none()
}

fn mode_of_directory(queues: &Directory, name: &OsStr) -> Option<u32> {
    let (at, path) = queues.locate(name);
    let stat = fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    is_directory.then(|| permissions(&stat))
}
