//! Giving a queue that goes its name: a directory is made with the file in it, and gets the name with that.

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
use super::{FILE, MODE, file_of, is_directory, is_foreign_at};
use umsg_shm::crash::crash_point;
use umsg_shm::sys::stack::nap;

/// The time that a process waits for another that is in the way.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of looks at a directory that is not empty and has no queue in it: other processes may have made a queue and
/// removed it between two looks.
const LOOKS: u32 = 1000;

/// Waiting for a process that is in the way: a process between two system calls, unless it was stopped.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    end: Option<Instant>,
    looks: u32,
}

impl Patience {
    /// False once it has been long enough.
    pub(crate) fn wait(&mut self) -> bool {
        let now = Instant::now();
        let end = *self.end.get_or_insert(now + PATIENCE);
        if now < end {
            nap(Duration::from_micros(50));
        }
        now < end
    }

    /// False once what comes and goes without waiting for any process was looked at often enough.
    fn look_again(&mut self) -> bool {
        self.looks += 1;
        self.looks < LOOKS
    }
}

/// Gives a file its name, in its own directory.
///
/// # Errors
/// As [`make_way`]; those of making a directory.
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

/// A directory that will get a queue's name.
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
    // rename(2) would take the place of any that is empty.
    if is_foreign_at(queues, name) {
        return Err(FileError::Directory);
    }
    let mut patience = Patience::default();
    loop {
        let ((from, old), (to, new)) = (queues.locate(temporary.path()), queues.locate(name));
        match fs::renameat(from, &old, to, &new) {
            Ok(()) => return Ok(()),
            // The way is free, or was by then: it is the directory that takes nothing from the caller.
            Err(error @ (Errno::ACCESS | Errno::PERM))
                if !exists(queues, name) && !patience.look_again() =>
            {
                return Err(creation_error("rename", queues, error));
            }
            // Also where there is a stranger's, which can't be replaced.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ACCESS | Errno::PERM) => {
                make_way(queues, name, &mut patience)?;
            }
            Err(error) => return Err(creation_error("rename", queues, error)),
        }
    }
}

/// Removes the empty directory of a removed queue from the place of a new queue.
///
/// # Errors
/// `AlreadyExists`: it is a queue; `Directory`: something else; `Denied`: a stranger's.
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
        Err(Errno::NOTDIR) => Err(FileError::AlreadyExists),
        // Another user's file; or directory, which its owner is about to remove.
        Err(Errno::ACCESS | Errno::PERM) if !is_directory(queues, name) => {
            Err(FileError::AlreadyExists)
        }
        Err(Errno::ACCESS | Errno::PERM) if !patience.wait() => Err(FileError::Denied),
        // A queue by now, or no queue's directory.
        Err(Errno::NOTEMPTY | Errno::EXIST) if !patience.look_again() => Err(FileError::Directory),
        Err(Errno::ACCESS | Errno::PERM | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(error) => Err(FileError::of("rmdir", error)),
    }
}

fn exists(queues: &Directory, name: &OsStr) -> bool {
    let (at, path) = queues.locate(name);
    fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
