//! Errors: one enum for each family of operations. [`QueueError`] has the errors that all operations share. [`SegmentError`]
//! has the errors that all openings share. This module has the errors of sending, receiving and leasing on POSIX queues.

mod notify;
mod open;
mod queue;
mod segment;

pub use notify::NotifyError;
pub use open::{OpenError, UnlinkError};
pub use queue::QueueError;
pub use segment::SegmentError;

pub(crate) use queue::from_fault;
pub(crate) use umsg_shm::fault::Fault;

/// Describes a system call that the kernel or a sandbox refuses.
pub(crate) fn call_refused(call: &str, error: &std::io::Error) -> String {
    if call == umsg_shm::sys::required::PAGES {
        return "the kernel uses memory pages larger than 4 KiB, and umsg needs pages of 4 KiB. Run a kernel that is built with pages of 4 KiB.".into();
    }
    format!(
        "the kernel or a sandbox refuses {call}(2), which umsg needs: {error}. Allow the call in the sandbox, for example in its seccomp filter."
    )
}

/// The reason why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// EAGAIN: the call must not block, and the queue is full or a stopped process holds its lock.
    #[error(
        "the queue is full, or a stopped process holds its lock: receive a message first, or wait for room"
    )]
    Full,
    /// ETIMEDOUT: the deadline passed before there was room.
    #[error("timed out waiting for room in the queue: receive a message first, or wait longer")]
    TimedOut,
    /// EMSGSIZE: the message is longer than the queue's message size, both in bytes.
    #[error("a message of {len} bytes is too long: the queue's message size is {max} bytes")]
    TooLong {
        /// Length of the message, in bytes.
        len: usize,
        /// The queue's message size, in bytes.
        max: usize,
    },
    /// EMSGSIZE: the batch has more messages than the queue can hold.
    #[error(
        "a batch of {messages} messages is too large: the queue holds at most {max} messages, so split the batch"
    )]
    BatchTooLarge {
        /// Messages in the batch.
        messages: usize,
        /// The maximum number of messages in the queue.
        max: usize,
    },
    /// EINVAL: the priority is 32,768 or more.
    #[error("a priority must be below 32768")]
    PriorityTooHigh,
    /// EPIPE: the queue is closed for sending, see [`Queue::close_send`](crate::posix::Queue::close_send). No SIGPIPE is raised.
    #[error("the queue is closed for sending: stop sending, or reopen the queue first")]
    Closed,
    /// EUSERS: 32 living processes are producers already.
    #[error(
        "the queue already has 32 producer processes, which is the limit: end one of them first"
    )]
    TooManyProducers,
    /// EBADF: the queue was not opened for sending.
    #[error("the queue was not opened for sending: open it with write access")]
    NotWritable,
    /// EINTR: a signal handler ran while the call waited.
    #[error("a signal handler interrupted the call: repeat the call")]
    Interrupted,
    /// The errors that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl SendError {
    /// Returns the error number of mq_send(3), or the nearest number if mq_send(3) has no such error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let too_high = queue.send(b"job", 32_768).unwrap_err();
    /// assert_eq!(too_high.errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            SendError::Full => libc::EAGAIN,
            SendError::TimedOut => libc::ETIMEDOUT,
            SendError::TooLong { .. } | SendError::BatchTooLarge { .. } => libc::EMSGSIZE,
            SendError::PriorityTooHigh => libc::EINVAL,
            SendError::Closed => libc::EPIPE,
            SendError::TooManyProducers => libc::EUSERS,
            SendError::NotWritable => libc::EBADF,
            SendError::Interrupted => libc::EINTR,
            SendError::Queue(error) => error.errno(),
        }
    }
}

from_fault!(SendError, of, Full);

/// The reason why no message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// EAGAIN: the call must not block, and the queue is empty or a stopped process holds its lock.
    #[error("the queue is empty, or a stopped process holds its lock")]
    Empty,
    /// ETIMEDOUT: the deadline passed before a message came.
    #[error("timed out waiting for a message: send a message first, or wait longer")]
    TimedOut,
    /// EMSGSIZE: the buffer is shorter than the queue's message size, both in bytes.
    #[error("a buffer of {len} bytes is too short: the queue's message size is {needed} bytes")]
    BufferTooSmall {
        /// Length of the buffer, in bytes.
        len: usize,
        /// The queue's message size, in bytes.
        needed: usize,
    },
    /// EPIPE: the end of the stream. The queue is closed for sending, and all its messages are received.
    #[error("the end of the stream: the queue is closed for sending, and holds no message")]
    Closed,
    /// EBADF: the queue was not opened for receiving.
    #[error("the queue was not opened for receiving: open it with read access")]
    NotReadable,
    /// EINTR: a signal handler ran while the call waited.
    #[error("a signal handler interrupted the call: repeat the call")]
    Interrupted,
    /// The errors that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl ReceiveError {
    /// Returns the error number of mq_receive(3), or the nearest number if mq_receive(3) has no such error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let empty = queue.try_receive(&mut [0; 8192]).unwrap_err();
    /// assert_eq!(empty.errno(), libc::EAGAIN);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ReceiveError::Empty => libc::EAGAIN,
            ReceiveError::TimedOut => libc::ETIMEDOUT,
            ReceiveError::BufferTooSmall { .. } => libc::EMSGSIZE,
            ReceiveError::NotReadable => libc::EBADF,
            ReceiveError::Closed => libc::EPIPE,
            ReceiveError::Interrupted => libc::EINTR,
            ReceiveError::Queue(error) => error.errno(),
        }
    }
}

from_fault!(ReceiveError, of, Empty);

/// The reason why a lease could not be ended or limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// ESTALE: a time limit has ended the lease, or the caller is a forked child of the lease's owner.
    #[error(
        "the lease has ended: the leased message is back in the queue, or another process has leased or received the message"
    )]
    Ended,
    /// The errors that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl LeaseError {
    /// Returns the error number that the C library gives for the error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let lease = queue.receive_lease()?;
    /// lease.limit(std::time::Duration::from_millis(1))?;
    /// # std::thread::sleep(std::time::Duration::from_millis(20));
    /// # let _again = queue.receive_lease()?;
    /// assert_eq!(lease.acknowledge().unwrap_err().errno(), libc::ESTALE);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            LeaseError::Ended => libc::ESTALE,
            LeaseError::Queue(error) => error.errno(),
        }
    }
}
