//! The files of System V queues: opening, making, unlinking.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;

use super::names::of_index;
use crate::namespace::directory::Directory;
use crate::namespace::file_error::FileError;
use crate::namespace::identified::open_regular;
use crate::namespace::publish::creation_error;
use crate::namespace::queues::{SYSV, TO_NAMESPACE};
use crate::namespace::staged::Staged;
use crate::namespace::{Namespace, Stamp, caller, trust};
use umsg_shm::sys::rights::unlink_of;

/// Only the creator has access until the file gets its final mode.
const PRIVATE: u32 = 0o600;

/// The directory of System V queues, opened and checked.
#[derive(Debug)]
pub(crate) struct Files(Directory);

impl Namespace {
    /// Opens the directory of System V queues and checks its owner, on the descriptor.
    ///
    /// # Errors
    /// `Namespace`.
    pub(crate) fn msg_files(&self) -> Result<Files, FileError> {
        Ok(Files(self.queues_of(SYSV)?))
    }

    /// Returns the stamp of the directory of System V queues without opening it, after a check of its owner. None if the directory can't be
    /// used.
    pub(crate) fn msg_stamp(&self) -> Option<Stamp> {
        let directory = Directory::look(&self.path().join(SYSV)).ok()?;
        trust::check(&directory, self.owner()).ok()?;
        Some(directory.stamp())
    }
}

impl Files {
    pub(super) fn directory(&self) -> &Directory {
        &self.0
    }

    /// Returns the stamp that the directory had when it was opened.
    pub(crate) fn stamp(&self) -> Stamp {
        self.0.stamp()
    }

    /// Opens the file of the queue with an index for reading and writing. Opens only regular files.
    ///
    /// # Errors
    /// `NotFound`, `Denied`, `Directory`, `Symlink`, `Special`, `TooManyFiles`, `System`.
    ///
    /// # Blocking
    /// Never: a FIFO in place of the queue is not opened.
    pub(crate) fn open(&mut self, index: u32) -> Result<OwnedFd, FileError> {
        open_regular(&mut self.0, of_index(index).as_ref(), OFlags::RDWR)
    }

    /// Creates a file without a name, or with a temporary name.
    pub(super) fn stage(&mut self, mode: u32) -> rustix::io::Result<Staged> {
        Staged::create(&mut self.0, TO_NAMESPACE, mode)
    }

    /// Returns the result of stat(2) for the queue with an index, also to a process that may not open the queue. None if there
    /// is no file.
    ///
    /// # Errors
    /// `Denied` if the directory may not be searched; `System`.
    pub(crate) fn stat(&self, index: u32) -> Result<Option<Stat>, FileError> {
        let (at, path) = self.0.locate(of_index(index));
        match fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(FileError::of("stat", e)),
        }
    }

    /// Returns whether the caller may remove the files of other users. Root and the owner of the directory may.
    pub(crate) fn may_take_others(&self) -> bool {
        self.0.may_be_mended_by(caller())
    }

    /// Removes the file of an index if the file belongs to `owner` and the caller has the permission. Returns whether the index is free. Only a
    /// regular file is removed.
    pub(crate) fn take_file(&self, index: u32, owner: u32) -> bool {
        match self.stat(index) {
            Ok(None) => true,
            Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                let (at, path) = self.0.locate(of_index(index));
                unlink_of(owner, || fs::unlinkat(at, &path, AtFlags::empty())).is_ok()
            }
            _ => false,
        }
    }
}

/// A queue's file that has no name yet.
#[derive(Debug)]
pub(crate) struct NewFile {
    files: Files,
    /// The file; None only during the drop.
    staged: Option<Staged>,
}

impl NewFile {
    /// Creates an empty file of mode 0600, open for reading and writing, with FD_CLOEXEC.
    ///
    /// # Errors
    /// `NoSpace`, `NoMemory`, `TooManyFiles`, `System`; `Namespace(NotWritable)` if the caller may make no files in the directory.
    ///
    /// # If the process dies
    /// An unnamed file vanishes. A file with a temporary name stays until a sweep.
    pub(crate) fn create(mut files: Files) -> Result<NewFile, FileError> {
        let staged = files
            .stage(PRIVATE)
            .map_err(|e| creation_error("open", &files.0, e))?;
        let staged = Some(staged);
        Ok(NewFile { files, staged })
    }

    pub(crate) fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    fn staged(&self) -> &Staged {
        self.staged.as_ref().expect("only drop takes it")
    }

    /// Returns the file, open for reading and writing.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.staged().file()
    }

    /// Gives the file the name of this index.
    ///
    /// # Errors
    /// `AlreadyExists`: the name is taken. `Denied`, `NoSpace`, `NoMemory`, `System`.
    pub(crate) fn link(&self, index: u32) -> Result<(), FileError> {
        self.staged()
            .link_too(&self.files.0, OsStr::new(&of_index(index)))
            .map_err(|e| creation_error("link", &self.files.0, e))
    }
}

impl Drop for NewFile {
    /// Removes the temporary name. The file continues to exist if it also has the name of an index.
    fn drop(&mut self) {
        if let Some(staged) = self.staged.take() {
            staged.discard(&self.files.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{TestDir, mode};
    use rustix::fs::Mode;

    #[test]
    fn a_new_file_is_seen_once_it_has_an_index_and_stays() {
        let dir = TestDir::new();
        let mut new = NewFile::create(dir.namespace().msg_files().unwrap()).unwrap();
        rustix::io::write(new.file(), b"whole").unwrap();
        assert!(new.files().stat(3).unwrap().is_none());
        new.link(3).unwrap();
        assert_eq!(new.link(3), Err(FileError::AlreadyExists));
        drop(new);
        let mut files = dir.namespace().msg_files().unwrap();
        files.open(3).unwrap();
        assert_eq!(mode(&dir.path().join("msg/3")), 0o600);
        assert!(files.take_file(3, caller()) && files.take_file(3, caller()));
        assert_eq!(files.open(3).unwrap_err(), FileError::NotFound);
    }

    #[test]
    fn what_is_no_regular_file_is_not_opened_and_not_taken_away() {
        let dir = TestDir::new();
        let mut files = dir.namespace().msg_files().unwrap();
        let at = |index: u32| dir.path().join("msg").join(index.to_string());
        std::os::unix::fs::symlink("/etc/passwd", at(1)).unwrap();
        std::fs::create_dir(at(2)).unwrap();
        fs::mkfifoat(fs::CWD, at(3), Mode::RUSR | Mode::WUSR).unwrap();
        let errors = [1, 2, 3].map(|index| files.open(index).unwrap_err());
        assert_eq!(
            errors,
            [FileError::Symlink, FileError::Directory, FileError::Special]
        );
        assert!((1..=3).all(|index| !files.take_file(index, caller())));
    }
}
