//! Queues that go when nobody has them open any more: a directory of the queue's name, and in it the queue's file.
//!
//! ```text
//! mq
//! ├── log            a queue that stays until it is unlinked: a file
//! └── jobs           one that goes: a directory of its maker, mode 0711
//!     └── queue      its file
//! ```
//!
//! unlink(2) takes a name away from whatever has it at that moment. Whoever finds that nobody uses a queue, and then unlinks it, may meet
//! another: somebody unlinked the first and made a second between the two steps. In a directory the file's name is its own for good: the
//! directory gets its name when the file is in it (rename(2), which takes the place of nothing but an empty directory), no second file ever
//! comes into it, who removes the file does so through the directory that it has open, and rmdir(2) leaves one with a file in it alone.
//! It is also the only mark of such a queue that those who may write in its file can't forge.
//!
//! Who has the queue open has mapped its file through a descriptor of its own, on which it took a shared flock(2) before. The lock
//! belongs to the opening and not to its numbers, and the mapping keeps the opening: it stays when the descriptor is closed, is shared by forked
//! children, and ends with munmap, exec or the process, by whatever death.
//!
//! | the directory | the file's lock | is due | |
//! |---|---|---|---|
//! | is missing, or empty | | | there is no such queue; who makes one takes an empty one's place |
//! | has the file | shared | | somebody has the queue open |
//! | has the file | none | no | it was made for others, and nobody has opened it yet |
//! | has the file | none | yes | nobody has it open any more: who comes by first removes it |
//! | has the file | exclusive | yes | somebody is at that |
//!
//! Whoever lets go of the queue comes by, and so do who opens it or one that is to go, and who lists the namespace. Who may not remove it locks
//! nothing; and whoever locked it exclusively unlocks it, where a child that was forked meanwhile would keep the opening.
//!
//! **If a process dies** while it makes one, a temporary directory stays until [`super::temporary::sweep`]; while it removes one, the file or the
//! empty directory, for the next who comes by.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode};
use rustix::io::{self, Errno};

use super::bells::random;
use super::directory::Directory;
use super::error::NamespaceError;
use super::file_error::FileError;
use super::names::QueueName;
use super::open::{FileAccess, open_in};
use super::queues::{POSIX, SYSV, TO_NAMESPACE, for_each_entry, most_entries};
use super::record;
use super::staged::Staged;
use super::temporary::{self, TemporaryName};
use super::{Namespace, caller};
use crate::crash::crash_point;

/// The file in the directory.
const FILE: &str = "queue";
/// Others find the file, whose own mode says what they may do with it.
const MODE: u32 = 0o711;
/// How long who is in the way is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a directory is looked at that is not empty and has no queue in it, as others may have made one and removed it between two looks.
const LOOKS: u32 = 1000;
/// How many queues are looked at, on the average, for each that is made.
const FEW: u64 = 64;

/// What became of a queue that may have to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Nobody had it open: it is gone, by this caller or another.
    Gone,
    /// It stays: somebody has it open, or is going to; or it goes only when it is unlinked.
    Stays,
    /// Nobody has it open, and the caller may not remove it.
    Denied,
}

/// What became of a lock on a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The file has it, and its name.
    Held,
    /// The file has no name any more.
    Gone,
    /// Somebody is removing the file, at this moment.
    Leaving,
}

/// Waiting for who is in the way: a process between two system calls, unless it was stopped.
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
            std::thread::sleep(Duration::from_micros(50));
        }
        now < end
    }

    /// False once what comes and goes without waiting for anybody was looked at often enough.
    fn look_again(&mut self) -> bool {
        self.looks += 1;
        self.looks < LOOKS
    }
}

impl Namespace {
    /// Opens a queue's file as [`open_queue_file`](Self::open_queue_file); and whether it is one that goes.
    ///
    /// # Errors
    /// As `open_queue_file`.
    pub(crate) fn open_queue(
        &self,
        name: &QueueName,
        access: FileAccess,
        nonblocking: bool,
    ) -> Result<(OwnedFd, bool), FileError> {
        loop {
            match self.open_file_in(POSIX, name, access, nonblocking) {
                Err(error @ (FileError::Directory | FileError::Denied)) => {
                    // Who only reads, and may not list the directory, is refused before he is told that it is one.
                    if error == FileError::Denied
                        && !is_directory(&self.queues()?, name.as_os_str())
                    {
                        return Err(error);
                    }
                }
                other => return Ok((other?, false)),
            }
            // The directory of queues gives back its descriptor before the file takes one.
            let found = {
                let queues = self.queues()?;
                home(&queues, name.as_os_str())
            };
            match found {
                // A file has taken its place.
                Err(FileError::AlreadyExists) => {}
                found => {
                    let mut home = found?;
                    let opened = open_in(&mut home, FILE.as_ref(), access, nonblocking);
                    return match opened {
                        Err(FileError::NotFound) if has_other_files(&home) => {
                            Err(FileError::Directory)
                        }
                        opened => opened.map(|file| (file, true)),
                    };
                }
            }
        }
    }

    /// Removes a queue that goes, if nobody has it open and `is_due` says that somebody had.
    ///
    /// # Errors
    /// Those of the namespace, and of opening a file.
    ///
    /// # Blocking
    /// Never.
    pub(crate) fn remove_unused(
        &self,
        name: &QueueName,
        is_due: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Result<Removal, FileError> {
        remove_unused_in(&self.queues()?, name.as_os_str(), &is_due)
    }

    /// As [`remove_all_unused`](Self::remove_all_unused), but of many queues not each time: together with each queue that is made, a few are
    /// looked at.
    ///
    /// # Errors
    /// Those of the namespace.
    pub(crate) fn remove_some_unused(
        &self,
        is_due: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Result<(), NamespaceError> {
        let entries = most_entries(&self.queues()?).unwrap_or(0);
        if entries <= FEW || random() % entries < FEW {
            self.remove_all_unused(is_due)?;
        }
        Ok(())
    }

    /// Removes all queues that go, of which nobody has any open. Answers which, without slashes. Costs a walk over all queues, unless there are
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

    /// Those that [`remove_all_unused`](Self::remove_all_unused) would remove. Each is locked for a moment, in which who opens it waits.
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
    if queues.links() == 2 {
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

/// Locks a queue's file for somebody who is going to map it through this very opening.
pub(crate) fn hold(file: BorrowedFd<'_>) -> io::Result<Hold> {
    match fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => return Ok(Hold::Leaving),
        other => other?,
    }
    // Who removes it does so under the exclusive lock, and who unlinks it needs none: a name now is one that can be found by others.
    match fs::fstat(file)?.st_nlink {
        0 => Ok(Hold::Gone),
        _ => Ok(Hold::Held),
    }
}

/// Locks a file that has no name yet.
pub(crate) fn hold_unnamed(file: BorrowedFd<'_>) -> io::Result<()> {
    fs::flock(file, FlockOperation::NonBlockingLockShared)
}

/// The directory of a queue that goes. `AlreadyExists`: it is no directory.
fn home(queues: &Directory, name: &OsStr) -> Result<Directory, FileError> {
    Directory::open(&queues.path().join(name)).map_err(|error| match error {
        NamespaceError::Missing { .. } => FileError::NotFound,
        NamespaceError::NotADirectory { .. } => FileError::AlreadyExists,
        NamespaceError::Symlink { .. } => FileError::Symlink,
        error => error.into(),
    })
}

/// What is found under the name of a queue that may have to go.
enum Found {
    /// Nobody has it open.
    Unused(Unused),
    /// The directory of one that is gone.
    Empty,
    /// What else is to be said of it.
    Else(Removal),
}

/// A queue that nobody has open, locked exclusively until this is dropped.
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

/// Looks whether a queue is to be removed, and by the caller.
fn find_unused(
    queues: &Directory,
    name: &OsStr,
    is_due: &dyn Fn(BorrowedFd<'_>) -> bool,
) -> Result<Found, FileError> {
    let home = match home(queues, name) {
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
    let file = match open_in_open(&home) {
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
    match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(Found::Else(Removal::Stays)),
        Err(error) => Err(FileError::of("flock", error)),
        Ok(()) => Ok(Found::Unused(Unused { home, file })),
    }
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
fn open_in_open(home: &Directory) -> Result<OwnedFd, FileError> {
    use rustix::fs::OFlags;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let (at, path) = home.locate(FILE);
    let file = fs::openat(at, &path, flags | OFlags::NOCTTY, Mode::empty());
    let file = file.map_err(|e| FileError::of("open", e))?;
    super::open::check_regular(&file)?;
    Ok(file)
}

/// Takes the name away from a queue that goes, whoever has it open.
pub(super) fn unlink(queues: &Directory, name: &OsStr) -> Result<(), FileError> {
    let home = home(queues, name)?;
    if !home.is_open() {
        let errno = Errno::MFILE.raw_os_error();
        return Err(FileError::TooManyFiles { errno });
    }
    match unlink_in(queues, &home, name) {
        Err(FileError::NotFound) if has_other_files(&home) => Err(FileError::Directory),
        unlinked => unlinked,
    }
}

fn unlink_in(queues: &Directory, home: &Directory, name: &OsStr) -> Result<(), FileError> {
    let (at, path) = home.locate(FILE);
    let unlinked =
        fs::unlinkat(at, &path, AtFlags::empty()).map_err(|e| FileError::of("unlink", e));
    if unlinked.is_ok() {
        crash_point!(TRANSIENT_EMPTIED);
    }
    if matches!(unlinked, Ok(()) | Err(FileError::NotFound)) {
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

/// Whether a directory is no queue's: as far as the caller may look.
fn has_other_files(home: &Directory) -> bool {
    let mut found = false;
    let _ = for_each_entry(home, |entry, _| {
        let name = entry.file_name().to_bytes();
        found |= !matches!(name, b"." | b"..") && name != FILE.as_bytes();
        Ok(())
    });
    found
}

/// Whether a directory among the queues is a queue's, and then its file.
pub(super) fn file_of(queues: &Directory, name: &OsStr) -> Option<fs::Stat> {
    let (at, path) = queues.locate(name);
    let stat = fs::statat(at, path.join(FILE), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat)
}

/// Where a queue's file lies, by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whereabouts<'a> {
    /// The namespace's directory.
    pub(crate) namespace: &'a Path,
    /// The queue's name, without its slash.
    pub(crate) name: &'a OsStr,
    /// It goes with its last user.
    pub(crate) goes: bool,
}

/// Which queue's file has this path. None: no queue's.
pub(crate) fn whereabouts(path: &Path) -> Option<Whereabouts<'_>> {
    let plain = among_queues(path, false);
    let home = path.parent().filter(|_| path.ends_with(FILE));
    match home.and_then(|home| among_queues(home, true)) {
        // A queue that is called `mq`; or one that is called `queue`, in a namespace that is called `mq`.
        Some(goes) if plain.is_none() || has_a_namespace(goes.namespace) => Some(goes),
        _ => plain,
    }
}

fn among_queues(entry: &Path, goes: bool) -> Option<Whereabouts<'_>> {
    let queues = entry.parent().filter(|parent| parent.ends_with(POSIX))?;
    Some(Whereabouts {
        namespace: queues.parent()?,
        name: entry.file_name()?,
        goes,
    })
}

/// By what is in each namespace beside the directory of the POSIX queues: the record, or the other directory of one that root has not claimed yet.
fn has_a_namespace(directory: &Path) -> bool {
    let has = |name| fs::lstat(directory.join(name)).is_ok();
    has(record::NAME) || has(SYSV)
}

/// Gives a file its name, in a directory of its own.
///
/// # Errors
/// As [`make_way`]; those of making a directory.
pub(super) fn publish(staged: &Staged, queues: &Directory, name: &OsStr) -> Result<(), FileError> {
    temporary::sweep(queues, TO_NAMESPACE);
    let temporary =
        make_temporary(queues).map_err(|e| super::publish::creation_error(queues, e))?;
    let outcome = publish_through(staged, queues, &temporary, name);
    if outcome.is_err() {
        temporary.remove(queues);
    }
    outcome
}

/// A directory that is to get a queue's name.
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
        .map_err(|e| super::publish::creation_error(queues, e))?;
    crash_point!(CREATE_HOUSED);
    let mut patience = Patience::default();
    loop {
        let ((from, old), (to, new)) = (queues.locate(temporary.path()), queues.locate(name));
        match fs::renameat(from, &old, to, &new) {
            Ok(()) => return Ok(()),
            // The way is free, or was by then: it is the directory that takes nothing from the caller.
            Err(error @ (Errno::ACCESS | Errno::PERM))
                if !exists(queues, name) && !patience.look_again() =>
            {
                return Err(super::publish::creation_error(queues, error));
            }
            // Also where there is a stranger's, which can't be replaced.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ACCESS | Errno::PERM) => {
                make_way(queues, name, &mut patience)?;
            }
            Err(error) => return Err(super::publish::creation_error(queues, error)),
        }
    }
}

/// Removes what stands where a queue is to be and is none: the empty directory of one that is gone.
///
/// # Errors
/// `AlreadyExists`: it is a queue; `Directory`: something else; `Denied`: a stranger's.
pub(super) fn make_way(
    queues: &Directory,
    name: &OsStr,
    patience: &mut Patience,
) -> Result<(), FileError> {
    if file_of(queues, name).is_some() {
        return Err(FileError::AlreadyExists);
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

fn is_directory(queues: &Directory, name: &OsStr) -> bool {
    let (at, path) = queues.locate(name);
    fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn exists(queues: &Directory, name: &OsStr) -> bool {
    let (at, path) = queues.locate(name);
    fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Removes the directory of a queue that was never given a name, whether it did; what is no directory is left alone.
pub(super) fn remove_temporary(directory: &Directory, path: &OsStr) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Unpublished;
    use crate::namespace::testing::{
        STRANGER, TestDir, as_user, chmod, chown, is_root, mode, name,
    };

    /// A queue that is held as long as the file is open.
    fn make(namespace: &Namespace) -> Result<OwnedFd, FileError> {
        let new = Unpublished::create(namespace, 0o666)?;
        hold_unnamed(new.file()).unwrap();
        new.publish_transient(&name("/q"), 0o666)
    }

    fn open(namespace: &Namespace) -> Result<OwnedFd, FileError> {
        let (file, goes) = namespace.open_queue(&name("/q"), FileAccess::ReadWrite, false)?;
        assert!(goes);
        Ok(file)
    }

    fn remove(namespace: &Namespace) -> Result<Removal, FileError> {
        namespace.remove_unused(&name("/q"), |_| true)
    }

    #[test]
    fn a_queue_that_goes_is_a_directory_with_its_file_and_is_listed_and_opened_as_others_are() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let made = make(&namespace).unwrap();
        rustix::io::write(&made, b"whole").unwrap();
        assert_eq!(dir.queue_names(), ["q"]);
        assert_eq!(std::fs::read(dir.queue("q/queue")).unwrap(), b"whole");
        assert_eq!(mode(&dir.queue("q")), 0o711);
        assert_eq!(dir.names(), [".namespace", "mq", "msg", "ring"]);
        assert_eq!(namespace.queue_names().unwrap(), [name("/q")]);
        assert!(namespace.allocated_bytes().unwrap() >= 4096);
        let opened = open(&namespace).unwrap();
        let inode = |file: &OwnedFd| fs::fstat(file).unwrap().st_ino;
        assert_eq!(inode(&opened), inode(&made));
        assert_eq!(make(&namespace).unwrap_err(), FileError::AlreadyExists);
        let plain = Unpublished::create(&namespace, 0o600).unwrap();
        let outcome = plain.publish(&name("/q"), 0o600);
        assert_eq!(outcome.unwrap_err(), FileError::AlreadyExists);
    }

    #[test]
    fn it_stays_while_it_is_held_or_not_due_and_goes_then() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let made = make(&namespace).unwrap();
        assert_eq!(remove(&namespace), Ok(Removal::Stays));
        let opened = open(&namespace).unwrap();
        assert_eq!(hold(opened.as_fd()), Ok(Hold::Held));
        drop(made);
        assert_eq!(remove(&namespace), Ok(Removal::Stays));
        drop(opened);
        let early = namespace.remove_unused(&name("/q"), |_| false);
        assert_eq!(early, Ok(Removal::Stays));
        assert_eq!(namespace.remove_all_unused(|_| false), Ok(vec![]));
        let unused = Ok(vec![OsString::from("q")]);
        assert_eq!(namespace.all_unused(|_| true), unused);
        assert_eq!(dir.queue_names(), ["q"]);
        assert_eq!(namespace.remove_all_unused(|_| true), unused);
        assert_eq!(namespace.all_unused(|_| true), Ok(vec![]));
        assert!(dir.queue_names().is_empty());
        assert_eq!(open(&namespace).unwrap_err(), FileError::NotFound);
        assert_eq!(remove(&namespace), Ok(Removal::Gone));
    }

    #[test]
    fn a_file_that_lost_its_name_before_it_was_locked_is_not_held() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let made = make(&namespace).unwrap();
        let opened = open(&namespace).unwrap();
        drop(made);
        let removing = open(&namespace).unwrap();
        fs::flock(&removing, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(hold(opened.as_fd()), Ok(Hold::Leaving));
        drop(removing);
        assert_eq!(remove(&namespace), Ok(Removal::Gone));
        assert_eq!(hold(opened.as_fd()), Ok(Hold::Gone));
    }

    #[test]
    fn who_removes_one_leaves_another_of_its_name_alone() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        for is_plain in [false, true] {
            drop(make(&namespace).unwrap());
            // Between its lock and its unlink, somebody else unlinks the queue and makes another.
            let queues = namespace.queues().unwrap();
            let old = home(&queues, name("/q").as_os_str()).unwrap();
            namespace.unlink_queue_file(&name("/q")).unwrap();
            let new = match is_plain {
                true => Unpublished::create(&namespace, 0o600)
                    .unwrap()
                    .publish(&name("/q"), 0o600),
                false => make(&namespace),
            };
            let removed = unlink_in(&queues, &old, name("/q").as_os_str());
            assert_eq!(removed, Err(FileError::NotFound));
            assert!(fs::fstat(new.unwrap()).unwrap().st_nlink == 1);
            namespace.unlink_queue_file(&name("/q")).unwrap();
        }
    }

    #[test]
    fn what_a_dead_remover_or_maker_left_is_in_nobodys_way() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        type Make = fn(&Namespace) -> Result<OwnedFd, FileError>;
        let plain: Make =
            |namespace| Unpublished::create(namespace, 0o600)?.publish(&name("/q"), 0o600);
        for make in [make as Make, plain] {
            std::fs::create_dir(dir.queue("q")).unwrap();
            assert!(namespace.queue_names().unwrap().is_empty());
            assert_eq!(open(&namespace).unwrap_err(), FileError::NotFound);
            drop(make(&namespace).unwrap());
            namespace.unlink_queue_file(&name("/q")).unwrap();
        }
        std::fs::create_dir(dir.queue("q")).unwrap();
        let gone = namespace.unlink_queue_file(&name("/q"));
        assert_eq!(gone, Err(FileError::NotFound));
        assert!(dir.queue_names().is_empty());
    }

    #[test]
    fn a_directory_of_something_else_is_neither_taken_nor_removed() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::create_dir(dir.queue("q")).unwrap();
        std::fs::write(dir.queue("q/letter"), b"").unwrap();
        assert_eq!(make(&namespace).unwrap_err(), FileError::Directory);
        let plain = Unpublished::create(&namespace, 0o600).unwrap();
        let outcome = plain.publish(&name("/q"), 0o600);
        assert_eq!(outcome.unwrap_err(), FileError::Directory);
        let gone = namespace.unlink_queue_file(&name("/q"));
        assert_eq!(gone, Err(FileError::Directory));
        assert_eq!(namespace.remove_all_unused(|_| true), Ok(vec![]));
        assert!(dir.queue("q/letter").exists());
    }

    #[test]
    fn a_link_in_place_of_the_directory_or_its_file_is_not_followed() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("queue"), b"").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.queue("q")).unwrap();
        assert!(open(&namespace).is_err());
        assert_eq!(remove(&namespace), Ok(Removal::Stays));
        std::fs::remove_file(dir.queue("q")).unwrap();
        std::fs::create_dir(dir.queue("q")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("queue"), dir.queue("q/queue")).unwrap();
        assert_eq!(open(&namespace).unwrap_err(), FileError::Symlink);
        assert_eq!(remove(&namespace), Err(FileError::Symlink));
        assert!(elsewhere.join("queue").exists());
    }

    #[test]
    fn a_stranger_may_use_what_the_mode_allows_and_removes_nothing() {
        if !is_root() {
            return;
        }
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        drop(make(&namespace).unwrap());
        as_user(STRANGER, || {
            assert_eq!(remove(&namespace), Ok(Removal::Denied));
            let unlinked = namespace.unlink_queue_file(&name("/q"));
            assert_eq!(unlinked, Err(FileError::Denied));
            assert_eq!(make(&namespace).unwrap_err(), FileError::AlreadyExists);
            // The directory can be searched and not be read.
            for access in [FileAccess::Read, FileAccess::ReadWrite] {
                let (file, _) = namespace.open_queue(&name("/q"), access, false).unwrap();
                assert_eq!(hold(file.as_fd()), Ok(Hold::Held));
            }
        });
        assert_eq!(remove(&namespace), Ok(Removal::Gone));
        as_user(STRANGER, || drop(make(&namespace).unwrap()));
        assert_eq!(remove(&namespace), Ok(Removal::Gone));
    }

    /// Who tries to remove the queue may not; and forked a child meanwhile, which has the openings that it had.
    fn try_in_vain(namespace: &Namespace) {
        let childs = std::cell::Cell::new(None);
        let removal = namespace.remove_unused(&name("/q"), |file| {
            childs.set(Some(rustix::io::dup(file).unwrap()));
            true
        });
        assert_eq!(removal, Ok(Removal::Denied));
        assert_eq!(hold(open(namespace).unwrap().as_fd()), Ok(Hold::Held));
        assert!(childs.take().is_some());
    }

    #[test]
    fn who_may_not_remove_one_keeps_nobody_from_opening_it_though_a_child_was_forked_meanwhile() {
        if !is_root() {
            return;
        }
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        drop(make(&namespace).unwrap());
        as_user(STRANGER, || try_in_vain(&namespace));
        chown(&dir.queue("q"), STRANGER);
        chmod(&dir.queue("q"), 0o511);
        as_user(STRANGER, || {
            try_in_vain(&namespace);
            // That one had got the lock before it was refused.
            assert_eq!(namespace.all_unused(|_| true).unwrap().len(), 1);
        });
        assert_eq!(remove(&namespace), Ok(Removal::Gone));
    }

    #[test]
    fn a_directory_that_takes_no_queue_is_an_error() {
        if !is_root() {
            return;
        }
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let mut way = namespace.queues().unwrap();
        let staged = Staged::create(&mut way, TO_NAMESPACE, 0o600).unwrap();
        rustix::fs::fchown(staged.file(), Some(fs::Uid::from_raw(STRANGER)), None).unwrap();
        // From now on: between the making of the file and that of its name.
        chmod(&dir.path().join("mq"), 0o755);
        as_user(STRANGER, || {
            let queues = namespace.queues().unwrap();
            let refused = publish(&staged, &queues, OsStr::new("q")).unwrap_err();
            assert_eq!(refused.errno(), Errno::ACCESS.raw_os_error());
        });
        assert_eq!(dir.names(), ["mq", "msg", "ring"]);
    }

    #[test]
    fn a_temporary_name_that_is_taken_is_passed_over() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        // As many as the other tests may use up meanwhile, and more.
        let mine = TemporaryName::next("").path().to_str().unwrap().to_owned();
        let (maker, number) = mine.rsplit_once('-').unwrap();
        let number: u32 = number.parse().unwrap();
        for taken in number..number + 1000 {
            std::fs::create_dir(dir.path().join(format!("{maker}-{taken}"))).unwrap();
        }
        drop(make(&namespace).unwrap());
        assert_eq!(remove(&namespace), Ok(Removal::Gone));
    }

    #[test]
    fn which_queue_a_file_is_is_told_by_its_path_whatever_the_queue_is_called() {
        let dir = TestDir::new();
        dir.namespace();
        let found = |path: &Path| {
            whereabouts(path).map(|found| {
                let name = found.name.to_str().unwrap().to_owned();
                (found.namespace.to_owned(), name, found.goes)
            })
        };
        let of = |name: &str, goes| Some((dir.path().to_owned(), name.to_owned(), goes));
        for name in ["q", "mq", "queue"] {
            assert_eq!(found(&dir.queue(name)), of(name, false));
            assert_eq!(found(&dir.queue(&format!("{name}/queue"))), of(name, true));
        }
        assert_eq!(found(&dir.queue("q/letter")), None);
        assert_eq!(found(Path::new("/queue")), None);
        // A namespace of that name is no queue.
        let inner = dir.path().join("inner/mq");
        let queue = (inner.clone(), "queue".to_owned(), false);
        assert_eq!(found(&inner.join("mq/queue")), Some(queue));
    }

    #[test]
    fn a_file_without_o_tmpfile_is_published_too() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let queues = namespace.queues().unwrap();
        let mut way = namespace.queues().unwrap();
        let staged = Staged::create_temporary(&mut way, TO_NAMESPACE, 0o600).unwrap();
        publish(&staged, &queues, OsStr::new("q")).unwrap();
        drop(staged.discard(&queues));
        assert_eq!(open(&namespace).map(drop), Ok(()));
        assert_eq!(dir.names(), [".namespace", "mq", "msg", "ring"]);
    }
}
