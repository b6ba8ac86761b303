//! Receiving a message into a buffer.

use super::error::ReceiveError;
use super::permission::Access;
use super::queue::Queue;
use crate::until::{Until, realtime};
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::order::Want;
use umsg_shm::sysv_engine::{Call, Refused, Taken, Why};

/// Whether a receive learns of the end of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Heeds {
    /// The receive fails at the end of the stream.
    End,
    /// The receive waits, as msgrcv(2) does: the kernel's queues have no end.
    Nothing,
}

/// A received message, whose bytes are in the caller's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Length in bytes.
    pub len: usize,
    /// The message's type, 1 or more.
    pub mtype: i64,
}

impl From<Taken> for Received {
    fn from(taken: Taken) -> Self {
        Received {
            len: taken.len,
            mtype: taken.mtype,
        }
    }
}

impl Queue {
    /// Receives the first wanted message. Source: msgrcv(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// let received = queue.receive(Want::Any, &mut buffer)?;
    /// assert_eq!((&buffer[..received.len], received.mtype), (&b"job"[..], 5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no such message. If several receivers want a message, the receiver that has waited longest gets it. If the buffer of
    /// that receiver is too small, its call fails, and the next receiver gets the message.
    ///
    /// # Errors
    /// [`ReceiveError::TooSmall`] if the message is longer than the buffer; the message stays in the queue. All others of
    /// [`ReceiveError`] but `NoMessage` and `TimedOut`.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message is still in the queue, or it is lost if it was already copied out.
    #[inline]
    pub fn receive(&self, want: Want, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, false, (Deadline::Never, Heeds::End))
    }

    /// Receives the first wanted message if the queue contains one now; does not wait for a message (IPC_NOWAIT).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// assert!(queue.try_receive(Want::Exactly(4), &mut buffer).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for a message. If a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`ReceiveError::NoMessage`] (ENOMSG) and the other errors of [`ReceiveError`] except `TimedOut`.
    #[inline]
    pub fn try_receive(&self, want: Want, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.try_receive_by(want, buffer, false, Heeds::End)
    }

    /// Receives the first wanted message. Waits for a message for at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// let second = std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_timeout(Want::Any, &mut buffer, second)?.mtype, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no such message, or while a process is stopped inside an operation on the queue; at most until the time is over.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the other errors of [`ReceiveError`] except `NoMessage`.
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`receive`](Self::receive).
    pub fn receive_timeout(
        &self,
        want: Want,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, false, (Deadline::after(timeout), Heeds::End))
    }

    /// Receives the first wanted message. Waits for a message at most until `deadline`, on the system's clock (CLOCK_REALTIME). A
    /// deadline in the past is no error if there is a message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_deadline(Want::Any, &mut buffer, soon)?.mtype, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`receive_timeout`](Self::receive_timeout) does.
    ///
    /// # Errors
    /// The errors of [`receive_timeout`](Self::receive_timeout).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`receive`](Self::receive).
    pub fn receive_deadline(
        &self,
        want: Want,
        buffer: &mut [u8],
        deadline: SystemTime,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, false, (realtime(deadline), Heeds::End))
    }

    /// Receives the first wanted message, and truncates it to the length of the buffer (MSG_NOERROR).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 2];
    /// assert_eq!(queue.receive_truncated(Want::Any, &mut buffer)?.len, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`receive`](Self::receive) does.
    ///
    /// # Errors
    /// All errors of [`ReceiveError`] except `TooSmall`, `NoMessage` and `TimedOut`.
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`receive`](Self::receive).
    pub fn receive_truncated(
        &self,
        want: Want,
        buffer: &mut [u8],
    ) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, true, (Deadline::Never, Heeds::End))
    }

    /// Receives a message as [`receive_truncated`](Self::receive_truncated) does, if the queue contains a wanted message now; does not wait for a
    /// message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 2];
    /// assert_eq!(queue.try_receive_truncated(Want::Any, &mut buffer)?.len, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`try_receive`](Self::try_receive) does.
    ///
    /// # Errors
    /// [`ReceiveError::NoMessage`] and the other errors of [`ReceiveError`] except `TooSmall` and `TimedOut`.
    pub fn try_receive_truncated(
        &self,
        want: Want,
        buffer: &mut [u8],
    ) -> Result<Received, ReceiveError> {
        self.try_receive_by(want, buffer, true, Heeds::End)
    }

    /// Receives a message as [`receive`](Queue::receive) does. Waits as long as `until` says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// let now = umsg::sysv::Until::Now;
    /// assert_eq!(queue.receive_until(Want::Any, &mut buffer, false, now)?.mtype, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_timeout`](Queue::receive_timeout); `NoMessage` with [`Until::Now`].
    #[inline]
    pub fn receive_until(
        &self,
        want: Want,
        buffer: &mut [u8],
        truncate: bool,
        until: Until,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, truncate, (until.deadline(), Heeds::End))
    }

    /// Receives the first wanted message if there is one now.
    #[inline(always)]
    pub(super) fn try_receive_by(
        &self,
        want: Want,
        buffer: &mut [u8],
        truncate: bool,
        heeds: Heeds,
    ) -> Result<Received, ReceiveError> {
        self.judged_receive((Deadline::Passed, heeds), |call| {
            self.engine
                .try_receive(call, want, buffer, truncate)
                .map(Received::from)
        })
    }

    pub(super) fn receive_by(
        &self,
        want: Want,
        buffer: &mut [u8],
        truncate: bool,
        limits: (Deadline, Heeds),
    ) -> Result<Received, ReceiveError> {
        self.judged_receive(limits, |call| {
            self.engine
                .receive(call, want, buffer, truncate)
                .map(Received::from)
        })
    }

    /// Checks the permission to receive, and runs `work`. Does both again if the rights have changed meanwhile.
    #[inline(always)]
    pub(super) fn judged_receive<T>(
        &self,
        (deadline, heeds): (Deadline, Heeds),
        mut work: impl FnMut(&Call<'_>) -> Result<T, Refused>,
    ) -> Result<T, ReceiveError> {
        let mut call = Call::new(thread::current(), deadline);
        if heeds == Heeds::End {
            call.heed_end();
        }
        loop {
            call.set_rights(self.may_receive()?);
            match work(&call) {
                Err(Refused::Own(Why::Rejudge)) => {}
                other => return other.map_err(|refused| self.receive_error(refused)),
            }
        }
    }

    /// Checks that the caller may receive. Returns the version of the queue's rights that permits the receive.
    #[inline(always)]
    pub(super) fn may_receive(&self) -> Result<u32, ReceiveError> {
        self.judged
            .may(self.engine.segment().fixed(), Access::Read)
            .map_err(|_| ReceiveError::PermissionDenied)
    }

    #[cold]
    pub(super) fn receive_error(&self, refused: Refused) -> ReceiveError {
        match refused {
            Refused::NotNow | Refused::Own(Why::Rejudge) => ReceiveError::NoMessage,
            Refused::Closed => ReceiveError::Closed,
            Refused::Own(Why::TooSmall { len }) => ReceiveError::TooSmall { len },
            Refused::TimedOut => ReceiveError::TimedOut,
            Refused::Interrupted => ReceiveError::Interrupted,
            Refused::Own(Why::Removed) => ReceiveError::Removed,
            Refused::Fault(fault) => {
                self.note(fault);
                fault.into()
            }
        }
    }
}
