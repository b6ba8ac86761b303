//! Errors of a queue's file.

use rustix::io::Errno;

use super::error::NamespaceError;

/// The reason why a queue's file was not opened, published or unlinked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileError {
    /// `ENOENT`
    #[error("there is no such queue")]
    NotFound,
    /// `EEXIST`
    #[error("the queue exists already")]
    AlreadyExists,
    /// `EACCES`. For unlink, also if the file system answers `EPERM`, as in mq_unlink.
    #[error("the queue's permissions deny the access")]
    Denied,
    /// `EISDIR`: a directory has the queue's name.
    #[error("a directory has the queue's name")]
    Directory,
    /// `ELOOP`: a symbolic link has the queue's name; it is never followed.
    #[error("a symbolic link has the queue's name")]
    Symlink,
    /// `EBADMSG`: a FIFO, a socket or a device has the queue's name. The call does not wait for the other end of a FIFO.
    #[error("a FIFO, a socket or a device has the queue's name")]
    Special,
    /// `EACCES`: the file has a second name (a hard link).
    #[error("the queue's file has a second hard link")]
    SecondName,
    /// `EMFILE` or `ENFILE`
    #[error("no file descriptor is left")]
    TooManyFiles {
        /// `EMFILE` or `ENFILE`.
        errno: i32,
    },
    /// `ENOSPC` (a full file system, or one without a free inode) or `EDQUOT`
    #[error("the file system of the namespace is full")]
    NoSpace,
    /// `ENOMEM`
    #[error("the system has no memory left")]
    NoMemory,
    /// Another error of a system call.
    #[error("{call}: {error}", error = Errno::from_raw_os_error(*.errno))]
    System {
        /// The system call.
        call: &'static str,
        /// The errno of the system call.
        errno: i32,
    },
    /// An error of the namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl FileError {
    /// Returns the errno of the variant.
    pub(crate) fn errno(&self) -> i32 {
        let errno = match self {
            FileError::NotFound => Errno::NOENT,
            FileError::AlreadyExists => Errno::EXIST,
            FileError::Denied | FileError::SecondName => Errno::ACCESS,
            FileError::Directory => Errno::ISDIR,
            FileError::Symlink => Errno::LOOP,
            FileError::Special => Errno::BADMSG,
            FileError::NoSpace => Errno::NOSPC,
            FileError::NoMemory => Errno::NOMEM,
            FileError::TooManyFiles { errno } | FileError::System { errno, .. } => return *errno,
            FileError::Namespace(error) => return error.errno(),
        };
        errno.raw_os_error()
    }

    /// Converts an errno of `call`.
    pub(super) fn of(call: &'static str, error: Errno) -> FileError {
        let errno = error.raw_os_error();
        match error {
            Errno::NOENT => FileError::NotFound,
            Errno::EXIST => FileError::AlreadyExists,
            Errno::ACCESS | Errno::PERM if takes_a_path(call) => FileError::Denied,
            Errno::ISDIR => FileError::Directory,
            Errno::LOOP => FileError::Symlink,
            Errno::NXIO | Errno::NODEV => FileError::Special,
            Errno::MFILE | Errno::NFILE => FileError::TooManyFiles { errno },
            Errno::NOSPC | Errno::DQUOT => FileError::NoSpace,
            Errno::NOMEM => FileError::NoMemory,
            _ => FileError::System { call, errno },
        }
    }
}

/// Returns whether permissions of a file or a directory can deny a call. If the descriptor is already open, only a sandbox can
/// refuse the call.
fn takes_a_path(call: &str) -> bool {
    !matches!(
        call,
        "fchmod" | "fcntl" | "flock" | "fstat" | "ftruncate" | "pread" | "pwrite"
    )
}
