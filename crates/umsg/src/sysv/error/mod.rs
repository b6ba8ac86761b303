//! Errors of System V queues: one enum for each family of operations. The function `errno` of each enum returns the error number.

mod control;
mod open;

pub use crate::error::LeaseError;
pub use control::ControlError;
pub use open::OpenError;

use crate::error::{Fault, QueueError};

/// The reason why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// EAGAIN: the call must not block, and there is no room, or a stopped process holds the queue's lock.
    #[error(
        "the queue is full, or a stopped process holds its lock: receive a message first, or wait for room"
    )]
    Full,
    /// ETIMEDOUT: the deadline passed before there was room.
    #[error("timed out waiting for room in the queue: receive a message first, or wait longer")]
    TimedOut,
    /// EINVAL: the message is longer than the queue's longest message, both in bytes.
    #[error(
        "a message of {len} bytes is too long: this queue's limit is {max} bytes, the value of msgmax when the queue was created"
    )]
    TooLong {
        /// Length of the message, in bytes.
        len: usize,
        /// The longest possible message, in bytes.
        max: usize,
    },
    /// EMSGSIZE: the batch has more messages or bytes than the queue may hold.
    #[error(
        "a batch of {messages} messages and {bytes} bytes is too large: split the batch, or raise the queue's limit qbytes"
    )]
    BatchTooLarge {
        /// Number of messages in the batch.
        messages: usize,
        /// Number of bytes in the batch.
        bytes: u64,
    },
    /// EINVAL: the type is below 1.
    #[error("a message's type must be at least 1")]
    InvalidType,
    /// EACCES: the queue's mode does not let the caller send.
    #[error("permission denied: the queue's mode does not let you send")]
    PermissionDenied,
    /// EIDRM: the queue was removed.
    #[error("the queue was removed")]
    Removed,
    /// EPIPE: the queue is closed for sending, see [`Queue::close_send`](super::Queue::close_send).
    #[error("the queue is closed for sending: stop sending, or reopen the queue first")]
    Closed,
    /// EUSERS: 32 living processes are producers already.
    #[error(
        "the queue already has 32 producer processes, which is the limit: end one of them first"
    )]
    TooManyProducers,
    /// EINTR: a signal handler ran while the call waited.
    #[error("a signal handler interrupted the call: repeat the call")]
    Interrupted,
    /// The errors that all kinds of queues share, with ENOMEM in place of ENOSPC.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl SendError {
    /// Returns the error number that msgsnd(2) gives, or would give, for this error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// assert_eq!(queue.send(0, b"job").unwrap_err().errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            SendError::Full => libc::EAGAIN,
            SendError::TimedOut => libc::ETIMEDOUT,
            SendError::TooLong { .. } | SendError::InvalidType => libc::EINVAL,
            SendError::BatchTooLarge { .. } => libc::EMSGSIZE,
            SendError::PermissionDenied => libc::EACCES,
            SendError::Removed => libc::EIDRM,
            SendError::Closed => libc::EPIPE,
            SendError::TooManyProducers => libc::EUSERS,
            SendError::Interrupted => libc::EINTR,
            SendError::Queue(error) => error.errno_without_nospc(),
        }
    }
}

impl From<Fault> for SendError {
    fn from(fault: Fault) -> Self {
        QueueError::of(fault, SendError::Full)
    }
}

/// The reason why no message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// ENOMSG: the call must not block, and there is no wanted message, or a stopped process holds the queue's lock.
    #[error("the queue has no matching message, or a stopped process holds the queue's lock")]
    NoMessage,
    /// ETIMEDOUT: the deadline passed before a message came.
    #[error("timed out waiting for a message: send a message first, or wait longer")]
    TimedOut,
    /// E2BIG: the message is longer than the buffer. The message stays in the queue, or went to the next receiver.
    #[error("the message of {len} bytes does not fit into the buffer: use a longer buffer")]
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
    /// EPIPE: the end of the stream. The queue is closed for sending, and no message that the caller wants is left or can come back.
    #[error(
        "the end of the stream: the queue is closed for sending, and no matching message is left"
    )]
    Closed,
    /// EINTR: a signal handler ran while the call waited.
    #[error("a signal handler interrupted the call: repeat the call")]
    Interrupted,
    /// The errors that all kinds of queues share, with ENOMEM in place of ENOSPC.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl ReceiveError {
    /// Returns the error number that msgrcv(2) gives, or would give, for this error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let error = queue.try_receive(umsg::sysv::Want::Any, &mut [0; 64]).unwrap_err();
    /// assert_eq!(error.errno(), libc::ENOMSG);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            ReceiveError::NoMessage => libc::ENOMSG,
            ReceiveError::TimedOut => libc::ETIMEDOUT,
            ReceiveError::TooSmall { .. } => libc::E2BIG,
            ReceiveError::PermissionDenied => libc::EACCES,
            ReceiveError::Removed => libc::EIDRM,
            ReceiveError::Closed => libc::EPIPE,
            ReceiveError::Interrupted => libc::EINTR,
            ReceiveError::Queue(error) => error.errno_without_nospc(),
        }
    }
}

impl From<Fault> for ReceiveError {
    fn from(fault: Fault) -> Self {
        QueueError::of(fault, ReceiveError::NoMessage)
    }
}
