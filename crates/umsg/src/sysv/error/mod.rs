//! Errors of System V queues: one enum an operation family, one table to errno each.

mod control;
mod open;

pub use crate::error::LeaseError;
pub use control::ControlError;
pub use open::OpenError;

use crate::error::Fault;

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// EAGAIN: there is no room, or the queue's lock is held by a stopped process, and the call must not block.
    #[error("the queue is full")]
    Full,
    /// ETIMEDOUT: the deadline passed before there was room.
    #[error("timed out waiting for room in the queue")]
    TimedOut,
    /// EINVAL: the message is longer than the namespace's `msgmax` when the queue was made, both in bytes.
    #[error(
        "a message of {len} bytes is too long for this queue: msgmax was {max} bytes when it was made"
    )]
    TooLong {
        /// Length of the message, in bytes.
        len: usize,
        /// The longest message that the queue takes, in bytes.
        max: usize,
    },
    /// EMSGSIZE: more messages, or bytes, were to be sent as one than the queue may hold.
    #[error(
        "a batch of {messages} messages and {bytes} bytes never fits into this queue: see its qbytes"
    )]
    BatchTooLarge {
        /// Messages in the batch.
        messages: usize,
        /// Bytes in the batch.
        bytes: u64,
    },
    /// EINVAL: the type is below 1.
    #[error("a message's type is 1 or more")]
    InvalidType,
    /// EACCES: the queue's mode does not let the caller send.
    #[error("permission denied: the queue's mode does not let you send")]
    PermissionDenied,
    /// EIDRM: the queue was removed.
    #[error("the queue was removed")]
    Removed,
    /// EINTR: a signal handler ran while the call waited.
    #[error("interrupted by a signal handler")]
    Interrupted,
    /// ENOMEM: the machine or the memory cgroup has no memory for the message.
    #[error("no memory left: end programs, or raise the limit of the memory cgroup")]
    NoMemory,
    /// ENOMEM: the file system of the namespace is full.
    #[error(
        "the file system of the namespace is full: receive messages, or remove queues (`umsg rm`) or other files; `df` shows how much there is"
    )]
    NoSpace,
    /// ENOMEM: the namespace's limit of bytes is reached, see [`Limits::max_bytes`](crate::Limits::max_bytes).
    #[error(
        "the namespace's limit of bytes is reached: receive messages, remove queues (`umsg rm`), or raise it (`umsg limits --max-bytes`)"
    )]
    OverLimit,
    /// ENOMEM: the queue has as many messages as one can have, some four million, or as many bytes.
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
    /// The error number that msgsnd(2) gives, or would give, for it.
    pub fn errno(&self) -> i32 {
        match self {
            SendError::Full => libc::EAGAIN,
            SendError::TimedOut => libc::ETIMEDOUT,
            SendError::TooLong { .. } | SendError::InvalidType => libc::EINVAL,
            SendError::BatchTooLarge { .. } => libc::EMSGSIZE,
            SendError::PermissionDenied => libc::EACCES,
            SendError::Removed => libc::EIDRM,
            SendError::Interrupted => libc::EINTR,
            // msgsnd(2) knows no ENOSPC.
            SendError::NoMemory | SendError::NoSpace | SendError::OverLimit | SendError::UsedUp => {
                libc::ENOMEM
            }
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
    /// ENOMSG: there is no message that is wanted, or the queue's lock is held by a stopped process, and the call must not block.
    #[error("there is no such message in the queue")]
    NoMessage,
    /// ETIMEDOUT: the deadline passed before a message came.
    #[error("timed out waiting for a message")]
    TimedOut,
    /// E2BIG: the message is longer than the buffer, and stays in the queue, or was the next receiver's.
    #[error("the buffer is too short for the message of {len} bytes")]
    TooSmall {
        /// Length of the message, in bytes.
        len: usize,
    },
    /// EACCES: the queue's mode does not let the caller receive.
    #[error("permission denied: the queue's mode does not let you receive")]
    PermissionDenied,
    /// EIDRM: the queue was removed.
    #[error("the queue was removed")]
    Removed,
    /// EINTR: a signal handler ran while the call waited.
    #[error("interrupted by a signal handler")]
    Interrupted,
    /// ENOMEM: the machine or the memory cgroup has no memory left.
    #[error("no memory left: end programs, or raise the limit of the memory cgroup")]
    NoMemory,
    /// ENOMEM: the file system of the namespace is full.
    #[error(
        "the file system of the namespace is full: `umsg rm` and other files that go make room, `df` shows how much there is"
    )]
    NoSpace,
    /// ENOMEM: the namespace's limit of bytes is reached, see [`Limits::max_bytes`](crate::Limits::max_bytes).
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
    /// The error number that msgrcv(2) gives, or would give, for it.
    pub fn errno(&self) -> i32 {
        match self {
            ReceiveError::NoMessage => libc::ENOMSG,
            ReceiveError::TimedOut => libc::ETIMEDOUT,
            ReceiveError::TooSmall { .. } => libc::E2BIG,
            ReceiveError::PermissionDenied => libc::EACCES,
            ReceiveError::Removed => libc::EIDRM,
            ReceiveError::Interrupted => libc::EINTR,
            // msgrcv(2) knows no ENOSPC.
            ReceiveError::NoMemory | ReceiveError::NoSpace | ReceiveError::OverLimit => {
                libc::ENOMEM
            }
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
            Fault::Busy => ReceiveError::NoMessage,
            Fault::OwnedByCaller => ReceiveError::WouldDeadlock,
        }
    }
}
