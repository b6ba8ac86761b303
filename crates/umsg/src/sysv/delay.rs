//! Delayed messages: sent or returned for a later delivery.

use super::error::SendError;
use super::lease::Lease;
use super::permission::Access;
use super::queue::Queue;
use crate::error::LeaseError;
use crate::until::realtime;
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::thread;

impl Queue {
    /// Sends a message that is delivered after `delay` at the earliest. Until then the message takes room in the queue,
    /// [`Status::delayed`](super::Status::delayed) counts it, and [`delayed_messages`](Self::delayed_messages) shows it. When the message is due, it
    /// enters the queue after the messages that were sent until then. Messages that are sent more than a few milliseconds later come after it. The
    /// message's time of send is the time of this call. Source: none, the kernel's queues have no such call.
    ///
    /// A blocked receiver, also one in msgrcv(2), wakes up when the message is due. The delay is measured on a clock that no process can set, and
    /// that stops while the machine is suspended. For pollers see [`pollable`](Self::pollable).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::Duration;
    /// use umsg::sysv::Want;
    ///
    /// queue.send_after(1, b"later", Duration::from_millis(50))?;
    /// queue.send(1, b"now")?;
    /// assert_eq!(queue.status()?.delayed, 1);
    /// assert_eq!(queue.receive_vec(Want::Any)?.data, b"now");
    /// assert_eq!(queue.receive_vec(Want::Any)?.data, b"later");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no room, as [`send`](Self::send) does. The delay begins when there is room.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message is sent completely, or not at all. After the call has returned, the message is
    /// delivered even if the sender has died.
    pub fn send_after(&self, mtype: i64, message: &[u8], delay: Duration) -> Result<(), SendError> {
        self.send_later(mtype, message, &|| reading_after(delay), Deadline::Never)
    }

    /// Sends a message as [`send_after`](Self::send_after) does, if the queue has room now; does not wait for room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::Duration;
    /// use umsg::sysv::SendError;
    ///
    /// let delay = Duration::from_secs(60);
    /// while queue.try_send_after(1, &[0; 1000], delay).is_ok() {}
    /// assert_eq!(queue.try_send_after(1, &[0; 1000], delay), Err(SendError::Full));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send_after`](Self::send_after).
    pub fn try_send_after(
        &self,
        mtype: i64,
        message: &[u8],
        delay: Duration,
    ) -> Result<(), SendError> {
        self.send_later(mtype, message, &|| reading_after(delay), Deadline::Passed)
    }

    /// Sends a message as [`send_after`](Self::send_after) does; waits for room at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::Duration;
    ///
    /// queue.send_after_timeout(1, b"later", Duration::from_secs(60), Duration::from_secs(1))?;
    /// assert_eq!(queue.status()?.delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no room, at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send_after`](Self::send_after).
    pub fn send_after_timeout(
        &self,
        mtype: i64,
        message: &[u8],
        delay: Duration,
        timeout: Duration,
    ) -> Result<(), SendError> {
        let deadline = Deadline::after(timeout);
        self.send_later(mtype, message, &|| reading_after(delay), deadline)
    }

    /// Sends a message as [`send_after`](Self::send_after) does; waits for room at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let deadline = SystemTime::now() + Duration::from_secs(1);
    /// queue.send_after_deadline(1, b"later", Duration::from_secs(60), deadline)?;
    /// assert_eq!(queue.status()?.delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no room, at most until `deadline`.
    ///
    /// # Errors
    /// The errors of [`send_after_timeout`](Self::send_after_timeout).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send_after`](Self::send_after).
    pub fn send_after_deadline(
        &self,
        mtype: i64,
        message: &[u8],
        delay: Duration,
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        let deadline = realtime(deadline);
        self.send_later(mtype, message, &|| reading_after(delay), deadline)
    }

    /// Sends a message as [`send_after`](Self::send_after) does, for delivery at `time` at the earliest. The call converts `time` by the current
    /// state of the system's clock; setting that clock later has no effect. A time in the past means no delay.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::{Duration, SystemTime};
    /// use umsg::sysv::Want;
    ///
    /// queue.send_at(1, b"job", SystemTime::now() + Duration::from_millis(20))?;
    /// assert!(queue.try_receive_vec(Want::Any).is_err());
    /// assert_eq!(queue.receive_vec(Want::Any)?.data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`send`](Self::send) does.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send_after`](Self::send_after).
    pub fn send_at(&self, mtype: i64, message: &[u8], time: SystemTime) -> Result<(), SendError> {
        let due = reading_at(time);
        self.send_later(mtype, message, &|| due, Deadline::Never)
    }

    /// Sends a message as [`send_at`](Self::send_at) does, if the queue has room now; does not wait for room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// queue.try_send_at(1, b"job", SystemTime::now() + Duration::from_secs(20))?;
    /// assert_eq!(queue.status()?.delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send_after`](Self::send_after).
    pub fn try_send_at(
        &self,
        mtype: i64,
        message: &[u8],
        time: SystemTime,
    ) -> Result<(), SendError> {
        let due = reading_at(time);
        self.send_later(mtype, message, &|| due, Deadline::Passed)
    }

    /// Sends a message as [`send_at`](Self::send_at) does; waits for room at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let (time, timeout) = (SystemTime::now() + Duration::from_secs(20), Duration::from_secs(1));
    /// queue.send_at_timeout(1, b"job", time, timeout)?;
    /// assert_eq!(queue.status()?.delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no room, at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send_after`](Self::send_after).
    pub fn send_at_timeout(
        &self,
        mtype: i64,
        message: &[u8],
        time: SystemTime,
        timeout: Duration,
    ) -> Result<(), SendError> {
        let due = reading_at(time);
        self.send_later(mtype, message, &|| due, Deadline::after(timeout))
    }

    /// Sends a message as [`send_at`](Self::send_at) does; waits for room at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let now = SystemTime::now();
    /// queue.send_at_deadline(1, b"job", now + Duration::from_secs(20), now + Duration::from_secs(1))?;
    /// assert_eq!(queue.status()?.delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while there is no room, at most until `deadline`.
    ///
    /// # Errors
    /// The errors of [`send_at_timeout`](Self::send_at_timeout).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`send_after`](Self::send_after).
    pub fn send_at_deadline(
        &self,
        mtype: i64,
        message: &[u8],
        time: SystemTime,
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        let due = reading_at(time);
        self.send_later(mtype, message, &|| due, realtime(deadline))
    }

    /// Sends a message that is due when the monotonic clock shows the reading that `due` returns. The engine calls `due` when there is room.
    fn send_later(
        &self,
        mtype: i64,
        message: &[u8],
        due: &dyn Fn() -> u64,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        self.judged_send(mtype, message.len(), (deadline, Access::Send), |call| {
            self.engine.send_later(call, mtype, message, due)
        })
    }
}

impl Lease<'_> {
    /// Returns the message to the queue for a delivery after `delay` at the earliest. This delay replaces the queue's
    /// [`retry_delay`](super::OpenOptions::retry_delay). Other messages are not delayed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::time::Duration;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(1, b"job")?;
    /// queue.receive_lease(Want::Any)?.return_after(Duration::from_millis(20))?;
    /// assert!(queue.try_receive_lease(Want::Any).is_err());
    /// assert_eq!(queue.receive_lease(Want::Any)?.deliveries(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`acknowledge`](Self::acknowledge).
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message is back in the queue, now or after the delay.
    pub fn return_after(self, delay: Duration) -> Result<(), LeaseError> {
        self.return_after_kept(delay)
    }

    /// Returns the message as [`return_after`](Self::return_after) does, and keeps the lease after `WouldDeadlock`. After every other
    /// result the lease has ended.
    #[doc(hidden)]
    pub fn return_after_kept(&self, delay: Duration) -> Result<(), LeaseError> {
        self.end(|| {
            let engine = &self.queue.engine;
            engine.return_at(thread::current(), &self.handle, reading_after(delay))
        })
    }
}

/// Returns the reading of the monotonic clock at a time of the system's clock, or now if the time has passed. Equal times give equal readings, so
/// messages for the same time keep the order of their sends.
fn reading_at(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
    clock::reading_at(nanoseconds)
}

/// Returns the reading that the monotonic clock will have after `delay`.
fn reading_after(delay: Duration) -> u64 {
    let nanoseconds = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    clock::monotonic().saturating_add(nanoseconds)
}
