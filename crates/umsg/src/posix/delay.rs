//! Delayed messages: sent or returned for a later delivery.

use super::lease::Lease;
use super::queue::Queue;
use crate::error::{LeaseError, SendError};
use crate::until::realtime;
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::Engine;
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::thread;

impl Queue {
    /// Sends a message that is delivered after `delay` at the earliest. Until its delivery time, the message counts for the queue's capacity and in
    /// [`Attributes::delayed`](super::Attributes::delayed), and [`delayed_messages`](Self::delayed_messages) shows the message. At its delivery time,
    /// the message enters the queue after the messages of its priority that were sent before that time. Messages that are sent more than a few
    /// milliseconds after the delivery time come after the delayed message. The [time to live](super::OpenOptions::time_to_live) of the message
    /// begins at its delivery time. Its time of send, as in [`Peeked::sent`](super::Peeked::sent), is the time of this call. Source: none, the
    /// kernel's queues have no such call.
    ///
    /// A blocked receiver wakes up at the delivery time of the message. The delay is measured on a clock that no process can set, and that stops
    /// while the machine is suspended. For pollers see [`pollable`](Self::pollable).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::time::Duration;
    ///
    /// queue.send_after(b"later", 9, Duration::from_millis(50))?;
    /// queue.send(b"now", 0)?;
    /// assert_eq!(queue.attributes().delayed, 1);
    /// assert_eq!(queue.receive_vec()?.data, b"now");
    /// assert_eq!(queue.receive_vec()?.data, b"later");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full, as [`send`](Self::send).
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// Before the call returns: the message is sent completely, or not at all. After the call has returned, the message is delivered even if the
    /// sender has died.
    pub fn send_after(
        &self,
        message: &[u8],
        priority: u32,
        delay: Duration,
    ) -> Result<(), SendError> {
        self.send_later(message, priority, || reading_after(delay), Deadline::Never)
    }

    /// Sends a message as [`send_after`](Self::send_after) does, if there is room at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut options = umsg::posix::OpenOptions::new();
    /// # options.read(true).write(true).create(true).max_messages(1).namespace(&namespace);
    /// # let queue = options.open("/q")?;
    /// use std::time::Duration;
    /// use umsg::posix::SendError;
    ///
    /// // The queue has room for one message.
    /// queue.try_send_after(b"later", 0, Duration::from_secs(60))?;
    /// let full = queue.try_send_after(b"no room", 0, Duration::from_secs(60));
    /// assert_eq!(full, Err(SendError::Full));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The same as for [`send_after`](Self::send_after).
    pub fn try_send_after(
        &self,
        message: &[u8],
        priority: u32,
        delay: Duration,
    ) -> Result<(), SendError> {
        self.send_later(message, priority, || reading_after(delay), Deadline::Passed)
    }

    /// Sends a message as [`send_after`](Self::send_after) does; waits for room at most `timeout`, on the monotonic clock. `delay` begins when
    /// there is room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut options = umsg::posix::OpenOptions::new();
    /// # options.read(true).write(true).create(true).max_messages(1).namespace(&namespace);
    /// # let queue = options.open("/q")?;
    /// use std::time::Duration;
    /// use umsg::posix::SendError;
    ///
    /// // The queue has room for one message.
    /// let (delay, timeout) = (Duration::from_secs(60), Duration::from_millis(5));
    /// queue.send_after_timeout(b"later", 0, delay, timeout)?;
    /// let full = queue.send_after_timeout(b"no room", 0, delay, timeout);
    /// assert_eq!(full, Err(SendError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full, at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The same as for [`send_after`](Self::send_after).
    pub fn send_after_timeout(
        &self,
        message: &[u8],
        priority: u32,
        delay: Duration,
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_later(
            message,
            priority,
            || reading_after(delay),
            Deadline::after(timeout),
        )
    }

    /// Sends a message as [`send_after`](Self::send_after) does; waits for room at most until `deadline`, on the system's clock. `delay` begins
    /// when there is room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let deadline = SystemTime::now() + Duration::from_secs(1);
    /// queue.send_after_deadline(b"later", 0, Duration::from_secs(60), deadline)?;
    /// assert_eq!(queue.attributes().delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full, at most until `deadline`.
    ///
    /// # Errors
    /// The errors of [`send_after_timeout`](Self::send_after_timeout).
    ///
    /// # If the process dies
    /// The same as for [`send_after`](Self::send_after).
    pub fn send_after_deadline(
        &self,
        message: &[u8],
        priority: u32,
        delay: Duration,
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_later(
            message,
            priority,
            || reading_after(delay),
            realtime(deadline),
        )
    }

    /// Sends a message for delivery at a reading of the monotonic clock. When the queue has room, the function calls `due` for this reading.
    fn send_later(
        &self,
        message: &[u8],
        priority: u32,
        due: impl FnOnce() -> u64,
        deadline: Deadline,
    ) -> Result<(), SendError> {
        if !Engine::is_priority(priority) {
            return Err(SendError::PriorityTooHigh);
        }
        let mut room = self.reserve_by(message.len(), deadline)?;
        room.write_at(0, message);
        room.commit_at(priority, due())
    }

    /// Sends a message as [`send_after`](Self::send_after) does, for delivery at `time` at the earliest. The call converts `time` by the current
    /// state of the system's clock; setting that clock later has no effect. A time in the past means no delay.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// queue.send_at(b"job", 0, SystemTime::now() + Duration::from_millis(20))?;
    /// assert!(queue.try_receive_vec().is_err());
    /// assert_eq!(queue.receive_vec()?.data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// The same as for [`send_after`](Self::send_after).
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The same as for [`send_after`](Self::send_after).
    pub fn send_at(
        &self,
        message: &[u8],
        priority: u32,
        time: SystemTime,
    ) -> Result<(), SendError> {
        let due = reading_at(time);
        self.send_later(message, priority, || due, Deadline::Never)
    }

    /// Sends a message as [`send_at`](Self::send_at) does, if there is room at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// queue.try_send_at(b"job", 0, SystemTime::now() + Duration::from_millis(20))?;
    /// assert_eq!(queue.attributes().delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The same as for [`send_after`](Self::send_after).
    pub fn try_send_at(
        &self,
        message: &[u8],
        priority: u32,
        time: SystemTime,
    ) -> Result<(), SendError> {
        let due = reading_at(time);
        self.send_later(message, priority, || due, Deadline::Passed)
    }

    /// Sends a message as [`send_at`](Self::send_at) does; waits for room at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let (time, timeout) = (SystemTime::now() + Duration::from_millis(20), Duration::from_secs(1));
    /// queue.send_at_timeout(b"job", 0, time, timeout)?;
    /// assert_eq!(queue.attributes().delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full, at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// The same as for [`send_after`](Self::send_after).
    pub fn send_at_timeout(
        &self,
        message: &[u8],
        priority: u32,
        time: SystemTime,
        timeout: Duration,
    ) -> Result<(), SendError> {
        let due = reading_at(time);
        self.send_later(message, priority, || due, Deadline::after(timeout))
    }

    /// Sends a message as [`send_at`](Self::send_at) does; waits for room at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let now = SystemTime::now();
    /// queue.send_at_deadline(b"job", 0, now + Duration::from_millis(20), now + Duration::from_secs(1))?;
    /// assert_eq!(queue.attributes().delayed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full, at most until `deadline`.
    ///
    /// # Errors
    /// The errors of [`send_at_timeout`](Self::send_at_timeout).
    ///
    /// # If the process dies
    /// The same as for [`send_after`](Self::send_after).
    pub fn send_at_deadline(
        &self,
        message: &[u8],
        priority: u32,
        time: SystemTime,
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        let due = reading_at(time);
        self.send_later(message, priority, || due, realtime(deadline))
    }
}

impl Lease<'_> {
    /// Returns the message to the queue for a delivery after `delay` at the earliest. This delay replaces the queue's
    /// [`retry_delay`](super::OpenOptions::retry_delay). Other messages are not delayed. If the message was already delivered as often as the queue
    /// allows, the message moves to the dead-letter queue at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::time::Duration;
    ///
    /// queue.send(b"job", 0)?;
    /// queue.receive_lease()?.return_after(Duration::from_millis(20))?;
    /// assert!(queue.try_receive_lease().is_err());
    /// assert_eq!(queue.receive_lease()?.deliveries(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`acknowledge`](Self::acknowledge).
    ///
    /// # If the process dies
    /// Before the call returns: the message is back in the queue, now or after the delay.
    pub fn return_after(self, delay: Duration) -> Result<(), LeaseError> {
        self.return_after_kept(delay)
    }

    /// Returns the message as [`return_after`](Self::return_after) does, and keeps the lease after `WouldDeadlock`. After every other
    /// result the lease has ended.
    #[doc(hidden)]
    pub fn return_after_kept(&self, delay: Duration) -> Result<(), LeaseError> {
        let ended = self.end(|| {
            let engine = &self.queue.engine;
            engine.return_at(thread::current(), &self.handle, reading_after(delay))
        });
        // If the message was set aside instead of returned, the chore moves the message to the dead-letter queue.
        self.queue.engine.do_chore();
        ended
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

#[cfg(all(test, not(miri)))]
mod tests {
    use crate::Namespace;
    use crate::posix::{OpenOptions, ReceiveError};
    use std::sync::atomic::Ordering;
    use std::time::Duration;
    use umsg_shm::sys::clock;

    #[test]
    fn a_receiver_looks_at_many_delayed_messages_rarely() {
        const MANY: u32 = 20_000;
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(dir.path()).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.max_messages(MANY).message_size(8);
        let queue = options.namespace(&namespace).open("/q").unwrap();
        for _ in 0..MANY {
            queue
                .send_after(b"later", 0, Duration::from_secs(1000))
                .unwrap();
        }
        let look_after = || {
            assert_eq!(queue.try_receive(&mut [0; 8]), Err(ReceiveError::Empty));
            let roots = &queue.engine.segment().fixed().leases;
            roots.look_after.load(Ordering::Relaxed)
        };
        std::thread::sleep(Duration::from_millis(20));
        let begin = clock::monotonic_coarse();
        // The next scan comes after at least 16 times the time of a scan, which takes 50 ns for each message.
        assert!(look_after() >= begin + 16 * 50 * u64::from(MANY));
    }
}
