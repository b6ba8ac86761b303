//! Receiving into a new vector.

use super::queue::Queue;
use crate::error::ReceiveError;
use crate::until::realtime;
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::Deadline;

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The bytes of the message.
    pub data: Vec<u8>,
    /// Priority, 0 to 32,767.
    pub priority: u32,
}

impl Queue {
    /// Receives a message into a new vector; otherwise behaves as [`receive`](Self::receive).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 3)?;
    /// let message = queue.receive_vec()?;
    /// assert_eq!((message.data, message.priority), (b"job".to_vec(), 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive`](Self::receive) except `BufferTooSmall`.
    pub fn receive_vec(&self) -> Result<Message, ReceiveError> {
        self.receive_vec_by(Deadline::Never)
    }

    /// Receives a message into a new vector; otherwise behaves as [`try_receive`](Self::try_receive).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::ReceiveError;
    ///
    /// assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`try_receive`](Self::try_receive) except `BufferTooSmall`.
    pub fn try_receive_vec(&self) -> Result<Message, ReceiveError> {
        self.receive_vec_by(Deadline::Passed)
    }

    /// Receives a message into a new vector; otherwise behaves as [`receive_timeout`](Self::receive_timeout).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::ReceiveError;
    ///
    /// let moment = std::time::Duration::from_millis(1);
    /// assert_eq!(queue.receive_vec_timeout(moment), Err(ReceiveError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_timeout`](Self::receive_timeout) except `BufferTooSmall`.
    pub fn receive_vec_timeout(&self, timeout: Duration) -> Result<Message, ReceiveError> {
        self.receive_vec_by(Deadline::after(timeout))
    }

    /// Receives a message into a new vector; otherwise behaves as [`receive_deadline`](Self::receive_deadline).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_vec_deadline(soon)?.data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_deadline`](Self::receive_deadline) except `BufferTooSmall`.
    pub fn receive_vec_deadline(&self, deadline: SystemTime) -> Result<Message, ReceiveError> {
        self.receive_vec_by(realtime(deadline))
    }

    fn receive_vec_by(&self, deadline: Deadline) -> Result<Message, ReceiveError> {
        let mut data = vec![0; self.engine.segment().layout().message_size];
        let blocks = deadline != Deadline::Passed;
        let received = self.receive_by(&mut data, deadline, blocks)?;
        data.truncate(received.len);
        Ok(Message {
            data,
            priority: received.priority,
        })
    }
}
