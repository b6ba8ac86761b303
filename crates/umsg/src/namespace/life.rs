//! The lives of processes. A life is a file in the namespace's directory, named `.life-` and eight digits, that is locked while its process
//! lives.
//!
//! | file | its process |
//! |---|---|
//! | locked for writing | lives |
//! | not locked | is dead |
//! | there is no file of this name, or the file does not yield the number in its name | is dead |
//! | the search for the file, or its opening, fails | is unknown, and counts as living |
//!
//! The lock belongs to the open file description (F_OFD_SETLK). A mapping that no forked child inherits keeps this description. So the lock ends
//! when the process ends in any way, or runs another program. No descriptor remains that a program could close.
//!
//! A write lock needs a descriptor that is open for writing, and the file's mode is 0644: so only the file's owner can lock the file. The liveness id
//! is computed from the file's inode number and its time of birth, which no process can set. Each reader computes the id again, so a file under
//! another file's name proves nothing. A later file has another inode number or another time of birth. So the later file gets the id of a dead
//! process only by chance, 1 in 2^31. Outside tmpfs, an inode number can be reused within one tick of the clock for times of birth. If the file
//! system keeps no time of birth, an inode number can be reused at any time.
//!
//! A signal handler also searches for lives and registers a life. The handler may have interrupted malloc, so neither operation uses malloc. The
//! exception is a registration on a file system, or in a sandbox, that does not allow unnamed files.
//!
//! A file outlives its process until the next registration of a process that may remove it, or `umsg gc --remove`.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxFlags};
use rustix::io::{self, Errno};
use rustix::path::Arg;

use super::directory::{Directory, ShortPath, proc_link};
use super::staged::{Staged, is_link_refused, link_unnamed};
use super::{Namespace, caller};
use umsg_shm::sys::liveness::UNREGISTERED;
use umsg_shm::sys::random::mix;
use umsg_shm::sys::stack::roomy;
use umsg_shm::sys::{life, process};

const PREFIX: &str = ".life-";
const MODE: u32 = 0o644;
/// The maximum number of files that a registration creates until the liveness id of one is free.
const ATTEMPTS: usize = 64;
/// The maximum number of names that a registration checks for files of dead processes. A registration may run under a queue's lock.
const SWEPT: usize = 256;
/// The size of the buffer for directory entries, in bytes: it holds some entries of the maximum length.
const ENTRIES_LEN: usize = 2048;
/// The maximum number of namespaces in which a process is registered.
const NAMESPACES: usize = 32;

/// The name of a system call that failed, and its error.
pub(crate) type Failed = (&'static str, Errno);

/// A directory in which this process, or a process that it was forked from, is registered.
struct Entry {
    /// The inode number of the directory, combined with the device; 0 in an unused entry.
    directory: AtomicU64,
    /// The process's epoch in the high bits, and its liveness id in the low 31 bits.
    life: AtomicU64,
}

impl Entry {
    /// Returns this process's liveness id if it is known; otherwise, as the error, the current value of `life`.
    fn known(&self) -> Result<u32, u64> {
        let epoch = match process::epoch() {
            0 => process::begin_epoch(),
            epoch => epoch,
        };
        // Acquire: pairs with the release in `note`. No other data are published. A forked child finds the epoch of its parent, and so learns that
        // the liveness id is its parent's.
        let life = self.life.load(Ordering::Acquire);
        match life >> BITS == epoch {
            true => Ok(life as u32 & UNREGISTERED),
            false => Err(life),
        }
    }

    /// Records the liveness id, and returns the valid one: another thread may have recorded its own id first. In that case, this thread's file stays
    /// locked until the process ends, and has no effect.
    fn note(&self, before: u64, number: u32) -> u32 {
        let new = process::epoch() << BITS | u64::from(number);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        match self.life.compare_exchange(before, new, success, failure) {
            Ok(_) => number,
            Err(theirs) => theirs as u32 & UNREGISTERED,
        }
    }
}

static ENTRIES: [Entry; NAMESPACES] = [const {
    Entry {
        directory: AtomicU64::new(0),
        life: AtomicU64::new(0),
    }
}; NAMESPACES];

/// The number of bits of a liveness id.
const BITS: u32 = 31;

/// Returns whether a name in the namespace's directory is the name of a life.
pub(super) fn is_life(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

fn name_of(number: u32) -> ShortPath {
    ShortPath::new(format_args!("{PREFIX}{number:08x}"))
}

/// The directory in which the lives of a queue's users are registered: the namespace's directory when the queue was opened. If the path later leads
/// to another directory, or does not exist, all lives are unknown to the process.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    /// The directory's path, as system calls take it.
    path: CString,
    /// Device and inode of the directory.
    identity: (u64, u64),
}

impl Registry {
    /// Returns the registry of a namespace. None if the directory can't be found.
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

    /// Returns this process's liveness id. [`UNREGISTERED`] if the life can't be registered. This call tries the registration once, and each
    /// [`join`](Self::join) tries it again.
    pub(crate) fn own(&self) -> u32 {
        let Some(entry) = self.entry() else {
            return UNREGISTERED;
        };
        match entry.known() {
            Ok(number) => number,
            Err(before) => entry.note(before, roomy(|| self.register()).unwrap_or(UNREGISTERED)),
        }
    }

    /// Returns this process's liveness id if the process has one. Makes no system call.
    pub(crate) fn known(&self) -> Option<u32> {
        self.entry()?.known().ok()
    }

    /// Registers this process's life, unless it is registered. The opening of a queue calls this function, so that no call on the queue has
    /// to register under a lock.
    ///
    /// # Errors
    /// The system call that failed, and its error. EUSERS: the process is registered in 32 other directories.
    pub(crate) fn join(&self) -> Result<(), Failed> {
        let entry = self.entry().ok_or(("open", Errno::USERS))?;
        loop {
            let before = match entry.known() {
                Ok(UNREGISTERED) => entry.life.load(Ordering::Acquire),
                Ok(_) => return Ok(()),
                Err(before) => before,
            };
            // Another thread may have recorded its own failure meanwhile.
            if entry.note(before, roomy(|| self.register())?) != UNREGISTERED {
                return Ok(());
            }
        }
    }

    /// Returns whether a life is over. Returns false if the state of the life is unknown.
    ///
    /// # Blocking
    /// Never.
    pub(crate) fn is_over(&self, number: u32) -> bool {
        let name = name_of(number);
        let found = self.open().and_then(|here| find(here, name.path(), number));
        match found {
            Ok(Some(file)) => !life::is_locked(file.as_fd()),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Returns the entry of the directory, and creates it if necessary. None if all entries are taken.
    fn entry(&self) -> Option<&'static Entry> {
        let (device, inode) = self.identity;
        let which = (inode ^ device.rotate_left(40)).max(1);
        ENTRIES.iter().find(|entry| {
            // Relaxed: an entry never gets another directory.
            let relaxed = Ordering::Relaxed;
            match entry.directory.load(relaxed) {
                0 => {
                    let taken = entry.directory.compare_exchange(0, which, relaxed, relaxed);
                    taken.map_or_else(|found| found == which, |_| true)
                }
                found => found == which,
            }
        })
    }

    fn register(&self) -> Result<u32, Failed> {
        let directory = self.open().map_err(|e| ("open", e))?;
        // The sweep fails if the caller may not list the directory: then other processes sweep.
        let _ = left(directory.as_fd(), SWEPT, remove);
        for _ in 0..ATTEMPTS {
            let registered = match unnamed(directory.as_fd()) {
                Ok(file) => begin(file.as_fd(), |name| {
                    link_unnamed(file.as_fd(), directory.as_fd(), name)
                }),
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => self.register_temporary(),
                Err(error) => Err(("open", error)),
            };
            if let Some(number) = registered? {
                return Ok(number);
            }
        }
        Err(("linkat", Errno::EXIST))
    }

    /// Does the same as [`begin`], with a file that first has a temporary name. Allocates memory.
    fn register_temporary(&self) -> Result<Option<u32>, Failed> {
        let path = Path::new(OsStr::from_bytes(self.path.as_bytes()));
        let failed = |e| ("open", e);
        let mut directory = Directory::open(path).map_err(|_| failed(Errno::ACCESS))?;
        let staged = Staged::create_temporary(&mut directory, "", MODE).map_err(failed)?;
        let number = begin(staged.file(), |name| {
            staged.link_too(&directory, name.as_os_str())
        });
        staged.discard(&directory);
        number
    }
}

impl Namespace {
    /// Removes the files of lives that are over, if the caller has the permission. Returns the number of removed files.
    pub(crate) fn remove_left_lives(&self) -> usize {
        let swept =
            open_directory(self.path()).and_then(|here| left(here.as_fd(), usize::MAX, remove));
        swept.unwrap_or(0)
    }

    /// Returns the number of files that [`remove_left_lives`](Self::remove_left_lives) would remove.
    pub(crate) fn left_lives(&self) -> usize {
        let may_go = |directory: BorrowedFd<'_>, name: &CStr| {
            let found = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|stat| {
                FileType::from_raw_mode(stat.st_mode) != FileType::Directory
                    && [0, stat.st_uid, self.owner()].contains(&caller())
            })
        };
        let found =
            open_directory(self.path()).and_then(|here| left(here.as_fd(), usize::MAX, may_go));
        found.unwrap_or(0)
    }
}

fn open_directory(path: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty())
}

/// Creates a file without a name. An error means that this file system has no such files, or that the sandbox refuses to link such a file later.
fn unnamed(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    if is_link_refused() {
        return Err(Errno::OPNOTSUPP);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    fs::openat(directory, c".", flags, Mode::from_raw_mode(MODE))
}

/// Makes a file the life of this process: locks the file, and then gives the file its name. Returns None if another file has the name.
fn begin(
    file: BorrowedFd<'_>,
    link: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<Option<u32>, Failed> {
    // The mode does not depend on the umask: other users must be able to read the file.
    fs::fchmod(file, Mode::from_raw_mode(MODE)).map_err(|e| ("fchmod", e))?;
    let number = number_of(file).map_err(|e| ("statx", e))?;
    let number = number.ok_or(("open", Errno::NXIO))?;
    let locked = life::lock(file)?;
    match link(name_of(number).path()) {
        Ok(()) => {
            locked.keep();
            Ok(Some(number))
        }
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(("linkat", error)),
    }
}

/// Opens the file of a life. Returns None if the directory has no file of this name that yields the liveness id. After an error, it is unknown
/// whether the process lives.
///
/// The file is first identified, and then opened through /proc, so that a stranger's FIFO in its place can't block the opening.
fn find(directory: impl AsFd, name: impl Arg, number: u32) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = match fs::openat(&directory, name, flags, Mode::empty()) {
        Ok(seen) => seen,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The directory is closed first: if the process is at its limit of descriptors, the file gets the number of the directory's descriptor.
    drop(directory);
    if number_of(seen.as_fd())? != Some(number) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    fs::openat(CWD, proc_link(seen.as_fd()).path(), flags, Mode::empty()).map(Some)
}

/// Returns the liveness id that a file yields. None if it is no regular file.
fn number_of(file: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::BTIME;
    let stat = fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
        return Ok(None);
    }
    let born = match stat.stx_mask & StatxFlags::BTIME.bits() {
        0 => (0, 0),
        _ => (stat.stx_btime.tv_sec as u64, stat.stx_btime.tv_nsec.into()),
    };
    let mixed = mix(mix(mix(stat.stx_ino) ^ born.0) ^ born.1);
    // The id is between 1 and one less than UNREGISTERED.
    Ok(Some(1 + (mixed % u64::from(UNREGISTERED - 1)) as u32))
}

/// Returns the liveness id in a life's name. None if the name is not that of a life.
fn number_in(name: &CStr) -> Option<u32> {
    let digits = name.to_bytes().strip_prefix(PREFIX.as_bytes())?;
    u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn remove(directory: BorrowedFd<'_>, name: &CStr) -> bool {
    fs::unlinkat(directory, name, AtFlags::empty()).is_ok()
}

/// Returns whether a file with the name of a life belongs to a dead process or to no process.
fn is_left(directory: BorrowedFd<'_>, name: &CStr) -> bool {
    match number_in(name).map_or(Ok(None), |number| find(directory, name, number)) {
        Ok(Some(file)) => !life::is_locked(file.as_fd()),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Visits the files of dead processes among the first `most` names. Returns the number of files for which `work` returns true.
fn left(
    directory: BorrowedFd<'_>,
    most: usize,
    work: impl Fn(BorrowedFd<'_>, &CStr) -> bool,
) -> io::Result<usize> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = fs::openat(directory, c".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); ENTRIES_LEN];
    let mut entries = RawDir::new(listed, &mut buffer);
    let (mut count, mut seen) = (0, 0);
    while seen < most
        && let Some(entry) = entries.next()
    {
        let entry = entry?;
        let name = entry.file_name();
        seen += 1;
        if is_life(OsStr::from_bytes(name.to_bytes()))
            && is_left(directory, name)
            && work(directory, name)
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
    use std::collections::HashSet;

    #[test]
    fn a_process_that_lives_is_not_over_and_a_number_without_a_file_is() {
        let dir = TestDir::new();
        let registry = Registry::of(&dir.namespace()).unwrap();
        let number = registry.register().unwrap();
        assert!(!registry.is_over(number));
        assert!(registry.is_over(number ^ 1));
    }

    #[test]
    fn a_locked_file_that_does_not_yield_its_number_makes_no_life() {
        let dir = TestDir::new();
        let path = dir.path().join(name_of(0xabcd).path());
        let planted = std::fs::File::create_new(path).unwrap();
        let _locked = life::lock(planted.as_fd()).unwrap();
        let registry = Registry::of(&dir.namespace()).unwrap();
        assert!(registry.is_over(0xabcd));
    }

    #[test]
    fn files_made_one_after_the_other_in_one_inode_yield_several_numbers() {
        // The files are in the directory for temporary files. If that directory is on ext4, each new file gets the inode number of the removed file.
        let path = std::env::temp_dir().join(format!("umsg-life-{}", std::process::id()));
        let mut numbers = HashSet::new();
        for _ in 0..20 {
            let file = std::fs::File::create_new(&path).unwrap();
            let number = number_of(file.as_fd()).unwrap();
            numbers.insert(number.unwrap());
            std::fs::remove_file(&path).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(numbers.len(), 20);
    }
}
