//! Opens an existing queue's file, and removes its name.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{self, Errno};

use super::Namespace;
use super::directory::{Directory, proc_link, reopen};
use super::error::NamespaceError;
use super::file_error::FileError;
use super::identified::open_regular;
use super::names::QueueName;
use super::queues::POSIX;
use super::transient;

/// The access with which a queue's file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    Read,
    Write,
    ReadWrite,
}

impl FileAccess {
    pub(super) fn flags(self) -> OFlags {
        match self {
            FileAccess::Read => OFlags::RDONLY,
            FileAccess::Write => OFlags::WRONLY,
            FileAccess::ReadWrite => OFlags::RDWR,
        }
    }
}

/// The number of checks of a file with two names.
const LOOKS: u32 = 5;
/// The pause between two checks of a file with two names.
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

impl Namespace {
    /// Opens the file of an existing queue. Refuses files that are not regular, and files with a second name. The descriptor has the lowest
    /// free number, FD_CLOEXEC, and O_NONBLOCK if `nonblocking`.
    ///
    /// # Errors
    /// `NotFound`, `Denied`, `Directory`, `Symlink`, `Special`, `SecondName`, `TooManyFiles`, `Namespace`, `System`.
    ///
    /// # Blocking
    /// Never: the call does not open a FIFO in place of the queue.
    pub(crate) fn open_queue_file(
        &self,
        name: &QueueName,
        access: FileAccess,
        nonblocking: bool,
    ) -> Result<OwnedFd, FileError> {
        Ok(self.open_queue(name, access, nonblocking)?.0)
    }

    /// Does the same as [`open_queue_file`](Self::open_queue_file), in the directory of one kind.
    pub(crate) fn open_file_in(
        &self,
        kind: &str,
        name: &QueueName,
        access: FileAccess,
        nonblocking: bool,
    ) -> Result<OwnedFd, FileError> {
        self.once_swept(|| {
            let mut queues = self.queues_of(kind)?;
            open_in(&mut queues, name.as_os_str(), access, nonblocking)
        })
    }

    /// Opens the file of a queue by its path alone, without the checks of [`open_queue_file`](Self::open_queue_file). The caller compares the file
    /// with a file that passed these checks. Also returns whether the descriptor has O_NONBLOCK. The flag is absent if only this user and root could
    /// create files in the namespace when the process checked it. Then the open can't wait for a hostile peer.
    ///
    /// # Errors
    /// The errors of open(2).
    ///
    /// # Blocking
    /// Never for files of other users. If the name leads to a FIFO, the call opens it, and the caller closes it again.
    pub(crate) fn open_unchecked(
        &self,
        name: &OsStr,
        access: FileAccess,
        nonblocking: bool,
    ) -> io::Result<(OwnedFd, bool)> {
        let directory = self.path().as_os_str().as_bytes();
        let path = [
            directory,
            b"/",
            POSIX.as_bytes(),
            b"/",
            name.as_bytes(),
            b"\0",
        ]
        .concat();
        let path = CStr::from_bytes_with_nul(&path).map_err(|_| Errno::INVAL)?;
        let can_block = self.is_own && access == FileAccess::ReadWrite;
        let nonblocking = nonblocking || !can_block;
        let flags = OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let waits = if nonblocking {
            OFlags::NONBLOCK
        } else {
            OFlags::empty()
        };
        let file = fs::open(path, access.flags() | flags | waits, Mode::empty())?;
        Ok((file, nonblocking))
    }

    /// Opens a file. If the file has two names, removes the stale names of dead creators, and opens the file again.
    pub(super) fn once_swept<T>(
        &self,
        open: impl Fn() -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        match open() {
            Err(FileError::SecondName) if self.remove_left_temporary()? != 0 => open(),
            other => other,
        }
    }

    /// Removes a queue's name. The name is free at once. Processes that have the queue open continue to use it.
    ///
    /// As in the kernel's sticky mqueue directory, the file's owner, the directory's owner and privileged callers (CAP_FOWNER) have the
    /// permission.
    ///
    /// # Errors
    /// `NotFound`; `Denied` (`EPERM` of the system call, `EACCES` for callers) if the file belongs to another user; `Namespace(NotWritable)`
    /// if the caller may not write to the directory; `Directory`, `System`.
    ///
    /// If the file has other names, the call removes all permissions of the file: otherwise other processes would accept the last remaining name as
    /// the queue's name.
    pub(crate) fn unlink_queue_file(&self, name: &QueueName) -> Result<(), FileError> {
        match self.unlink_file_in(POSIX, name) {
            Err(FileError::Directory) => match transient::unlink(&self.queues()?, name.as_os_str())
            {
                // A regular file has replaced the directory, and has the queue's name now.
                Err(FileError::AlreadyExists) => self.unlink_file_in(POSIX, name),
                other => other,
            },
            other => other,
        }
    }

    /// Does the same as [`unlink_queue_file`](Self::unlink_queue_file), in the directory of one kind.
    pub(crate) fn unlink_file_in(&self, kind: &str, name: &QueueName) -> Result<(), FileError> {
        let queues = self.queues_of(kind)?;
        close_other_names(&queues, name.as_os_str());
        unlink(&queues, name)
    }

    /// Removes the name of the POSIX queue whose file has this device and inode number. Returns None, and removes nothing, if the name leads
    /// to another file, if the file has several names, or if the directory can't be checked.
    pub(crate) fn unlink_file_of(
        &self,
        name: &QueueName,
        identity: (u64, u64),
    ) -> Option<Result<(), FileError>> {
        let queues = self.queues().ok()?;
        let (at, path) = queues.locate(name.as_os_str());
        let stat = fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_it = (stat.st_dev, stat.st_ino) == identity && stat.st_nlink == 1;
        is_it.then(|| unlink(&queues, name))
    }
}

fn unlink(queues: &Directory, name: &QueueName) -> Result<(), FileError> {
    let (at, path) = queues.locate(name.as_os_str());
    fs::unlinkat(at, &path, AtFlags::empty()).map_err(|e| match e {
        // The directory denies the removal: for files of other users, a sticky directory returns EPERM.
        Errno::ACCESS | Errno::ROFS => NamespaceError::changing("unlink", queues.path(), e).into(),
        _ => FileError::of("unlink", e),
    })
}

/// Opens a regular file in a directory; see [`Namespace::open_queue_file`].
pub(super) fn open_in(
    directory: &mut Directory,
    name: &OsStr,
    access: FileAccess,
    nonblocking: bool,
) -> Result<OwnedFd, FileError> {
    let file = open_regular(directory, name, access.flags())?;
    check_one_name(&file)?;
    if !nonblocking {
        fs::fcntl_setfl(&file, OFlags::empty()).map_err(|e| FileError::of("fcntl", e))?;
    }
    Ok(file)
}

/// Refuses a file with a second name in any directory. A process with write access to a queue's file can create a second name (link(2)). Then users
/// of the two names would share a queue. The link count can't be forged.
///
/// A creator usually gives a file its name by one system call. On some file systems a creator needs two calls, and the file has two names between the
/// calls. If the creator dies between the calls, the file has two names until the next sweep.
fn check_one_name(file: &OwnedFd) -> Result<(), FileError> {
    for _ in 0..LOOKS {
        let stat = fs::fstat(file).map_err(|e| FileError::of("fstat", e))?;
        if stat.st_nlink <= 1 {
            return Ok(());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(FileError::SecondName)
}

/// Removes all permissions of a queue's file that has several names and is about to lose one. If the caller may not change the file, the function
/// has no effect. In that case, the caller may not unlink the file either, except if it owns the directory.
///
/// Another user can give any file that link(2) permits a name in the directory. So the function changes only files that hold a queue.
pub(super) fn close_other_names(directory: &Directory, name: &OsStr) {
    let (at, path) = directory.locate(name);
    let has_several = |stat: &fs::Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink > 1
    };
    if !fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| has_several(&stat)) {
        return;
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(file) = fs::openat(at, &path, flags, Mode::empty())
        && fs::fstat(&file).is_ok_and(|stat| has_several(&stat))
        && holds_a_queue(file.as_fd())
    {
        // The call uses the descriptor, because the name may lead to another file by now.
        let _ = fs::chmod(proc_link(file.as_fd()).path(), Mode::empty());
    }
}

/// Returns whether a regular file begins with the magic number of a queue of any kind (docs/format.md).
fn holds_a_queue(seen: BorrowedFd<'_>) -> bool {
    let mut magic = [0; 8];
    reopen(seen, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)
        .is_ok_and(|file| rustix::io::pread(&file, &mut magic, 0) == Ok(magic.len()))
        && magic.starts_with(b"umsg-")
        && magic[7] == 0
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::fs::CWD;
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;
    use crate::namespace::testing::{
        Alone, OTHER_STRANGER, STRANGER, TestDir, as_user, chmod, chown, name,
    };

    const ALL: [FileAccess; 3] = [FileAccess::Read, FileAccess::Write, FileAccess::ReadWrite];

    fn error(dir: &TestDir, file: &str, access: FileAccess) -> FileError {
        dir.namespace()
            .open_queue_file(&name(file), access, false)
            .unwrap_err()
    }

    #[test]
    fn an_opened_file_has_the_flags_asked_for_and_closes_on_exec() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::write(dir.queue("q"), b"").unwrap();
        for (access, nonblocking) in [(FileAccess::Read, true), (FileAccess::ReadWrite, false)] {
            let file = namespace
                .open_queue_file(&name("/q"), access, nonblocking)
                .unwrap();
            let flags = fs::fcntl_getfl(&file).unwrap();
            assert_eq!(flags & OFlags::RWMODE, access.flags());
            assert_eq!(flags.contains(OFlags::NONBLOCK), nonblocking);
            assert_eq!(fcntl_getfd(&file).unwrap(), FdFlags::CLOEXEC);
        }
    }

    #[test]
    fn a_missing_queue_is_not_found() {
        let dir = TestDir::new();
        assert_eq!(
            error(&dir, "/q", FileAccess::ReadWrite),
            FileError::NotFound
        );
        assert_eq!(
            dir.namespace().unlink_queue_file(&name("/q")),
            Err(FileError::NotFound)
        );
    }

    #[test]
    fn a_directory_in_place_of_the_queue_is_no_queue_and_not_unlinked() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::create_dir_all(dir.queue("q/queue")).unwrap();
        for access in ALL {
            assert_eq!(error(&dir, "/q", access), FileError::Directory);
        }
        assert_eq!(
            namespace.unlink_queue_file(&name("/q")),
            Err(FileError::Directory)
        );
        std::fs::remove_dir(dir.queue("q/queue")).unwrap();
        std::fs::write(dir.queue("q/letter"), b"").unwrap();
        for access in ALL {
            assert_eq!(error(&dir, "/q", access), FileError::Directory);
        }
        assert_eq!(
            namespace.unlink_queue_file(&name("/q")),
            Err(FileError::Directory)
        );
        assert!(dir.queue("q/letter").exists());
    }

    #[test]
    fn a_symlink_in_place_of_the_queue_is_refused_even_to_a_good_file() {
        let dir = TestDir::new();
        dir.namespace();
        std::fs::write(dir.queue("target"), b"").unwrap();
        std::os::unix::fs::symlink("target", dir.queue("q")).unwrap();
        for access in ALL {
            assert_eq!(error(&dir, "/q", access), FileError::Symlink);
        }
    }

    #[test]
    fn a_fifo_in_place_of_the_queue_is_refused_at_once() {
        let dir = TestDir::new();
        dir.namespace();
        fs::mkfifoat(CWD, dir.queue("q"), Mode::RUSR | Mode::WUSR).unwrap();
        for access in ALL {
            assert_eq!(error(&dir, "/q", access), FileError::Special);
        }
    }

    #[test]
    fn a_socket_in_place_of_the_queue_is_refused() {
        let dir = TestDir::new();
        dir.namespace();
        let _socket = std::os::unix::net::UnixListener::bind(dir.queue("q")).unwrap();
        for access in ALL {
            assert_eq!(error(&dir, "/q", access), FileError::Special);
        }
    }

    #[test]
    fn a_stranger_opens_what_the_mode_allows_and_no_more() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        std::fs::write(dir.queue("q"), b"").unwrap();
        chmod(&dir.queue("q"), 0o644);
        as_user(STRANGER, || {
            let open = |access| {
                namespace
                    .open_queue_file(&name("/q"), access, false)
                    .map(drop)
            };
            assert_eq!(open(FileAccess::Read), Ok(()));
            assert_eq!(open(FileAccess::ReadWrite), Err(FileError::Denied));
        });
    }

    #[test]
    fn only_the_owner_of_a_queue_and_root_unlink_it_in_a_shared_namespace() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        for file in ["one", "two"] {
            std::fs::write(dir.queue(file), b"").unwrap();
            chmod(&dir.queue(file), 0o666);
            chown(&dir.queue(file), STRANGER);
        }
        let unlink = |file| namespace.unlink_queue_file(&name(file));
        as_user(OTHER_STRANGER, || {
            assert_eq!(unlink("/one"), Err(FileError::Denied));
            assert_eq!(unlink("/missing"), Err(FileError::NotFound));
        });
        as_user(STRANGER, || assert_eq!(unlink("/one"), Ok(())));
        assert_eq!(unlink("/two"), Ok(()));
    }

    /// The test runs in its own process because it takes all descriptors: a test binary runs its tests as threads.
    #[test]
    fn a_process_with_one_descriptor_left_opens_a_queue_as_with_the_kernel() {
        const TEST: Alone =
            Alone::new("a_process_with_one_descriptor_left_opens_a_queue_as_with_the_kernel");
        let Some(path) = TEST.directory() else {
            let dir = TestDir::new();
            dir.namespace();
            std::fs::write(dir.queue("q"), b"").unwrap();
            return TEST.passes(dir.path(), &[]);
        };
        let namespace = Namespace::at(path).unwrap();
        let mut hoard = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        let number = hoard.pop().unwrap().as_raw_fd();
        let open = || namespace.open_queue_file(&name("/q"), FileAccess::ReadWrite, false);
        let last = open().unwrap();
        assert_eq!(last.as_raw_fd(), number);
        let errno = rustix::io::Errno::MFILE.raw_os_error();
        assert_eq!(open().unwrap_err().errno(), errno);
    }
}
