//! The errors that operations on queues of all kinds share.

use umsg_shm::fault::Fault;

/// Why the memory of a queue or ring served no operation, whatever its kind.
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
    /// ENOSPC: the queue's file is as full as it can get. POSIX queues and rings reach this beyond 32 GiB, System V queues with some four
    /// million messages.
    #[error("the queue's file has no room for this message: receive messages first")]
    UsedUp,
    /// EBADMSG: the shared memory holds what no operation could have left there.
    #[error("the queue's shared memory is damaged")]
    Damaged,
    /// EDEADLK: the calling thread was interrupted inside a call on the same queue, see [`crate::signals::defer`].
    #[error(
        "a signal handler that interrupted a call on this queue must not use the queue: defer the handler"
    )]
    WouldDeadlock,
}

impl QueueError {
    /// The error number that Linux gives, or would give, for it.
    ///
    /// ```
    /// assert_eq!(umsg::QueueError::Damaged.errno(), libc::EBADMSG);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            QueueError::NoMemory => libc::ENOMEM,
            QueueError::NoSpace | QueueError::OverLimit | QueueError::UsedUp => libc::ENOSPC,
            QueueError::Damaged => libc::EBADMSG,
            QueueError::WouldDeadlock => libc::EDEADLK,
        }
    }

    /// As [`errno`](Self::errno), of a call that has ENOMEM in place of ENOSPC, such as msgsnd(2).
    pub(crate) fn errno_without_nospc(&self) -> i32 {
        match self.errno() {
            libc::ENOSPC => libc::ENOMEM,
            errno => errno,
        }
    }

    /// The error of an operation. `busy` is the operation's own for a lock that a stopped process holds.
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

    /// As [`of`](Self::of), of an operation that uses no memory but what was populated when the queue was made, so that all lack of room is
    /// lack of memory.
    pub(crate) fn of_in_place<E: From<QueueError>>(fault: Fault, busy: E) -> E {
        match fault {
            Fault::NoSpace | Fault::OverLimit | Fault::UsedUp => QueueError::NoMemory.into(),
            fault => QueueError::of(fault, busy),
        }
    }
}
