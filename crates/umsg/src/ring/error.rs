//! Errors of rings, and their errno.

use crate::error::{OpenError, QueueError, SegmentError, from_fault};

/// The reason why a message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// EBADFD: the ring is disabled, see [`Ring::enable`](super::Ring::enable).
    #[error("the ring is disabled: wait until its owner enables it")]
    Disabled,
    /// EPIPE: the ring was closed by its owner.
    #[error(
        "the ring's owner closed the ring: wait until a process creates the ring again, then open the new ring"
    )]
    Closed,
    /// EOWNERDEAD: the ring's owner died.
    #[error(
        "the ring's owner died: wait until a process creates the ring again, then open the new ring"
    )]
    OwnerDead,
    /// EAGAIN: the ring and its overflow are full.
    #[error("the ring and its overflow are full: wait until the receiver takes messages")]
    Full,
    /// ETIMEDOUT: the deadline passed before there was room.
    #[error("timed out waiting for room in the ring")]
    TimedOut,
    /// EMSGSIZE: the payload is longer than the ring's longest payload, both in bytes.
    #[error("a payload of {len} bytes is too long: this ring takes at most {max} bytes")]
    TooLong {
        /// Length of the payload, in bytes.
        len: usize,
        /// The ring's longest payload, in bytes.
        max: usize,
    },
    /// EMSGSIZE: the batch has more messages than the ring and its overflow hold.
    #[error(
        "a batch of {messages} messages is too large: the ring holds {max}, its overflow included"
    )]
    BatchTooLarge {
        /// Number of messages in the batch.
        messages: usize,
        /// Number of messages for which the entries and the overflow have room.
        max: usize,
    },
    /// EINTR: a signal handler ran while the call waited.
    #[error("a signal handler interrupted the call: repeat the call")]
    Interrupted,
    /// EAGAIN: the receiver's socket holds its maximum number of descriptors, `net.unix.max_dgram_qlen` plus one, usually 11. The receiver takes the
    /// descriptors out of the socket when it receives.
    #[error(
        "too many sent descriptors wait for the receiver: send again after the receiver has taken some descriptors"
    )]
    TooManyDescriptors,
    /// The descriptor could not be sent to the receiver.
    #[error("the descriptor could not be sent to the receiver: {0}")]
    Descriptor(std::io::Error),
    /// The errors that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl SendError {
    /// Returns the error number.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// ring.close();
    /// let closed = sender.send(&umsg::ring::Post::new(1)).unwrap_err();
    /// assert_eq!(closed.errno(), libc::EPIPE);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            SendError::Disabled => libc::EBADFD,
            SendError::Closed => libc::EPIPE,
            SendError::OwnerDead => libc::EOWNERDEAD,
            SendError::Full => libc::EAGAIN,
            SendError::TimedOut => libc::ETIMEDOUT,
            SendError::TooLong { .. } | SendError::BatchTooLarge { .. } => libc::EMSGSIZE,
            SendError::TooManyDescriptors => libc::EAGAIN,
            SendError::Interrupted => libc::EINTR,
            SendError::Descriptor(error) => error.raw_os_error().unwrap_or(libc::EIO),
            SendError::Queue(error) => error.errno(),
        }
    }
}

from_fault!(SendError, of, Full);

/// The reason why no message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// EAGAIN: there is no message.
    #[error("the ring is empty")]
    Empty,
    /// ETIMEDOUT: the deadline passed before the messages came.
    #[error("timed out waiting for messages")]
    TimedOut,
    /// EINTR: a signal handler ran while the call waited.
    #[error("a signal handler interrupted the call: repeat the call")]
    Interrupted,
    /// EINVAL: the ring can't hold that many messages at once.
    #[error("can't wait for so many messages: the ring holds at most {max}, its overflow included")]
    TooMany {
        /// Number of messages for which the entries and the overflow have room.
        max: u64,
    },
    /// EPERM: this process is a forked child of the ring's owner, and may only send.
    #[error("only the ring's owner can receive, and this process is a forked child of the owner")]
    NotOwner,
    /// The errors that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl ReceiveError {
    /// Returns the error number.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert_eq!(ring.try_receive().unwrap_err().errno(), libc::EAGAIN);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ReceiveError::Empty => libc::EAGAIN,
            ReceiveError::TimedOut => libc::ETIMEDOUT,
            ReceiveError::Interrupted => libc::EINTR,
            ReceiveError::TooMany { .. } => libc::EINVAL,
            ReceiveError::NotOwner => libc::EPERM,
            ReceiveError::Queue(error) => error.errno(),
        }
    }
}

// A receive never fails for lack of memory, because all of its memory was populated when the ring was made.
from_fault!(ReceiveError, of_in_place, Empty);

impl From<umsg_shm::fault::AttachError> for RingError {
    fn from(error: umsg_shm::fault::AttachError) -> Self {
        OpenError::from(error).into()
    }
}

/// The reason why a ring was not made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// EINVAL: the number of entries is 0, or the number of entries and overflow together exceeds the limit of rings.
    #[error("the number of entries, overflow included, must be from 1 to {max}, not {value}")]
    InvalidEntries {
        /// The requested number of entries.
        value: u64,
        /// The largest permitted number.
        max: u64,
    },
    /// ENOENT: no ring has this name.
    #[error(
        "no ring has this name: correct the name, or start the program that receives from the ring"
    )]
    NotFound,
    /// EINVAL: the file is a queue, not a ring.
    #[error("the name belongs to a queue, not to a ring: choose another name")]
    NotARing,
    /// EBUSY: another living process owns the ring.
    #[error(
        "the ring exists already, and process {0} owns it: choose another name, or end that process"
    )]
    Owned(u32),
    /// The errors that opening a queue and opening a ring share.
    #[error("{}", of_a_ring(.0))]
    Open(#[from] OpenError),
}

/// Describes an error of opening a queue in terms of a ring.
fn of_a_ring(error: &OpenError) -> String {
    let text = match error {
        OpenError::InvalidName => {
            "a ring's name must be a slash followed by 1 to 255 bytes, such as /jobs"
        }
        OpenError::DeniedName => {
            "a ring's name must not be /. or /.., and must contain no slash except the first"
        }
        OpenError::NameTooLong => "a ring's name must have at most 255 bytes after its slash",
        OpenError::NotFound => return RingError::NotFound.to_string(),
        OpenError::AlreadyExists => "a ring of this name exists already",
        OpenError::SecondName => {
            "the ring's file has a second hard link, so programs that use the other name would share the ring. Remove the link that the owner did not create."
        }
        OpenError::PermissionDenied => "permission denied by the ring's mode or by its directory",
        OpenError::Segment(SegmentError::NotAQueue(what)) => {
            return format!("the file is not a ring ({what})");
        }
        OpenError::Segment(SegmentError::OtherVersion { found, expected }) => {
            return match found == expected {
                true => "another build of umsg created the ring, with another layout of the same format: remove the ring".to_owned(),
                false => format!(
                    "the ring has format {found}, and this version of umsg reads format {expected}: remove the ring"
                ),
            };
        }
        OpenError::Segment(SegmentError::Damaged(what)) => {
            return format!("the ring's file is corrupted ({what}): repair or remove the ring");
        }
        other => return other.to_string(),
    };
    text.to_owned()
}

impl RingError {
    /// Returns the error number.
    ///
    /// ```
    /// let error = umsg::ring::Options::new().entries(0).create().unwrap_err();
    /// assert_eq!(error.errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            RingError::InvalidEntries { .. } | RingError::NotARing => libc::EINVAL,
            RingError::NotFound => libc::ENOENT,
            RingError::Owned(_) => libc::EBUSY,
            RingError::Open(error) => error.errno(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_ring_does_not_speak_of_queues() {
        let (found, expected) = (2, 1);
        for error in [
            OpenError::InvalidName,
            OpenError::DeniedName,
            OpenError::NameTooLong,
            OpenError::NotFound,
            OpenError::AlreadyExists,
            OpenError::PermissionDenied,
            SegmentError::NotAQueue("a directory").into(),
            SegmentError::OtherVersion { found, expected }.into(),
            SegmentError::Damaged("its length").into(),
        ] {
            let text = RingError::Open(error).to_string();
            assert!(text.contains("ring") && !text.contains("queue"), "{text}");
        }
    }
}
