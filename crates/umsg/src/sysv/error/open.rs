//! Errors of opening and creating queues.

use crate::error::{QueueError, SegmentError};
use crate::namespace::{FileError, NamespaceError};
use umsg_shm::fault::AttachError;

/// The reason why a queue was not opened or created (msgget).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// ENOENT: no queue has this key.
    #[error("no queue has this key: correct the key, or create the queue")]
    NotFound,
    /// EEXIST: an exclusive creation found that the queue exists.
    #[error(
        "a queue of this key exists already: open it without exclusive creation, or choose another key"
    )]
    AlreadyExists,
    /// EINVAL: the queue exists, and differs from the options.
    #[error(
        "the queue exists, and its {what} is {found}, not {wanted}: leave {what} out, or remove the queue first"
    )]
    Differs {
        /// The option of [`OpenOptions`](crate::sysv::OpenOptions) from which the queue differs.
        what: &'static str,
        /// The value that the option asks for.
        wanted: String,
        /// The queue's own value.
        found: String,
    },
    /// EINVAL: no queue has this identifier, or its queue was removed.
    #[error("no queue has this identifier: the queue was removed, or never existed")]
    NoSuchId,
    /// EACCES: the queue's mode does not grant the requested permission, or the user has no access to the queue's file.
    #[error(
        "permission denied by the queue's mode: ask the queue's owner, or run as that user or root"
    )]
    PermissionDenied,
    /// EACCES: the caller can't create a queue of the key. The key symlink leads to no queue and belongs to another user, or another file has the
    /// name of the key symlink.
    #[error(
        "the key can't be used: the file `msg/{link}` of the namespace has the key's name and leads to no queue. Ask the file's owner, or root, to remove it."
    )]
    KeyTaken {
        /// The name of the key symlink.
        link: String,
    },
    /// EACCES: the mode has a send-only or receive-only class, and the namespace refuses such modes, see
    /// [`Limits::enforced_modes`](crate::Limits::enforced_modes).
    #[error(
        "mode {mode:04o} grants send-only or receive-only access, which this namespace refuses: use a mode such as 0600, 0660 or 0666, or set the namespace's limit enforced_modes to false"
    )]
    ModeNotEnforced {
        /// The refused mode.
        mode: u32,
    },
    /// ENOSPC: the namespace has as many queues as its limits allow.
    #[error("{}", too_many(*.0))]
    TooManyQueues(u32),
    /// The namespace can't be used; EBUSY if a process was stopped while it created or removed a queue.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The file of the queue can't be used, or a system call failed.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// An error that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// Returns the error text for a namespace that has reached its limit of System V queues.
fn too_many(limit: u32) -> String {
    match limit {
        0 => "the namespace allows no System V queues: ask its owner to raise the limit msgmni"
            .to_owned(),
        _ => format!(
            "the namespace has reached its limit of {limit} System V queues: remove some, or ask its owner to raise the limit msgmni"
        ),
    }
}

impl OpenError {
    /// Returns whether [`repair`](crate::sysv::repair) may repair the refused queue. A corrupted queue beyond repair has lost its
    /// basic attributes and can only be removed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let error = umsg::sysv::OpenOptions::new().namespace(&namespace).open(7).unwrap_err();
    /// assert!(!error.is_repairable(), "there is no such queue");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_repairable(&self) -> bool {
        matches!(self, OpenError::Segment(error) if error.is_repairable())
    }

    /// Returns the error number that msgget(2) gives, or would give, for this error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let error = umsg::sysv::OpenOptions::new().namespace(&namespace).open(7).unwrap_err();
    /// assert_eq!(error.errno(), libc::ENOENT);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            OpenError::NotFound => libc::ENOENT,
            OpenError::AlreadyExists => libc::EEXIST,
            OpenError::NoSuchId | OpenError::Differs { .. } => libc::EINVAL,
            OpenError::PermissionDenied
            | OpenError::KeyTaken { .. }
            | OpenError::ModeNotEnforced { .. } => libc::EACCES,
            OpenError::TooManyQueues(_) => libc::ENOSPC,
            OpenError::Namespace(error) => error.errno(),
            OpenError::Segment(error) => error.errno(),
            OpenError::Queue(error) => error.errno(),
        }
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        crate::error::OpenError::from(error).into()
    }
}

impl From<AttachError> for OpenError {
    fn from(error: AttachError) -> Self {
        crate::error::OpenError::from(error).into()
    }
}

/// Converts an error of a POSIX queue: segments of both kinds are refused for the same reasons.
impl From<crate::error::OpenError> for OpenError {
    fn from(error: crate::error::OpenError) -> Self {
        use crate::error::OpenError as Posix;
        match error {
            Posix::NotFound => OpenError::NotFound,
            Posix::AlreadyExists => OpenError::AlreadyExists,
            Posix::PermissionDenied | Posix::SecondName => OpenError::PermissionDenied,
            Posix::Queue(error) => error.into(),
            Posix::Segment(error) => error.into(),
            Posix::Namespace(error) => error.into(),
            // Errors of names, attributes and dead-letter queues, which a segment can't cause.
            other => SegmentError::system("open", other.errno()).into(),
        }
    }
}
