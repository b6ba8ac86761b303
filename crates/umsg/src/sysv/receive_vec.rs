//! Receiving into a new vector.

use super::error::ReceiveError;
use super::queue::Queue;
use super::receive::Heeds;
use crate::until::realtime;
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sysv_engine::order::Want;

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The bytes of the message.
    pub data: Vec<u8>,
    /// The message's type, 1 or more.
    pub mtype: i64,
}

impl Queue {
    /// Receives the first wanted message into a new vector; otherwise behaves as [`receive`](Self::receive).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let message = queue.receive_vec(Want::Any)?;
    /// assert_eq!((message.data, message.mtype), (b"job".to_vec(), 5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive`](Self::receive) except `TooSmall`.
    pub fn receive_vec(&self, want: Want) -> Result<Message, ReceiveError> {
        self.receive_vec_by(want, Deadline::Never)
    }

    /// Receives the first wanted message into a new vector; otherwise behaves as [`try_receive`](Self::try_receive).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::{ReceiveError, Want};
    ///
    /// queue.send(5, b"job")?;
    /// assert_eq!(queue.try_receive_vec(Want::Exactly(4)), Err(ReceiveError::NoMessage));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`try_receive`](Self::try_receive) except `TooSmall`.
    pub fn try_receive_vec(&self, want: Want) -> Result<Message, ReceiveError> {
        self.receive_vec_by(want, Deadline::Passed)
    }

    /// Receives the first wanted message into a new vector; otherwise behaves as [`receive_timeout`](Self::receive_timeout).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::{ReceiveError, Want};
    ///
    /// let moment = std::time::Duration::from_millis(1);
    /// assert_eq!(queue.receive_vec_timeout(Want::Any, moment), Err(ReceiveError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_timeout`](Self::receive_timeout) except `TooSmall`.
    pub fn receive_vec_timeout(
        &self,
        want: Want,
        timeout: Duration,
    ) -> Result<Message, ReceiveError> {
        self.receive_vec_by(want, Deadline::after(timeout))
    }

    /// Receives the first wanted message into a new vector; otherwise behaves as [`receive_deadline`](Self::receive_deadline).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_vec_deadline(Want::Any, soon)?.data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_deadline`](Self::receive_deadline) except `TooSmall`.
    pub fn receive_vec_deadline(
        &self,
        want: Want,
        deadline: SystemTime,
    ) -> Result<Message, ReceiveError> {
        self.receive_vec_by(want, realtime(deadline))
    }

    fn receive_vec_by(&self, want: Want, deadline: Deadline) -> Result<Message, ReceiveError> {
        let mut data = vec![0; self.msgmax()];
        let received = match deadline {
            Deadline::Passed => self.try_receive_by(want, &mut data, false, Heeds::End),
            _ => self.receive_by(want, &mut data, false, (deadline, Heeds::End)),
        }?;
        data.truncate(received.len);
        Ok(Message {
            data,
            mtype: received.mtype,
        })
    }
}
