//! Why there is no handle of a queue, or no end of its name.

use crate::namespace::NamespaceError;
use umsg_shm::fault::AttachError;
use umsg_shm::memory::OUT_OF_RANGE;

/// Why a queue was not opened, created or attached to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// EINVAL: the name is empty or does not begin with a slash.
    #[error("a queue's name is a slash and up to 255 bytes, such as /orders")]
    InvalidName,
    /// EACCES: the name has a second slash, or is `/.` or `/..`.
    #[error("a queue's name has one slash, at its beginning")]
    DeniedName,
    /// ENAMETOOLONG: the name has more than 255 bytes after its slash.
    #[error("a queue's name has at most 255 bytes after its slash")]
    NameTooLong,
    /// EINVAL: neither reading nor writing was asked for.
    #[error("a queue is opened for reading, for writing, or for both")]
    NoAccessMode,
    /// ENOENT: no such queue.
    #[error("no queue of this name; create it, or see `umsg ls` for those that exist")]
    NotFound,
    /// EEXIST: the queue exists and was to be created.
    #[error("a queue of this name exists already")]
    AlreadyExists,
    /// EACCES: the queue's mode does not grant what was asked for.
    #[error("permission denied by the queue's mode or by its directory")]
    PermissionDenied,
    /// EACCES: the queue's file has a second name, in this directory or in another one.
    #[error(
        "the queue's file has a second name (a hard link), under which others may use it: remove the name that its owner did not give it (rm; \
         `find -samefile` shows both), or the queue (`umsg rm`)"
    )]
    SecondName,
    /// EACCES: a mode that lets some only send or only receive, in a namespace that refuses those, see
    /// [`Limits::enforced_modes`](crate::Limits::enforced_modes).
    #[error(
        "mode {mode:04o} lets some only send or only receive, which the system can't enforce, and this namespace refuses such modes: give each of \
         owner, group and others both read and write, or neither (the umask counts), or change that with `umsg limits --enforced-modes`"
    )]
    ModeNotEnforced {
        /// The mode, less the umask.
        mode: u32,
    },
    /// EINVAL: zero, or beyond the namespace's limits.
    #[error("{what} must be from 1 to {max}, not {value}{}", raise(.what, *.value, *.max))]
    InvalidAttributes {
        /// Which attribute.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// The namespace's limit, or that of all queues.
        max: u64,
    },
    /// EINVAL: a limit of deliveries and no queue for what exceeds it.
    #[error("a queue with a limit of deliveries needs a dead-letter queue for what exceeds it")]
    NoDeadLetterQueue,
    /// EINVAL: a queue that is its own dead-letter queue.
    #[error("a queue can't be its own dead-letter queue")]
    OwnDeadLetterQueue,
    /// EINVAL: the dead-letter queue exists and has a smaller message size.
    #[error("the dead-letter queue's message size is smaller than this queue's")]
    DeadLetterQueueTooSmall,
    /// EPERM: the dead-letter queue exists and belongs to another user.
    #[error(
        "the dead-letter queue belongs to another user: name one of your own, or a new one; receivers of this queue would write to it with their rights"
    )]
    DeadLetterQueueOfAnother,
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
    /// ENOMEM: no address space to map the file.
    #[error(
        "no {len} bytes of address space to map the file: raise the process's limit (ulimit -v), or have it open fewer queues"
    )]
    NoAddressSpace {
        /// Length of the file, in bytes.
        len: u64,
    },
    /// EFBIG: the process may make no file of the queue's length.
    #[error(
        "the file would have {len} bytes, more than the process may make: raise its limit (ulimit -f), though most of them take no memory"
    )]
    FileTooLarge {
        /// Length of the file, in bytes.
        len: u64,
    },
    /// EINVAL: the file is not a segment.
    #[error("{0}: not a message queue of umsg")]
    NotAQueue(&'static str),
    /// EINVAL: a segment of another version or layout.
    #[error("{}", other_version(*.found, *.expected))]
    OtherVersion {
        /// Version of the format in the file.
        found: u32,
        /// Version of this library's format; the same if the layouts differ, whose number stands behind that of the format.
        expected: u32,
    },
    /// EBADMSG: the header contradicts itself or the file's length.
    #[error("the queue's file is damaged: {0}")]
    Damaged(&'static str),
    /// EMFILE or ENFILE: no descriptor left.
    #[error("no file descriptor is left: close some, or raise the limit (ulimit -n)")]
    TooManyFiles(i32),
    /// EAGAIN: the queue is one that is [removed](crate::posix::OpenOptions::remove_on_last_close) when no process has it open any more; a process
    /// has been doing so for a second, as it was stopped or did not get a processor.
    #[error(
        "a process has been removing the queue for a second, and may be stopped: let it go on, or end it (`fuser` on the queue's file names it)"
    )]
    Leaving,
    /// The errno of the call: the kernel or a sandbox refuses a system call that no queue works without.
    #[error("{}", super::call_refused(call, error))]
    CallRefused {
        /// The system call.
        call: &'static str,
        /// Its error.
        error: std::io::Error,
    },
    /// The errno of the cause: processes of several PID or time namespaces use the queue, and this process can't register its life, a file in the
    /// namespace's directory that the process keeps locked. Others would not learn of its death.
    #[error("{}", super::unregistered(call, error))]
    Unregistered {
        /// The system call that failed.
        call: &'static str,
        /// Its error.
        error: std::io::Error,
    },
    /// The namespace can't be used.
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

/// Whether a limit can be raised.
fn raise(what: &str, value: u64, max: u64) -> &'static str {
    let most = match what {
        "message_size" => umsg_shm::posix_engine::segment::LARGEST_MESSAGE,
        _ => umsg_shm::posix_engine::segment::MOST_MESSAGES,
    };
    match (value, max < most.into()) {
        (0, _) => "",
        (_, true) => "; that is the namespace's limit, which `umsg limits` shows and raises",
        (_, false) => "; no queue can have more",
    }
}

/// What is told of a queue whose format or layout is another: the field of its header that says so.
pub(crate) fn other_version(found: u32, expected: u32) -> String {
    match found == expected {
        true => format!(
            "the queue was made by another build of umsg, of the same format ({expected}) with another layout, or bytes 12 to 15 of its file, which \
             say so, were scribbled over; remove it with `umsg rm`"
        ),
        false => format!(
            "the queue was made by another version of umsg (format {found}, this is {expected}), or bytes 8 to 11 of its file, which say so, were \
             scribbled over; remove it with `umsg rm`"
        ),
    }
}

/// What a limit of so many queues says to a process that wants another.
fn too_many(limit: u32) -> String {
    match limit {
        0 => "the namespace lets no queues be made; `umsg limits --max-queues` changes that"
            .to_owned(),
        _ => format!(
            "the namespace holds {limit} queues, its limit; `umsg limits` raises it, `umsg rm` makes room"
        ),
    }
}

impl OpenError {
    /// Whether [`repair`](crate::posix::repair) may mend the queue that was refused. A damaged one that it can't mend has lost what all else follows
    /// from, and can only be removed.
    pub fn is_repairable(&self) -> bool {
        matches!(self, OpenError::Damaged(what) if *what != OUT_OF_RANGE)
    }

    /// The error number that mq_open(3) gives, or would give, for it.
    pub fn errno(&self) -> i32 {
        match self {
            OpenError::InvalidName
            | OpenError::NoAccessMode
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
            OpenError::TooManyQueues(_) | OpenError::NoSpace | OpenError::OverLimit => libc::ENOSPC,
            OpenError::NoMemory | OpenError::NoAddressSpace { .. } => libc::ENOMEM,
            OpenError::FileTooLarge { .. } => libc::EFBIG,
            OpenError::NotAQueue(_) | OpenError::OtherVersion { .. } => libc::EINVAL,
            OpenError::Damaged(_) => libc::EBADMSG,
            OpenError::TooManyFiles(errno) => *errno,
            OpenError::Leaving => libc::EAGAIN,
            OpenError::Namespace(error) => error.errno(),
            OpenError::System { error, .. }
            | OpenError::CallRefused { error, .. }
            | OpenError::Unregistered { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// The error of mapping a file of that length.
    pub(crate) fn of_mapping(errno: rustix::io::Errno, len: usize) -> OpenError {
        match errno {
            rustix::io::Errno::NOMEM => OpenError::NoAddressSpace { len: len as u64 },
            other => OpenError::from_errno("mmap", other),
        }
    }

    /// Sorts an error of the system into the variants above.
    pub(crate) fn from_errno(call: &'static str, errno: rustix::io::Errno) -> OpenError {
        use rustix::io::Errno;
        match errno {
            Errno::NOENT => OpenError::NotFound,
            Errno::EXIST => OpenError::AlreadyExists,
            Errno::ACCESS | Errno::PERM | Errno::ROFS if takes_a_path(call) => {
                OpenError::PermissionDenied
            }
            Errno::NOSPC | Errno::DQUOT => OpenError::NoSpace,
            Errno::NOMEM => OpenError::NoMemory,
            Errno::MFILE | Errno::NFILE => OpenError::TooManyFiles(errno.raw_os_error()),
            Errno::NAMETOOLONG => OpenError::NameTooLong,
            other => OpenError::System {
                call,
                error: other.into(),
            },
        }
    }
}

impl From<AttachError> for OpenError {
    fn from(error: AttachError) -> OpenError {
        match error {
            AttachError::NotAQueue(why) => OpenError::NotAQueue(why),
            AttachError::OtherVersion { found, expected } => {
                OpenError::OtherVersion { found, expected }
            }
            AttachError::Damaged(why) => OpenError::Damaged(why),
            AttachError::FileTooLarge { len } => OpenError::FileTooLarge { len },
            AttachError::Unregistered { call, errno } => OpenError::Unregistered {
                call,
                error: errno.into(),
            },
            AttachError::CallRefused { call, errno } => OpenError::CallRefused {
                call,
                error: errno.into(),
            },
            AttachError::Mapping { errno, len } => OpenError::of_mapping(errno, len),
            AttachError::System { call, errno } => OpenError::from_errno(call, errno),
            AttachError::Fault(trouble) => trouble.into(),
        }
    }
}
impl From<umsg_shm::sys::required::Refused> for OpenError {
    fn from(refused: umsg_shm::sys::required::Refused) -> OpenError {
        OpenError::CallRefused {
            call: refused.call,
            error: refused.errno.into(),
        }
    }
}

/// Whether a call can be denied by modes. A call on a descriptor that is open can only be refused by a sandbox, which the error must
/// not blame on the queue.
fn takes_a_path(call: &str) -> bool {
    call == "open"
}

/// Why a queue was not unlinked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnlinkError {
    /// EINVAL, EACCES, ENAMETOOLONG, ENOENT: as for opening.
    #[error(transparent)]
    Name(OpenError),
    /// ENOENT: no such queue.
    #[error("no queue of this name; `umsg ls` shows those that exist")]
    NotFound,
    /// EACCES: only a queue's owner, or root, may unlink it.
    #[error("only the queue's owner may unlink it")]
    PermissionDenied,
    /// The namespace can't be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Another error of the system.
    #[error("unlink: {0}")]
    System(std::io::Error),
}

impl UnlinkError {
    /// The error number that mq_unlink(3) gives, or would give, for it.
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
        assert!(text("max_messages", 21, 20).contains("`umsg limits` shows and raises"));
        assert!(text("message_size", 2 << 20, 1 << 20).contains("`umsg limits`"));
        assert!(text("max_messages", 1 << 21, 1 << 20).ends_with("no queue can have more"));
        assert!(text("message_size", 17 << 20, 16 << 20).ends_with("no queue can have more"));
        assert!(text("message_size", 0, 16 << 20).ends_with("not 0"));
    }
}
