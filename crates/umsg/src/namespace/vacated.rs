//! Files of removed queues that still have the queues' names. The creator of such a queue keeps the file for its next queue with this name
//! ([`Presence`](umsg_shm::posix_engine::segment::Presence)). Any process that wants the name, or the memory, removes the file.
//!
//! | step | excludes |
//! |---|---|
//! | the file has mode 0600 and belongs to the caller, or the caller is root | a queue that other users falsely mark as removed |
//! | an exclusive flock(2) on the file, without waiting | another process that is removing the name |
//! | the word in the header is set to gone | the creator, which no longer uses the segment |
//! | the name leads to the file | a queue of this name that another process created before the lock was taken |
//! | unlink(2) | |
//!
//! Only the process with the lock removes the name of such a file, so no other queue gets the name between the last two steps.
//!
//! **If a process dies** between two steps, the kernel unlocks the file, and the next process that wants the name repeats the steps.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::Namespace;
use super::caller;
use super::directory::{Directory, permissions};
use super::entries::{for_each_file, for_first_entries};
use super::error::NamespaceError;
use super::names::QueueName;
use super::queues::POSIX;
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::segment::{self, Seen, Taken};

/// The mode of a file that a creator keeps for its next queue. No other user has ever had such a file open.
const PRIVATE: u32 = 0o600;

/// The maximum number of directory entries that a process checks for files of queues whose creators have died.
const SWEPT: usize = 256;

/// The state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// No file has the name.
    Free,
    /// A queue or another file has the name.
    Taken,
    /// The file of a removed queue, which another process is removing.
    Leaving,
    /// A file that may belong to a removed queue. The caller could not open it for lack of a descriptor, or a sandbox refuses to lock it. The value
    /// names the refused call.
    Refused(&'static str, Errno),
}

/// Removes the name of a removed queue's file, so that the name is free.
pub(super) fn clear(queues: &Directory, name: &OsStr) -> Way {
    match open(queues, name, OFlags::RDWR) {
        Err(Errno::NOENT) => Way::Free,
        Ok(Some(file)) if !segment::presence(file.as_fd()).is_queue() => {
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let way = clear_locked(queues, name, &file);
                    // The unlock is explicit, because a child that was forked meanwhile would keep the lock.
                    let _ = fs::flock(&file, FlockOperation::Unlock);
                    way
                }
                Err(Errno::WOULDBLOCK) => Way::Leaving,
                Err(error) => Way::Refused("flock", error),
            }
        }
        // Another attempt would fail at the same step, because no descriptor is free.
        Err(error @ (Errno::MFILE | Errno::NFILE)) => Way::Refused("open", error),
        _ => Way::Taken,
    }
}

fn clear_locked(queues: &Directory, name: &OsStr, file: &OwnedFd) -> Way {
    if !matches!(segment::take(file.as_fd()), Ok(Taken::Gone)) {
        return Way::Taken;
    }
    crash_point!(TAKE_GONE);
    let (at, path) = queues.locate(name);
    match (
        fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW),
        fs::fstat(file),
    ) {
        (Err(Errno::NOENT), _) => Way::Free,
        (Ok(named), Ok(locked)) if identity(&named) == identity(&locked) => {
            match fs::unlinkat(at, &path, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Way::Free,
                Err(_) => Way::Taken,
            }
        }
        _ => Way::Taken,
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Opens a file if it may be that of a removed queue, and the caller may remove the file.
fn open(queues: &Directory, name: &OsStr, access: OFlags) -> Result<Option<OwnedFd>, Errno> {
    let (at, path) = queues.locate(name);
    if !may_be_vacant(&fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW)?) {
        return Ok(None);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(at, &path, access | flags, Mode::empty())?;
    Ok(may_be_vacant(&fs::fstat(&file)?).then_some(file))
}

fn may_be_vacant(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && permissions(stat) == PRIVATE
        && (stat.st_uid == caller() || caller() == 0)
}

/// Reads the presence word of a queue's file, which says whether the file holds a queue. If other users may write to the file, the word proves
/// nothing, and is read as 0.
pub(crate) fn presence_of(file: impl AsFd) -> Seen {
    match fs::fstat(&file) {
        Ok(stat) if permissions(&stat) == PRIVATE => segment::presence(file.as_fd()),
        _ => Seen::of_word(0),
    }
}

impl Namespace {
    /// Returns whether only the caller and root can reach the files of the namespace.
    pub(crate) fn is_private(&self) -> bool {
        fs::stat(self.path()).is_ok_and(|stat| {
            (stat.st_dev, stat.st_ino) == self.identity
                && permissions(&stat) & 0o077 == 0
                && stat.st_uid == caller()
        })
    }

    /// Removes the name of a removed queue's file, so that the name is free.
    pub(crate) fn remove_vacant(&self, name: &QueueName) {
        if let Ok(queues) = self.queues() {
            clear(&queues, name.as_os_str());
        }
    }

    /// Removes the files of all removed queues. Returns their number.
    ///
    /// # Errors
    /// The errors of opening the namespace.
    pub(crate) fn remove_all_vacant(&self) -> Result<usize, NamespaceError> {
        let queues = self.queues()?;
        let names = vacant(&queues)?;
        let removed = names.iter().filter(|name| {
            let name = OsStr::from_bytes(name);
            clear(&queues, name) == Way::Free
        });
        Ok(removed.count())
    }

    /// Removes the files of queues whose creators have removed them and died since, among the first files of the directory. The function recognises
    /// only dead processes of the caller's PID namespace. If it wrongly considers a process dead, that process only loses the use of the segment.
    pub(crate) fn remove_vacant_of_dead(&self) -> Result<(), NamespaceError> {
        let queues = self.queues()?;
        let mut names = Vec::new();
        for_first_entries(&queues, SWEPT, |entry, is_file| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if is_file
                && let Ok(Some(file)) = open(&queues, name, OFlags::RDONLY)
                && segment::vacated_by(file.as_fd()).is_some_and(is_dead)
            {
                names.push(name.to_owned());
            }
            Ok(())
        })?;
        for name in names {
            clear(&queues, &name);
        }
        Ok(())
    }

    /// Returns the number of files that [`remove_all_vacant`](Self::remove_all_vacant) would remove.
    ///
    /// # Errors
    /// The errors of `remove_all_vacant`.
    pub(crate) fn all_vacant(&self) -> Result<usize, NamespaceError> {
        Ok(vacant(&self.queues()?)?.len())
    }
}

fn is_dead(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_none_or(|process| test_kill_process(process) == Err(Errno::SRCH))
}

/// Returns the names of the files of removed queues that the caller may remove.
fn vacant(queues: &Directory) -> Result<Vec<Vec<u8>>, NamespaceError> {
    debug_assert!(queues.path().ends_with(POSIX));
    let mut names = Vec::new();
    for_each_file(queues, |entry| {
        let name = entry.file_name().to_bytes();
        if let Ok(Some(file)) = open(queues, OsStr::from_bytes(name), OFlags::RDONLY)
            && !segment::presence(file.as_fd()).is_queue()
        {
            names.push(name.to_vec());
        }
        Ok(())
    })?;
    Ok(names)
}
