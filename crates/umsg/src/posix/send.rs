//! Sending a message.

use super::queue::{Queue, no_later_than};
use crate::error::SendError;
use crate::until::realtime;
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::{Engine, Refused};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;

impl Queue {
    /// Sends a message. Source: mq_send(3).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"later", 0)?;
    /// queue.send(b"first", 9)?;
    /// assert_eq!(queue.receive_vec()?.data, b"first");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full. Blocked senders get room in the order of their threads' scheduling priority; for equal priorities, in the
    /// order in which they began to wait.
    ///
    /// # Errors
    /// All errors of [`SendError`] except `Full` and `TimedOut`.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message was sent completely, or not at all.
    #[inline]
    pub fn send(&self, message: &[u8], priority: u32) -> Result<(), SendError> {
        self.send_by(message, priority, Deadline::Never, true)
    }

    /// Sends a message if the queue has room now; does not wait for room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::SendError;
    ///
    /// while queue.try_send(b"job", 0).is_ok() {}
    /// assert_eq!(queue.try_send(b"job", 0), Err(SendError::Full));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for room. If a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the other errors of [`SendError`] except `TimedOut`.
    #[inline(always)]
    pub fn try_send(&self, message: &[u8], priority: u32) -> Result<(), SendError> {
        self.send_by(message, priority, Deadline::Passed, false)
    }

    /// Sends a message as [`try_send`](Self::try_send) does. The caller waits until `deadline` if there is no room. So if a process is stopped inside
    /// an operation, this call, too, returns by `deadline`.
    #[doc(hidden)]
    pub fn try_send_until(
        &self,
        message: &[u8],
        priority: u32,
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_by(message, priority, no_later_than(deadline), false)
    }

    /// Sends a message; waits for room at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let second = std::time::Duration::from_secs(1);
    /// queue.send_timeout(b"job", 0, second)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full, or while a process is stopped inside an operation on the queue; at most until the time is over.
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the other errors of [`SendError`] except `Full`.
    pub fn send_timeout(
        &self,
        message: &[u8],
        priority: u32,
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_by(message, priority, Deadline::after(timeout), true)
    }

    /// Sends a message; waits for room at most until `deadline`, on the system's clock (CLOCK_REALTIME), as
    /// mq_timedsend(3) does. A deadline in the past is no error if there is room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// queue.send_deadline(b"job", 0, soon)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`send_timeout`](Self::send_timeout) does.
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the other errors of [`SendError`] except `Full`.
    pub fn send_deadline(
        &self,
        message: &[u8],
        priority: u32,
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_by(message, priority, realtime(deadline), true)
    }

    #[inline(always)]
    fn send_by(
        &self,
        message: &[u8],
        priority: u32,
        deadline: Deadline,
        blocks: bool,
    ) -> Result<(), SendError> {
        if !Engine::is_priority(priority) {
            return Err(SendError::PriorityTooHigh);
        }
        self.check_to_send(message.len())?;
        let me = thread::current();
        let result = if blocks {
            self.engine.send(me, message, priority as usize, deadline)
        } else {
            self.engine
                .try_send(me, message, priority as usize, deadline)
        };
        result.map_err(|refused| self.send_error(refused))
    }

    /// Checks that the handle may send, and that the queue takes messages of `len` bytes.
    #[inline(always)]
    pub(super) fn check_to_send(&self, len: usize) -> Result<(), SendError> {
        if !self.access.write {
            return Err(SendError::NotWritable);
        }
        let max = self.engine.segment().layout().message_size;
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        Ok(())
    }

    #[cold]
    pub(super) fn send_error(&self, refused: Refused) -> SendError {
        self.engine.do_chore();
        match refused {
            Refused::NotNow | Refused::Own(_) => SendError::Full,
            Refused::TimedOut => SendError::TimedOut,
            Refused::Interrupted => SendError::Interrupted,
            Refused::Closed => SendError::Closed,
            Refused::Fault(fault) => {
                self.note(fault);
                fault.into()
            }
        }
    }
}
