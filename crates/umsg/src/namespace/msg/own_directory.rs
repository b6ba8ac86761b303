//! A user's own files for System V queues: a lock, and the last identifier that the user's processes assigned.
//!
//! ```text
//! own/                 root's, mode 1777, as `msg`
//! └── 1000             user 1000's own, mode 0711; `1000-<random>` if another user has the name, see `meeting.rs`
//!     ├── lock         a directory, mode 0700: the lock of the user's processes, see `lock.rs`
//!     └── next         the last identifier, mode 0644, see `next.rs`
//! ```
//!
//! Only the user and root can open the lock or write the identifier. So no other user can hold the lock or forge the identifier.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::files::Files;
use crate::namespace::caller;
use crate::namespace::directory::Directory;
use crate::namespace::error::NamespaceError;
use crate::namespace::file_error::FileError;
use crate::namespace::meeting::{Meeting, user_in};
use crate::namespace::queues::OWN;
use crate::namespace::stamp::Stamp;
use umsg_shm::sys::clock;

/// The name of the lock. A user's directory is settled if it contains a lock.
pub(super) const LOCK: &str = "lock";
/// The mode of all files except the lock: the owner writes them, and every process that creates queues reads them.
const MODE: u32 = 0o644;

fn meeting(base: &Path, user: u32) -> Meeting<'_> {
    Meeting {
        base,
        prefix: "",
        user,
        mark: LOCK,
        mode: 0o711,
        check: |_| Ok(()),
    }
}

impl Files {
    /// Returns the directory that contains all users' directories.
    fn owns(&self) -> PathBuf {
        let msg = self.directory().path();
        msg.parent().unwrap_or(msg).join(OWN)
    }

    /// Returns the caller's directory, and creates it if necessary.
    ///
    /// # Errors
    /// `NoSpace`, `NoMemory`, `TooManyFiles`; `Namespace(NoQueuesDirectory)`, `Namespace(NotWritable)`.
    pub(super) fn own(&self) -> Result<PathBuf, FileError> {
        let base = self.owns();
        meeting(&base, caller()).directory().map_err(|e| match e {
            NamespaceError::Missing { path } if path == base => {
                NamespaceError::NoQueuesDirectory { path }.into()
            }
            NamespaceError::System { call, errno, .. } => {
                FileError::of(call, Errno::from_raw_os_error(errno))
            }
            error => error.into(),
        })
    }

    /// Returns another user's directory, if it exists.
    pub(super) fn own_of(&self, user: u32) -> Result<Option<PathBuf>, NamespaceError> {
        meeting(&self.owns(), user).settled()
    }

    /// Returns the settled directories of all users, one for each user. A hostile user adds at most its own.
    ///
    /// # Errors
    /// `TooManyFiles`, `NoQueuesDirectory`, `System`.
    pub(super) fn all_owns(&self) -> Result<HashMap<u32, PathBuf>, NamespaceError> {
        let base = self.owns();
        let before = stamp_of(&base);
        if is_known_alone(before) {
            let usual = meeting(&base, caller()).usual();
            return Ok(HashMap::from([(caller(), usual)]));
        }
        let refuse = |e: std::io::Error| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            NamespaceError::looking("open", &base, errno)
        };
        let (mut owns, mut entries) = (HashMap::new(), 0);
        for entry in std::fs::read_dir(&base).map_err(refuse)? {
            let path = entry.map_err(refuse)?.path();
            entries += 1;
            if let Some(user) = user_in("", &path)
                && !owns.contains_key(&user)
                && meeting(&base, user).is_settled(&path)
            {
                owns.insert(user, path);
            }
        }
        let usual = meeting(&base, caller()).usual();
        if entries == 1 && owns.get(&caller()) == Some(&usual) {
            note_alone(before);
        }
        Ok(owns)
    }

    /// Returns whether this process knows that no other user has a directory. The check costs one system call.
    pub(super) fn is_only_user(&self) -> bool {
        is_known_alone(stamp_of(&self.owns()))
    }
}

/// The stamp that the directory of all users' directories had when it contained only the caller's directory, and the id of the caller's user. A
/// directory of another user, settled or not, changes the stamp.
static ALONE: Mutex<Option<(Stamp, u32)>> = Mutex::new(None);

/// Creates a file in the caller's own directory that other users can read. The umask does not change its mode.
pub(super) fn create_readable(own: &mut Directory, name: &str) -> Result<OwnedFd, FileError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = own.with_number(|own| {
        let (at, path) = own.locate(name);
        fs::openat(at, &path, flags, Mode::from_raw_mode(MODE))
    });
    let file = file.map_err(|e| FileError::of("open", e))?;
    match fs::fchmod(&file, Mode::from_raw_mode(MODE)) {
        Ok(()) | Err(Errno::PERM) => Ok(file),
        Err(e) => Err(FileError::of("fchmod", e)),
    }
}

fn stamp_of(base: &Path) -> Option<Stamp> {
    Some(Stamp::of(&rustix::fs::lstat(base).ok()?))
}

fn is_known_alone(stamp: Option<Stamp>) -> bool {
    // If a signal handler or a forked child finds the mutex locked, it reads the directory instead.
    let known = ALONE.try_lock().ok().and_then(|alone| *alone);
    stamp.is_some_and(|stamp| known == Some((stamp, caller())))
}

/// Records a stamp that was taken before the directory was read.
fn note_alone(stamp: Option<Stamp>) {
    let settled = stamp.filter(|stamp| stamp.is_settled(clock::realtime_coarse()));
    if let (Some(stamp), Ok(mut alone)) = (settled, ALONE.try_lock()) {
        *alone = Some((stamp, caller()));
    }
}
