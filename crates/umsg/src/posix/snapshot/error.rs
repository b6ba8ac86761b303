//! Errors of taking, writing, reading and restoring snapshots.

use crate::error::{OpenError, ReceiveError, SendError};
use std::fmt;
use std::io;

/// The reason why a snapshot was not taken, written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The messages of the queue can't be read. The errno is that of the inner error.
    #[error(transparent)]
    Queue(#[from] ReceiveError),
    /// ENOMEM: there is no memory for the messages.
    #[error(
        "no memory left for the snapshot's messages: free memory, or raise the limit of the memory cgroup"
    )]
    NoMemory,
    /// The snapshot could not be written. The errno is that of the writer, or EIO if the writer gives none.
    #[error("the snapshot can't be written: {0}")]
    Write(io::Error),
    /// The snapshot could not be read. The errno is that of the reader, or EIO if the reader gives none.
    #[error("the snapshot can't be read: {0}")]
    Read(io::Error),
    /// EINVAL: the input does not begin with the header of a snapshot.
    #[error("not a snapshot of a queue")]
    NotASnapshot,
    /// EINVAL: this library can't read the snapshot's format.
    #[error(
        "the snapshot has format {found}, and format {expected} was expected: use the umsg version that wrote it"
    )]
    OtherVersion {
        /// Major version of the format in the file.
        found: u16,
        /// Highest major version of this kind of snapshot that this library reads.
        expected: u16,
    },
    /// EBADMSG: the input ends too early.
    #[error(
        "the snapshot ends too early, at byte {at} in {part}: copy the file again from its source"
    )]
    Truncated {
        /// The part that was being read.
        part: SnapshotPart,
        /// Number of bytes in the input.
        at: u64,
    },
    /// EBADMSG: the input was altered after it was written.
    #[error("the snapshot is corrupted in {part}, from byte {at}: {what}")]
    Damaged {
        /// The part that was being read.
        part: SnapshotPart,
        /// Offset of the part in the file, in bytes.
        at: u64,
        /// The fault that was found in the part.
        what: &'static str,
    },
}

impl SnapshotError {
    /// Returns the error number.
    ///
    /// ```
    /// let error = umsg::posix::Snapshot::read(&mut &b"no snapshot"[..]).unwrap_err();
    /// assert_eq!(error.errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
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
    /// The bytes after the last message.
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

/// The reason why a snapshot was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The queue was not created. The errno is that of the inner error.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// EMSGSIZE: nothing was sent, because a message is longer than the queue's message size, both in bytes.
    #[error(
        "the message at position {position} has {len} bytes, more than the queue's message size of {max} bytes"
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
    #[error(
        "the snapshot holds {messages} messages, and the queue has room for only {room}: receive messages first, or restore under another name"
    )]
    NoRoom {
        /// Number of messages in the snapshot.
        messages: usize,
        /// Number of messages that the queue has room for.
        room: usize,
    },
    /// The queue refused a message. Nothing was sent, and no queue was created. The errno is that of the inner error.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl RestoreError {
    /// Returns the error number.
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
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            RestoreError::Open(error) => error.errno(),
            RestoreError::TooLong { .. } => libc::EMSGSIZE,
            RestoreError::NoRoom { .. } => libc::EAGAIN,
            RestoreError::Send(error) => error.errno(),
        }
    }
}
