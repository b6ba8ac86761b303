//! Paths below /dev/mqueue: mqueue_overview(7).
//!
//! The directory of a namespace's POSIX queues has a file for each queue, with the queue's name. So this directory replaces /dev/mqueue, and a path
//! below /dev/mqueue leads to the queue of this name.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::Namespace;
use crate::posix::{OpenError, OpenOptions, Queue};

/// The path of the kernel's directory of POSIX queues.
pub const PATH: &[u8] = b"/dev/mqueue";

/// The size that the kernel shows for a queue, in bytes.
pub const SIZE: i64 = 80;

/// The size of a block that the kernel shows for a queue, in bytes.
pub const BLOCK: u16 = 4096;

/// The directory of POSIX queues in a namespace.
const QUEUES: &str = "mq";

/// The name of the file in the directory of a transient queue.
const TRANSIENT: &str = "queue";

/// The longest name of a queue, without its slash.
const NAME_MAX: usize = 255;

/// The directory /dev/mqueue, or an entry of that directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MqueuePath<'a> {
    /// /dev/mqueue.
    Directory,
    /// A name in the directory, without a slash.
    Name(&'a [u8]),
}

/// An existing queue, and its mode if the caller may open the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundQueue {
    /// A queue with this mode.
    Mode(u32),
    /// The caller has no permission to open the queue.
    Hidden,
}

impl<'a> MqueuePath<'a> {
    /// Parses an absolute path. Returns None if the path leads neither to /dev/mqueue nor to an entry of that directory.
    ///
    /// ```
    /// use umsg::kernel_files::place::MqueuePath;
    /// assert!(matches!(MqueuePath::absolute(b"/dev/mqueue/jobs"), Some(MqueuePath::Name(b"jobs"))));
    /// assert!(MqueuePath::absolute(b"/dev/null").is_none());
    /// ```
    #[must_use]
    pub fn absolute(path: &'a [u8]) -> Option<MqueuePath<'a>> {
        let rest = path.strip_prefix(PATH)?;
        match rest.first() {
            None => Some(MqueuePath::Directory),
            Some(b'/') => MqueuePath::relative(rest),
            Some(_) => None,
        }
    }

    /// Parses a path relative to /dev/mqueue. Returns None if the path leads into a queue or out of the directory: the kernel handles that path.
    ///
    /// ```
    /// use umsg::kernel_files::place::MqueuePath;
    /// assert!(matches!(MqueuePath::relative(b"jobs"), Some(MqueuePath::Name(b"jobs"))));
    /// ```
    #[must_use]
    pub fn relative(path: &'a [u8]) -> Option<MqueuePath<'a>> {
        let begin = path.iter().position(|&byte| byte != b'/');
        match begin.map(|begin| &path[begin..]) {
            None | Some(b".") => Some(MqueuePath::Directory),
            Some(b"..") => None,
            Some(name) if name.contains(&b'/') => None,
            Some(name) => Some(MqueuePath::Name(name)),
        }
    }

    /// Returns the path of the place in a namespace. The queue need not exist.
    ///
    /// ```
    /// use umsg::kernel_files::place::MqueuePath;
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let file = MqueuePath::Name(b"jobs").file(&namespace).unwrap();
    /// assert_eq!(file, dir.path().join("mq/jobs"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No queue can have the name.
    pub fn file(self, namespace: &Namespace) -> Result<PathBuf, i32> {
        let mut path = namespace.path().join(QUEUES);
        if let MqueuePath::Name(name) = self {
            check(name)?;
            path.push(OsStr::from_bytes(name));
            let within = path.join(TRANSIENT);
            if within.symlink_metadata().is_ok() {
                path = within;
            }
        }
        Ok(path)
    }

    /// Returns the path of the place in a namespace, and the mode of the queue if the place is a queue. The place has to exist.
    ///
    /// ```
    /// use umsg::kernel_files::place::MqueuePath;
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert_eq!(MqueuePath::Name(b"jobs").existing(&namespace).unwrap_err(), libc::ENOENT);
    /// let _queue = umsg::posix::OpenOptions::new().create(true).write(true).namespace(&namespace).open("/jobs")?;
    /// let (file, mode) = MqueuePath::Name(b"jobs").existing(&namespace).unwrap();
    /// assert_eq!((file, mode), (dir.path().join("mq/jobs"), Some(0o600)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errno of stat(2).
    pub fn existing(self, namespace: &Namespace) -> Result<(PathBuf, Option<u32>), i32> {
        let found = match self {
            MqueuePath::Directory => None,
            MqueuePath::Name(name) => Some(find(namespace, name)?),
        };
        let path = self.file(namespace)?;
        let mode = match found {
            Some(FoundQueue::Mode(mode)) => Some(mode),
            Some(FoundQueue::Hidden) => {
                let status = rustix::fs::stat(&path).map_err(|error| error.raw_os_error())?;
                Some(status.st_mode & 0o7777)
            }
            None => None,
        };
        Ok((path, mode))
    }
}

/// Checks the name of a queue, without its slash, as the kernel does.
///
/// ```
/// use umsg::kernel_files::place::check;
/// assert_eq!(check(b"jobs"), Ok(()));
/// assert_eq!(check(&[b'x'; 256]), Err(libc::ENAMETOOLONG));
/// ```
///
/// # Errors
/// ENOENT, EACCES, ENAMETOOLONG.
pub fn check(name: &[u8]) -> Result<(), i32> {
    match name {
        b"" => Err(libc::ENOENT),
        b"." | b".." => Err(libc::EACCES),
        _ if name.contains(&b'/') => Err(libc::EACCES),
        _ if name.len() > NAME_MAX => Err(libc::ENAMETOOLONG),
        _ => Ok(()),
    }
}

/// Searches for the queue `name`.
///
/// ```
/// use umsg::kernel_files::place::{FoundQueue, find};
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// assert_eq!(find(&namespace, b"jobs").err(), Some(libc::ENOENT));
/// let _queue = umsg::posix::OpenOptions::new().create(true).write(true).namespace(&namespace).open("/jobs")?;
/// assert!(find(&namespace, b"jobs").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errno of an opening.
pub fn find(namespace: &Namespace, name: &[u8]) -> Result<FoundQueue, i32> {
    match open_somehow(namespace, name) {
        Ok((queue, _)) => Ok(FoundQueue::Mode(queue.mode())),
        Err(libc::EACCES) => Ok(FoundQueue::Hidden),
        Err(errno) => Err(errno),
    }
}

/// Sets the mode of a queue.
///
/// ```
/// use umsg::kernel_files::place::{MqueuePath, set_mode};
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// let _queue = umsg::posix::OpenOptions::new().create(true).write(true).namespace(&namespace).open("/jobs")?;
/// set_mode(&namespace, b"jobs", 0o640).unwrap();
/// assert_eq!(MqueuePath::Name(b"jobs").existing(&namespace).unwrap().1, Some(0o640));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errno of chmod(2).
pub fn set_mode(namespace: &Namespace, name: &[u8], mode: u32) -> Result<(), i32> {
    let (queue, descriptor) = open_somehow(namespace, name)?;
    queue
        .set_mode(descriptor.as_fd(), mode)
        .map_err(|error| error.errno())
}

/// Opens a queue for reading, or for writing if the caller may not read it.
fn open_somehow(namespace: &Namespace, name: &[u8]) -> Result<(Queue, OwnedFd), i32> {
    check(name)?;
    let name = [b"/", name].concat();
    let open = |reads| {
        let mut options = OpenOptions::new();
        options.read(reads).write(!reads).namespace(namespace);
        options
            .open_with_descriptor(OsStr::from_bytes(&name), true)
            .map_err(|error: OpenError| error.errno())
    };
    match open(true) {
        Err(libc::EACCES) => open(false),
        other => other,
    }
}

/// A user that asks for a permission.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
    /// True if the user is a member of the file's group by a supplementary group.
    pub is_member: bool,
}

/// Returns whether a user has the permissions `wanted` of access(2). `mode` and `owner` are those of the file.
///
/// ```
/// use umsg::kernel_files::place::{Asker, permits};
/// let asker = Asker {
///     user: 1000,
///     group: 1000,
///     is_member: false,
/// };
/// assert!(permits(0o640, (1000, 0), false, asker, 4));
/// assert!(!permits(0o640, (0, 0), false, asker, 4));
/// ```
#[must_use]
pub fn permits(
    mode: u32,
    owner: (u32, u32),
    is_directory: bool,
    asker: Asker,
    wanted: u32,
) -> bool {
    let allowed = if asker.user == 0 {
        6 | u32::from(is_directory || mode & 0o111 != 0)
    } else if asker.user == owner.0 {
        mode >> 6
    } else if asker.group == owner.1 || asker.is_member {
        mode >> 3
    } else {
        mode
    };
    wanted & !allowed & 7 == 0
}

#[cfg(test)]
mod tests {
    use super::{Asker, MqueuePath, permits};

    #[test]
    fn a_path_that_leaves_the_directory_or_enters_a_queue_is_no_place() {
        assert_eq!(
            MqueuePath::absolute(b"/dev/mqueue"),
            Some(MqueuePath::Directory)
        );
        assert_eq!(
            MqueuePath::absolute(b"/dev/mqueue//"),
            Some(MqueuePath::Directory)
        );
        assert_eq!(
            MqueuePath::absolute(b"/dev/mqueue//.b"),
            Some(MqueuePath::Name(b".b"))
        );
        assert_eq!(MqueuePath::relative(b"a"), Some(MqueuePath::Name(b"a")));
        for path in [
            b"/dev/mqueue2".as_slice(),
            b"/dev/mqueue/..",
            b"/dev/mqueue/a/",
            b"/dev",
        ] {
            assert_eq!(MqueuePath::absolute(path), None, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn the_class_of_the_user_decides_and_root_has_all_but_execution() {
        let asker = |user, group, is_member| Asker {
            user,
            group,
            is_member,
        };
        let may = |asker, wanted| permits(0o640, (7, 8), false, asker, wanted);
        assert!(may(asker(7, 1, false), 6) && !may(asker(7, 1, false), 1));
        assert!(
            may(asker(1, 8, false), 4) && may(asker(1, 1, true), 4) && !may(asker(1, 8, false), 2)
        );
        assert!(!may(asker(1, 1, false), 4));
        assert!(may(asker(0, 0, false), 6) && !may(asker(0, 0, false), 1));
        assert!(permits(0o600, (7, 8), true, asker(0, 0, false), 1));
    }
}
