//! Closing a queue for sending: the end of a stream of messages.

use super::queue::Queue;
use crate::error::SendError;
use umsg_shm::sys::thread;

impl Queue {
    /// Closes the queue for sending, in all processes. All sends fail with [`SendError::Closed`], including sends that already wait. Receivers get
    /// the remaining messages, then [`ReceiveError::Closed`](super::ReceiveError::Closed); blocked receivers are woken. Returns false if the queue
    /// was already closed. Source: none, the kernel's queues have no such call.
    ///
    /// The stream ends when no message is left and no message can return to the queue: while another process leases a message, a receiver waits. A
    /// reservation can no longer be committed. A poller finds the closed queue writable, and at the end of the stream also readable. A process that
    /// is registered for a notification is notified if the queue is empty.
    ///
    /// The queue stays closed for sending until a process [reopens](Self::reopen_send) or removes it. The call needs permission to send.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::{ReceiveError, SendError};
    ///
    /// queue.send(b"last", 0)?;
    /// assert!(queue.close_send()?);
    /// assert_eq!(queue.send(b"more", 0), Err(SendError::Closed));
    /// assert_eq!(queue.receive_vec()?.data, b"last");
    /// assert_eq!(queue.receive_vec(), Err(ReceiveError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Only while a process is stopped inside an operation on this queue.
    ///
    /// # Errors
    /// [`SendError::NotWritable`] (EBADF), [`QueueError::Damaged`](crate::QueueError::Damaged),
    /// [`QueueError::WouldDeadlock`](crate::QueueError::WouldDeadlock).
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the queue is closed for sending, or it is unchanged. If it is closed, waiters that were not woken
    /// notice the closing within a tenth of a second.
    pub fn close_send(&self) -> Result<bool, SendError> {
        self.check_to_send(0)?;
        let closed = self.engine.close_send(thread::current());
        closed.map_err(|refused| self.send_error(refused))
    }

    /// Opens a queue for sending again. Returns false if the queue was not closed for sending.
    ///
    /// A receiver that got the end of the stream, or waits for the end, is not notified; its next call waits for messages.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.close_send()?;
    /// assert!(queue.is_send_closed());
    /// queue.reopen_send()?;
    /// queue.send(b"next stream", 0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// The same as for [`close_send`](Self::close_send).
    ///
    /// # Errors
    /// The errors of [`close_send`](Self::close_send).
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the queue is open for sending, or still closed for sending.
    pub fn reopen_send(&self) -> Result<bool, SendError> {
        self.check_to_send(0)?;
        let opened = self.engine.reopen_send(thread::current());
        opened.map_err(|refused| self.send_error(refused))
    }

    /// Returns whether the queue is closed for sending.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// assert!(!queue.is_send_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_send_closed(&self) -> bool {
        self.engine.is_send_closed()
    }
}
