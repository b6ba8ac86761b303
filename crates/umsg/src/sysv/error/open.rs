//! Finding and making queues.

use crate::namespace::{FileError, NamespaceError};
use umsg_shm::memory::OUT_OF_RANGE;

/// Why a queue was not found or made (msgget).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// ENOENT: no queue has this key.
    #[error("no queue of this key; create it, or see `umsg ls` for those that exist")]
    NotFound,
    /// EEXIST: the queue exists and was to be created.
    #[error("a queue of this key exists already")]
    AlreadyExists,
    /// EINVAL: no queue has this identifier, or none has it any more.
    #[error("no queue has this identifier; `umsg ls` shows those that exist")]
    NoSuchId,
    /// EACCES: the queue's mode does not grant what was asked for, or the file system does not let this user map it.
    #[error("permission denied by the queue's mode")]
    PermissionDenied,
    /// EACCES: the caller can make no queue of the key. The key's label leads to no queue and belongs to another user, or another file has its name.
    #[error(
        "the key is taken: `msg/{label}` in the namespace leads to no queue; ask its owner or root to remove it"
    )]
    KeyTaken {
        /// The name of the label.
        label: String,
    },
    /// EACCES: a mode that lets some only send or only receive, in a namespace that refuses those, see
    /// [`Limits::enforced_modes`](crate::Limits::enforced_modes).
    #[error(
        "mode {mode:04o} lets some only send or only receive, which the system can't enforce, and this namespace refuses such modes: give each of \
         owner, group and others both read and write, or neither, or change that with `umsg limits --enforced-modes`"
    )]
    ModeNotEnforced {
        /// The mode.
        mode: u32,
    },
    /// ENOSPC: the namespace has as many queues as its limits allow.
    #[error("{}", too_many(*.0))]
    TooManyQueues(u32),
    /// ENOSPC: the file system is full.
    #[error(
        "the file system of the namespace is full: `umsg rm` and other files that go make room, `df` shows how much there is"
    )]
    NoSpace,
    /// ENOSPC: the namespace's limit of bytes is reached, see [`Limits::max_bytes`](crate::Limits::max_bytes).
    #[error(
        "the namespace's limit of bytes is reached: remove queues (`umsg rm`), or raise it (`umsg limits --max-bytes`)"
    )]
    OverLimit,
    /// ENOMEM: no memory.
    #[error("no memory left: end programs, or raise the limit of the memory cgroup")]
    NoMemory,
    /// ENOMEM: no address space to map the file, which follows from `max_qbytes` and `msgmax` of the namespace's limits.
    #[error(
        "no {len} bytes of address space to map the file: raise the process's limit (ulimit -v), or make the queue with smaller \
         limits (`umsg limits --max-qbytes`)"
    )]
    NoAddressSpace {
        /// Length of the file, in bytes.
        len: u64,
    },
    /// EFBIG: the process may make no file of the queue's length, which follows from `max_qbytes` and `msgmax` of the namespace's
    /// limits.
    #[error(
        "the file would have {len} bytes, more than the process may make: raise its limit (ulimit -f), though most of them take \
         no memory, or lower `umsg limits --max-qbytes`"
    )]
    FileTooLarge {
        /// Length of the file, in bytes.
        len: u64,
    },
    /// EINVAL: the file is not a segment of a System V queue.
    #[error("{0}: not a System V queue of umsg")]
    NotAQueue(&'static str),
    /// EINVAL: a segment of another version or layout.
    #[error("{}", crate::error::other_version(*.found, *.expected))]
    OtherVersion {
        /// Version of the format in the file.
        found: u32,
        /// Version of this library's format; the same if the layouts differ, whose number stands behind that of the format.
        expected: u32,
    },
    /// EBADMSG: the header contradicts itself or the file's length.
    #[error("the queue's file is damaged: {0}")]
    Damaged(&'static str),
    /// EMFILE or ENFILE: no descriptor left. None is kept, but some are needed for a moment.
    #[error("no file descriptor is left: close some, or raise the limit (ulimit -n)")]
    TooManyFiles(i32),
    /// The errno of the call: the kernel or a sandbox refuses a system call that no queue works without.
    #[error("{}", crate::error::call_refused(call, error))]
    CallRefused {
        /// The system call.
        call: &'static str,
        /// Its error.
        error: std::io::Error,
    },
    /// The errno of the cause: processes of several PID or time namespaces use the queue, and this process can't register its life, a file in the
    /// namespace's directory that the process keeps locked. Others would not learn of its death.
    #[error("{}", crate::error::unregistered(call, error))]
    Unregistered {
        /// The system call that failed.
        call: &'static str,
        /// Its error.
        error: std::io::Error,
    },
    /// The namespace can't be used; EBUSY if a process was stopped while it made or removed a queue.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Another error of the system.
    #[error("{call}: {error}")]
    System {
        /// The system call.
        call: &'static str,
        /// Its error.
        error: std::io::Error,
    },
}

/// What a limit of so many queues says to a process that wants another.
fn too_many(limit: u32) -> String {
    match limit {
        0 => "the namespace lets no System V queues be made; `umsg limits --msgmni` changes that"
            .to_owned(),
        _ => format!(
            "the namespace holds {limit} System V queues, its limit msgmni; `umsg limits` raises it, `umsg rm` makes room"
        ),
    }
}

impl OpenError {
    /// Whether [`repair`](crate::sysv::repair) may mend the queue that was refused. A damaged one that it can't mend has lost what all else follows
    /// from, and can only be removed.
    pub fn is_repairable(&self) -> bool {
        matches!(self, OpenError::Damaged(what) if *what != OUT_OF_RANGE)
    }

    /// The error number that msgget(2) gives, or would give, for it.
    pub fn errno(&self) -> i32 {
        match self {
            OpenError::NotFound => libc::ENOENT,
            OpenError::AlreadyExists => libc::EEXIST,
            OpenError::NoSuchId | OpenError::NotAQueue(_) | OpenError::OtherVersion { .. } => {
                libc::EINVAL
            }
            OpenError::PermissionDenied
            | OpenError::KeyTaken { .. }
            | OpenError::ModeNotEnforced { .. } => libc::EACCES,
            OpenError::TooManyQueues(_) | OpenError::NoSpace | OpenError::OverLimit => libc::ENOSPC,
            OpenError::NoMemory | OpenError::NoAddressSpace { .. } => libc::ENOMEM,
            OpenError::FileTooLarge { .. } => libc::EFBIG,
            OpenError::Damaged(_) => libc::EBADMSG,
            OpenError::TooManyFiles(errno) => *errno,
            OpenError::Namespace(error) => error.errno(),
            OpenError::System { error, .. }
            | OpenError::CallRefused { error, .. }
            | OpenError::Unregistered { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotFound => OpenError::NotFound,
            FileError::AlreadyExists => OpenError::AlreadyExists,
            FileError::Denied | FileError::SecondName => OpenError::PermissionDenied,
            FileError::Directory => OpenError::NotAQueue("a directory"),
            FileError::Symlink => OpenError::NotAQueue("a symbolic link"),
            FileError::Special => OpenError::NotAQueue("a FIFO, a socket or a device"),
            FileError::TooManyFiles { errno } => OpenError::TooManyFiles(errno),
            FileError::NoSpace => OpenError::NoSpace,
            FileError::NoMemory => OpenError::NoMemory,
            FileError::System { call, errno } => OpenError::System {
                call,
                error: std::io::Error::from_raw_os_error(errno),
            },
            FileError::Namespace(error) => OpenError::Namespace(error),
        }
    }
}

impl From<umsg_shm::fault::AttachError> for OpenError {
    fn from(error: umsg_shm::fault::AttachError) -> Self {
        crate::error::OpenError::from(error).into()
    }
}

/// What a segment of either kind can be refused for.
impl From<crate::error::OpenError> for OpenError {
    fn from(error: crate::error::OpenError) -> Self {
        use crate::error::OpenError as Other;
        let errno = error.errno();
        match error {
            Other::NotFound => OpenError::NotFound,
            Other::PermissionDenied => OpenError::PermissionDenied,
            Other::NoSpace => OpenError::NoSpace,
            Other::OverLimit => OpenError::OverLimit,
            Other::NoMemory => OpenError::NoMemory,
            Other::NoAddressSpace { len } => OpenError::NoAddressSpace { len },
            Other::FileTooLarge { len } => OpenError::FileTooLarge { len },
            Other::NotAQueue(what) => OpenError::NotAQueue(what),
            Other::OtherVersion { found, expected } => OpenError::OtherVersion { found, expected },
            Other::Damaged(what) => OpenError::Damaged(what),
            Other::TooManyFiles(errno) => OpenError::TooManyFiles(errno),
            Other::Namespace(error) => OpenError::Namespace(error),
            Other::System { call, error } => OpenError::System { call, error },
            Other::CallRefused { call, error } => OpenError::CallRefused { call, error },
            Other::Unregistered { call, error } => OpenError::Unregistered { call, error },
            // Of names, attributes and dead-letter queues, which segments have nothing to do with.
            _ => OpenError::System {
                call: "open",
                error: std::io::Error::from_raw_os_error(errno),
            },
        }
    }
}
