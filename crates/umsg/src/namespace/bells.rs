//! The doorbells of queues: FIFOs in the namespace's directory, `.bell-` and sixteen digits. Not among the queues, where each name could
//! be a queue's.
//!
//! | FIFO | its segment | then |
//! |---|---|---|
//! | of a temporary name | does not name it | its maker is about to lock and to name it, or died: then it goes with the temporary files of the dead |
//! | locked | does not name it | its maker is about to say so |
//! | locked (shared) | names it | somebody polls it |
//! | not locked | names it | nobody polls any more: who notices first removes it |
//! | not locked | is gone, or names another | the next sweep removes it |
//!
//! Some are swept whenever one is made, all by [`Namespace::sweep`].
//!
//! Whoever removes one holds it locked exclusively; whoever begins to poll looks, after locking it, whether its name still leads to
//! it. So nobody polls what has no name, though a FIFO without one goes on working.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{self, Errno};

use super::directory::Directory;
use super::error::NamespaceError;
use super::temporary::TemporaryName;
use super::{Namespace, caller};

const PREFIX: &str = ".bell-";
/// Hexadecimal digits of a name.
const DIGITS: usize = 16;
/// How many FIFOs a sweep looks at.
const SWEEP: usize = 64;
/// Paths that are no longer need no memory.
const SHORT: usize = 250;

/// Whether a file in the namespace's directory is called like a doorbell.
pub(super) fn is_bell(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

/// A path that is made without allocating, as handlers may ring.
struct Path {
    short: [u8; SHORT],
    len: usize,
    long: Vec<u8>,
}

impl Path {
    fn new(namespace: &Namespace, name: u64) -> Path {
        let directory = namespace.path().as_os_str().as_bytes();
        let mut path = Path {
            short: [0; SHORT],
            len: 0,
            long: Vec::new(),
        };
        if directory.len() + 1 + PREFIX.len() + DIGITS > SHORT {
            path.long
                .reserve_exact(directory.len() + 1 + PREFIX.len() + DIGITS);
        }
        path.push(directory);
        path.push(b"/");
        path.push(PREFIX.as_bytes());
        for digit in (0..DIGITS).rev() {
            let value = (name >> (4 * digit)) as usize & 15;
            path.push(&b"0123456789abcdef"[value..=value]);
        }
        path
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.long.capacity() != 0 {
            return self.long.extend_from_slice(bytes);
        }
        self.short[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn bytes(&self) -> &[u8] {
        match self.long.is_empty() {
            true => &self.short[..self.len],
            false => &self.long,
        }
    }
}

impl Namespace {
    /// Opens a doorbell. Allocates no memory where the path is short.
    ///
    /// # Blocking
    /// Never.
    pub(crate) fn open_bell(&self, name: u64) -> io::Result<OwnedFd> {
        open(Path::new(self, name).bytes())
    }

    /// Makes a doorbell, and opens and locks it (shared). `admit` gives it rights. It gets its name when it is locked, so that no sweep takes
    /// it for one that nobody polls. Removes some that nobody needs any more.
    ///
    /// # If the process dies
    /// A temporary file stays, or a doorbell that nobody polls: both are swept.
    pub(crate) fn make_bell(
        &self,
        name: u64,
        admit: &dyn Fn(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<OwnedFd> {
        self.sweep_bells();
        let temporary = TemporaryName::next("");
        let path = self.path().join(temporary.path());
        let made = make_locked(&path).and_then(|bell| {
            admit(bell.as_fd())?;
            fs::renameat(CWD, &path, CWD, Path::new(self, name).bytes())?;
            Ok(bell)
        });
        made.inspect_err(|_| {
            let _ = fs::unlink(&path);
        })
    }

    /// Whether the name of a doorbell leads to this one.
    pub(crate) fn leads_to(&self, name: u64, bell: BorrowedFd<'_>) -> bool {
        let found = fs::statat(
            CWD,
            Path::new(self, name).bytes(),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        match (found, fs::fstat(bell)) {
            (Ok(found), Ok(bell)) => (found.st_dev, found.st_ino) == (bell.st_dev, bell.st_ino),
            _ => false,
        }
    }

    /// The inode number of a doorbell. None if there is none of this name.
    pub(crate) fn bell_inode(&self, name: u64) -> Option<u64> {
        let path = Path::new(self, name);
        let found = fs::statat(CWD, path.bytes(), AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|stat| stat.st_ino)
    }

    /// Removes a doorbell. In vain if it is another user's: its owner's next sweep does.
    pub(crate) fn remove_bell(&self, name: u64) {
        let _ = fs::unlinkat(CWD, Path::new(self, name).bytes(), AtFlags::empty());
    }

    /// Removes all doorbells that nobody polls, as far as the caller may. Answers how many.
    ///
    /// # Errors
    /// `NotAccessible` if the caller may not list the namespace.
    pub(crate) fn remove_left_bells(&self) -> Result<usize, NamespaceError> {
        let names = self.bell_names()?;
        Ok(names
            .iter()
            .filter(|name| self.remove_if_left(name))
            .count())
    }

    /// How many [`remove_left_bells`](Self::remove_left_bells) would remove. Each is locked for a moment, in which who begins to poll it
    /// tries again.
    ///
    /// # Errors
    /// As it.
    pub(crate) fn left_bells(&self) -> Result<usize, NamespaceError> {
        let names = self.bell_names()?;
        let would_go = |name: &OsString| {
            let left = self.lock_if_left(name);
            let owner = left.and_then(|left| fs::fstat(&left.0).ok());
            owner.is_some_and(|stat| [0, stat.st_uid, self.owner()].contains(&caller()))
        };
        Ok(names.iter().filter(|name| would_go(name)).count())
    }

    fn bell_names(&self) -> Result<Vec<OsString>, NamespaceError> {
        let directory = Directory::open(self.path())?;
        names(&directory).map_err(|e| NamespaceError::looking("open", self.path(), e))
    }

    /// Removes doorbells that nobody polls, of those that it looks at.
    fn sweep_bells(&self) {
        let Ok(directory) = Directory::open(self.path()) else {
            return;
        };
        let mut names = names(&directory).unwrap_or_default();
        let step = names.len().div_ceil(SWEEP).max(1);
        let first = random() as usize % step;
        for name in names.drain(..).skip(first).step_by(step) {
            self.remove_if_left(&name);
        }
    }

    /// Removes a doorbell if nobody polls it; whether it did.
    fn remove_if_left(&self, name: &OsStr) -> bool {
        self.lock_if_left(name).is_some_and(|_left| {
            fs::unlinkat(CWD, self.path().join(name), AtFlags::empty()).is_ok()
        })
    }

    fn lock_if_left(&self, name: &OsStr) -> Option<Left> {
        let path = self.path().join(name);
        let bell = open(path.as_os_str().as_bytes()).ok()?;
        fs::flock(&bell, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Left(bell))
    }
}

/// A doorbell that nobody polls, locked exclusively until this is dropped.
struct Left(OwnedFd);

impl Drop for Left {
    fn drop(&mut self) {
        // To close it is not enough: a child that was forked meanwhile has the same opening.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Makes a FIFO that only the caller may open, opens and locks it.
fn make_locked(path: &std::path::Path) -> io::Result<OwnedFd> {
    let only_own = Mode::RUSR | Mode::WUSR;
    let bytes = path.as_os_str().as_bytes();
    fs::mkfifoat(CWD, path, only_own)?;
    let bell = open(bytes).or_else(|_| {
        // A umask may forbid it even to the owner.
        fs::chmodat(CWD, path, only_own, AtFlags::empty())?;
        open(bytes)
    })?;
    fs::flock(&bell, FlockOperation::NonBlockingLockShared)?;
    Ok(bell)
}

fn open(path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let bell = fs::openat(CWD, path, flags | OFlags::NOCTTY, Mode::empty())?;
    match FileType::from_raw_mode(fs::fstat(&bell)?.st_mode) {
        FileType::Fifo => Ok(bell),
        _ => Err(Errno::NXIO),
    }
}

fn names(directory: &Directory) -> io::Result<Vec<OsString>> {
    let (at, here) = directory.locate(".");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::new(fs::openat(at, &here, flags, Mode::empty())?)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_bell(name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// A number that nobody guesses, not 0.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without it: as good a number as any for what is also protected by its mode.
    let fallback = crate::sys::clock::realtime() ^ u64::from(std::process::id()).rotate_left(40);
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes).max(1),
        _ => fallback.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::TestDir;

    #[test]
    fn a_doorbell_that_nobody_has_locked_is_swept_and_others_are_not() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let kept = namespace.make_bell(1, &|_| Ok(())).unwrap();
        drop(namespace.make_bell(2, &|_| Ok(())).unwrap());
        let _third = namespace.make_bell(3, &|_| Ok(())).unwrap();
        let bells = dir
            .names()
            .into_iter()
            .filter(|name| is_bell(name.as_ref()));
        let expected = [".bell-0000000000000001", ".bell-0000000000000003"];
        assert_eq!(bells.collect::<Vec<_>>(), expected);
        assert!(namespace.leads_to(1, std::os::fd::AsFd::as_fd(&kept)));
    }

    #[test]
    fn all_doorbells_that_nobody_has_locked_are_removed_together() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let kept = namespace.make_bell(1, &|_| Ok(())).unwrap();
        for name in 2..200 {
            let path = Path::new(&namespace, name);
            fs::mkfifoat(CWD, path.bytes(), Mode::RUSR | Mode::WUSR).unwrap();
        }
        std::fs::write(dir.path().join(".bell-letter"), b"").unwrap();
        assert_eq!(namespace.left_bells(), Ok(198));
        assert_eq!(namespace.remove_left_bells(), Ok(198));
        assert_eq!(namespace.left_bells(), Ok(0));
        assert_eq!(namespace.remove_left_bells(), Ok(0));
        let expected = [".bell-0000000000000001", ".bell-letter"];
        assert_eq!(dir.names()[..2], expected);
    }

    #[test]
    fn what_is_no_fifo_is_not_rung() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::write(dir.path().join(".bell-0000000000000001"), b"").unwrap();
        assert_eq!(namespace.open_bell(1).unwrap_err(), Errno::NXIO);
        std::os::unix::fs::symlink("x", dir.path().join(".bell-0000000000000002")).unwrap();
        assert_eq!(namespace.open_bell(2).unwrap_err(), Errno::LOOP);
    }

    #[test]
    fn a_doorbell_of_a_long_path_is_found_too() {
        let dir = TestDir::new();
        let mut path = dir.path().to_owned();
        for _ in 0..3 {
            path.push("x".repeat(100));
        }
        std::fs::create_dir_all(&path).unwrap();
        let namespace = Namespace::at(&path).unwrap();
        let made = namespace.make_bell(0xabc, &|_| Ok(())).unwrap();
        assert!(path.join(".bell-0000000000000abc").exists());
        assert!(namespace.leads_to(0xabc, std::os::fd::AsFd::as_fd(&made)));
        namespace.remove_bell(0xabc);
        assert_eq!(namespace.open_bell(0xabc).unwrap_err(), Errno::NOENT);
    }
}
