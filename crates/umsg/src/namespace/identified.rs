//! Opens files of directories in which other users can create entries.
//!
//! open(2) of a FIFO takes the lock of its pipe. Another user can hold that lock for ever, by a write from a page whose fault handler never
//! answers. `O_NONBLOCK` does not help: no signal ends the opener's sleep. So the type of each file is checked before the file is opened.
//!
//! | the file and the directory belong to root or the caller | steps |
//! |---|---|
//! | yes: no other user can put another file there | lstat(2) tells the type. The file is opened by its name. fstat(2) then tells whether the opened file is the same |
//! | no | `O_PATH` names the file and opens nothing. fstat(2) of that descriptor tells the type. The descriptor's link in /proc opens that very file, even if its name leads to another file by now |
//!
//! The second row of the table needs a second descriptor number, and /proc. When a process first uses /proc, the kernel creates inodes there, which
//! takes time.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::{self, Errno};

use super::caller;
use super::directory::{Directory, reopen, reopen_error};
use super::file_error::FileError;

/// The number of attempts at a file that another process of the user keeps replacing.
const ATTEMPTS: u32 = 100;

/// Opens a regular file of a directory, with these flags, FD_CLOEXEC and O_NONBLOCK.
///
/// # Errors
/// `NotFound`, `Denied`, `Directory`, `Symlink`, `Special`, `TooManyFiles`, `System`; `Namespace(NoProc)` if /proc is missing and another
/// user could replace the file.
///
/// # Blocking
/// Never.
pub(super) fn open_regular(
    directory: &mut Directory,
    name: &OsStr,
    access: OFlags,
) -> Result<OwnedFd, FileError> {
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    for _ in 0..ATTEMPTS {
        let Some(stat) = look_at_own(directory, name) else {
            let seen = look(directory, name)?;
            return directory
                .with_number(|_| reopen(seen.as_fd(), flags))
                .map_err(reopen_error);
        };
        let file = open_by_name(directory, name, flags).map_err(|e| FileError::of("open", e))?;
        let opened = fs::fstat(&file).map_err(|e| FileError::of("fstat", e))?;
        if (opened.st_dev, opened.st_ino) == (stat.st_dev, stat.st_ino) {
            return Ok(file);
        }
    }
    Err(FileError::of("open", Errno::AGAIN))
}

/// Returns the result of lstat(2) for a regular file that no other user can replace; None for any other file.
fn look_at_own(directory: &Directory, name: &OsStr) -> Option<Stat> {
    let (at, path) = directory.locate(name);
    let stat = fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    (is_regular && stays(directory, &stat)).then_some(stat)
}

/// Opens a regular file with `O_PATH`, which identifies the file without the effects of an open.
fn look(directory: &mut Directory, name: &OsStr) -> Result<OwnedFd, FileError> {
    let seen = open_by_name(directory, name, OFlags::PATH | OFlags::CLOEXEC);
    let seen = seen.map_err(|e| FileError::of("open", e))?;
    let stat = fs::fstat(&seen).map_err(|e| FileError::of("fstat", e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(seen),
        FileType::Directory => Err(FileError::Directory),
        FileType::Symlink => Err(FileError::Symlink),
        _ => Err(FileError::Special),
    }
}

fn open_by_name(directory: &mut Directory, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    directory.with_number(|directory| {
        let (at, path) = directory.locate(name);
        fs::openat(at, &path, flags | OFlags::NOFOLLOW, Mode::empty())
    })
}

/// Returns whether only root and the caller can replace this file. Every directory that other users may write in is sticky. So other users
/// can't remove the names of root and of the caller.
fn stays(directory: &Directory, stat: &Stat) -> bool {
    let is_trusted = |user: u32| user == 0 || user == caller();
    is_trusted(directory.owner()) && is_trusted(stat.st_uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{Alone, STRANGER, TestDir, as_user, chmod, chown};
    use rustix::fs::CWD;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use umsg_testkit::users::is_root;

    fn open(dir: &Path, name: &str) -> Result<OwnedFd, FileError> {
        let mut directory = Directory::open(dir).unwrap();
        open_regular(&mut directory, OsStr::new(name), OFlags::RDWR)
    }

    /// Returns whether this process has the file open.
    fn is_open_here(path: &Path) -> bool {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|target| target == path)
    }

    #[test]
    fn what_is_no_regular_file_is_named_and_never_opened() {
        let dir = TestDir::new();
        let at = |name: &str| dir.path().join(name);
        fs::mkfifoat(CWD, at("fifo"), Mode::RWXU).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::fs::write(at("file"), b"").unwrap();
        let error = |name| open(dir.path(), name).unwrap_err();
        assert_eq!(error("fifo"), FileError::Special);
        assert_eq!(error("directory"), FileError::Directory);
        assert_eq!(error("link"), FileError::Symlink);
        assert_eq!(error("missing"), FileError::NotFound);
        let file = open(dir.path(), "file").unwrap();
        assert!(is_open_here(&at("file")));
        drop(file);
    }

    #[test]
    fn a_name_that_changes_between_a_fifo_and_a_file_never_has_the_fifo_opened() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let at = |name: &str| dir.path().join(name);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                as_user(STRANGER, || {
                    while !is_over.load(Ordering::SeqCst) {
                        let _ = fs::mkfifoat(CWD, at("new"), Mode::RWXU);
                        let _ = fs::rename(at("new"), at("name"));
                        std::fs::write(at("new"), b"").unwrap();
                        let _ = fs::rename(at("new"), at("name"));
                    }
                });
            });
            for _ in 0..20_000 {
                match open(dir.path(), "name") {
                    Ok(file) => {
                        let stat = fs::fstat(&file).unwrap();
                        let kind = FileType::from_raw_mode(stat.st_mode);
                        assert_eq!(kind, FileType::RegularFile);
                    }
                    Err(error) => {
                        assert!(matches!(error, FileError::Special | FileError::NotFound));
                    }
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
    }

    /// The test runs in a separate process, because it uses all descriptors.
    #[test]
    fn with_one_number_left_only_what_no_other_user_can_replace_is_opened() {
        const TEST: Alone =
            Alone::new("with_one_number_left_only_what_no_other_user_can_replace_is_opened");
        let Some(path) = TEST.directory() else {
            if is_root() {
                let dir = TestDir::shared();
                for (name, owner) in [("own", 0), ("strangers", STRANGER)] {
                    std::fs::write(dir.path().join(name), b"").unwrap();
                    chmod(&dir.path().join(name), 0o666);
                    chown(&dir.path().join(name), owner);
                }
                TEST.passes(dir.path(), &[]);
            }
            return;
        };
        let mut hoard = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        hoard.pop();
        drop(open(&path, "own").unwrap());
        let error = open(&path, "strangers").unwrap_err();
        assert!(matches!(error, FileError::TooManyFiles { .. }));
        hoard.pop();
        drop(open(&path, "strangers").unwrap());
    }
}
