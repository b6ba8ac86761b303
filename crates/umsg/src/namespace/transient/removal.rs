//! Removing a queue that goes: when no process has it open any more, or by name.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, FlockOperation, OFlags};
use rustix::io::Errno;

use super::super::directory::Directory;
use super::super::error::NamespaceError;
use super::super::file_error::FileError;
use super::super::identified::open_regular;
use super::super::names::QueueName;
use super::super::open::close_other_names;
use super::super::queues::{for_each_entry, most_entries};
use super::super::{Namespace, caller};
use super::{FILE, MODE, file_of, home, is_foreign};
use umsg_shm::crash::crash_point;
use umsg_shm::sys::random::random;

/// The number of queues that are inspected, on the average, for each that is made.
const FEW: u64 = 64;

/// The number of checks whether a queue is used that another process has locked alone, and the pause between two checks.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

/// The fate of a queue that may have to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// No process had it open: it is gone, by this caller or another.
    Gone,
    /// It stays: a process has it open, or is going to; or it goes only when it is unlinked.
    Stays,
    /// No process has it open, and the caller may not remove it.
    Denied,
}

impl Namespace {
    /// Removes a queue that goes, if no process has it open and `is_due` says that a process had.
    ///
    /// # Errors
    /// Those of the namespace, and of opening a file.
    ///
    /// # Blocking
    /// For a millisecond, if others look at it or remove it meanwhile.
    pub(crate) fn remove_unused(
        &self,
        name: &QueueName,
        is_due: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Result<Removal, FileError> {
        remove_unused_in(&self.queues()?, name.as_os_str(), &is_due)
    }

    /// Returns whether a process that makes a queue should [remove all that are unused](Self::remove_all_unused): not each time
    /// where there are many, so that a few are looked at for each that is made.
    ///
    /// # Errors
    /// Those of the namespace.
    pub(crate) fn should_look_for_unused(&self) -> Result<bool, NamespaceError> {
        let entries = most_entries(&self.queues()?).unwrap_or(0);
        Ok(entries <= FEW || random() % entries < FEW)
    }

    /// Removes all queues that go, of which no process has any open. Answers which, without slashes. Costs a walk over all queues, unless there are
    /// none that go and the file system says so.
    ///
    /// # Errors
    /// Those of the namespace.
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

    /// Those that [`remove_all_unused`](Self::remove_all_unused) would remove. Each is locked for a moment, in which a process that opens it waits.
    ///
    /// # Errors
    /// Those of the namespace.
    pub(crate) fn all_unused(
        &self,
        is_due: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Result<Vec<OsString>, NamespaceError> {
        let queues = self.queues()?;
        let mut names = names_of_directories(&queues)?;
        names.retain(|name| matches!(find_unused(&queues, name, &is_due), Ok(Found::Unused(_))));
        Ok(names)
    }
}

/// The directories among the queues.
fn names_of_directories(queues: &Directory) -> Result<Vec<OsString>, NamespaceError> {
    let mut names = Vec::new();
    // Where links to directories are counted, each has one from its parent, one from itself, and one from each directory in it.
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

/// The entry under the name of a queue that may have to be removed.
enum Found {
    /// No process has it open.
    Unused(Unused),
    /// The directory of one that is gone.
    Empty,
    /// Further facts about the entry.
    Else(Removal),
}

/// A queue that no process has open, locked exclusively until this is dropped.
struct Unused {
    home: Directory,
    file: OwnedFd,
}

impl Drop for Unused {
    fn drop(&mut self) {
        // To close the file is not enough: a child that was forked meanwhile has the same opening.
        let _ = fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Checks whether a queue has to be removed, and whether the caller removes it.
fn find_unused(
    queues: &Directory,
    name: &OsStr,
    is_due: &dyn Fn(BorrowedFd<'_>) -> bool,
) -> Result<Found, FileError> {
    let mut home = match home(queues, name) {
        Err(FileError::NotFound) => return Ok(Found::Else(Removal::Gone)),
        Err(FileError::AlreadyExists | FileError::Symlink) => {
            return Ok(Found::Else(Removal::Stays));
        }
        other => other?,
    };
    // Without a number the directory would be found by its path, which may lead elsewhere by then.
    if !home.is_open() {
        let errno = Errno::MFILE.raw_os_error();
        return Err(FileError::TooManyFiles { errno });
    }
    let file = match open_in_open(&mut home) {
        Err(FileError::NotFound) if home.mode() != MODE => {
            return Ok(Found::Else(Removal::Stays));
        }
        Err(FileError::NotFound) => return Ok(Found::Empty),
        Err(FileError::Denied) => return Ok(Found::Else(Removal::Denied)),
        other => other?,
    };
    if !is_due(file.as_fd()) {
        return Ok(Found::Else(Removal::Stays));
    }
    // Before the lock, which would keep its owner from removing it.
    if !home.may_be_mended_by(caller()) {
        return Ok(Found::Else(Removal::Denied));
    }
    match is_locked_alone(&file) {
        Err(error) => Err(FileError::of("flock", error)),
        Ok(false) => Ok(Found::Else(Removal::Stays)),
        Ok(true) => Ok(Found::Unused(Unused { home, file })),
    }
}

/// Locks a file exclusively, if no process uses it. A process that only looks has it locked so for a moment, and leaves it to others to remove it: then
/// asks again.
fn is_locked_alone(file: &OwnedFd) -> Result<bool, Errno> {
    let mut was_open = false;
    for _ in 0..LOOKS {
        // A shared lock that it has from the last round is let go of first, also if this fails: of two that meet here one gets it.
        match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if was_open => return Ok(false),
            Err(Errno::WOULDBLOCK) => {}
            other => return other.map(|()| true),
        }
        match fs::flock(file, FlockOperation::NonBlockingLockShared) {
            // A process that looks, or removes it.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_LOOKS),
            Err(error) => return Err(error),
            // Users; or one that looked, and has gone.
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
        Found::Unused(unused) => unused,
        Found::Empty => {
            remove_empty(queues, name);
            return Ok(Removal::Gone);
        }
        Found::Else(removal) => return Ok(removal),
    };
    crash_point!(TRANSIENT_LOCKED);
    match unlink_in(queues, &unused.home, name) {
        Err(FileError::Denied) => Ok(Removal::Denied),
        Ok(()) | Err(FileError::NotFound) => Ok(Removal::Gone),
        Err(error) => Err(error),
    }
}

/// To look at it only, and to lock it.
fn open_in_open(home: &mut Directory) -> Result<OwnedFd, FileError> {
    open_regular(home, FILE.as_ref(), OFlags::RDONLY)
}

/// Takes the name away from a queue that goes, regardless of its users.
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

/// Removes the directory if there is nothing in it; whether it did.
fn remove_empty(queues: &Directory, name: &OsStr) -> bool {
    let (at, path) = queues.locate(name);
    // It may be another queue's by now, with the queue in it.
    fs::unlinkat(at, &path, AtFlags::REMOVEDIR).is_ok()
}

/// Removes the directory of a queue that never got a name. Returns whether it did. Other entries are left alone.
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
