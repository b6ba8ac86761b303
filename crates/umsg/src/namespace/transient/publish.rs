//! Publication of a transient queue: the file is created in a temporary directory, which then gets the queue's name.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::{self, Errno};

use super::super::directory::Directory;
use super::super::file_error::FileError;
use super::super::publish::creation_error;
use super::super::queues::TO_NAMESPACE;
use super::super::staged::Staged;
use super::super::temporary::{self, TemporaryName};
use super::super::vacated::{self, Way};
use super::{FILE, MODE, file_of, is_directory, is_foreign_at};
use umsg_shm::crash::crash_point;
use umsg_shm::sys::stack::nap;

/// The time that a process waits for another process that creates or removes a queue with the same name.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of checks of a directory that is not empty and contains no queue. Between two checks, other processes may have created a queue and
/// removed it.
const LOOKS: u32 = 1000;

/// A wait for another process that creates or removes a queue with the same name. The wait lasts only for the time between two system calls, unless
/// the other process was stopped.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    end: Option<Instant>,
    looks: u32,
}

impl Patience {
    /// Sleeps. Returns false when the wait has lasted long enough.
    pub(crate) fn wait(&mut self) -> bool {
        let now = Instant::now();
        let end = *self.end.get_or_insert(now + PATIENCE);
        if now < end {
            nap(Duration::from_micros(50));
        }
        now < end
    }

    /// Counts a check of an entry that is repeated without a sleep. Returns false after [`LOOKS`] checks.
    fn look_again(&mut self) -> bool {
        self.looks += 1;
        self.looks < LOOKS
    }
}

/// Publishes a queue's file: puts the file into a directory of its own, which then gets the queue's name.
///
/// # Errors
/// The errors of [`make_way`], and those of creating a directory.
pub(in crate::namespace) fn publish(
    staged: &Staged,
    queues: &Directory,
    name: &OsStr,
) -> Result<(), FileError> {
    temporary::sweep(queues, TO_NAMESPACE);
    let temporary = make_temporary(queues).map_err(|e| creation_error("mkdir", queues, e))?;
    let outcome = publish_through(staged, queues, &temporary, name);
    if outcome.is_err() {
        temporary.remove(queues);
    }
    outcome
}

/// Creates a directory that will get a queue's name.
fn make_temporary(queues: &Directory) -> io::Result<TemporaryName> {
    loop {
        let temporary = TemporaryName::next(TO_NAMESPACE);
        let (at, path) = queues.locate(temporary.path());
        match fs::mkdirat(at, &path, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            made => return made.map(|()| temporary),
        }
    }
}

fn publish_through(
    staged: &Staged,
    queues: &Directory,
    temporary: &TemporaryName,
    name: &OsStr,
) -> Result<(), FileError> {
    let mut home = Directory::open(&queues.path().join(temporary.path()))?;
    home.set_mode(MODE)?;
    staged
        .link_into(queues, &home, OsStr::new(FILE))
        .map_err(|e| creation_error("link", queues, e))?;
    crash_point!(CREATE_HOUSED);
    // rename(2) would replace any empty directory, even one that belonged to no queue.
    if is_foreign_at(queues, name) {
        return Err(FileError::Directory);
    }
    let mut patience = Patience::default();
    loop {
        let ((from, old), (to, new)) = (queues.locate(temporary.path()), queues.locate(name));
        match fs::renameat(from, &old, to, &new) {
            Ok(()) => return Ok(()),
            // The name was free at the time of the call, so the parent directory denies the creation.
            Err(error @ (Errno::ACCESS | Errno::PERM))
                if !exists(queues, name) && !patience.look_again() =>
            {
                return Err(creation_error("rename", queues, error));
            }
            // An entry has the name and is no empty directory, or the entry belongs to another user and so can't be replaced.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ACCESS | Errno::PERM) => {
                make_way(queues, name, &mut patience)?;
            }
            Err(error) => return Err(creation_error("rename", queues, error)),
        }
    }
}

/// Removes the remains of a removed queue from the place of a new queue: an empty directory, or a file that its creator keeps.
///
/// # Errors
/// `AlreadyExists`: the entry is a queue. `Directory`: the entry is a directory, but not of a queue. `Denied`: the entry belongs to another user.
pub(in crate::namespace) fn make_way(
    queues: &Directory,
    name: &OsStr,
    patience: &mut Patience,
) -> Result<(), FileError> {
    if file_of(queues, name).is_some() {
        return Err(FileError::AlreadyExists);
    }
    if is_foreign_at(queues, name) {
        return Err(FileError::Directory);
    }
    let (at, path) = queues.locate(name);
    match fs::unlinkat(at, &path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTDIR) => match vacated::clear(queues, name) {
            Way::Free => Ok(()),
            Way::Leaving if patience.wait() => Ok(()),
            Way::Leaving => Err(FileError::of("flock", Errno::AGAIN)),
            Way::Refused(call, error) => Err(FileError::of(call, error)),
            Way::Taken => Err(FileError::AlreadyExists),
        },
        // The entry is a file of another user, or was a directory that its owner has removed meanwhile.
        Err(Errno::ACCESS | Errno::PERM) if !is_directory(queues, name) => {
            Err(FileError::AlreadyExists)
        }
        Err(Errno::ACCESS | Errno::PERM) if !patience.wait() => Err(FileError::Denied),
        // The directory has a queue by now, or never belonged to a queue.
        Err(Errno::NOTEMPTY | Errno::EXIST) if !patience.look_again() => Err(FileError::Directory),
        Err(Errno::ACCESS | Errno::PERM | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(error) => Err(FileError::of("rmdir", error)),
    }
}

fn exists(queues: &Directory, name: &OsStr) -> bool {
    let (at, path) = queues.locate(name);
    fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
