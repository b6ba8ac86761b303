//! The lives of processes: files in the namespace's directory, `.life-` and eight digits, each locked while its process lives.
//!
//! | file | its process |
//! |---|---|
//! | locked for writing | lives |
//! | not locked, or none of this name | is dead |
//!
//! The lock belongs to the opening of the file (F_OFD_SETLK), and a mapping that no forked child inherits keeps the opening. So the lock goes
//! when the process ends or runs another program, however that happens, and no descriptor stays that a program could close.
//!
//! A stranger cannot lock a life: a lock for writing takes an opening for writing, and the file's mode is 0644. A file counts only under the
//! number of its own inode, which no process chooses. So a stranger's file under the name of a dead process's life counts as no life.
//! The file is locked before it has a name.
//!
//! Calls that a signal handler may make ask for lives, and register one. The handler may have interrupted malloc, so both take no memory of
//! malloc's, apart from a registration where the file system or a sandbox knows no unnamed files.
//!
//! A file outlives its process until the next registration of a process that may remove it, or `umsg gc --remove`.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::{self, Errno};
use rustix::path::Arg;

use super::directory::{Directory, ShortPath, proc_link};
use super::staged::{Staged, is_link_refused, link_unnamed};
use super::{Namespace, caller};
use crate::lives::UNREGISTERED;
use crate::sys::stack::roomy;
use crate::sys::{life, process};

const PREFIX: &str = ".life-";
const MODE: u32 = 0o644;
/// So many files are made at most until one has a number that is free.
const ATTEMPTS: usize = 8;
/// Bytes for entries of a directory: some of the longest there can be.
const ENTRIES_LEN: usize = 2048;
/// A process is registered in so many namespaces at most.
const NAMESPACES: usize = 32;

/// A directory in which this process, or one that it was forked from, is registered.
struct Entry {
    /// Which directory: never 0 in an entry that is used.
    directory: AtomicU64,
    /// The process's epoch, and below 31 bits its number.
    life: AtomicU64,
}

static ENTRIES: [Entry; NAMESPACES] = [const {
    Entry {
        directory: AtomicU64::new(0),
        life: AtomicU64::new(0),
    }
}; NAMESPACES];

/// Bits of a number.
const BITS: u32 = 31;

/// Whether a file in the namespace's directory is called like a life.
pub(super) fn is_life(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

fn name_of(number: u32) -> ShortPath {
    ShortPath::new(format_args!("{PREFIX}{number:08x}"))
}

/// Where the lives of a queue's users are registered: the directory that was the namespace's when the queue was opened. A process may later
/// find another directory, or none, under the same path: then it knows nothing of others' lives.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    /// The directory's path, as a system call takes it, and for what allocates anyway.
    path: CString,
    /// Device and inode of the directory.
    identity: (u64, u64),
}

impl Registry {
    /// None if the directory is not to be seen.
    pub(crate) fn of(namespace: &Namespace) -> Option<Registry> {
        let stat = fs::stat(namespace.path()).ok()?;
        Some(Registry {
            path: CString::new(namespace.path().as_os_str().as_bytes()).ok()?,
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    /// Opens the directory, if the path still leads to it.
    fn open(&self) -> io::Result<OwnedFd> {
        let directory = open_directory(self.path.as_c_str())?;
        let stat = fs::fstat(&directory)?;
        match (stat.st_dev, stat.st_ino) == self.identity {
            true => Ok(directory),
            false => Err(Errno::NOENT),
        }
    }

    /// The number of this process's life. [`UNREGISTERED`] if it can't be registered.
    pub(crate) fn own(&self) -> u32 {
        let Some(entry) = self.entry() else {
            return UNREGISTERED;
        };
        let epoch = match process::epoch() {
            0 => process::begin_epoch(),
            epoch => epoch,
        };
        // Acquire: pairs with the release below. There is nothing to see but the number; a forked child finds its parent's epoch.
        let known = entry.life.load(Ordering::Acquire);
        if known >> BITS == epoch {
            return known as u32 & UNREGISTERED;
        }
        let number = roomy(|| self.register()).unwrap_or(UNREGISTERED);
        let new = epoch << BITS | u64::from(number);
        match entry
            .life
            .compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => number,
            // Another thread was first. This one's file stays locked until the process ends, and means nothing.
            Err(theirs) => theirs as u32 & UNREGISTERED,
        }
    }

    /// Whether a life is over. Unknown means that it is not.
    ///
    /// # Blocking
    /// Never.
    pub(crate) fn is_over(&self, number: u32) -> bool {
        let Ok(directory) = self.open() else {
            return false;
        };
        let seen = look(directory.as_fd(), name_of(number).path());
        // A process at its limit of descriptors has the number for the file.
        drop(directory);
        let seen = match seen {
            Ok(seen) => seen,
            // NXIO: a stranger's FIFO or link has the name of a life that is over.
            Err(error) => return matches!(error, Errno::NOENT | Errno::NXIO),
        };
        // A stranger's file has the name of a life that is over: its inode has another number.
        if number_of(seen.as_fd()).is_ok_and(|found| found != number) {
            return true;
        }
        // The file is there. An error says nothing of its lock: /proc may be missing.
        open_seen(&seen).is_ok_and(|file| !life::is_locked(file.as_fd()))
    }

    /// The entry of the directory, made if there is none. None if all are taken.
    fn entry(&self) -> Option<&'static Entry> {
        let (device, inode) = self.identity;
        let which = (inode ^ device.rotate_left(40)).max(1);
        ENTRIES.iter().find(|entry| {
            // Relaxed: an entry never gets another directory.
            let found =
                entry
                    .directory
                    .compare_exchange(0, which, Ordering::Relaxed, Ordering::Relaxed);
            found.map_or_else(|found| found == which, |_| true)
        })
    }

    fn register(&self) -> io::Result<u32> {
        let directory = self.open()?;
        // In vain if the directory may not be listed: others sweep.
        let _ = left(directory.as_fd(), remove);
        for _ in 0..ATTEMPTS {
            let registered = match unnamed(directory.as_fd()) {
                Ok(file) => begin(file.as_fd(), |name| {
                    link_unnamed(file.as_fd(), directory.as_fd(), name)
                }),
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => self.register_temporary(),
                Err(error) => Err(error),
            };
            if let Some(number) = registered? {
                return Ok(number);
            }
        }
        Err(Errno::EXIST)
    }

    /// As [`begin`], of a file that has a temporary name first. Allocates.
    fn register_temporary(&self) -> io::Result<Option<u32>> {
        let path = Path::new(OsStr::from_bytes(self.path.as_bytes()));
        let mut directory = Directory::open(path).map_err(|_| Errno::ACCESS)?;
        let staged = Staged::create_temporary(&mut directory, "", MODE)?;
        let number = begin(staged.file(), |name| {
            staged.link_too(&directory, name.as_os_str())
        });
        staged.discard(&directory);
        number
    }
}

impl Namespace {
    /// Removes the files of lives that are over, as far as the caller may. Answers how many.
    pub(crate) fn remove_left_lives(&self) -> usize {
        let swept = open_directory(self.path()).and_then(|here| left(here.as_fd(), remove));
        swept.unwrap_or(0)
    }

    /// How many [`remove_left_lives`](Self::remove_left_lives) would remove.
    pub(crate) fn left_lives(&self) -> usize {
        let may_go = |_: BorrowedFd<'_>, _: &CStr, file: BorrowedFd<'_>| {
            let owner = fs::fstat(file).map(|stat| stat.st_uid);
            owner.is_ok_and(|owner| [0, owner, self.owner()].contains(&caller()))
        };
        let found = open_directory(self.path()).and_then(|here| left(here.as_fd(), may_go));
        found.unwrap_or(0)
    }
}

fn open_directory(path: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty())
}

/// A file without a name. The error says that there is none on this file system, or that it could get none in this sandbox.
fn unnamed(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    if is_link_refused() {
        return Err(Errno::OPNOTSUPP);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    fs::openat(directory, c".", flags, Mode::from_raw_mode(MODE))
}

/// Makes a file this process's life: it gets its name when it is locked. None: the number is another's, or none.
fn begin(
    file: BorrowedFd<'_>,
    link: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<Option<u32>> {
    // Whatever the umask says: others must be able to look.
    fs::fchmod(file, Mode::from_raw_mode(MODE))?;
    let number = number_of(file)?;
    if number == 0 || number == UNREGISTERED {
        return Ok(None);
    }
    let locked = life::lock(file)?;
    match link(name_of(number).path()) {
        Ok(()) => {
            locked.keep();
            Ok(Some(number))
        }
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks at what may be a life, without opening it: opening what a stranger planted might not come back.
fn look(directory: BorrowedFd<'_>, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = fs::openat(directory, name, flags, Mode::empty())?;
    match is_file(seen.as_fd())? {
        true => Ok(seen),
        false => Err(Errno::NXIO),
    }
}

/// Opens what was looked at.
fn open_seen(seen: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::openat(CWD, proc_link(seen.as_fd()).path(), flags, Mode::empty())
}

/// The number of the life that a file can be.
fn number_of(file: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(fs::fstat(file)?.st_ino as u32 & UNREGISTERED)
}

fn is_file(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fs::fstat(file)?.st_mode) == FileType::RegularFile)
}

fn remove(directory: BorrowedFd<'_>, name: &CStr, _file: BorrowedFd<'_>) -> bool {
    fs::unlinkat(directory, name, AtFlags::empty()).is_ok()
}

/// Goes through what the dead have left. Answers for how many files `work` is true.
fn left(
    directory: BorrowedFd<'_>,
    work: impl Fn(BorrowedFd<'_>, &CStr, BorrowedFd<'_>) -> bool,
) -> io::Result<usize> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = fs::openat(directory, c".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); ENTRIES_LEN];
    let mut entries = RawDir::new(listed, &mut buffer);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if is_life(OsStr::from_bytes(name.to_bytes()))
            && let Ok(file) = look(directory, name).and_then(|seen| open_seen(&seen))
            && !life::is_locked(file.as_fd())
            && work(directory, name, file.as_fd())
        {
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::TestDir;

    #[test]
    fn a_file_is_a_life_under_the_number_of_its_inode_only() {
        let dir = TestDir::new();
        let registry = Registry::of(&dir.namespace()).unwrap();
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(dir.path().join("new")).unwrap();
        let number = number_of(file.as_fd()).unwrap();
        let _locked = life::lock(file.as_fd()).unwrap();
        for (named, is_over) in [(number ^ 1, true), (number, false)] {
            let name = dir.path().join(name_of(named).path());
            std::fs::hard_link(dir.path().join("new"), &name).unwrap();
            assert_eq!(registry.is_over(named), is_over, "{name:?}");
        }
    }
}
