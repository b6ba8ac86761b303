//! Why a snapshot was not taken, written, read or restored.

use crate::error::{OpenError, ReceiveError, SendError};
use std::fmt;
use std::io;

/// Why a snapshot was not taken, written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The queue can't be looked at; its errno.
    #[error(transparent)]
    Queue(#[from] ReceiveError),
    /// ENOMEM: no memory for the messages.
    #[error("no memory left for the messages")]
    NoMemory,
    /// The snapshot could not be written; the writer's errno, EIO if it has none.
    #[error("writing the snapshot: {0}")]
    Write(io::Error),
    /// The snapshot could not be read; the reader's errno, EIO if it has none.
    #[error("reading the snapshot: {0}")]
    Read(io::Error),
    /// EINVAL: the input does not begin as a snapshot does.
    #[error("not a snapshot of a queue")]
    NotASnapshot,
    /// EINVAL: a snapshot of a version that this one can't read.
    #[error(
        "the snapshot has format {found}, which this version of umsg can't read; it reads {expected}"
    )]
    OtherVersion {
        /// Major version of the format in the file.
        found: u16,
        /// Major version that this library reads.
        expected: u16,
    },
    /// EBADMSG: the input ends too early.
    #[error("the snapshot was cut short: it ends at byte {at}, in {part}")]
    Truncated {
        /// What was being read.
        part: SnapshotPart,
        /// Bytes that were there.
        at: u64,
    },
    /// EBADMSG: the input is not what was written.
    #[error("the snapshot is damaged: in {part}, which begins at byte {at}, {what}")]
    Damaged {
        /// What was being read.
        part: SnapshotPart,
        /// Where that part begins, in bytes from the beginning.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl SnapshotError {
    /// The error number for it.
    ///
    /// ```
    /// let error = umsg::posix::Snapshot::read(&mut &b"no snapshot"[..]).unwrap_err();
    /// assert_eq!(error.errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            SnapshotError::Queue(error) => error.errno(),
            SnapshotError::NoMemory => libc::ENOMEM,
            SnapshotError::Write(error) | SnapshotError::Read(error) => {
                error.raw_os_error().unwrap_or(libc::EIO)
            }
            SnapshotError::NotASnapshot | SnapshotError::OtherVersion { .. } => libc::EINVAL,
            SnapshotError::Truncated { .. } | SnapshotError::Damaged { .. } => libc::EBADMSG,
        }
    }
}

/// A part of a snapshot's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotPart {
    /// Version, attributes, counts.
    Header,
    /// The message at this position in order of delivery, counted from 0.
    Message(u64),
    /// What stands behind the last message.
    Trailer,
}

impl fmt::Display for SnapshotPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotPart::Header => f.write_str("the header"),
            SnapshotPart::Message(position) => write!(f, "the message at position {position}"),
            SnapshotPart::Trailer => f.write_str("the trailer"),
        }
    }
}

/// Why a snapshot was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The queue was not created; its errno.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// EMSGSIZE: nothing was sent, because a message is longer than the queue's message size, both in bytes.
    #[error(
        "the message at position {position} has {len} bytes, too many for this queue: its message size is {max} bytes"
    )]
    TooLong {
        /// The message's position in the snapshot, counted from 0.
        position: usize,
        /// Length of the message, in bytes.
        len: usize,
        /// The queue's message size, in bytes.
        max: usize,
    },
    /// EAGAIN: nothing was sent, because the queue has no room for all messages.
    #[error("the snapshot holds {messages} messages, and the queue has room for {room}")]
    NoRoom {
        /// How many messages the snapshot holds.
        messages: usize,
        /// How many more the queue could hold.
        room: usize,
    },
    /// A message was refused; the errno of the refusal. Nothing was sent, and no queue made.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl RestoreError {
    /// The error number for it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let snapshot = umsg::posix::Snapshot::of(&queue)?;
    /// let mut options = umsg::posix::OpenOptions::new();
    /// options.read(true).write(true).create(true).exclusive(true).namespace(&namespace);
    /// let error = snapshot.restore("/q", &options).unwrap_err();
    /// assert_eq!(error.errno(), libc::EEXIST);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            RestoreError::Open(error) => error.errno(),
            RestoreError::TooLong { .. } => libc::EMSGSIZE,
            RestoreError::NoRoom { .. } => libc::EAGAIN,
            RestoreError::Send(error) => error.errno(),
        }
    }
}
