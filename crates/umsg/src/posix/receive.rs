//! Receiving a message into a buffer.

use super::queue::{Queue, no_later_than};
use crate::error::ReceiveError;
use crate::until::realtime;
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::{Refused, Taken};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;

/// A received message. Its bytes are in the caller's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Length in bytes.
    pub len: usize,
    /// Priority, 0 to 32,767.
    pub priority: u32,
}

impl Queue {
    /// Receives the next message: the oldest of the highest priority. The buffer must have room for the queue's message size,
    /// however short the message is. Source: mq_receive(3).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 3)?;
    /// let mut buffer = vec![0; queue.attributes().message_size];
    /// let received = queue.receive(&mut buffer)?;
    /// assert_eq!((&buffer[..received.len], received.priority), (&b"job"[..], 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is empty. Blocked receivers get messages in the order of their threads' scheduling priority; for equal priorities, in
    /// the order in which they began to wait.
    ///
    /// # Errors
    /// All errors of [`ReceiveError`] except `Empty` and `TimedOut`.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message is still in the queue, or lost if the call had already copied it.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, Deadline::Never, true)
    }

    /// Receives a message if the queue contains one now; does not wait for a message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::ReceiveError;
    ///
    /// let mut buffer = vec![0; queue.attributes().message_size];
    /// assert_eq!(queue.try_receive(&mut buffer), Err(ReceiveError::Empty));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for a message. If a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] (EAGAIN) and the other errors of [`ReceiveError`] except `TimedOut`.
    #[inline(always)]
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, Deadline::Passed, false)
    }

    /// Receives a message as [`try_receive`](Self::try_receive) does. The caller waits until `deadline` if there is no message. So if a process is
    /// stopped inside an operation, this call, too, returns by `deadline`.
    #[doc(hidden)]
    pub fn try_receive_until(
        &self,
        buffer: &mut [u8],
        deadline: SystemTime,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, no_later_than(deadline), false)
    }

    /// Receives a message; waits for a message at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::ReceiveError;
    ///
    /// let mut buffer = vec![0; queue.attributes().message_size];
    /// let moment = std::time::Duration::from_millis(1);
    /// assert_eq!(queue.receive_timeout(&mut buffer, moment), Err(ReceiveError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is empty, or while a process is stopped inside an operation on the queue; at most until the time is over.
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the other errors of [`ReceiveError`] except `Empty`.
    pub fn receive_timeout(
        &self,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, Deadline::after(timeout), true)
    }

    /// Receives a message; waits for a message at most until `deadline`, on the system's clock (CLOCK_REALTIME), as
    /// mq_timedreceive(3) does. A deadline in the past is no error if there is a message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let mut buffer = vec![0; queue.attributes().message_size];
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_deadline(&mut buffer, soon)?.len, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`receive_timeout`](Self::receive_timeout) does.
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the other errors of [`ReceiveError`] except `Empty`.
    pub fn receive_deadline(
        &self,
        buffer: &mut [u8],
        deadline: SystemTime,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, realtime(deadline), true)
    }

    /// Raises, at the end of a receive, the signal of a notification that fired before the message was received.
    #[inline(always)]
    pub(super) fn raise_fired<T, E>(&self, me: &thread::Thread, received: &Result<T, E>) {
        if received.is_ok() && crate::notification::concerns(me) {
            self.engine.raise_fired(me);
            crate::notification::note_raised_elsewhere(&self.engine);
            crate::notification::take_raised(me);
        }
    }

    #[inline(always)]
    pub(super) fn receive_by(
        &self,
        buffer: &mut [u8],
        deadline: Deadline,
        blocks: bool,
    ) -> Result<Received, ReceiveError> {
        if !self.access.read {
            return Err(ReceiveError::NotReadable);
        }
        let needed = self.engine.segment().layout().message_size;
        if buffer.len() < needed {
            return Err(ReceiveError::BufferTooSmall {
                len: buffer.len(),
                needed,
            });
        }
        let me = thread::current();
        let result = if blocks {
            self.engine.receive(me, buffer, deadline)
        } else {
            self.engine.try_receive(me, buffer, deadline)
        };
        self.engine.do_chore();
        self.raise_fired(me, &result);
        match result {
            Ok(Taken { len, key, .. }) => Ok(Received {
                len,
                priority: key as u32,
            }),
            Err(refused) => Err(self.receive_error(refused)),
        }
    }

    #[cold]
    pub(super) fn receive_error(&self, refused: Refused) -> ReceiveError {
        match refused {
            Refused::NotNow | Refused::Own(_) => ReceiveError::Empty,
            Refused::TimedOut => ReceiveError::TimedOut,
            Refused::Interrupted => ReceiveError::Interrupted,
            Refused::Closed => ReceiveError::Closed,
            Refused::Fault(fault) => {
                self.note(fault);
                fault.into()
            }
        }
    }
}
