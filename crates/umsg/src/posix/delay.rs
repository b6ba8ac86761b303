//! Delayed messages: sent or returned for a later delivery.

use super::lease::Lease;
use super::queue::Queue;
use crate::error::{LeaseError, SendError};
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::Engine;
use umsg_shm::sys::clock;
use umsg_shm::sys::thread;

impl Queue {
    /// Sends a message that is delivered after `delay` at the earliest. Until then it counts for the queue's capacity, and
    /// [`Attributes::delayed`](super::Attributes::delayed) counts it. It then takes its place behind the messages of its priority that are
    /// there, and its [time to live](super::OpenOptions::time_to_live) begins. Source: none, the kernel's queues have no such call.
    ///
    /// A receiver that waits wakes up when the message is due. The delay is measured on a clock that no process can set, and that stops
    /// while the machine is suspended. A poller learns of the message from the next call that looks at the queue after the message is due.
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
    /// While the queue is full, as [`send`](Self::send).
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// Before the call returns: the message is sent completely, or not at all. After it, the message is delivered whether the sender lives
    /// or not.
    pub fn send_after(
        &self,
        message: &[u8],
        priority: u32,
        delay: Duration,
    ) -> Result<(), SendError> {
        if !Engine::is_priority(priority) {
            return Err(SendError::PriorityTooHigh);
        }
        let mut room = self.reserve(message.len())?;
        room.write_at(0, message);
        room.commit_at(priority, reading_after(delay))
    }

    /// Sends a message that is delivered at `time` at the earliest, as [`send_after`](Self::send_after). The time is that of the system's
    /// clock now: setting that clock later does not move it. A time in the past is no delay.
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
    /// As [`send_after`](Self::send_after).
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    ///
    /// # If the process dies
    /// As [`send_after`](Self::send_after).
    pub fn send_at(
        &self,
        message: &[u8],
        priority: u32,
        time: SystemTime,
    ) -> Result<(), SendError> {
        let delay = time.duration_since(SystemTime::now());
        self.send_after(message, priority, delay.unwrap_or_default())
    }
}

impl Lease<'_> {
    /// Returns the message to the queue for a delivery after `delay` at the earliest, whatever the queue's
    /// [`retry_delay`](super::OpenOptions::retry_delay). Other messages are not delayed. A message that was delivered as often as the queue
    /// allows goes to the dead-letter queue at once.
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
        // The message may be set aside instead.
        self.queue.engine.do_chore();
        ended
    }
}

/// Returns a reading of the monotonic clock.
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
        // 16 times a scan that takes 50 ns for each message.
        assert!(look_after() >= begin + 16 * 50 * u64::from(MANY));
    }
}
