//! Errors that operations on queues of all kinds share.

use umsg_shm::fault::Fault;

/// The reason why an operation failed because of the queue's or ring's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// ENOMEM: the machine or the memory cgroup has no memory left.
    #[error("no memory left: end programs, or raise the limit of the memory cgroup")]
    NoMemory,
    /// ENOSPC: the file system of the namespace is full.
    #[error(
        "the file system of the namespace is full: receive messages, or remove queues or other files"
    )]
    NoSpace,
    /// ENOSPC: the namespace's limit of bytes is reached, see [`Limits::max_bytes`](crate::Limits::max_bytes).
    #[error(
        "the namespace has reached its limit of bytes: receive messages, remove queues, or raise the limit max_bytes"
    )]
    OverLimit,
    /// ENOSPC: the queue's file has reached its largest size. POSIX queues and rings reach that size above 32 GiB, System V queues at some four
    /// million messages.
    #[error("the queue's file has no room for this message: receive messages first")]
    UsedUp,
    /// EBADMSG: the shared memory has a state that no operation creates. [`posix::repair`](crate::posix::repair),
    /// [`sysv::repair`](crate::sysv::repair) and [`ring::repair`](crate::ring::repair) rebuild the queue from its intact messages.
    #[error("the queue's shared memory is corrupted: repair or remove the queue")]
    Damaged,
    /// EDEADLK: the calling thread was interrupted inside a call on the same queue, see [`crate::signals::defer`].
    #[error(
        "a signal handler that interrupted a call on this queue must not use the queue: block the signal during calls, or use umsg::signals::defer"
    )]
    WouldDeadlock,
}

impl QueueError {
    /// Returns the error number that Linux gives, or the nearest number if Linux has no such error.
    ///
    /// ```
    /// assert_eq!(umsg::QueueError::Damaged.errno(), libc::EBADMSG);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            QueueError::NoMemory => libc::ENOMEM,
            QueueError::NoSpace | QueueError::OverLimit | QueueError::UsedUp => libc::ENOSPC,
            QueueError::Damaged => libc::EBADMSG,
            QueueError::WouldDeadlock => libc::EDEADLK,
        }
    }

    /// Returns the [`errno`](Self::errno) of a call that has ENOMEM in place of ENOSPC, such as msgsnd(2).
    pub(crate) fn errno_without_nospc(&self) -> i32 {
        match self.errno() {
            libc::ENOSPC => libc::ENOMEM,
            errno => errno,
        }
    }

    /// Converts the fault of an operation. `busy` is the operation's own error for a lock that a stopped process holds.
    pub(crate) fn of<E: From<QueueError>>(fault: Fault, busy: E) -> E {
        let error = match fault {
            Fault::Damaged => QueueError::Damaged,
            Fault::NoSpace => QueueError::NoSpace,
            Fault::OverLimit => QueueError::OverLimit,
            Fault::UsedUp => QueueError::UsedUp,
            Fault::NoMemory => QueueError::NoMemory,
            Fault::OwnedByCaller => QueueError::WouldDeadlock,
            Fault::Busy => return busy,
        };
        error.into()
    }

    /// Converts a fault as [`of`](Self::of) does, for an operation that uses only memory that was populated when the queue was
    /// made. For such an operation, every lack of room is a lack of memory.
    pub(crate) fn of_in_place<E: From<QueueError>>(fault: Fault, busy: E) -> E {
        match fault {
            Fault::NoSpace | Fault::OverLimit | Fault::UsedUp => QueueError::NoMemory.into(),
            fault => QueueError::of(fault, busy),
        }
    }
}

/// Implements the conversion of a fault for errors of operations. The last argument is the error for a lock that a stopped process
/// holds.
macro_rules! from_fault {
    ($error:ident, $convert:ident, $busy:ident) => {
        impl From<$crate::error::Fault> for $error {
            fn from(fault: $crate::error::Fault) -> Self {
                $crate::error::QueueError::$convert(fault, $error::$busy)
            }
        }
    };
}
pub(crate) use from_fault;
