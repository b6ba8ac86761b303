//! Peeking at messages without receiving them. System V itself has only MSG_COPY for this.

use super::error::ReceiveError;
use super::queue::Queue;
use super::receive::{Heeds, Received};
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::Seen;

/// A copy of a queued message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peeked {
    /// The message's bytes, or as many of the first bytes as were asked for.
    pub data: Vec<u8>,
    /// Length of the whole message, in bytes.
    pub len: usize,
    /// The message's type, 1 or more.
    pub mtype: i64,
    /// Process id of the sender.
    pub pid: u32,
    /// The time of the call that sent the message, accurate to a few milliseconds.
    pub sent: SystemTime,
    /// For a delayed message, the earliest time of its delivery. `None` for a queued message.
    pub due: Option<SystemTime>,
    /// The number of leases that ended with the return of the message to the queue.
    pub returns: u32,
}

impl Peeked {
    /// Returns the time since the send.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(1, b"job")?;
    /// assert!(queue.peek(0)?.unwrap().age() < std::time::Duration::from_secs(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn age(&self) -> Duration {
        self.sent.elapsed().unwrap_or_default()
    }
}

impl From<Seen> for Peeked {
    fn from(seen: Seen) -> Self {
        Peeked {
            data: seen.bytes,
            len: seen.len,
            mtype: seen.mtype,
            pid: seen.pid,
            sent: SystemTime::UNIX_EPOCH + Duration::from_nanos(seen.sent_at),
            due: (seen.due != 0).then(|| clock::shown(seen.due)),
            returns: seen.returns,
        }
    }
}

impl Queue {
    /// Copies the `n`th message in order of arrival and leaves it in the queue. Message 0 is the oldest. After a copy of a message, a copy of the
    /// next message takes constant time. Source: MSG_COPY in msgrcv(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// assert_eq!(queue.copy(0, &mut buffer)?.mtype, 5);
    /// assert_eq!(queue.status()?.entry.messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::NoMessage`] if there is no such message; [`ReceiveError::TooSmall`] if the buffer is shorter than the message.
    pub fn copy(&self, n: u32, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.judged_receive((Deadline::Passed, Heeds::Nothing), |call| {
            self.engine.copy(call, n, buffer).map(Received::from)
        })
    }

    /// Returns the `n`th message in order of arrival; None if there is no such message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// assert_eq!(queue.peek(0)?.unwrap().mtype, 5);
    /// assert!(queue.peek(1)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::PermissionDenied`], [`ReceiveError::Removed`], [`QueueError::Damaged`](crate::QueueError::Damaged).
    pub fn peek(&self, n: u32) -> Result<Option<Peeked>, ReceiveError> {
        Ok(self.look(n, 1, usize::MAX)?.pop())
    }

    /// Returns up to `most` messages in order of arrival, from the oldest on. Other processes may send and receive meanwhile.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// assert_eq!(queue.messages(10)?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    pub fn messages(&self, most: usize) -> Result<Vec<Peeked>, ReceiveError> {
        self.look(0, most, usize::MAX)
    }

    /// Returns messages as [`messages`](Queue::messages) does, from the `skip`th on, with the first `bytes` bytes of each.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// let seen = queue.look(0, 10, 2)?; // two bytes of each
    /// assert_eq!(seen.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    pub fn look(&self, skip: u32, most: usize, bytes: usize) -> Result<Vec<Peeked>, ReceiveError> {
        let seen = self.judged_receive((Deadline::Passed, Heeds::Nothing), |call| {
            self.engine.messages(call, skip, most, bytes)
        })?;
        Ok(seen.into_iter().map(Peeked::from).collect())
    }

    /// Returns up to `most` delayed messages in the order of their delivery times, as they were at one instant, and leaves them delayed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::Duration;
    ///
    /// queue.send_after(5, b"tomorrow", Duration::from_secs(24 * 3600))?;
    /// queue.send_after(5, b"in an hour", Duration::from_secs(3600))?;
    /// assert_eq!(queue.delayed_messages(10)?[0].data, b"in an hour");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    pub fn delayed_messages(&self, most: usize) -> Result<Vec<Peeked>, ReceiveError> {
        let (seen, bytes) = self.judged_receive((Deadline::Passed, Heeds::Nothing), |call| {
            self.engine.delayed_messages(call, most)
        })?;
        let mut rest = &bytes[..];
        let peeked = |mut seen: Seen| {
            let (data, behind) = rest.split_at(seen.len);
            rest = behind;
            seen.bytes = data.to_vec();
            Peeked::from(seen)
        };
        Ok(seen.into_iter().map(peeked).collect())
    }

    /// Returns up to `most` types of queued messages in ascending order, with the number of messages of each.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// queue.send(5, b"job")?;
    /// assert_eq!(queue.types(10)?, [(5, 2)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`peek`](Queue::peek).
    pub fn types(&self, most: usize) -> Result<Vec<(i64, u32)>, ReceiveError> {
        self.may_receive()?;
        self.engine
            .types(thread::current(), most)
            .map_err(|refused| self.receive_error(refused))
    }
}
