//! A directory that was opened first, and then checked on the descriptor.
//!
//! A process that checks a path and then uses the path may check one directory and use another. So a directory is opened (`O_PATH`, which
//! needs no permission and follows no link) and checked with fstat. Its files are reached through that descriptor.
//!
//! The kernel's `mq_open` needs one descriptor number, so a program may have just one left. In umsg, the directory takes that number first. If the
//! file then finds no number, [`Directory::with_number`] closes the directory and opens the file by path, moments after the check of the directory.
//! The kernel's `mq_unlink` needs no number: if none is free, the directory is checked and used by path from the start. The exception is a queue that
//! is removed at its last close: it is unlinked through its own directory, which has to be open (`transient/`).

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::{self, Errno};

use super::error::NamespaceError;
use super::file_error::FileError;
use super::stamp::Stamp;

/// Returns the permission bits of a file, without its type.
pub(super) fn permissions(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// An open directory, its path, and the result of fstat.
#[derive(Debug)]
pub(super) struct Directory {
    fd: Option<OwnedFd>,
    path: PathBuf,
    stat: Stat,
}

impl Directory {
    /// Opens a directory, regardless of its owner. If no descriptor number is free, only reads its status by path.
    ///
    /// # Errors
    /// `Missing`, `Symlink`, `NotADirectory`, `NotAccessible` (of a directory above it), `TooManyFiles` (if the system, not the process, is at its
    /// limit), `System`.
    pub(super) fn open(path: &Path) -> Result<Directory, NamespaceError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match fs::open(path, flags, Mode::empty()) {
            Err(Errno::MFILE) => None,
            opened => Some(opened.map_err(|e| NamespaceError::looking("open", path, e))?),
        };
        let stat = match &fd {
            Some(fd) => fs::fstat(fd).map_err(|e| NamespaceError::system("fstat", path, e))?,
            None => fs::lstat(path).map_err(|e| NamespaceError::looking("stat", path, e))?,
        };
        Directory::of(fd, path, stat)
    }

    /// Reads the status of a directory by path, to compare it with an earlier status. The caller must not use files in the directory by path, because
    /// the path may lead to another directory by then.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub(super) fn look(path: &Path) -> Result<Directory, NamespaceError> {
        let stat = fs::lstat(path).map_err(|e| NamespaceError::looking("stat", path, e))?;
        Directory::of(None, path, stat)
    }

    fn of(fd: Option<OwnedFd>, path: &Path, stat: Stat) -> Result<Directory, NamespaceError> {
        let path = path.to_owned();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(Directory { fd, path, stat }),
            FileType::Symlink => Err(NamespaceError::Symlink { path }),
            _ => Err(NamespaceError::NotADirectory { path }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the result of fstat(2) when the directory was opened.
    pub(super) fn stat(&self) -> &Stat {
        &self.stat
    }

    pub(super) fn owner(&self) -> u32 {
        self.stat.st_uid
    }

    pub(super) fn mode(&self) -> u32 {
        permissions(&self.stat)
    }

    /// Returns the device and the inode number of the directory.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp::of(&self.stat)
    }

    /// Returns whether the entries are reached through a descriptor, and not by path.
    pub(super) fn is_open(&self) -> bool {
        self.fd.is_some()
    }

    /// Returns whether the directory has two links, its name and `.`. If the file system counts the links of directories, it then has no
    /// sub-directory.
    pub(super) fn has_two_links(&self) -> bool {
        self.stat.st_nlink == 2
    }

    /// Returns whether users other than the owner may create files in the directory.
    pub(super) fn open_to_others(&self) -> bool {
        self.mode() & 0o022 != 0
    }

    /// Returns whether a user may change all entries of the directory. The directory's owner and root may.
    pub(super) fn may_be_mended_by(&self, user: u32) -> bool {
        user == 0 || user == self.owner()
    }

    /// Returns the place of a file in the directory: a descriptor, and a path that begins at that descriptor.
    pub(super) fn locate(&self, name: impl AsRef<OsStr>) -> (BorrowedFd<'_>, PathBuf) {
        let name = Path::new(name.as_ref());
        match &self.fd {
            Some(fd) => (fd.as_fd(), name.to_owned()),
            None => (CWD, self.path.join(name)),
        }
    }

    /// Calls `make`, which needs one descriptor number. If no number was free, closes this directory, and calls `make` again, which then gets the
    /// number of the directory.
    pub(super) fn with_number<T>(
        &mut self,
        make: impl Fn(&Directory) -> io::Result<T>,
    ) -> io::Result<T> {
        match make(self) {
            Err(Errno::MFILE) if self.fd.is_some() => {
                self.fd = None;
                make(self)
            }
            outcome => outcome,
        }
    }

    /// Gives the directory these permission bits.
    pub(super) fn set_mode(&mut self, mode: u32) -> Result<(), NamespaceError> {
        // fchmod refuses an O_PATH descriptor; the link in /proc leads to the same directory.
        let chmod = |d: &Directory| fs::chmod(d.link(), Mode::from_raw_mode(mode));
        chmod(self).map_err(|e| NamespaceError::changing("chmod", &self.path, e))?;
        self.look_again()
    }

    /// Gives this directory the owner and the group of the directory `other`.
    pub(super) fn set_owner(&mut self, other: &Directory) -> Result<(), NamespaceError> {
        let (user, group) = (
            Uid::from_raw(other.stat.st_uid),
            Gid::from_raw(other.stat.st_gid),
        );
        let (at, name) = self.locate("");
        fs::chownat(at, &name, Some(user), Some(group), AtFlags::EMPTY_PATH)
            .map_err(|e| NamespaceError::changing("chown", &self.path, e))?;
        self.look_again()
    }

    fn link(&self) -> PathBuf {
        match &self.fd {
            Some(fd) => proc_link(fd.as_fd()).path().to_owned(),
            None => self.path.clone(),
        }
    }

    fn look_again(&mut self) -> Result<(), NamespaceError> {
        if let Some(fd) = &self.fd {
            self.stat =
                fs::fstat(fd).map_err(|e| NamespaceError::system("fstat", &self.path, e))?;
        }
        Ok(())
    }
}

/// A path that takes no memory from malloc: a signal handler that has interrupted malloc may need the path.
pub(crate) struct ShortPath {
    bytes: [u8; ShortPath::LEN],
    len: usize,
}

impl ShortPath {
    const LEN: usize = 32;

    /// Makes a path of `text`, which has at most 32 bytes.
    pub(super) fn new(text: std::fmt::Arguments<'_>) -> ShortPath {
        let mut bytes = [0; ShortPath::LEN];
        let mut rest = &mut bytes[..];
        let written = rest.write_fmt(text);
        debug_assert!(written.is_ok(), "{text}");
        let len = ShortPath::LEN - rest.len();
        ShortPath { bytes, len }
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.bytes[..self.len]))
    }
}

/// Returns the name of an open file in /proc. To open or link this name is to open or link that file itself.
pub(crate) fn proc_link(fd: BorrowedFd<'_>) -> ShortPath {
    ShortPath::new(format_args!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Opens the file of a descriptor again, through its link in /proc.
///
/// # Errors
/// `NOSYS` if /proc is missing. The link leads to an existing file, so `NOENT` can only mean that /proc is missing.
pub(super) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
    fs::open(proc_link(fd).path(), flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => Errno::NOSYS,
        error => error,
    })
}

/// Converts an errno of [`reopen`] to an error of a queue's file.
pub(super) fn reopen_error(error: Errno) -> FileError {
    match error {
        Errno::NOSYS => NamespaceError::NoProc.into(),
        error => FileError::of("open", error),
    }
}
