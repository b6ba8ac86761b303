//! Errors of opening and unlinking queues.

use super::{Fault, QueueError, SegmentError};
use crate::namespace::{FileError, NamespaceError};
use rustix::io::Errno;
use umsg_shm::fault::AttachError;
use umsg_shm::sys::required::Refused;

/// The reason why a queue was not opened, created or attached to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// EINVAL: the name is empty or does not begin with a slash.
    #[error("a queue's name must be a slash followed by 1 to 255 bytes, such as /orders")]
    InvalidName,
    /// EACCES: the name has a second slash, or is `/.` or `/..`.
    #[error("a queue's name must not be /. or /.., and must contain no slash except the first")]
    DeniedName,
    /// ENAMETOOLONG: the name has more than 255 bytes after its slash.
    #[error("a queue's name must have at most 255 bytes after its slash")]
    NameTooLong,
    /// EINVAL: neither reading nor writing was asked for.
    #[error("no access mode was given: choose reading, writing, or both")]
    NoAccessMode,
    /// ENOENT: no queue has this name.
    #[error("no queue has this name: correct the name, or create the queue")]
    NotFound,
    /// EEXIST: the queue exists, and the caller asked for a new one.
    #[error(
        "a queue of this name exists already: open it without exclusive creation, or choose another name"
    )]
    AlreadyExists,
    /// EINVAL: the queue exists, and differs from the options, see
    /// [`OpenOptions::existing`](crate::posix::OpenOptions::existing).
    #[error(
        "the queue exists, and its {what} is {found}, not {wanted}: leave {what} out, remove the queue first, or set the option `existing` to `Any`"
    )]
    Differs {
        /// The option of [`OpenOptions`](crate::posix::OpenOptions) from which the queue differs.
        what: &'static str,
        /// The value that the option asks for.
        wanted: String,
        /// The queue's own value.
        found: String,
    },
    /// EACCES: the queue's mode does not grant the requested access.
    #[error(
        "permission denied by the queue's mode or by its directory: ask the queue's owner, or run as that user or root"
    )]
    PermissionDenied,
    /// EACCES: the queue's file has a second name, in the queue's directory or in another directory.
    #[error(
        "the queue's file has a second hard link, so programs that use the other name would share the queue. Remove the link that the owner did not create (`find -samefile` shows both)."
    )]
    SecondName,
    /// EACCES: the mode grants some users only sending or only receiving, and the namespace refuses such modes, see
    /// [`Limits::enforced_modes`](crate::Limits::enforced_modes).
    #[error(
        "mode {mode:04o} grants send-only or receive-only access, which this namespace refuses: use a mode such as 0600, 0660 or 0666, or set the namespace's limit enforced_modes to false"
    )]
    ModeNotEnforced {
        /// The mode, less the umask.
        mode: u32,
    },
    /// EINVAL: an attribute is zero or exceeds the namespace's limits.
    #[error("{what} must be from 1 to {max}, not {value}{}", raise(.what, *.value, *.max))]
    InvalidAttributes {
        /// The name of the attribute.
        what: &'static str,
        /// The requested value.
        value: u64,
        /// The limit of the namespace, or of all queues.
        max: u64,
    },
    /// EINVAL: a limit of deliveries was given without a dead-letter queue.
    #[error(
        "a queue with a limit of deliveries needs a dead-letter queue: name one, or set no limit"
    )]
    NoDeadLetterQueue,
    /// EINVAL: the queue was named as its own dead-letter queue.
    #[error("a queue can't be its own dead-letter queue: name another queue")]
    OwnDeadLetterQueue,
    /// EINVAL: the dead-letter queue exists and has a smaller message size.
    #[error(
        "the dead-letter queue's message size is smaller than this queue's: name a queue with at least this queue's message size"
    )]
    DeadLetterQueueTooSmall,
    /// EPERM: the dead-letter queue exists and belongs to another user.
    #[error(
        "the dead-letter queue belongs to another user: name a dead-letter queue that you own, or one that does not exist yet"
    )]
    DeadLetterQueueOfAnother,
    /// ENOSPC: the namespace has as many queues as its limits allow.
    #[error("{}", too_many(*.0))]
    TooManyQueues(u32),
    /// EMFILE: the namespace honours RLIMIT_MSGQUEUE ([`Limits::rlimit_msgqueue`](crate::Limits::rlimit_msgqueue)), and the user's queues would
    /// need more bytes.
    #[error(
        "the user's queues would need {bytes} bytes, and RLIMIT_MSGQUEUE allows {limit}: remove queues, make the new queue smaller, or raise the limit (`ulimit -q`)"
    )]
    OverMsgqueueLimit {
        /// The bytes that the kernel would charge for the user's queues, including the new queue.
        bytes: u64,
        /// The soft limit RLIMIT_MSGQUEUE of the process, in bytes.
        limit: u64,
    },
    /// EAGAIN: a process has been [removing](crate::posix::OpenOptions::remove_on_last_close) the queue for a second. That
    /// process was stopped or did not get a processor.
    #[error(
        "a process has been removing the queue for a second, and is perhaps stopped. Continue or end that process (`fuser` on the queue's file shows it)."
    )]
    Leaving,
    /// The namespace can't be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The file of the queue can't be used, or a system call failed.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The errors that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// Returns the end of the error text for an attribute that is out of its range: whether the maximum can be raised.
fn raise(what: &str, value: u64, max: u64) -> &'static str {
    let most = match what {
        "message_size" => umsg_shm::posix_engine::segment::LARGEST_MESSAGE,
        "fair_priorities" => umsg_shm::posix_engine::segment::MOST_PASSED,
        _ => umsg_shm::posix_engine::segment::MOST_MESSAGES,
    };
    match (value, max < most.into()) {
        (0, _) => "",
        (_, true) => "; the namespace sets this maximum, and the namespace's owner can raise it",
        (_, false) => "; no queue can have more",
    }
}

/// Returns the error text for a namespace that has reached its limit of queues.
fn too_many(limit: u32) -> String {
    match limit {
        0 => {
            "the namespace allows no queues: ask its owner to raise the limit max_queues".to_owned()
        }
        _ => format!(
            "the namespace has reached its limit of {limit} queues: remove some, or ask its owner to raise the limit max_queues"
        ),
    }
}

impl OpenError {
    /// Returns whether [`repair`](crate::posix::repair) may repair the refused queue. A corrupted queue beyond repair has lost its
    /// basic attributes and can only be removed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let error = OpenOptions::new().read(true).namespace(&namespace).open("/none").unwrap_err();
    /// assert!(!error.is_repairable(), "there is no such queue");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        matches!(self, OpenError::Segment(error) if error.is_repairable())
    }

    /// Returns the error number of mq_open(3), or the nearest number if mq_open(3) has no such error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let error = OpenOptions::new().read(true).namespace(&namespace).open("/none").unwrap_err();
    /// assert_eq!(error.errno(), libc::ENOENT);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            OpenError::InvalidName
            | OpenError::NoAccessMode
            | OpenError::Differs { .. }
            | OpenError::NoDeadLetterQueue
            | OpenError::OwnDeadLetterQueue
            | OpenError::DeadLetterQueueTooSmall
            | OpenError::InvalidAttributes { .. } => libc::EINVAL,
            OpenError::DeniedName
            | OpenError::PermissionDenied
            | OpenError::SecondName
            | OpenError::ModeNotEnforced { .. } => libc::EACCES,
            OpenError::DeadLetterQueueOfAnother => libc::EPERM,
            OpenError::NameTooLong => libc::ENAMETOOLONG,
            OpenError::NotFound => libc::ENOENT,
            OpenError::AlreadyExists => libc::EEXIST,
            OpenError::TooManyQueues(_) => libc::ENOSPC,
            OpenError::OverMsgqueueLimit { .. } => libc::EMFILE,
            OpenError::Leaving => libc::EAGAIN,
            OpenError::Namespace(error) => error.errno(),
            OpenError::Segment(error) => error.errno(),
            OpenError::Queue(error) => error.errno(),
        }
    }

    /// Converts an errno of a system call to a variant of this error.
    pub(crate) fn from_errno(call: &'static str, errno: Errno) -> OpenError {
        match errno {
            Errno::NOENT => OpenError::NotFound,
            Errno::EXIST => OpenError::AlreadyExists,
            Errno::ACCESS | Errno::PERM | Errno::ROFS if takes_a_path(call) => {
                OpenError::PermissionDenied
            }
            Errno::NOSPC | Errno::DQUOT => QueueError::NoSpace.into(),
            Errno::NOMEM => QueueError::NoMemory.into(),
            Errno::MFILE | Errno::NFILE => SegmentError::TooManyFiles(errno.raw_os_error()).into(),
            Errno::NAMETOOLONG => OpenError::NameTooLong,
            other => SegmentError::system(call, other.raw_os_error()).into(),
        }
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        let error = match error {
            FileError::NotFound => return OpenError::NotFound,
            FileError::AlreadyExists => return OpenError::AlreadyExists,
            FileError::Denied => return OpenError::PermissionDenied,
            FileError::SecondName => return OpenError::SecondName,
            FileError::NoSpace => return QueueError::NoSpace.into(),
            FileError::NoMemory => return QueueError::NoMemory.into(),
            FileError::Namespace(error) => return error.into(),
            FileError::Directory => SegmentError::NotAQueue("a directory"),
            FileError::Symlink => SegmentError::NotAQueue("a symbolic link"),
            FileError::Special => SegmentError::NotAQueue("a FIFO, a socket or a device"),
            FileError::TooManyFiles { errno } => SegmentError::TooManyFiles(errno),
            FileError::System { call, errno } => SegmentError::system(call, errno),
        };
        error.into()
    }
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        let damaged = OpenError::from(SegmentError::Damaged("a value in its memory is invalid"));
        match fault {
            Fault::Damaged | Fault::OwnedByCaller => damaged,
            fault => QueueError::of(fault, damaged),
        }
    }
}

impl From<AttachError> for OpenError {
    fn from(error: AttachError) -> OpenError {
        let error = match error {
            AttachError::NotAQueue(why) => SegmentError::NotAQueue(why),
            AttachError::OtherVersion { found, expected } => {
                SegmentError::OtherVersion { found, expected }
            }
            AttachError::Damaged(why) => SegmentError::Damaged(why),
            AttachError::FileTooLarge { len } => SegmentError::FileTooLarge { len },
            AttachError::Unregistered { call, errno } => SegmentError::Unregistered {
                call,
                error: errno.into(),
            },
            AttachError::CallRefused { call, errno } => SegmentError::CallRefused {
                call,
                error: errno.into(),
            },
            AttachError::Mapping {
                errno: Errno::NOMEM,
                len,
            } => SegmentError::NoAddressSpace { len: len as u64 },
            AttachError::Mapping { errno, .. } => return OpenError::from_errno("mmap", errno),
            AttachError::System { call, errno } => return OpenError::from_errno(call, errno),
            AttachError::Removed => return OpenError::NotFound,
            AttachError::Fault(fault) => return fault.into(),
        };
        error.into()
    }
}

impl From<Refused> for OpenError {
    fn from(refused: Refused) -> OpenError {
        SegmentError::from(refused).into()
    }
}

/// Returns whether a file's mode can deny the call, which is so if the call takes a path. Only a sandbox can refuse a call on an open descriptor, and
/// then the error must not name the queue's mode as the cause.
fn takes_a_path(call: &str) -> bool {
    call == "open"
}

/// The reason why a queue was not unlinked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnlinkError {
    /// EINVAL, EACCES, ENAMETOOLONG, ENOENT: no queue can have the name. The error is the same as for opening a queue.
    #[error(transparent)]
    Name(OpenError),
    /// ENOENT: no queue has this name.
    #[error("no queue has this name")]
    NotFound,
    /// EACCES: only a queue's owner, or root, may unlink the queue.
    #[error("only the queue's owner or root can unlink the queue: run as one of them")]
    PermissionDenied,
    /// The namespace can't be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Another error of the system.
    #[error("unlink of the queue's file failed: {0}")]
    System(std::io::Error),
}

impl UnlinkError {
    /// Returns the error number of mq_unlink(3), or the nearest number if mq_unlink(3) has no such error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let error = umsg::posix::unlink_in(&namespace, "/none").unwrap_err();
    /// assert_eq!(error.errno(), libc::ENOENT);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            UnlinkError::Name(error) => error.errno(),
            UnlinkError::NotFound => libc::ENOENT,
            UnlinkError::PermissionDenied => libc::EACCES,
            UnlinkError::Namespace(error) => error.errno(),
            UnlinkError::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_that_can_be_raised_is_said_to_be_raisable() {
        let text = |what, value, max| OpenError::InvalidAttributes { what, value, max }.to_string();
        assert!(text("max_messages", 21, 20).ends_with("owner can raise it"));
        assert!(text("message_size", 2 << 20, 1 << 20).ends_with("owner can raise it"));
        assert!(text("max_messages", 1 << 21, 1 << 20).ends_with("; no queue can have more"));
        assert!(text("message_size", 17 << 20, 16 << 20).ends_with("; no queue can have more"));
        assert!(text("message_size", 0, 16 << 20).ends_with("not 0"));
    }
}
