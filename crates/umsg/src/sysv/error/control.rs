//! Errors of inspecting, changing and removing queues.

use super::OpenError;
use crate::error::{Fault, QueueError};
use crate::namespace::{FileError, NamespaceError};

/// The reason why a queue was not inspected, changed or removed (msgctl).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// EIDRM, or EINVAL for a call by identifier: the queue was removed.
    #[error("the queue was removed")]
    Removed,
    /// EACCES: the queue's mode does not let the caller read.
    #[error("permission denied: the queue's mode does not let you read its state")]
    PermissionDenied,
    /// EPERM: only the queue's owner, its creator or a privileged process may change or remove the queue.
    #[error(
        "permission denied: only the queue's owner, its creator or root can change or remove the queue"
    )]
    NotOwner,
    /// EPERM: more bytes than an unprivileged owner may allow in this namespace (`max_qbytes`).
    #[error(
        "qbytes is limited to {max} bytes in this namespace: the namespace's owner can raise the limit max_qbytes"
    )]
    TooManyBytes {
        /// The namespace's limit, in bytes.
        max: u32,
    },
    /// EPERM: the mode has a send-only or receive-only class, and the namespace refuses such modes, see
    /// [`Limits::enforced_modes`](crate::Limits::enforced_modes).
    #[error(
        "mode {mode:04o} grants send-only or receive-only access, which this namespace refuses: use a mode such as 0600, 0660 or 0666, or set the namespace's limit enforced_modes to false"
    )]
    ModeNotEnforced {
        /// The refused mode.
        mode: u32,
    },
    /// EPERM: the new owner or group can't get access to the queue's file. Either the file system has no access control lists, or the caller no
    /// longer owns the file.
    #[error(
        "this user can't change the access rights of the queue's file. Run the program as the file's owner or root, or use a file system with access control lists."
    )]
    RightsNotPossible,
    /// EINVAL: an invalid user or group id (-1).
    #[error("a user or group id must not be -1")]
    InvalidOwner,
    /// EAGAIN: the queue's lock is not released. A process was stopped in the middle of a call, or has overwritten the lock.
    /// [`sysv::repair`](crate::sysv::repair) releases the lock if the recorded owner can't really hold the lock.
    #[error(
        "a stopped process holds the queue's lock, or a process has overwritten the lock: continue or end the stopped process, or repair the queue"
    )]
    Busy,
    /// The queue with an identifier was not found or not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An error that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl ControlError {
    /// Returns the error number that msgctl(2) gives, or would give, for this error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let error = umsg::sysv::remove(&namespace, 7).unwrap_err();
    /// assert_eq!(error.errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            ControlError::Removed => libc::EIDRM,
            ControlError::PermissionDenied => libc::EACCES,
            ControlError::NotOwner
            | ControlError::TooManyBytes { .. }
            | ControlError::ModeNotEnforced { .. }
            | ControlError::RightsNotPossible => libc::EPERM,
            ControlError::InvalidOwner => libc::EINVAL,
            ControlError::Busy => libc::EAGAIN,
            ControlError::Queue(error) => error.errno(),
            ControlError::Open(error) => error.errno(),
        }
    }
}

impl From<FileError> for ControlError {
    fn from(error: FileError) -> Self {
        ControlError::Open(error.into())
    }
}

impl From<NamespaceError> for ControlError {
    fn from(error: NamespaceError) -> Self {
        ControlError::Open(error.into())
    }
}

impl From<Fault> for ControlError {
    fn from(fault: Fault) -> Self {
        QueueError::of(fault, ControlError::Busy)
    }
}
