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
//! No stranger fakes a life: a lock for writing takes an opening for writing, and the file's mode is 0644. No stranger prevents one either: the
//! file is locked before it has a name. Its number is that of its inode, which no process chooses, so that the number of a dead process
//! is not to be had again.
//!
//! A file outlives its process until the next registration of a process that may remove it, or `umsg gc --remove`.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::{self, Errno};

use super::directory::{Directory, proc_link};
use super::staged::Staged;
use super::{Namespace, caller};
use crate::lives::UNREGISTERED;
use crate::sys::{life, process};

const PREFIX: &str = ".life-";
const MODE: u32 = 0o644;
/// So many files are made at most until one has a number that is free.
const ATTEMPTS: usize = 8;
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

fn name_of(number: u32) -> OsString {
    format!("{PREFIX}{number:08x}").into()
}

/// Where the lives of a queue's users are registered: the directory that was the namespace's when the queue was opened. A process may later
/// find another directory, or none, under the same path: then it knows nothing of others' lives.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    namespace: Namespace,
    /// Device and inode of the directory.
    identity: (u64, u64),
}

impl Registry {
    /// None if the directory is not to be seen.
    pub(crate) fn of(namespace: &Namespace) -> Option<Registry> {
        let stat = fs::stat(namespace.path()).ok()?;
        Some(Registry {
            namespace: namespace.clone(),
            identity: (stat.st_dev, stat.st_ino),
        })
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
        let number = self.register().unwrap_or(UNREGISTERED);
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
        match find(&self.namespace.path().join(name_of(number))) {
            Ok(file) => !life::is_locked(file.as_fd()) && self.is_there(),
            // A name that leads to something else was a stranger's before a life could get it.
            Err(Errno::NOENT | Errno::NXIO) => self.is_there(),
            Err(_) => false,
        }
    }

    /// Whether the path still leads to the directory.
    fn is_there(&self) -> bool {
        let found = fs::stat(self.namespace.path());
        found.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity)
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
        let path = self.namespace.path();
        let mut directory = Directory::open(path).map_err(|_| Errno::ACCESS)?;
        if !self.is_there() {
            return Err(Errno::NOENT);
        }
        // In vain if the directory may not be listed: others sweep.
        let _ = left(&directory, remove);
        for _ in 0..ATTEMPTS {
            if let Some(number) = register_once(&mut directory)? {
                return Ok(number);
            }
        }
        Err(Errno::EXIST)
    }
}

impl Namespace {
    /// Removes the files of lives that are over, as far as the caller may. Answers how many.
    pub(crate) fn remove_left_lives(&self) -> usize {
        let swept = Directory::open(self.path()).map(|directory| left(&directory, remove));
        swept.unwrap_or(Ok(0)).unwrap_or(0)
    }

    /// How many [`remove_left_lives`](Self::remove_left_lives) would remove.
    pub(crate) fn left_lives(&self) -> usize {
        let may_go = |_: &Directory, _: &OsStr, file: BorrowedFd<'_>| {
            let owner = fs::fstat(file).map(|stat| stat.st_uid);
            owner.is_ok_and(|owner| [0, owner, self.owner()].contains(&caller()))
        };
        let found = Directory::open(self.path()).map(|directory| left(&directory, may_go));
        found.unwrap_or(Ok(0)).unwrap_or(0)
    }
}

/// None: the number is another's, or none.
fn register_once(directory: &mut Directory) -> io::Result<Option<u32>> {
    let staged = Staged::create(directory, "", MODE)?;
    // Whatever the umask says: others must be able to look.
    fs::fchmod(staged.file(), Mode::from_raw_mode(MODE))?;
    let number = fs::fstat(staged.file())?.st_ino as u32 & UNREGISTERED;
    if number == 0 || number == UNREGISTERED {
        staged.discard(directory);
        return Ok(None);
    }
    let locked = life::lock(staged.file())?;
    match staged.link(directory, &name_of(number)) {
        Ok(_) => {
            locked.keep();
            Ok(Some(number))
        }
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens what may be a life. It is looked at before it is opened: opening what a stranger planted might not come back.
fn find(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = fs::openat(CWD, path, flags, Mode::empty())?;
    if !is_file(found.as_fd())? {
        return Err(Errno::NXIO);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::openat(CWD, proc_link(found.as_fd()), flags, Mode::empty())
}

fn is_file(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fs::fstat(file)?.st_mode) == FileType::RegularFile)
}

fn remove(directory: &Directory, name: &OsStr, _file: BorrowedFd<'_>) -> bool {
    let (at, path) = directory.locate(name);
    fs::unlinkat(at, &path, AtFlags::empty()).is_ok()
}

/// Goes through what the dead have left. Answers for how many files `work` is true.
fn left(
    directory: &Directory,
    work: impl Fn(&Directory, &OsStr, BorrowedFd<'_>) -> bool,
) -> io::Result<usize> {
    let (at, here) = directory.locate(".");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut count = 0;
    for entry in Dir::new(fs::openat(at, &here, flags, Mode::empty())?)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !is_life(name) {
            continue;
        }
        if let Ok(file) = find(&directory.path().join(name))
            && !life::is_locked(file.as_fd())
            && work(directory, name, file.as_fd())
        {
            count += 1;
        }
    }
    Ok(count)
}
