//! Errors: one enum an operation family, one table to errno each. Those of sending, receiving and leasing stand here.

mod notify;
mod open;

pub use notify::NotifyError;
pub(crate) use open::other_version;
pub use open::{OpenError, UnlinkError};

pub(crate) use umsg_shm::fault::Fault;

/// What is said where a process of several PID namespaces' queue can't register its life.
pub(crate) fn unregistered(call: &str, error: &std::io::Error) -> String {
    format!(
        "processes of several PID or time namespaces use the queue, and this process can't make the file in the directory of queues by which others \
         learn of its death: {call}: {error}"
    )
}

/// What is said of a system call that is refused.
pub(crate) fn call_refused(call: &str, error: &std::io::Error) -> String {
    format!(
        "{call}(2) is refused ({error}), and nothing takes its place. Allow it in the sandbox, for example in its seccomp filter."
    )
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

impl From<Fault> for SendError {
    fn from(trouble: Fault) -> Self {
        match trouble {
            Fault::Damaged => SendError::Damaged,
            Fault::NoSpace => SendError::NoSpace,
            Fault::OverLimit => SendError::OverLimit,
            Fault::UsedUp => SendError::UsedUp,
            Fault::NoMemory => SendError::NoMemory,
            Fault::Busy => SendError::Full,
            Fault::OwnedByCaller => SendError::WouldDeadlock,
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

impl From<Fault> for ReceiveError {
    fn from(trouble: Fault) -> Self {
        match trouble {
            Fault::Damaged => ReceiveError::Damaged,
            Fault::NoSpace | Fault::UsedUp => ReceiveError::NoSpace,
            Fault::OverLimit => ReceiveError::OverLimit,
            Fault::NoMemory => ReceiveError::NoMemory,
            Fault::Busy => ReceiveError::Empty,
            Fault::OwnedByCaller => ReceiveError::WouldDeadlock,
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
