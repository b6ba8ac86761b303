//! Removal of a transient queue: when no process has the queue open any more, or by name.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, FlockOperation, OFlags};
use rustix::io::Errno;

use super::super::directory::Directory;
use super::super::entries::{for_each_entry, most_entries};
use super::super::error::NamespaceError;
use super::super::file_error::FileError;
use super::super::identified::open_regular;
use super::super::names::QueueName;
use super::super::open::close_other_names;
use super::super::{Namespace, caller};
use super::{FILE, MODE, file_of, home, is_foreign};
use umsg_shm::crash::crash_point;
use umsg_shm::sys::random::random;

/// The average number of queues that are inspected for each created queue.
const FEW: u64 = 64;

/// The number of checks of a queue that another process has locked exclusively.
const LOOKS: u32 = 20;
/// The pause between two checks of a queue that another process has locked exclusively.
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

/// The result of a request to remove a queue if it is unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// No process had the queue open. This or another process has removed it.
    Gone,
    /// The queue stays: a process has it open, no process has opened it yet, or the queue is not transient.
    Stays,
    /// No process has the queue open, and the caller may not remove it.
    Denied,
}

impl Namespace {
    /// Removes a transient queue, if no process has it open and `is_due` says that a process had it open before.
    ///
    /// # Errors
    /// The errors of the namespace, and of opening a file.
    ///
    /// # Blocking
    /// For at most a millisecond, while other processes inspect or remove the queue.
    pub(crate) fn remove_unused(
        &self,
        name: &QueueName,
        is_due: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Result<Removal, FileError> {
        remove_unused_in(&self.queues()?, name.as_os_str(), &is_due)
    }

    /// Returns whether a process that creates a queue should [remove all unused queues](Self::remove_all_unused). If there are many queues, the
    /// result is rarely true, at random, so that a creation inspects only a few queues on average.
    ///
    /// # Errors
    /// The errors of the namespace.
    pub(crate) fn should_look_for_unused(&self) -> Result<bool, NamespaceError> {
        let entries = most_entries(&self.queues()?).unwrap_or(0);
        Ok(entries <= FEW || random() % entries < FEW)
    }

    /// Removes all transient queues that no process has open. Returns their names, without slashes. Walks over all queues, unless the file
    /// system shows that there is no transient queue.
    ///
    /// # Errors
    /// The errors of the namespace.
    pub(crate) fn remove_all_unused(
        &self,
        is_due: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Result<Vec<OsString>, NamespaceError> {
        let queues = self.queues()?;
        let mut names = names_of_directories(&queues)?;
        names.retain(|name| {
            let was_there = file_of(&queues, name).is_some();
            remove_unused_in(&queues, name, &is_due) == Ok(Removal::Gone) && was_there
        });
        Ok(names)
    }

    /// Returns the queues that [`remove_all_unused`](Self::remove_all_unused) would remove. The function locks each queue for a moment. A process
    /// that opens the queue at that moment waits.
    ///
    /// # Errors
    /// The errors of the namespace.
    pub(crate) fn all_unused(
        &self,
        is_due: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Result<Vec<OsString>, NamespaceError> {
        let queues = self.queues()?;
        let mut names = names_of_directories(&queues)?;
        names.retain(|name| {
            matches!(
                find_unused(&queues, name, &is_due),
                Ok(FoundEntry::Unused(_))
            )
        });
        Ok(names)
    }
}

/// Returns the names of the directories in the directory of queues. Each of them may be a transient queue.
fn names_of_directories(queues: &Directory) -> Result<Vec<OsString>, NamespaceError> {
    let mut names = Vec::new();
    // On file systems that count links to directories, a directory has one link from its parent, one from itself, and one from each
    // sub-directory.
    if queues.has_two_links() {
        return Ok(names);
    }
    for_each_entry(queues, |entry, is_file| {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let is_queue = !is_file && name != "." && name != "..";
        if is_queue && entry.file_type() != FileType::Symlink {
            names.push(name.to_owned());
        }
        Ok(())
    })?;
    Ok(names)
}

/// The result of a search for a queue that no process has open.
enum FoundEntry {
    /// A queue that no process has open.
    Unused(Unused),
    /// The directory of a removed queue.
    Empty,
    /// An entry that this call does not remove, and the result to report.
    Else(Removal),
}

/// A queue that no process has open, locked exclusively until this value is dropped.
struct Unused {
    home: Directory,
    file: OwnedFd,
}

impl Drop for Unused {
    fn drop(&mut self) {
        // The unlock is explicit, because closing the file is not enough: a child that was forked meanwhile has the same open file description.
        let _ = fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Checks whether a queue has to be removed, and whether the caller may remove it.
fn find_unused(
    queues: &Directory,
    name: &OsStr,
    is_due: &dyn Fn(BorrowedFd<'_>) -> bool,
) -> Result<FoundEntry, FileError> {
    let mut home = match home(queues, name) {
        Err(FileError::NotFound) => return Ok(FoundEntry::Else(Removal::Gone)),
        Err(FileError::AlreadyExists | FileError::Symlink) => {
            return Ok(FoundEntry::Else(Removal::Stays));
        }
        other => other?,
    };
    // Without a descriptor, the directory would be found by its path, which may lead to another directory by then.
    if !home.is_open() {
        let errno = Errno::MFILE.raw_os_error();
        return Err(FileError::TooManyFiles { errno });
    }
    let file = match open_in_open(&mut home) {
        Err(FileError::NotFound) if home.mode() != MODE => {
            return Ok(FoundEntry::Else(Removal::Stays));
        }
        Err(FileError::NotFound) => return Ok(FoundEntry::Empty),
        Err(FileError::Denied) => return Ok(FoundEntry::Else(Removal::Denied)),
        other => other?,
    };
    if !is_due(file.as_fd()) {
        return Ok(FoundEntry::Else(Removal::Stays));
    }
    // The permission is checked before the lock is taken, because a lock would keep the owner from removing the queue.
    if !home.may_be_mended_by(caller()) {
        return Ok(FoundEntry::Else(Removal::Denied));
    }
    match is_locked_alone(&file) {
        Err(error) => Err(FileError::of("flock", error)),
        Ok(false) => Ok(FoundEntry::Else(Removal::Stays)),
        Ok(true) => Ok(FoundEntry::Unused(Unused { home, file })),
    }
}

/// Locks a file exclusively, if no process uses it. If another process holds the exclusive lock, tries again after a moment, because that process
/// may only be inspecting the file.
fn is_locked_alone(file: &OwnedFd) -> Result<bool, Errno> {
    let mut was_open = false;
    for _ in 0..LOOKS {
        // flock(2) first releases the shared lock of the last round, even if the call then fails. So if two processes run this loop at once, one of
        // them gets the lock.
        match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if was_open => return Ok(false),
            Err(Errno::WOULDBLOCK) => {}
            other => return other.map(|()| true),
        }
        match fs::flock(file, FlockOperation::NonBlockingLockShared) {
            // Another process inspects the file, or removes it.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_LOOKS),
            Err(error) => return Err(error),
            // The file has users, or a process that inspected the file has just released its lock.
            Ok(()) => was_open = true,
        }
    }
    let _ = fs::flock(file, FlockOperation::Unlock);
    Ok(false)
}

fn remove_unused_in(
    queues: &Directory,
    name: &OsStr,
    is_due: &dyn Fn(BorrowedFd<'_>) -> bool,
) -> Result<Removal, FileError> {
    let unused = match find_unused(queues, name, is_due)? {
        FoundEntry::Unused(unused) => unused,
        FoundEntry::Empty => {
            remove_empty(queues, name);
            return Ok(Removal::Gone);
        }
        FoundEntry::Else(removal) => return Ok(removal),
    };
    crash_point!(TRANSIENT_LOCKED);
    match unlink_in(queues, &unused.home, name) {
        Err(FileError::Denied) => Ok(Removal::Denied),
        Ok(()) | Err(FileError::NotFound) => Ok(Removal::Gone),
        Err(error) => Err(error),
    }
}

/// Opens the queue's file for reading, which suffices for the check and for the lock.
fn open_in_open(home: &mut Directory) -> Result<OwnedFd, FileError> {
    open_regular(home, FILE.as_ref(), OFlags::RDONLY)
}

/// Removes the name of a transient queue, regardless of its users.
pub(in crate::namespace) fn unlink(queues: &Directory, name: &OsStr) -> Result<(), FileError> {
    let home = home(queues, name)?;
    if !home.is_open() {
        let errno = Errno::MFILE.raw_os_error();
        return Err(FileError::TooManyFiles { errno });
    }
    match unlink_in(queues, &home, name) {
        Err(FileError::NotFound) if is_foreign(&home) => Err(FileError::Directory),
        unlinked => unlinked,
    }
}

pub(super) fn unlink_in(
    queues: &Directory,
    home: &Directory,
    name: &OsStr,
) -> Result<(), FileError> {
    close_other_names(home, FILE.as_ref());
    let (at, path) = home.locate(FILE);
    let unlinked =
        fs::unlinkat(at, &path, AtFlags::empty()).map_err(|e| FileError::of("unlink", e));
    if unlinked.is_ok() {
        crash_point!(TRANSIENT_EMPTIED);
    }
    let was_left = unlinked == Err(FileError::NotFound) && home.mode() == MODE;
    if unlinked.is_ok() || was_left {
        remove_empty(queues, name);
    }
    unlinked
}

/// Removes the directory if it is empty. Returns whether it was removed.
fn remove_empty(queues: &Directory, name: &OsStr) -> bool {
    let (at, path) = queues.locate(name);
    // By now the directory may belong to another queue and contain that queue.
    fs::unlinkat(at, &path, AtFlags::REMOVEDIR).is_ok()
}

/// Removes the directory of a queue that never got a name. Returns whether it was removed. Leaves other entries in place.
pub(in crate::namespace) fn remove_temporary(directory: &Directory, path: &OsStr) -> bool {
    let Ok(home) = Directory::open(&directory.path().join(path)) else {
        return false;
    };
    if !home.is_open() {
        return false;
    }
    let (at, file) = home.locate(FILE);
    let _ = fs::unlinkat(at, &file, AtFlags::empty());
    remove_empty(directory, path)
}
