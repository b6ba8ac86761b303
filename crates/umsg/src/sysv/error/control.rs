//! Looking at queues as a whole, changing and removing them.

use super::OpenError;
use crate::error::{Fault, QueueError};
use crate::namespace::{FileError, NamespaceError};

/// Why a queue was not looked at, changed or removed (msgctl).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// EIDRM, or EINVAL for a process that asks by identifier: the queue was removed.
    #[error("the queue was removed")]
    Removed,
    /// EACCES: the queue's mode does not let the caller read.
    #[error("permission denied by the queue's mode")]
    PermissionDenied,
    /// EPERM: only the queue's owner, its creator or a privileged process may change or remove it.
    #[error("only the queue's owner, its creator or root may do this")]
    NotOwner,
    /// EPERM: more bytes than the namespace lets an unprivileged owner allow the queue (`max_qbytes`).
    #[error(
        "qbytes is limited to {max} bytes in this namespace: its owner can raise the limit max_qbytes"
    )]
    TooManyBytes {
        /// The namespace's limit, in bytes.
        max: u32,
    },
    /// EPERM: a mode that lets some only send or only receive, in a namespace that refuses those, see
    /// [`Limits::enforced_modes`](crate::Limits::enforced_modes).
    #[error(
        "mode {mode:04o} is refused, because the kernel can't enforce send-only or receive-only access: give owner, group and others both read and write, or neither, or change the limit enforced_modes"
    )]
    ModeNotEnforced {
        /// The mode.
        mode: u32,
    },
    /// EPERM: the queue's new owner or group can't be given its file: the file system has no access control lists, or the
    /// caller is the queue's creator but does not own its file any more.
    #[error(
        "this user can't change the access rights of the queue's file: run this as the file's owner or as root, or use a file system with access control lists"
    )]
    RightsNotPossible,
    /// EINVAL: a user or group id that is none (-1).
    #[error("a user or group id must not be -1")]
    InvalidOwner,
    /// EAGAIN: the queue's lock is not let go: a process was stopped in the middle of a call, or a process has overwritten it.
    #[error("the queue's lock is held by a stopped process, or was overwritten")]
    Busy,
    /// The queue of an identifier was not found or not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// As for all kinds of queues.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl ControlError {
    /// The error number that msgctl(2) gives, or would give, for it.
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
