//! Errors: one enum an operation family, one table to errno.

#[cfg(not(loom))]
use crate::namespace::NamespaceError;

/// What can go wrong inside the engine, whatever the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The segment holds what no operation could have left there.
    Damaged,
    /// The file system is full.
    NoSpace,
    /// The namespace's limit of bytes is reached.
    OverLimit,
    /// The segment has no slot or no room in its arena any more, whatever memory there is.
    UsedUp,
    /// The machine or the memory cgroup has no memory left.
    NoMemory,
    /// A lock was not let go within the caller's patience.
    Busy,
    /// The calling thread holds the lock itself.
    OwnedByCaller,
}

#[cfg(not(loom))]
impl Trouble {
    /// For errors of mapping and populating memory.
    pub(crate) fn from_memory(error: rustix::io::Errno) -> Trouble {
        match error {
            rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => Trouble::NoSpace,
            _ => Trouble::NoMemory,
        }
    }
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// EAGAIN: the queue is full, or its lock is held by a stopped process, and the call must not block.
    #[error("the queue is full")]
    Full,
    /// ETIMEDOUT: the deadline passed before there was room.
    #[error("timed out waiting for room in the queue")]
    TimedOut,
    /// EMSGSIZE: the message is longer than the queue's message size, both in bytes.
    #[error("a message of {len} bytes is too long for this queue: its message size is {max} bytes")]
    TooLong {
        /// Length of the message, in bytes.
        len: usize,
        /// The queue's message size, in bytes.
        max: usize,
    },
    /// EMSGSIZE: more messages were to be sent as one than the queue can hold.
    #[error("a batch of {messages} messages never fits into this queue: it holds {max}")]
    BatchTooLarge {
        /// Messages in the batch.
        messages: usize,
        /// The most that the queue holds.
        max: usize,
    },
    /// EINVAL: the priority is 32,768 or more.
    #[error("a priority must be below 32768")]
    PriorityTooHigh,
    /// EBADF: the queue was not opened for sending.
    #[error("the queue was not opened for sending")]
    NotWritable,
    /// EINTR: a signal handler ran while the call waited.
    #[error("interrupted by a signal handler")]
    Interrupted,
    /// ENOMEM: the machine or the memory cgroup has no memory for the message.
    #[error("no memory left: end programs, or raise the limit of the memory cgroup")]
    NoMemory,
    /// ENOSPC: the file system of the namespace is full.
    #[error(
        "the file system of the namespace is full: receive messages, or remove queues (`umsg rm`) or other files; `df` shows how much there is"
    )]
    NoSpace,
    /// ENOSPC: the namespace's limit of bytes is reached, see [`Limits::max_bytes`](crate::Limits::max_bytes).
    #[error(
        "the namespace's limit of bytes is reached: receive messages, remove queues (`umsg rm`), or raise it (`umsg limits --max-bytes`)"
    )]
    OverLimit,
    /// ENOSPC: the queue's file is as full as it can get. Only of queues of more than 32 GiB.
    #[error("the queue's file holds no more messages, or none so long: receive some first")]
    UsedUp,
    /// EBADMSG: the queue's memory holds what no operation could have left there.
    #[error("the queue's shared memory is damaged")]
    Damaged,
    /// EDEADLK: the calling thread was interrupted inside a call on the same queue, see [`crate::signals::defer`].
    #[error("called from a signal handler that interrupted a call on the same queue")]
    WouldDeadlock,
}

impl SendError {
    /// The error number that mq_send(3) gives, or would give, for it.
    pub fn errno(&self) -> i32 {
        match self {
            SendError::Full => libc::EAGAIN,
            SendError::TimedOut => libc::ETIMEDOUT,
            SendError::TooLong { .. } | SendError::BatchTooLarge { .. } => libc::EMSGSIZE,
            SendError::PriorityTooHigh => libc::EINVAL,
            SendError::NotWritable => libc::EBADF,
            SendError::Interrupted => libc::EINTR,
            SendError::NoMemory => libc::ENOMEM,
            SendError::NoSpace | SendError::OverLimit | SendError::UsedUp => libc::ENOSPC,
            SendError::Damaged => libc::EBADMSG,
            SendError::WouldDeadlock => libc::EDEADLK,
        }
    }
}

impl From<Trouble> for SendError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Damaged => SendError::Damaged,
            Trouble::NoSpace => SendError::NoSpace,
            Trouble::OverLimit => SendError::OverLimit,
            Trouble::UsedUp => SendError::UsedUp,
            Trouble::NoMemory => SendError::NoMemory,
            Trouble::Busy => SendError::Full,
            Trouble::OwnedByCaller => SendError::WouldDeadlock,
        }
    }
}

/// Why a process is not registered for a notification, or was not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// EBUSY: a process is registered, maybe this one.
    #[error("a process is already registered for notification by this queue")]
    Busy,
    /// EINVAL: a signal's number is not from 0 to 64.
    #[error("a signal's number is from 0 to 64, where 0 is none")]
    InvalidSignal,
    /// EINVAL: of a `struct sigevent`, `sigev_notify` is none of SIGEV_NONE, SIGEV_SIGNAL and SIGEV_THREAD.
    #[error("sigev_notify is none of SIGEV_NONE, SIGEV_SIGNAL and SIGEV_THREAD")]
    InvalidWay,
    /// EINVAL: of a `struct sigevent` that asks for a thread, `sigev_notify_function` is NULL.
    #[error("sigev_notify_function is NULL: SIGEV_THREAD needs a function to call")]
    NoFunction,
    /// ENOMEM: there is no memory.
    #[error("no memory left: end programs, or raise the limit of the memory cgroup")]
    NoMemory,
    /// ENOMEM: the thread that waits for the notification can't be started.
    #[error(
        "no thread can be started that waits for the notification: raise the limit of the user's processes (ulimit -u), of the \
         process's address space (ulimit -v), or of the cgroup's processes (pids.max)"
    )]
    NoThread,
    /// ENOMEM: more than a thousand living processes were notified by this queue and have not run since.
    #[error(
        "1,032 processes were notified by this queue and have not run since: let those that are stopped go on, or end them"
    )]
    TooManyUntold,
    /// EAGAIN: a process was stopped inside of an operation on the queue.
    #[error("the queue is locked by a process that is stopped")]
    Unavailable,
    /// ETIMEDOUT: no message came before the deadline.
    #[error("timed out waiting for a notification")]
    TimedOut,
    /// EINTR: a signal handler ran while the call waited.
    #[error("interrupted by a signal handler")]
    Interrupted,
    /// ECANCELED: the registration was taken away.
    #[error("the registration is gone")]
    Gone,
    /// EBADMSG: the queue's memory holds what no operation could have left there.
    #[error("the queue's shared memory is damaged")]
    Damaged,
    /// EDEADLK: the calling thread was interrupted inside a call on the same queue, see [`crate::signals::defer`].
    #[error("called from a signal handler that interrupted a call on the same queue")]
    WouldDeadlock,
}

impl NotifyError {
    /// The error number that mq_notify(3) gives, or would give, for it.
    pub fn errno(&self) -> i32 {
        match self {
            NotifyError::Busy => libc::EBUSY,
            NotifyError::InvalidSignal | NotifyError::InvalidWay | NotifyError::NoFunction => {
                libc::EINVAL
            }
            NotifyError::NoMemory | NotifyError::NoThread | NotifyError::TooManyUntold => {
                libc::ENOMEM
            }
            NotifyError::Unavailable => libc::EAGAIN,
            NotifyError::TimedOut => libc::ETIMEDOUT,
            NotifyError::Interrupted => libc::EINTR,
            NotifyError::Gone => libc::ECANCELED,
            NotifyError::Damaged => libc::EBADMSG,
            NotifyError::WouldDeadlock => libc::EDEADLK,
        }
    }
}

impl From<Trouble> for NotifyError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Damaged => NotifyError::Damaged,
            // A registration takes no memory of the namespace.
            Trouble::NoSpace | Trouble::OverLimit | Trouble::UsedUp | Trouble::NoMemory => {
                NotifyError::NoMemory
            }
            Trouble::Busy => NotifyError::Unavailable,
            Trouble::OwnedByCaller => NotifyError::WouldDeadlock,
        }
    }
}

/// Why no message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// EAGAIN: the queue is empty, or its lock is held by a stopped process, and the call must not block.
    #[error("the queue is empty")]
    Empty,
    /// ETIMEDOUT: the deadline passed before a message came.
    #[error("timed out waiting for a message")]
    TimedOut,
    /// EMSGSIZE: the buffer is shorter than the queue's message size, both in bytes.
    #[error(
        "a buffer of {len} bytes is too short for this queue: its message size is {needed} bytes"
    )]
    BufferTooSmall {
        /// Length of the buffer, in bytes.
        len: usize,
        /// The queue's message size, in bytes.
        needed: usize,
    },
    /// EBADF: the queue was not opened for receiving.
    #[error("the queue was not opened for receiving")]
    NotReadable,
    /// EINTR: a signal handler ran while the call waited.
    #[error("interrupted by a signal handler")]
    Interrupted,
    /// ENOMEM: the machine or the memory cgroup has no memory left.
    #[error("no memory left: end programs, or raise the limit of the memory cgroup")]
    NoMemory,
    /// ENOSPC: the file system of the namespace is full.
    #[error(
        "the file system of the namespace is full: `umsg rm` and other files that go make room, `df` shows how much there is"
    )]
    NoSpace,
    /// ENOSPC: the namespace's limit of bytes is reached, see [`Limits::max_bytes`](crate::Limits::max_bytes).
    #[error(
        "the namespace's limit of bytes is reached: remove queues (`umsg rm`), or raise it (`umsg limits --max-bytes`)"
    )]
    OverLimit,
    /// EBADMSG: the queue's memory holds what no operation could have left there.
    #[error("the queue's shared memory is damaged")]
    Damaged,
    /// EDEADLK: the calling thread was interrupted inside a call on the same queue, see [`crate::signals::defer`].
    #[error("called from a signal handler that interrupted a call on the same queue")]
    WouldDeadlock,
}

impl ReceiveError {
    /// The error number that mq_receive(3) gives, or would give, for it.
    pub fn errno(&self) -> i32 {
        match self {
            ReceiveError::Empty => libc::EAGAIN,
            ReceiveError::TimedOut => libc::ETIMEDOUT,
            ReceiveError::BufferTooSmall { .. } => libc::EMSGSIZE,
            ReceiveError::NotReadable => libc::EBADF,
            ReceiveError::Interrupted => libc::EINTR,
            ReceiveError::NoMemory => libc::ENOMEM,
            ReceiveError::NoSpace | ReceiveError::OverLimit => libc::ENOSPC,
            ReceiveError::Damaged => libc::EBADMSG,
            ReceiveError::WouldDeadlock => libc::EDEADLK,
        }
    }
}

impl From<Trouble> for ReceiveError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Damaged => ReceiveError::Damaged,
            Trouble::NoSpace | Trouble::UsedUp => ReceiveError::NoSpace,
            Trouble::OverLimit => ReceiveError::OverLimit,
            Trouble::NoMemory => ReceiveError::NoMemory,
            Trouble::Busy => ReceiveError::Empty,
            Trouble::OwnedByCaller => ReceiveError::WouldDeadlock,
        }
    }
}

/// Why a lease could not be ended or limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// ESTALE: its time limit has ended it, or the caller is a forked child of its holder.
    #[error("the lease has ended: its message went back to the queue, or is another process's")]
    Ended,
    /// EBADMSG: the queue's memory holds what no operation could have left there.
    #[error("the queue's shared memory is damaged")]
    Damaged,
    /// EDEADLK: the calling thread was interrupted inside a call on the same queue, see [`crate::signals::defer`].
    #[error("called from a signal handler that interrupted a call on the same queue")]
    WouldDeadlock,
}

impl LeaseError {
    /// The error number that the C library gives for it.
    pub fn errno(&self) -> i32 {
        match self {
            LeaseError::Ended => libc::ESTALE,
            LeaseError::Damaged => libc::EBADMSG,
            LeaseError::WouldDeadlock => libc::EDEADLK,
        }
    }
}

/// Why a queue was not opened, created or attached to.
#[cfg(not(loom))]
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
    /// ENOSPC: the namespace has as many queues as its limits allow.
    #[error(
        "the namespace holds {0} queues, its limit; `umsg limits` raises it, `umsg rm` makes room"
    )]
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
    #[error(
        "the queue was made by another version of umsg (format {found}, this is {expected}); remove it with `umsg rm`"
    )]
    OtherVersion {
        /// Version of the format in the file.
        found: u32,
        /// Version of this library's format.
        expected: u32,
    },
    /// EBADMSG: the header contradicts itself or the file's length.
    #[error("the queue's file is damaged: {0}")]
    Damaged(&'static str),
    /// EMFILE or ENFILE: no descriptor left.
    #[error("no file descriptor is left: close some, or raise the limit (ulimit -n)")]
    TooManyFiles(i32),
    /// EAGAIN: the queue is one that is [removed](crate::posix::OpenOptions::remove_on_last_close) when nobody has it open any more; a process
    /// that is doing so was stopped.
    #[error(
        "a process that is removing the queue was stopped: let it go on, or end it (`fuser` on the queue's file names it)"
    )]
    Leaving,
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
#[cfg(not(loom))]
fn raise(what: &str, value: u64, max: u64) -> &'static str {
    let most = match what {
        "message_size" => crate::segment::LARGEST_MESSAGE,
        _ => crate::segment::MOST_MESSAGES,
    };
    match (value, max < most.into()) {
        (0, _) => "",
        (_, true) => "; that is the namespace's limit, which `umsg limits` shows and raises",
        (_, false) => "; no queue can have more",
    }
}

#[cfg(not(loom))]
impl OpenError {
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
            | OpenError::ModeNotEnforced { .. } => libc::EACCES,
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
            OpenError::System { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
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
    #[cfg(not(loom))]
    pub(crate) fn from_errno(call: &'static str, errno: rustix::io::Errno) -> OpenError {
        use rustix::io::Errno;
        match errno {
            Errno::NOENT => OpenError::NotFound,
            Errno::EXIST => OpenError::AlreadyExists,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => OpenError::PermissionDenied,
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

/// Why a queue was not unlinked.
#[cfg(not(loom))]
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

#[cfg(not(loom))]
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

#[cfg(all(test, not(loom)))]
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
