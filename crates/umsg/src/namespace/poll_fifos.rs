//! The doorbells of queues: FIFOs in `bell/`. A name is the inode number of the queue's file, a hyphen, and a random number, each of
//! sixteen hexadecimal digits. Only the second part comes from the segment. A process computes the first part itself.
//!
//! | FIFO | its segment | then |
//! |---|---|---|
//! | with a temporary name | does not name it | its creator is about to lock and to name it, or has died: then it is removed with the other temporary files of dead processes |
//! | locked | does not name it | its creator is about to write the name into the segment |
//! | locked (shared) | names it | a process polls it |
//! | not locked | names it | no process polls any more: the first process that notices removes it |
//! | not locked | is gone, or names another | the next sweep removes it |
//!
//! A process that begins to poll a queue sweeps some doorbells before it locks the queue. [`Namespace::sweep`] sweeps all doorbells.
//!
//! A process that removes a FIFO holds an exclusive lock on it. A process that begins to poll locks the FIFO, and then checks that the name still
//! leads to that FIFO. So no process begins to poll a FIFO without a name. For its earlier pollers, such a FIFO still works.
//!
//! **Only FIFOs of the caller are used.** Another user can hold the lock of its own FIFO without limit. Opening that FIFO would wait in the kernel,
//! and no signal would end the wait. So a FIFO is opened only if it belongs to the caller (effective user), and its mode gives other users no access.
//! In a sticky directory, only the caller, the directory's owner and root can replace the FIFO between that check and the opening. No process, root
//! included, touches FIFOs of other users.

use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::{self, Errno};

use super::entries::for_first_entries;
use super::error::NamespaceError;
use super::queues::POLL_FIFOS;
use super::temporary::{self, TemporaryName};
use super::{Namespace, caller};
use umsg_shm::memory::{FifoName, NOT_OURS};
use umsg_shm::sys::random::random;

/// The number of hexadecimal digits of each part of a name.
const DIGITS: usize = 16;
/// The number of names that a sweep reads. Any user can create any number of names.
const READ: usize = 1024;
/// The number of FIFOs that a sweep inspects, among the names that it has read.
const SWEEP: usize = 64;
/// Paths up to this length need no allocation.
const SHORT: usize = 250;

/// A path that is built without allocation, because signal handlers may ring.
struct Path {
    short: [u8; SHORT],
    len: usize,
    long: Vec<u8>,
}

impl Path {
    fn new(namespace: &Namespace, name: FifoName) -> Path {
        let directory = namespace.path().as_os_str().as_bytes();
        let mut path = Path {
            short: [0; SHORT],
            len: 0,
            long: Vec::new(),
        };
        let len = directory.len() + POLL_FIFOS.len() + 2 * DIGITS + 3;
        if len > SHORT {
            path.long.reserve_exact(len);
        }
        path.push(directory);
        path.push(b"/");
        path.push(POLL_FIFOS.as_bytes());
        path.push(b"/");
        path.push_digits(name.inode);
        path.push(b"-");
        path.push_digits(name.number);
        path
    }

    fn push_digits(&mut self, number: u64) {
        for digit in (0..DIGITS).rev() {
            let value = (number >> (4 * digit)) as usize & 15;
            self.push(&b"0123456789abcdef"[value..=value]);
        }
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

    /// Returns the path of the namespace's directory.
    fn parent(&self) -> &[u8] {
        let bytes = self.bytes();
        &bytes[..bytes.len() - (2 * DIGITS + 2)]
    }
}

impl Namespace {
    /// Opens a doorbell that belongs to the caller. Allocates no memory if the path is short.
    ///
    /// # Errors
    /// [`NOT_OURS`] if the doorbell belongs to another user; ENXIO if it is no FIFO; ESTALE if the path no longer leads to the namespace's
    /// directory, for example in a chroot or another mount namespace (ENOENT would wrongly report a missing doorbell); the errors of open(2).
    ///
    /// # Blocking
    /// Never.
    pub(crate) fn open_poll_fifo(&self, name: FifoName) -> io::Result<OwnedFd> {
        let path = Path::new(self, name);
        let opened = self
            .check_directory(path.parent())
            .and_then(|()| open_own(path.bytes()));
        match opened {
            Err(Errno::NOENT) if !self.is_in_sight() => Err(Errno::STALE),
            opened => opened,
        }
    }

    /// Creates a doorbell, and opens and locks it (shared). The doorbell gets its name after it is locked. So no sweep removes the doorbell as one
    /// that no process polls.
    ///
    /// # If the process dies
    /// A temporary file or a doorbell that no process polls stays. Sweeps remove these files.
    pub(crate) fn make_poll_fifo(&self, name: FifoName) -> io::Result<OwnedFd> {
        let path = Path::new(self, name);
        let (bell, temporary) = self.make_unnamed(path.parent())?;
        let renamed = fs::renameat(CWD, &temporary, CWD, path.bytes());
        renamed.inspect_err(|_| {
            let _ = fs::unlink(&temporary);
        })?;
        Ok(bell)
    }

    /// Makes a FIFO that has no name, and opens it.
    pub(crate) fn make_private_fifo(&self) -> io::Result<OwnedFd> {
        let name = FifoName {
            inode: 0,
            number: 0,
        };
        let (bell, temporary) = self.make_unnamed(Path::new(self, name).parent())?;
        fs::unlink(&temporary)?;
        Ok(bell)
    }

    /// Makes a FIFO with a temporary name.
    fn make_unnamed(&self, bells: &[u8]) -> io::Result<(OwnedFd, std::path::PathBuf)> {
        self.check_directory(bells)?;
        let path = self.path().join(TemporaryName::next(TO_POLL_FIFOS).path());
        let bell = make_locked(&path).inspect_err(|_| {
            let _ = fs::unlink(&path);
        })?;
        Ok((bell, path))
    }

    /// Refuses a directory in which strangers could replace the caller's files.
    fn check_directory(&self, bells: &[u8]) -> io::Result<()> {
        let stat = fs::statat(CWD, bells, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_trusted = [0, self.owner(), caller()].contains(&stat.st_uid);
        let is_sticky = stat.st_mode & 0o022 == 0 || stat.st_mode & 0o1000 != 0;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if is_trusted && is_sticky => Ok(()),
            _ => Err(Errno::ACCESS),
        }
    }

    /// Returns whether the name of a doorbell leads to the open doorbell `bell`.
    pub(crate) fn leads_to(&self, name: FifoName, bell: BorrowedFd<'_>) -> bool {
        let found = fs::statat(
            CWD,
            Path::new(self, name).bytes(),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        match (found, fs::fstat(bell)) {
            (Ok(found), Ok(bell)) => is_same(&found, &bell),
            _ => false,
        }
    }

    /// Returns the inode number of a doorbell. None if no doorbell has this name.
    pub(crate) fn poll_fifo_inode(&self, name: FifoName) -> Option<u64> {
        let path = Path::new(self, name);
        let found = fs::statat(CWD, path.bytes(), AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|stat| stat.st_ino)
    }

    /// Removes a doorbell. A doorbell of another user stays until the owner's next sweep.
    pub(crate) fn remove_poll_fifo(&self, name: FifoName) {
        let _ = fs::unlinkat(CWD, Path::new(self, name).bytes(), AtFlags::empty());
    }

    /// Removes all doorbells that belong to the caller and that no process polls. Returns the number of removed doorbells.
    ///
    /// # Errors
    /// `NotAccessible` if the caller may not list the namespace.
    pub(crate) fn remove_stale_fifos(&self) -> Result<usize, NamespaceError> {
        if let Ok(bells) = self.queues_of(POLL_FIFOS) {
            temporary::sweep(&bells, "");
        }
        let names = self.fifo_names(usize::MAX)?;
        Ok(names
            .iter()
            .filter(|name| self.remove_if_left(name))
            .count())
    }

    /// Returns the number of FIFOs that [`remove_stale_fifos`](Self::remove_stale_fifos) would remove. Each FIFO is locked for a moment. A
    /// process that begins to poll at that moment creates another FIFO.
    ///
    /// # Errors
    /// The errors of `remove_stale_fifos`.
    pub(crate) fn stale_fifos(&self) -> Result<usize, NamespaceError> {
        let names = self.fifo_names(usize::MAX)?;
        let would_go = |name: &OsString| self.lock_if_left(name).is_some();
        Ok(names.iter().filter(|name| would_go(name)).count())
    }

    /// Visits the doorbells among the first names of the directory. A namespace in which no process has polled may have no such directory.
    fn fifo_names(&self, most: usize) -> Result<Vec<OsString>, NamespaceError> {
        let bells = match self.queues_of(POLL_FIFOS) {
            Err(NamespaceError::NoQueuesDirectory { .. }) => return Ok(Vec::new()),
            bells => bells?,
        };
        let mut names = Vec::new();
        for_first_entries(&bells, most, |entry, _| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if is_poll_fifo(name) {
                names.push(name.to_owned());
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// Inspects some files, and removes the temporary files of dead creators and the doorbells that no process polls. The caller holds no
    /// queue's lock, because the listing waits for the lock of the directory.
    pub(crate) fn sweep_poll_fifos(&self) {
        if let Ok(bells) = self.queues_of(POLL_FIFOS) {
            temporary::sweep_first(&bells, "", READ);
        }
        let Ok(mut names) = self.fifo_names(READ) else {
            return;
        };
        let step = names.len().div_ceil(SWEEP).max(1);
        let first = random() as usize % step;
        for name in names.drain(..).skip(first).step_by(step) {
            self.remove_if_left(&name);
        }
    }

    fn fifo_path(&self, name: &OsStr) -> std::path::PathBuf {
        self.path().join(POLL_FIFOS).join(name)
    }

    /// Removes a doorbell if no process polls it. Returns whether the doorbell was removed.
    fn remove_if_left(&self, name: &OsStr) -> bool {
        self.lock_if_left(name)
            .is_some_and(|_left| fs::unlinkat(CWD, self.fifo_path(name), AtFlags::empty()).is_ok())
    }

    fn lock_if_left(&self, name: &OsStr) -> Option<Left> {
        let bell = open_own(self.fifo_path(name).as_os_str().as_bytes()).ok()?;
        fs::flock(&bell, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Left(bell))
    }
}

/// The path from the namespace's directory to the directory of the doorbells.
const TO_POLL_FIFOS: &str = "bell/";

/// A doorbell that no process polls, locked exclusively until this value is dropped.
struct Left(OwnedFd);

impl Drop for Left {
    fn drop(&mut self) {
        // The unlock is explicit, because closing the file is not enough: a child that was forked meanwhile has the same open file description.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Returns whether a name is the name of a doorbell.
fn is_poll_fifo(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let are_digits = |part: &[u8]| part.iter().all(u8::is_ascii_hexdigit);
    bytes.len() == 2 * DIGITS + 1
        && bytes[DIGITS] == b'-'
        && are_digits(&bytes[..DIGITS])
        && are_digits(&bytes[DIGITS + 1..])
}

/// Creates a FIFO that only the caller may open, and opens and locks it.
fn make_locked(path: &std::path::Path) -> io::Result<OwnedFd> {
    let only_own = Mode::RUSR | Mode::WUSR;
    fs::mkfifoat(CWD, path, only_own)?;
    // The umask may take even the owner's permissions away.
    fs::chmodat(CWD, path, only_own, AtFlags::empty())?;
    let bell = open_own(path.as_os_str().as_bytes())?;
    fs::flock(&bell, FlockOperation::NonBlockingLockShared)?;
    Ok(bell)
}

/// Opens a FIFO if it belongs to the caller and other users have no access. The module's documentation gives the reason.
fn open_own(path: &[u8]) -> io::Result<OwnedFd> {
    let found = fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Fifo {
        return Err(Errno::NXIO);
    }
    if found.st_uid != caller() || found.st_mode & 0o077 != 0 {
        return Err(NOT_OURS);
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let bell = fs::openat(CWD, path, flags | OFlags::NOCTTY, Mode::empty())?;
    match is_same(&found, &fs::fstat(&bell)?) {
        true => Ok(bell),
        false => Err(Errno::NOENT),
    }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, chmod, chown, without_forks};
    use std::os::fd::AsFd;
    use umsg_testkit::users::is_root;

    const fn name(number: u64) -> FifoName {
        FifoName { inode: 5, number }
    }

    fn bells(dir: &TestDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir.path().join(POLL_FIFOS)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn an_unlocked_doorbell_is_removed_and_others_are_not() {
        let _without_forks = without_forks();
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let kept = namespace.make_poll_fifo(name(1)).unwrap();
        drop(namespace.make_poll_fifo(name(2)).unwrap());
        let _third = namespace.make_poll_fifo(name(3)).unwrap();
        namespace.sweep_poll_fifos();
        let expected = [
            "0000000000000005-0000000000000001",
            "0000000000000005-0000000000000003",
        ];
        assert_eq!(bells(&dir), expected);
        assert!(namespace.leads_to(name(1), kept.as_fd()));
    }

    #[test]
    fn a_sweep_removes_the_temporary_files_of_dead_makers() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let left = dir
            .path()
            .join(POLL_FIFOS)
            .join(temporary::tests::name_of_the_dead());
        fs::mkfifoat(CWD, &left, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(bells(&dir).len(), 1);
        let _kept = namespace.make_poll_fifo(name(1)).unwrap();
        namespace.sweep_poll_fifos();
        assert_eq!(bells(&dir), ["0000000000000005-0000000000000001"]);
    }

    #[test]
    fn all_unlocked_doorbells_are_removed_together() {
        let _without_forks = without_forks();
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let _kept = namespace.make_poll_fifo(name(1)).unwrap();
        for number in 2..200 {
            let path = Path::new(&namespace, name(number));
            fs::mkfifoat(CWD, path.bytes(), Mode::RUSR | Mode::WUSR).unwrap();
        }
        std::fs::write(dir.path().join(POLL_FIFOS).join("letter"), b"").unwrap();
        assert_eq!(namespace.stale_fifos(), Ok(198));
        assert_eq!(namespace.remove_stale_fifos(), Ok(198));
        assert_eq!(namespace.stale_fifos(), Ok(0));
        assert_eq!(namespace.remove_stale_fifos(), Ok(0));
        assert_eq!(bells(&dir), ["0000000000000005-0000000000000001", "letter"]);
    }

    #[test]
    fn what_is_no_fifo_of_the_callers_alone_is_not_rung() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let path = |number| {
            let path = Path::new(&namespace, name(number));
            std::path::PathBuf::from(OsStr::from_bytes(path.bytes()))
        };
        std::fs::write(path(1), b"").unwrap();
        assert_eq!(namespace.open_poll_fifo(name(1)).unwrap_err(), Errno::NXIO);
        std::os::unix::fs::symlink("x", path(2)).unwrap();
        assert_eq!(namespace.open_poll_fifo(name(2)).unwrap_err(), Errno::NXIO);
        fs::mkfifoat(CWD, path(3), Mode::RUSR | Mode::WUSR).unwrap();
        namespace.open_poll_fifo(name(3)).unwrap();
        for mode in [0o660, 0o602] {
            chmod(&path(3), mode);
            assert_eq!(namespace.open_poll_fifo(name(3)).unwrap_err(), NOT_OURS);
        }
        chmod(&path(3), 0o600);
        if is_root() {
            chown(&path(3), STRANGER);
            assert_eq!(namespace.open_poll_fifo(name(3)).unwrap_err(), NOT_OURS);
            assert_eq!(namespace.remove_stale_fifos(), Ok(0));
            chown(&dir.path().join(POLL_FIFOS), STRANGER);
            assert_eq!(
                namespace.open_poll_fifo(name(4)).unwrap_err(),
                Errno::ACCESS
            );
        }
        chmod(&dir.path().join(POLL_FIFOS), 0o777);
        assert_eq!(
            namespace.open_poll_fifo(name(4)).unwrap_err(),
            Errno::ACCESS
        );
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
        let made = namespace.make_poll_fifo(name(0xabc)).unwrap();
        let found = path.join("bell/0000000000000005-0000000000000abc");
        assert!(found.exists());
        assert!(namespace.leads_to(name(0xabc), made.as_fd()));
        namespace.remove_poll_fifo(name(0xabc));
        assert_eq!(
            namespace.open_poll_fifo(name(0xabc)).unwrap_err(),
            Errno::NOENT
        );
    }
}
