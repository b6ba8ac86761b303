//! Leases: receiving in place.

use super::history::History;
use super::queue::Queue;
use crate::error::{Fault, LeaseError, QueueError, ReceiveError};
use crate::lease::{Holder, Leasable};
use crate::until::{Until, realtime};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::{LeaseHandle, NoSlot, Refused};
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::thread;

/// A message that was received in place. The message is not copied, and is not lost if its receiver dies.
///
/// The message counts for the queue's capacity until it is [acknowledged](Self::acknowledge). The message returns to the head of its priority when
/// the lease is dropped, when the process dies, or when a [time limit](Self::limit) ends. The next receiver gets the message, and
/// [`deliveries`](Self::deliveries) counts the leases of the message. Any thread of the process may acknowledge leases, in any order.
///
/// A forked child does not own its parent's leases. A process that executes another program (exec) loses its leases if other processes can detect the
/// exec. They detect it if addresses are random and the processes belong to the same user.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("umsg-lease-{}", std::process::id()));
/// # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
/// # let namespace = umsg::Namespace::at(&dir)?;
/// use umsg::posix::OpenOptions;
///
/// let mut options = OpenOptions::new();
/// options.read(true).write(true).create(true).max_messages(10).message_size(1024);
/// let jobs = options.namespace(&namespace).open("/jobs")?;
/// jobs.send(b"resize image 7", 0)?;
///
/// let job = jobs.receive_lease()?;
/// assert_eq!(job.to_vec(), b"resize image 7");
/// drop(job); // not done: another process may try
/// let job = jobs.receive_lease()?;
/// assert_eq!(job.deliveries(), 2);
/// job.acknowledge()?; // done
/// assert_eq!(jobs.attributes().messages, 0);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Lease<'q> = crate::lease::Lease<'q, Queue>;

impl Queue {
    /// Receives the next message in place. Source: none, the kernel's queues have no such call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let job = queue.receive_lease()?;
    /// // Only now the job is gone: had this process died before, another one would get it.
    /// job.acknowledge()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is empty, as [`receive`](Self::receive).
    ///
    /// # Errors
    /// All errors of [`ReceiveError`] except `Empty`, `TimedOut` and `BufferTooSmall`.
    ///
    /// # If the process dies
    /// The message goes back to its old place. A process that finds the queue empty or full checks for dead owners of
    /// leases. A blocked process checks ten times a second.
    pub fn receive_lease(&self) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(Deadline::Never)
    }

    /// Receives a message as [`receive_lease`](Self::receive_lease) does, if there is one at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::ReceiveError;
    ///
    /// assert_eq!(queue.try_receive_lease().unwrap_err(), ReceiveError::Empty);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] (EAGAIN) and the other errors of [`ReceiveError`] except `TimedOut` and `BufferTooSmall`.
    pub fn try_receive_lease(&self) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(Deadline::Passed)
    }

    /// Receives a message as [`receive_lease`](Self::receive_lease) does; waits at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::ReceiveError;
    ///
    /// let moment = std::time::Duration::from_millis(1);
    /// assert_eq!(queue.receive_lease_timeout(moment).unwrap_err(), ReceiveError::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the other errors of [`ReceiveError`] except `Empty` and `BufferTooSmall`.
    pub fn receive_lease_timeout(&self, timeout: Duration) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(Deadline::after(timeout))
    }

    /// Receives a message as [`receive_lease`](Self::receive_lease) does; waits at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_lease_deadline(soon)?.to_vec(), b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_lease_timeout`](Self::receive_lease_timeout).
    pub fn receive_lease_deadline(&self, deadline: SystemTime) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(realtime(deadline))
    }

    /// Receives a message as [`receive_lease`](Self::receive_lease) does, in a lease that keeps the queue open. Waits as long as
    /// `until` says. The lease can be kept in a struct, sent to another thread, and outlive the caller's handle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::sync::Arc;
    /// use umsg::posix::Until;
    ///
    /// let queue = Arc::new(queue);
    /// queue.send(b"job", 0)?;
    /// let job = queue.receive_lease_owned(Until::Forever)?;
    /// drop(queue);
    /// let worker = std::thread::spawn(move || job.acknowledge());
    /// worker.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] for [`Until::Now`], [`ReceiveError::TimedOut`] for a time limit, and the errors of
    /// [`receive_lease`](Self::receive_lease).
    ///
    /// # If the process dies
    /// The same as for [`receive_lease`](Self::receive_lease). The lease belongs to the process, not to the thread. If only the thread ends,
    /// the lease stays open until it is dropped; if the lease is leaked, the message stays leased until the process ends.
    pub fn receive_lease_owned(
        self: &Arc<Self>,
        until: Until,
    ) -> Result<Lease<'static>, ReceiveError> {
        self.lease_in(Holder::Shared(Arc::clone(self)), until.deadline())
    }

    fn lease_by(&self, deadline: Deadline) -> Result<Lease<'_>, ReceiveError> {
        self.lease_in(Holder::Borrowed(self), deadline)
    }

    fn lease_in<'q>(
        &self,
        holder: Holder<'q, Queue>,
        deadline: Deadline,
    ) -> Result<Lease<'q>, ReceiveError> {
        if !self.access.read {
            return Err(ReceiveError::NotReadable);
        }
        let me = thread::current();
        let leased = match deadline {
            Deadline::Passed => self.engine.try_lease(me, deadline),
            _ => self.engine.lease(me, deadline),
        };
        let lease = leased
            .and_then(|handle| Ok(Lease::of(holder, handle)?))
            .map_err(|refused| self.receive_error(refused));
        // The chore, which moves messages to the dead-letter queue, runs after the lease has recorded its owner, because it takes time and can fail.
        self.engine.do_chore();
        self.raise_fired(me, &lease);
        lease
    }
}

impl Lease<'_> {
    /// Returns the priority, 0 to 32,767.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 7)?;
    /// assert_eq!(queue.receive_lease()?.priority(), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priority(&self) -> u32 {
        self.handle.key as u32
    }

    /// Returns a number that no other message of the queue has. The message keeps the number when it returns to the queue. In a dead-letter queue,
    /// the message has another number.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let job = queue.receive_lease()?;
    /// let id = job.message_id()?;
    /// job.give_back()?;
    /// assert_eq!(queue.peek(0)?.unwrap().id, Some(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LeaseError::Ended`] if the lease has ended, and the other errors of [`acknowledge`](Self::acknowledge).
    pub fn message_id(&self) -> Result<u64, LeaseError> {
        let engine = &self.queue.engine;
        self.read(engine.number(thread::current(), &self.handle))
    }

    /// Returns the history of a message that is or was a dead letter. `None` for any other message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::{DeadReason, OpenOptions};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let jobs = options.max_deliveries(1).dead_letter("/jobs.failed").open("/jobs")?;
    /// jobs.send(b"resize image 7", 0)?;
    /// jobs.receive_lease()?.give_back()?;
    ///
    /// let failed = OpenOptions::new().read(true).namespace(&namespace).open("/jobs.failed")?;
    /// let job = failed.receive_lease()?;
    /// let history = job.history()?.unwrap();
    /// assert_eq!(history.source.unwrap(), "/jobs");
    /// assert_eq!((history.reason, history.deliveries), (DeadReason::Undelivered, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LeaseError::Ended`] if the lease has ended, and the other errors of [`acknowledge`](Self::acknowledge).
    pub fn history(&self) -> Result<Option<History>, LeaseError> {
        let engine = &self.queue.engine;
        let history = self.read(engine.history(thread::current(), &self.handle))?;
        Ok(history.map(|(id, history)| History::of(id, &history)))
    }

    /// Converts the result of reading the engine's data about the leased message. None means that the lease has ended.
    fn read<T>(&self, read: Result<Option<T>, Refused>) -> Result<T, LeaseError> {
        match read {
            Ok(Some(read)) => Ok(read),
            Err(Refused::Fault(Fault::OwnedByCaller)) => Err(QueueError::WouldDeadlock.into()),
            Ok(None) => Err(LeaseError::Ended),
            Err(_) => {
                self.queue.engine.note_damage();
                Err(QueueError::Damaged.into())
            }
        }
    }
}

impl Leasable for Queue {
    type Key = usize;
    type Own = NoSlot;

    fn place(&self, handle: &LeaseHandle) -> Result<*mut u8, Fault> {
        self.engine.place(handle)
    }

    fn limit(&self, handle: &LeaseHandle, until: u64) -> Result<bool, Refused> {
        self.engine.limit(thread::current(), handle, until)
    }

    fn acknowledge(&self, handle: &LeaseHandle) -> Result<bool, Refused> {
        self.engine.acknowledge(thread::current(), handle)
    }

    fn give_back(&self, handle: &LeaseHandle) -> Result<bool, Refused> {
        let ended = self.engine.give_back(thread::current(), handle);
        self.engine.do_chore();
        ended
    }

    fn expire(&self, handle: &LeaseHandle) {
        self.engine.expire_lease(handle);
    }

    fn note_damage(&self) {
        self.engine.note_damage();
    }

    fn sent(sent_at: u64) -> SystemTime {
        clock::shown(sent_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;
    use crate::error::{LeaseError, QueueError};
    use crate::posix::OpenOptions;
    use tempfile::TempDir;

    /// Makes a queue in its own directory, with a message that is too long for its cell.
    fn queue_with_a_message() -> (TempDir, Queue) {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.namespace(&Namespace::at(home.path()).unwrap());
        let queue = options.open("/q").unwrap();
        queue.send(&[b'm'; 4096], 3).unwrap();
        (home, queue)
    }

    /// Runs `work` in the situation of a signal handler that has interrupted its thread while the thread held the lock.
    fn inside_of_the_queue<T>(queue: &Queue, work: impl FnOnce() -> T) -> T {
        let lock = &queue.engine.segment().fixed().receiver.lock;
        let Ok((held, _)) = lock.lock(thread::current(), queue.engine.segment(), Deadline::Never)
        else {
            panic!("the lock is free");
        };
        let done = work();
        held.unlock();
        done
    }

    #[test]
    fn a_lease_that_can_not_be_ended_inside_of_the_queue_returns_its_message() {
        type End = fn(Lease<'_>) -> Result<(), LeaseError>;
        let ends: [End; 3] = [
            |lease| lease.acknowledge(),
            |lease| lease.give_back(),
            |lease| {
                drop(lease);
                Err(LeaseError::Queue(QueueError::WouldDeadlock))
            },
        ];
        let (_home, queue) = queue_with_a_message();
        for (deliveries, end) in (1..).zip(ends) {
            let lease = queue.try_receive_lease().unwrap();
            assert_eq!((lease.deliveries(), lease.priority()), (deliveries, 3));
            let ended = inside_of_the_queue(&queue, || end(lease));
            assert_eq!(ended, Err(LeaseError::Queue(QueueError::WouldDeadlock)));
        }
        let lease = queue.receive_lease_timeout(Duration::from_secs(10));
        assert_eq!(lease.unwrap().deliveries(), 4);
    }

    #[test]
    fn a_lease_that_is_kept_goes_on_after_it_could_not_be_ended() {
        let (_home, queue) = queue_with_a_message();
        let lease = queue.try_receive_lease().unwrap();
        for end in [Lease::acknowledge_kept, Lease::give_back_kept] {
            let ended = inside_of_the_queue(&queue, || end(&lease));
            assert_eq!(ended, Err(LeaseError::Queue(QueueError::WouldDeadlock)));
            assert_eq!(queue.try_receive_lease().unwrap_err(), ReceiveError::Empty);
        }
        assert_eq!(lease.acknowledge(), Ok(()));
        assert_eq!(queue.attributes().leased, 0);
    }

    #[test]
    fn a_message_without_a_place_is_not_kept_by_a_failed_lease() {
        let (_home, queue) = queue_with_a_message();
        let lease = queue.try_receive_lease().unwrap();
        let cell = queue.engine.segment().cell(lease.handle.slot).unwrap();
        drop(lease);
        let block = cell.block().get();
        cell.block().set(0);
        assert_eq!(
            queue.try_receive_lease().unwrap_err(),
            ReceiveError::Queue(QueueError::Damaged)
        );
        assert_eq!(queue.attributes().leased, 0);
        cell.block().set(block);
        assert_eq!(queue.try_receive_lease().unwrap().to_vec(), [b'm'; 4096]);
    }
}
