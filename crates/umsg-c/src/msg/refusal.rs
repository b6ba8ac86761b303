//! The reasons why calls on a System V queue fail.
//!
//! The functions of the library that take an identifier return an errno, and check in the kernel's order. Only a failed call computes the text of its
//! error.

use libc::{c_int, size_t};
use umsg::QueueError;
use umsg::sysv::raw::{self, Used};
use umsg::sysv::{ControlError, OpenError, OpenOptions, ReceiveError, SendError};

/// Finds the queue for a call that the kernel's System V queues do not have.
///
/// # Errors
/// EINVAL: the identifier names no queue, or the queue was removed. EACCES: the caller has no permission. If the queue is removed after this check,
/// the following steps of the call return EIDRM.
pub(super) fn find(id: c_int) -> Result<Used, Refusal> {
    there(raw::find(id), id)
}

/// Returns the queue as [`find`] does, in a form that may outlive the call, for example in a lease.
pub(super) fn keep(id: c_int) -> Result<Used, Refusal> {
    there(raw::keep(id), id)
}

fn there(found: Result<Used, c_int>, id: c_int) -> Result<Used, Refusal> {
    let found = found.and_then(Used::unless_removed);
    found.map_err(|errno| Refusal::of_id(errno, id))
}

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Control(#[from] ControlError),
    /// An errno whose cause is not known in more detail.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Errno(c_int),
}

impl Refusal {
    pub(crate) fn errno(&self) -> c_int {
        match self {
            Refusal::Open(error) => error.errno(),
            Refusal::Send(error) => error.errno(),
            Refusal::Receive(error) => error.errno(),
            Refusal::Control(error) => error.errno(),
            Refusal::Errno(errno) => *errno,
        }
    }

    /// Returns the error of a message that was not sent.
    #[cold]
    pub(super) fn of_send(errno: c_int, id: c_int, mtype: i64, len: size_t) -> Refusal {
        let likely = match errno {
            libc::EAGAIN => SendError::Full,
            libc::ETIMEDOUT => SendError::TimedOut,
            libc::EIDRM => SendError::Removed,
            libc::EPIPE => SendError::Closed,
            libc::EINTR => SendError::Interrupted,
            libc::EDEADLK => SendError::Queue(QueueError::WouldDeadlock),
            libc::EBADMSG => SendError::Queue(QueueError::Damaged),
            libc::EINVAL if mtype < 1 => SendError::InvalidType,
            _ => match raw::find(id) {
                Ok(queue) if errno == libc::EINVAL && len > queue.msgmax() => {
                    let max = queue.msgmax();
                    SendError::TooLong { len, max }
                }
                Ok(_) if errno == libc::EACCES => SendError::PermissionDenied,
                Ok(_) if errno == libc::ENOMEM => raw::why_no_memory(len),
                _ => return Refusal::of_id(errno, id),
            },
        };
        likely.into()
    }

    /// Returns the error of a message that was not received.
    #[cold]
    pub(super) fn of_receive(errno: c_int, id: c_int) -> Refusal {
        let likely = match errno {
            libc::ENOMSG => ReceiveError::NoMessage,
            libc::ETIMEDOUT => ReceiveError::TimedOut,
            libc::EIDRM => ReceiveError::Removed,
            libc::EPIPE => ReceiveError::Closed,
            libc::EINTR => ReceiveError::Interrupted,
            libc::EDEADLK => ReceiveError::Queue(QueueError::WouldDeadlock),
            libc::EBADMSG => ReceiveError::Queue(QueueError::Damaged),
            libc::EACCES if raw::find(id).is_ok() => ReceiveError::PermissionDenied,
            _ => return Refusal::of_id(errno, id),
        };
        likely.into()
    }

    /// Returns the error of a queue that was not queried, changed or removed.
    #[cold]
    pub(super) fn of_control(errno: c_int, id: c_int) -> Refusal {
        let likely = match errno {
            libc::EIDRM => ControlError::Removed,
            libc::EPERM => ControlError::NotOwner,
            libc::EDEADLK => ControlError::Queue(QueueError::WouldDeadlock),
            libc::EBADMSG => ControlError::Queue(QueueError::Damaged),
            libc::EACCES if raw::find(id).is_ok() => ControlError::PermissionDenied,
            _ => return Refusal::of_id(errno, id),
        };
        likely.into()
    }

    /// Returns the error of a queue that was not found by its identifier. A second search gives the detailed error.
    #[cold]
    pub(super) fn of_id(errno: c_int, id: c_int) -> Refusal {
        match OpenOptions::new().open_id(id) {
            Err(error) if error.errno() == errno => error.into(),
            // The second search did not fail with this errno: the queue has changed since the first search, or the error has another cause.
            _ => Refusal::Errno(errno),
        }
    }
}
