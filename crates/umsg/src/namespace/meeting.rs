//! A directory that all programs of one user agree on, within a directory where all users can create names.
//!
//! The usual name is `PREFIX` and the user's number. If another user has taken this name, the user's programs use a longer name, which ends with `-`
//! and 16 random hexadecimal digits. No process can guess that name before the directory exists.
//!
//! Only directories that belong to the user are considered. A directory is first *offered*. Once it has a certain sub-directory, the mark, it is
//! *settled*.
//!
//! | the user's directories | a program |
//! |---|---|
//! | one is settled | uses that directory |
//! | there is none | offers a directory, with the usual name if that is free, or else with a random name |
//! | some are offered | opens the lowest, removes the others, lists again, and settles the lowest if it is the only one |
//!
//! A user never has two settled directories. A program opens a directory, then lists the user's directories, and settles the opened one only if the
//! list has no other. If two programs settled two directories, the later of their lists would have had the other directory. A directory that was
//! removed after a program opened it can't be settled.
//!
//! A settled directory stays in use until it is removed, also when the usual name becomes free.
//!
//! **If a process dies** after it offered a directory, the next process settles or removes it.

use std::ffi::OsStr;
use std::fs::read_dir;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, FileType, Mode};
use rustix::io::Errno;

use super::directory::Directory;
use super::error::NamespaceError;
use umsg_shm::sys::random::random;
use umsg_shm::sys::stack::nap;

/// The number of hexadecimal digits after a user's number.
const DIGITS: usize = 16;
/// The number of listings before the function reports that other processes keep changing the directories.
const ATTEMPTS: u32 = 500;
/// The longest sleep between two listings.
const NAP: Duration = Duration::from_millis(10);

/// The names and the properties of a user's directories.
pub(super) struct Meeting<'a> {
    pub(super) base: &'a Path,
    pub(super) prefix: &'static str,
    pub(super) user: u32,
    /// The name of the sub-directory that marks a settled directory.
    pub(super) mark: &'static str,
    /// The permission bits that the directory needs.
    pub(super) mode: u32,
    /// Refuses a directory that must not be settled.
    pub(super) check: fn(&Directory) -> Result<(), NamespaceError>,
}

/// The directories of a user, each list in the order of their names.
struct Own {
    settled: Option<PathBuf>,
    offered: Vec<PathBuf>,
}

impl Meeting<'_> {
    /// Returns the directory of the calling user; creates it if necessary.
    pub(super) fn directory(&self) -> Result<PathBuf, NamespaceError> {
        let usual = self.usual();
        if self.is_settled(&usual) || self.is_an_obstacle(&usual) {
            return Ok(usual);
        }
        for attempt in 0..ATTEMPTS {
            let own = self.list()?;
            if let Some(settled) = own.settled {
                return Ok(settled);
            }
            match own.offered.split_first() {
                None => self.offer()?,
                Some((lowest, others)) => {
                    if self.settle(lowest, others)? {
                        return Ok(lowest.clone());
                    }
                    nap(NAP.min(Duration::from_micros(50) * attempt));
                }
            }
        }
        Err(NamespaceError::system("mkdir", &usual, Errno::AGAIN))
    }

    /// Returns the user's directory, if it is settled. The user need not be the caller.
    pub(super) fn settled(&self) -> Result<Option<PathBuf>, NamespaceError> {
        let usual = self.usual();
        match self.is_settled(&usual) {
            true => Ok(Some(usual)),
            false => Ok(self.list()?.settled),
        }
    }

    /// Returns the path with the usual name.
    pub(super) fn usual(&self) -> PathBuf {
        self.base.join(format!("{}{}", self.prefix, self.user))
    }

    fn list(&self) -> Result<Own, NamespaceError> {
        let refuse = |e: std::io::Error| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            NamespaceError::looking("open", self.base, errno)
        };
        let mut offered = Vec::new();
        for entry in read_dir(self.base).map_err(refuse)? {
            let path = entry.map_err(refuse)?.path();
            let is_named_so = user_in(self.prefix, &path) == Some(self.user);
            if is_named_so && self.is_ones_directory(&path) {
                offered.push(path);
            }
        }
        offered.sort_unstable();
        let settled = offered.iter().find(|path| self.is_settled(path)).cloned();
        Ok(Own { settled, offered })
    }

    fn is_ones_directory(&self, path: &Path) -> bool {
        fs::lstat(path).is_ok_and(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            stat.st_uid == self.user && kind == FileType::Directory
        })
    }

    /// Returns whether the user has put a file or a link at this path. The caller reports such an entry as an error, and uses no other name.
    fn is_an_obstacle(&self, path: &Path) -> bool {
        fs::lstat(path).is_ok_and(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            stat.st_uid == self.user && kind != FileType::Directory
        })
    }

    /// Returns whether a directory is the user's, and settled.
    pub(super) fn is_settled(&self, path: &Path) -> bool {
        self.is_ones_directory(path) && fs::lstat(path.join(self.mark)).is_ok()
    }

    /// Creates a directory with the usual name, or with a random name.
    fn offer(&self) -> Result<(), NamespaceError> {
        let make = |path: &Path| match fs::mkdir(path, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(e) => Err(NamespaceError::changing("mkdir", self.base, e)),
        };
        let usual = self.usual();
        if make(&usual)? || self.is_ones_directory(&usual) {
            return Ok(());
        }
        let name = format!("{}{}-{:0DIGITS$x}", self.prefix, self.user, random());
        make(&self.base.join(name)).map(drop)
    }

    /// Settles an offered directory, unless other directories exist. Returns whether the directory is settled.
    fn settle(&self, lowest: &Path, others: &[PathBuf]) -> Result<bool, NamespaceError> {
        let mut directory = match Directory::open(lowest) {
            Err(NamespaceError::Missing { .. }) => return Ok(false),
            opened => opened?,
        };
        self.open_up(&mut directory)?;
        (self.check)(&directory)?;
        for other in others {
            // The removal fails if another process has settled the directory by now.
            let _ = fs::rmdir(other);
        }
        let own = self.list()?;
        if own.settled.is_some() || own.offered.iter().any(|path| path != lowest) {
            return Ok(own.settled.as_deref() == Some(lowest));
        }
        let (at, path) = directory.locate(self.mark);
        match fs::mkdirat(at, &path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(true),
            // Another process has removed the directory meanwhile.
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(NamespaceError::changing("mkdir", lowest, e)),
        }
    }

    /// Gives the directory the permissions that it lacks, for example because of an unusual umask at its creation.
    fn open_up(&self, directory: &mut Directory) -> Result<(), NamespaceError> {
        let mode = directory.mode();
        if directory.owner() == self.user && mode & self.mode != self.mode {
            match directory.set_mode(mode | self.mode) {
                Err(NamespaceError::Missing { .. }) => {}
                done => done?,
            }
        }
        Ok(())
    }
}

/// Returns the user whose number is in the name of a directory, after `prefix`. None if the name does not have this form.
pub(super) fn user_in(prefix: &str, path: &Path) -> Option<u32> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    let rest = name.strip_prefix(prefix)?;
    let (number, suffix) = match rest.split_once('-') {
        Some((number, suffix)) => (number, Some(suffix)),
        None => (rest, None),
    };
    let user = number.parse::<u32>().ok()?;
    let is_suffix = |text: &str| {
        text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    (number == user.to_string() && suffix.is_none_or(is_suffix)).then_some(user)
}
