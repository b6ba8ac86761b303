//! Receiving a message in place.

use super::error::ReceiveError;
use super::queue::Queue;
use super::receive::Heeds;
use crate::error::{Fault, LeaseError, QueueError};
use crate::lease::{Holder, Leasable};
use crate::until::{Until, realtime};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::order::Want;
use umsg_shm::sysv_engine::{LeaseHandle, Refused, Why};

/// A received message that stays in the queue's memory until it is acknowledged. Until then the message takes room, and no other process receives it.
///
/// # If the process dies
/// If the process dies, the message goes back to its place in the queue, as after a drop of the lease. A call that finds no message or no room ends
/// the leases of dead processes. Blocked calls do so ten times a second.
///
/// # If the queue is removed
/// If the queue is removed, the bytes stay readable as long as the lease exists. Ending the lease then fails with
/// [`LeaseError::Ended`](super::LeaseError::Ended).
pub type Lease<'q> = crate::lease::Lease<'q, Queue>;

impl Queue {
    /// Receives the first wanted message in place.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let job = queue.receive_lease(Want::Any)?;
    /// // Only now the job is gone: had this process died before, another one would get it.
    /// job.acknowledge()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`receive`](Queue::receive) does.
    ///
    /// # Errors
    /// All errors of [`ReceiveError`] except `NoMessage`, `TooSmall` and `TimedOut`.
    ///
    /// # If the process dies
    /// The death of the process ends the lease, see [`Lease`].
    pub fn receive_lease(&self, want: Want) -> Result<Lease<'_>, ReceiveError> {
        self.receive_lease_until(want, Until::Forever)
    }

    /// Receives a message as [`receive_lease`](Queue::receive_lease) does, if the queue contains a wanted message now; does not wait for a message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// assert!(queue.try_receive_lease(Want::Exactly(4)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`try_receive`](Queue::try_receive) does.
    ///
    /// # Errors
    /// [`ReceiveError::NoMessage`] and the other errors of [`ReceiveError`] except `TooSmall` and `TimedOut`.
    pub fn try_receive_lease(&self, want: Want) -> Result<Lease<'_>, ReceiveError> {
        self.receive_lease_until(want, Until::Now)
    }

    /// Receives a message as [`receive_lease`](Queue::receive_lease) does. Waits for at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let second = std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_lease_timeout(Want::Any, second)?.to_vec(), b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] and the other errors of [`ReceiveError`] except `NoMessage` and `TooSmall`.
    pub fn receive_lease_timeout(
        &self,
        want: Want,
        timeout: Duration,
    ) -> Result<Lease<'_>, ReceiveError> {
        self.receive_lease_until(want, Until::After(timeout))
    }

    /// Receives a message as [`receive_lease`](Queue::receive_lease) does. Waits at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_lease_deadline(Want::Any, soon)?.to_vec(), b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_lease_timeout`](Queue::receive_lease_timeout).
    pub fn receive_lease_deadline(
        &self,
        want: Want,
        deadline: SystemTime,
    ) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(want, realtime(deadline))
    }

    /// Receives a message as [`receive_lease`](Queue::receive_lease) does. Waits as long as `until` says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let now = umsg::sysv::Until::Now;
    /// assert_eq!(queue.receive_lease_until(Want::Any, now)?.to_vec(), b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_lease_timeout`](Queue::receive_lease_timeout); `NoMessage` with [`Until::Now`].
    pub fn receive_lease_until(&self, want: Want, until: Until) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(want, until.deadline())
    }

    /// Receives a message as [`receive_lease_until`](Queue::receive_lease_until) does, in a lease that keeps the queue mapped. The lease
    /// can be kept in a struct, sent to another thread, and outlive the caller's handle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use std::sync::Arc;
    /// use umsg::sysv::{Until, Want};
    ///
    /// let queue = Arc::new(queue);
    /// queue.send(5, b"job")?;
    /// let job = queue.receive_lease_owned(Want::Any, Until::Forever)?;
    /// drop(queue);
    /// let worker = std::thread::spawn(move || job.acknowledge());
    /// worker.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_lease_until`](Queue::receive_lease_until).
    ///
    /// # If the process dies
    /// The death of the process ends the lease, see [`Lease`]. If only the thread ends, the lease continues until it is dropped; if the lease is
    /// leaked, the message stays leased until the process ends.
    pub fn receive_lease_owned(
        self: &Arc<Self>,
        want: Want,
        until: Until,
    ) -> Result<Lease<'static>, ReceiveError> {
        self.lease_in(Holder::Shared(Arc::clone(self)), want, until.deadline())
    }

    fn lease_by(&self, want: Want, deadline: Deadline) -> Result<Lease<'_>, ReceiveError> {
        self.lease_in(Holder::Borrowed(self), want, deadline)
    }

    fn lease_in<'q>(
        &self,
        holder: Holder<'q, Queue>,
        want: Want,
        deadline: Deadline,
    ) -> Result<Lease<'q>, ReceiveError> {
        let handle =
            self.judged_receive((deadline, Heeds::End), |call| self.engine.lease(call, want))?;
        Lease::of(holder, handle).map_err(|fault| self.receive_error(fault.into()))
    }
}

impl Lease<'_> {
    /// Returns the message's type, 1 or more.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// assert_eq!(queue.receive_lease(Want::Any)?.mtype(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mtype(&self) -> i64 {
        self.handle.key
    }

    /// Returns a number that no other message of the queue has. The message keeps the number when it returns to the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let job = queue.receive_lease(Want::Any)?;
    /// let id = job.message_id()?;
    /// job.give_back()?;
    /// assert_eq!(queue.receive_lease(Want::Any)?.message_id()?, id);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LeaseError::Ended`] if the lease has ended, and the other errors of [`acknowledge`](Self::acknowledge).
    pub fn message_id(&self) -> Result<u64, LeaseError> {
        let engine = &self.queue.engine;
        match engine.lease_number(thread::current(), &self.handle) {
            Ok(Some(number)) => Ok(number),
            Err(Refused::Fault(Fault::OwnedByCaller)) => Err(QueueError::WouldDeadlock.into()),
            Ok(None) => Err(LeaseError::Ended),
            Err(_) => {
                engine.note_damage();
                Err(QueueError::Damaged.into())
            }
        }
    }
}

impl Leasable for Queue {
    type Key = i64;
    type Own = Why;

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
        self.engine.give_back(thread::current(), handle)
    }

    fn expire(&self, handle: &LeaseHandle) {
        self.engine.expire(handle);
    }

    fn note_damage(&self) {
        self.engine.note_damage();
    }

    fn sent(sent_at: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(sent_at)
    }
}
