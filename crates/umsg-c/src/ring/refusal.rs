//! The reasons why calls on a ring fail.

use libc::c_int;
use umsg::ring::{INLINE, ReceiveError, RingError, SendError};

/// The reason why a call on a ring failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The call fails with EBADF.
    #[error("the pointer does not belong to an open ring")]
    NoRing,
    /// The call fails with EBADF.
    #[error("the pointer does not belong to an open sender of a ring")]
    NoSender,
    /// The call fails with EBADF.
    #[error("{0} is not an open file descriptor")]
    NoDescriptor(c_int),
    /// The call fails with EBADF.
    #[error("no descriptor has arrived with the ticket {0}")]
    NoSuchTicket(c_int),
    /// The call fails with EBUSY.
    #[error("another call that receives from this ring has not returned yet")]
    Busy,
    /// The call fails with EMSGSIZE.
    #[error("a payload of {0} bytes is too long for this call, which takes at most {INLINE} bytes")]
    TooLong(usize),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
}

impl Refusal {
    pub(crate) fn errno(&self) -> c_int {
        match self {
            Refusal::NoRing
            | Refusal::NoSender
            | Refusal::NoDescriptor(_)
            | Refusal::NoSuchTicket(_) => libc::EBADF,
            Refusal::Busy => libc::EBUSY,
            Refusal::TooLong(_) => libc::EMSGSIZE,
            Refusal::Ring(error) => error.errno(),
            Refusal::Send(error) => error.errno(),
            Refusal::Receive(error) => error.errno(),
        }
    }
}
