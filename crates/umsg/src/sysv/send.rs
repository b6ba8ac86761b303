//! Sending a message.

use super::error::SendError;
use super::permission::Access;
use super::queue::Queue;
use crate::until::{Until, realtime};
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::segment::CLOSED;
use umsg_shm::sysv_engine::{Call, Refused, Why};

impl Queue {
    /// Sends a message. The type is 1 or more. Source: msgsnd(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(2, b"for two")?;
    /// queue.send(1, b"for one")?;
    /// let mut buffer = [0; 64];
    /// assert_eq!(queue.receive(Want::Exactly(1), &mut buffer)?.len, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no room. Blocked senders get room in order of arrival. A shorter message may overtake a message that does not fit yet.
    ///
    /// # Errors
    /// All errors of [`SendError`] except `Full` and `TimedOut`.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message was sent completely, or not at all.
    #[inline]
    pub fn send(&self, mtype: i64, message: &[u8]) -> Result<(), SendError> {
        self.send_by(mtype, message, Deadline::Never, Access::Send)
    }

    /// Sends a message if the queue has room now; does not wait for room (IPC_NOWAIT).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.try_send(1, b"job")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for room. If a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the other errors of [`SendError`] except `TimedOut`.
    #[inline(always)]
    pub fn try_send(&self, mtype: i64, message: &[u8]) -> Result<(), SendError> {
        self.try_send_by(mtype, message, Access::Send)
    }

    /// Sends a message if the queue has room now. With [`Access::Write`], also sends to a closed queue, as msgsnd(2) does.
    #[inline(always)]
    pub(super) fn try_send_by(
        &self,
        mtype: i64,
        message: &[u8],
        access: Access,
    ) -> Result<(), SendError> {
        self.judged_send(mtype, message.len(), (Deadline::Passed, access), |call| {
            self.engine.try_send(call, mtype, message)
        })
    }

    /// Sends a message. Waits for room for at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let second = std::time::Duration::from_secs(1);
    /// queue.send_timeout(1, b"job", second)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no room, or while a process is stopped inside an operation on the queue; at most until the time is over.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the other errors of [`SendError`] except `Full`.
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send`](Self::send).
    pub fn send_timeout(
        &self,
        mtype: i64,
        message: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_by(mtype, message, Deadline::after(timeout), Access::Send)
    }

    /// Sends a message. Waits for room at most until `deadline`, on the system's clock (CLOCK_REALTIME). A deadline in the past
    /// is no error if there is room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// queue.send_deadline(1, b"job", soon)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`send_timeout`](Self::send_timeout) does.
    ///
    /// # Errors
    /// The errors of [`send_timeout`](Self::send_timeout).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send`](Self::send).
    pub fn send_deadline(
        &self,
        mtype: i64,
        message: &[u8],
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_by(mtype, message, realtime(deadline), Access::Send)
    }

    /// Sends a message as [`send`](Queue::send) does. Waits as long as `until` says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send_until(1, b"job", umsg::sysv::Until::Now)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`send_timeout`](Queue::send_timeout); `Full` with [`Until::Now`].
    #[inline]
    pub fn send_until(&self, mtype: i64, message: &[u8], until: Until) -> Result<(), SendError> {
        self.send_by(mtype, message, until.deadline(), Access::Send)
    }

    /// Sends a message, and waits for room until the deadline. See [`try_send_by`](Self::try_send_by).
    pub(super) fn send_by(
        &self,
        mtype: i64,
        message: &[u8],
        deadline: Deadline,
        access: Access,
    ) -> Result<(), SendError> {
        self.judged_send(mtype, message.len(), (deadline, access), |call| {
            self.engine.send(call, mtype, message)
        })
    }

    /// Checks the permission to send a message of `len` bytes, and runs `work`. Does both again if the rights have changed meanwhile.
    #[inline(always)]
    pub(super) fn judged_send(
        &self,
        mtype: i64,
        len: usize,
        (deadline, access): (Deadline, Access),
        mut work: impl FnMut(&Call<'_>) -> Result<(), Refused>,
    ) -> Result<(), SendError> {
        self.check_to_send(mtype, len)?;
        let mut call = Call::new(thread::current(), deadline);
        loop {
            call.set_rights(self.may_send(access)?);
            match work(&call) {
                Ok(()) => return Ok(()),
                Err(Refused::Own(Why::Rejudge)) => {}
                Err(refused) => return Err(self.send_error(refused)),
            }
        }
    }

    /// Checks a message's length and type. Source: the order of checks in msgsnd(2).
    #[inline(always)]
    pub(super) fn check_to_send(&self, mtype: i64, len: usize) -> Result<(), SendError> {
        let max = self.msgmax();
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        if mtype < 1 {
            return Err(SendError::InvalidType);
        }
        Ok(())
    }

    /// Checks that the caller may send. Returns the version of the queue's rights that permits the send.
    #[inline(always)]
    pub(super) fn may_send(&self, access: Access) -> Result<u32, SendError> {
        self.judged
            .may(self.engine.segment().fixed(), access)
            .or_else(|_| self.may_send_slow())
    }

    /// Checks whether the caller may send, after the fast check has failed. A queue that the death of a producer may close accepts the send; a closed
    /// queue refuses it.
    #[cold]
    fn may_send_slow(&self) -> Result<u32, SendError> {
        let fixed = self.engine.segment().fixed();
        let version = self.judged.may(fixed, Access::Write);
        if self.is_removed() {
            return Err(SendError::Removed);
        }
        let version = version.map_err(|_| SendError::PermissionDenied)?;
        if version & CLOSED != 0 || !self.engine.policy().close_with_producers {
            // The queue was closed for sending at the check, even if it is open again by now.
            return Err(SendError::Closed);
        }
        self.engine
            .look_for_producers(thread::current(), Deadline::Passed);
        // If the queue has been closed by now, its rights have another version, so the engine makes the call check again.
        Ok(version)
    }

    #[cold]
    pub(super) fn send_error(&self, refused: Refused) -> SendError {
        match refused {
            Refused::NotNow | Refused::Own(Why::Rejudge | Why::TooSmall { .. }) => SendError::Full,
            Refused::Closed => SendError::Closed,
            Refused::TimedOut => SendError::TimedOut,
            Refused::Interrupted => SendError::Interrupted,
            Refused::Own(Why::Removed) => SendError::Removed,
            Refused::Fault(fault) => {
                self.note(fault);
                fault.into()
            }
        }
    }
}
