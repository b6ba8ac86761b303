//! Looking at messages that stay in the queue.

use super::queue::Queue;
use crate::error::ReceiveError;
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::{PeekedMessages, Seen};
use umsg_shm::sys::{clock, thread};

/// A message that was looked at and stays in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peeked {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Priority, 0 to 32,767.
    pub priority: u32,
    /// Process id of the sender.
    pub pid: u32,
    /// When it was sent, to a few milliseconds.
    pub sent: SystemTime,
    /// How often it was leased and came back.
    pub returns: u32,
}

impl Peeked {
    fn new(seen: &Seen, bytes: &[u8]) -> Peeked {
        Peeked {
            data: bytes.to_vec(),
            priority: seen.key as u32,
            pid: seen.pid,
            sent: clock::shown(seen.sent_at),
            returns: seen.returns,
        }
    }

    /// How long ago the message was sent; zero if the system's clock was set back since.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let oldest = queue.peek(0)?.unwrap();
    /// assert!(oldest.age() < std::time::Duration::from_secs(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn age(&self) -> Duration {
        SystemTime::now()
            .duration_since(self.sent)
            .unwrap_or_default()
    }
}

impl Queue {
    /// The n-th message in order of delivery, counted from 0, without removing it. None if there are fewer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// assert_eq!(queue.peek(0)?.unwrap().data, b"job");
    /// assert!(queue.peek(1)?.is_none());
    /// assert_eq!(queue.attributes().messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Others that receive wait meanwhile: for a time in proportion to `n`, some nanoseconds a message.
    ///
    /// # Errors
    /// As [`messages`](Self::messages).
    pub fn peek(&self, n: usize) -> Result<Option<Peeked>, ReceiveError> {
        Ok(self.peeked(n, 1)?.pop())
    }

    /// Up to `most` messages in order of delivery, without removing them: as they were at one instant. Those that a blocked
    /// receiver was given, that a blocked sender waits with, or that are leased are not among them; those that are too old
    /// for the queue are, until a receiver meets them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"low", 1)?;
    /// queue.send(b"high", 2)?;
    /// let messages = queue.messages(10)?;
    /// assert_eq!(messages[0].data, b"high");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Others that receive wait meanwhile, for as long as copying takes; senders do not.
    ///
    /// # Errors
    /// [`ReceiveError::NotReadable`], `Damaged`, `WouldDeadlock`; `NoMemory` if there is none for the copies; `TimedOut` if
    /// a process was stopped a second ago or more inside of an operation on this queue.
    ///
    /// # If the process dies
    /// Nothing is lost: a process that receives next goes on.
    pub fn messages(&self, most: usize) -> Result<Vec<Peeked>, ReceiveError> {
        self.peeked(0, most)
    }

    fn peeked(&self, skip: usize, most: usize) -> Result<Vec<Peeked>, ReceiveError> {
        let look = self.look(skip, most)?;
        let messages = look.iter().map(|(seen, bytes)| Peeked::new(seen, bytes));
        Ok(messages.collect())
    }

    /// Up to `most` messages behind the first `skip`.
    pub(super) fn look(&self, skip: usize, most: usize) -> Result<PeekedMessages, ReceiveError> {
        if !self.access.read {
            return Err(ReceiveError::NotReadable);
        }
        self.engine
            .peek(thread::current(), skip, most)
            .map_err(|refused| self.receive_error(refused))
    }
}
