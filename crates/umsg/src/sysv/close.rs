//! Closing a queue for sending: the end of a stream of messages.

use super::error::SendError;
use super::permission::Access;
use super::queue::Queue;
use umsg_shm::sys::thread;

impl Queue {
    /// Closes the queue for sending, in all processes. Returns false if it was already closed. Source: none, the kernel's queues have no such
    /// call.
    ///
    /// All sends through [`Queue`] fail with [`SendError::Closed`], including sends that already wait. A receiver gets the remaining messages, and
    /// then [`ReceiveError::Closed`](super::ReceiveError::Closed) if no message that it wants is left. Blocked receivers are woken. While a message
    /// is leased or delayed, receivers wait, because it may be a message that they want. Pollers find the closed queue writable, and at the end of
    /// the stream also readable.
    ///
    /// msgsnd(2) and msgrcv(2) under `umsg run`, and the calls of [`raw`](super::raw), ignore the close of a queue: msgsnd sends, and msgrcv waits.
    /// The kernel's calls have no error for a closed queue. A receive through [`Queue`] also gets messages that msgsnd has sent after the close.
    ///
    /// The caller needs the permission to send.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::{ReceiveError, SendError, Want};
    ///
    /// queue.send(1, b"last")?;
    /// assert!(queue.close_send()?);
    /// assert_eq!(queue.send(1, b"more"), Err(SendError::Closed));
    /// assert_eq!(queue.receive_vec(Want::Any)?.data, b"last");
    /// assert_eq!(queue.receive_vec(Want::Any), Err(ReceiveError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks only while a process is stopped inside an operation on this queue.
    ///
    /// # Errors
    /// [`SendError::PermissionDenied`] (EACCES), [`SendError::Removed`] (EIDRM), [`QueueError::Damaged`](crate::QueueError::Damaged),
    /// [`QueueError::WouldDeadlock`](crate::QueueError::WouldDeadlock).
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the queue is closed or open. If it is closed, waiters that were not woken notice it within a
    /// tenth of a second.
    pub fn close_send(&self) -> Result<bool, SendError> {
        self.may_send(Access::Write)?;
        let closed = self.engine.close_send(thread::current());
        closed.map_err(|refused| self.send_error(refused))
    }

    /// Opens a queue for sending again. Returns false if the queue was not closed for sending.
    ///
    /// A receiver that got [`ReceiveError::Closed`](super::ReceiveError::Closed) is not notified; its next call waits for messages.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.close_send()?;
    /// assert!(queue.is_send_closed());
    /// queue.reopen_send()?;
    /// queue.send(1, b"next stream")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`close_send`](Self::close_send) does.
    ///
    /// # Errors
    /// The errors of [`close_send`](Self::close_send).
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the queue is closed or open.
    pub fn reopen_send(&self) -> Result<bool, SendError> {
        self.may_send(Access::Write)?;
        let opened = self.engine.reopen_send(thread::current());
        opened.map_err(|refused| self.send_error(refused))
    }

    /// Returns whether the queue is closed for sending.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// assert!(!queue.is_send_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_send_closed(&self) -> bool {
        self.engine.is_send_closed()
    }
}
