//! Leases: messages that are received in place, of POSIX and of System V queues.

use crate::error::{LeaseError, QueueError};
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use umsg_shm::fault::Fault;
use umsg_shm::leases::{InPlace, LeaseHandle};
use umsg_shm::sys::clock;
use umsg_shm::waiters::wait::Refused;

/// A queue that leases messages: what its engine does with a lease.
pub trait Leasable {
    /// The priority, or the type.
    type Key: Copy + Debug;
    /// Why the engine refuses a call.
    type Own;

    /// The first byte of a leased message.
    fn place(&self, handle: &LeaseHandle<Self::Key>) -> Result<*mut u8, Fault>;
    /// Lets a lease end by itself at `until`. False if it has ended.
    fn limit(
        &self,
        handle: &LeaseHandle<Self::Key>,
        until: u64,
    ) -> Result<bool, Refused<Self::Own>>;
    /// Ends a lease and its message. False if it has ended.
    fn acknowledge(&self, handle: &LeaseHandle<Self::Key>) -> Result<bool, Refused<Self::Own>>;
    /// Ends a lease and returns its message. False if it has ended.
    fn give_back(&self, handle: &LeaseHandle<Self::Key>) -> Result<bool, Refused<Self::Own>>;
    /// Ends a lease as if its time were up, without a lock.
    fn expire(&self, handle: &LeaseHandle<Self::Key>);
    /// Notes that the segment is damaged.
    fn note_damage(&self);
    /// The time of a send.
    fn sent(sent_at: u64) -> SystemTime;
}

/// A message that was received where it lies: nothing is copied, and nothing is lost if its receiver dies. See the aliases of the two kinds of
/// queues, [`posix::Lease`](crate::posix::Lease) and [`sysv::Lease`](crate::sysv::Lease).
///
/// A lease belongs to a process: any of its threads may end it, in any order with others. It borrows the queue, so a thread that is to
/// outlive the borrow needs the queue in an `Arc`, or a scope ([`std::thread::scope`]).
#[must_use = "a lease that is dropped returns its message to the queue"]
pub struct Lease<'q, Q: Leasable> {
    queue: &'q Q,
    pub(crate) handle: LeaseHandle<Q::Key>,
    place: InPlace,
    /// Whether it is still to be returned.
    is_open: AtomicBool,
}

impl<Q: Leasable> Debug for Lease<'_, Q> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("handle", &self.handle)
            .field("place", &self.place)
            .field("is_open", &self.is_open)
            .finish_non_exhaustive()
    }
}

impl<'q, Q: Leasable> Lease<'q, Q> {
    pub(crate) fn of(queue: &'q Q, handle: LeaseHandle<Q::Key>) -> Result<Self, Fault> {
        match queue.place(&handle) {
            Ok(start) => Ok(Lease {
                queue,
                handle,
                place: InPlace::new(start, handle.len),
                is_open: AtomicBool::new(true),
            }),
            Err(fault) => {
                // No process has seen the message: it goes back, unless more is damaged than its place.
                queue.expire(&handle);
                Err(fault)
            }
        }
    }

    /// Returns the length of the message, in bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// assert_eq!(lease.len(), 14);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::len_without_is_empty, reason = "a message is no container")]
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// Returns how often the message has been delivered as a lease, this time included: 1 the first time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// assert_eq!(lease.deliveries(), 1);
    /// drop(lease);
    /// assert_eq!(queue.receive_lease()?.deliveries(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deliveries(&self) -> u32 {
        self.handle.deliveries
    }

    /// Returns the process id of the sender.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// assert_eq!(lease.pid(), std::process::id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pid(&self) -> u32 {
        self.handle.pid
    }

    /// Returns the time of the send, to a few milliseconds.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// assert!(lease.sent().elapsed()? < std::time::Duration::from_secs(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sent(&self) -> SystemTime {
        Q::sent(self.handle.sent_at)
    }

    /// Returns the address of the message, which is valid as long as the lease.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// // SAFETY: the lease lasts, and its message has a first byte.
    /// assert_eq!(unsafe { lease.as_ptr().read() }, b'r');
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn as_ptr(&self) -> *const u8 {
        self.place.start()
    }

    /// Returns the message as a slice.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// // SAFETY: all processes that may open the queue keep to the protocol, and the lease has no time limit.
    /// assert_eq!(unsafe { lease.bytes() }, b"resize image 7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// No process may write the bytes as long as the slice is in use. Processes that keep to the protocol don't, until the
    /// lease ends, which a [time limit](Self::limit) can bring about at any moment; a hostile one that may open the
    /// queue always can. [`read_at`](Self::read_at) and [`to_vec`](Self::to_vec) are safe in any case.
    #[allow(unsafe_code, reason = "shared memory as a slice")]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: by this function's own contract.
        unsafe { self.place.bytes() }
    }

    /// Copies bytes of the message from `offset` on, and returns how many.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// let mut word = [0; 5];
    /// assert_eq!(lease.read_at(7, &mut word), 5);
    /// assert_eq!(&word, b"image");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_at(&self, offset: usize, buffer: &mut [u8]) -> usize {
        self.place.read_at(offset, buffer)
    }

    /// Returns a copy of the message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// assert_eq!(lease.to_vec(), b"resize image 7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_vec(&self) -> Vec<u8> {
        self.place.to_vec()
    }

    /// Lets the lease end by itself, `time` from now: the message then goes back to its place in the queue, whatever its holder does
    /// meanwhile. It does so when a process finds the queue empty or full, or receives beside other leases. A receiver that goes to sleep
    /// looks when the first lease ends, and all blocked receivers look ten times a second.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// lease.limit(std::time::Duration::from_millis(1))?;
    /// // Another process gets the message, however long this one takes.
    /// let again = queue.receive_lease()?;
    /// assert_eq!(again.deliveries(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LeaseError::Ended`] (ESTALE) if an earlier limit has ended it.
    pub fn limit(&self, time: Duration) -> Result<(), LeaseError> {
        self.if_ours(|| {
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            // In a record, 0 stands for no limit.
            let until = clock::monotonic().saturating_add(nanoseconds).max(1);
            self.queue.limit(&self.handle, until)
        })
    }

    /// Ends the lease and the message: it is dealt with, and its room is free.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// lease.acknowledge()?;
    /// assert_eq!(queue.attributes().leased, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Only while a process is stopped inside of an operation on this queue.
    ///
    /// # Errors
    /// [`LeaseError::Ended`] (ESTALE) if a time limit has ended the lease, if the queue was removed, or if this is a forked child of its
    /// holder: then another process gets the message, or got it already. [`QueueError::WouldDeadlock`] (EDEADLK) in a signal handler that
    /// has interrupted a call on the same queue: then the message goes back to its place within a tenth of a second, as after a time limit.
    pub fn acknowledge(self) -> Result<(), LeaseError> {
        self.acknowledge_kept()
    }

    /// [`acknowledge`](Self::acknowledge) for a process that keeps the lease: it goes on after `WouldDeadlock`, and has ended after any
    /// other answer.
    #[doc(hidden)]
    pub fn acknowledge_kept(&self) -> Result<(), LeaseError> {
        self.end(|| self.queue.acknowledge(&self.handle))
    }

    /// Returns the message to its place in the queue, as dropping the lease does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// lease.give_back()?;
    /// assert_eq!(queue.attributes().messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    pub fn give_back(self) -> Result<(), LeaseError> {
        self.give_back_kept()
    }

    /// [`give_back`](Self::give_back) for a process that keeps the lease, as [`acknowledge_kept`](Self::acknowledge_kept).
    #[doc(hidden)]
    pub fn give_back_kept(&self) -> Result<(), LeaseError> {
        self.end(|| self.queue.give_back(&self.handle))
    }

    /// Ends the lease, and notes that there is nothing more to be returned, unless the queue's lock could not be had.
    fn end(&self, end: impl FnOnce() -> Result<bool, Refused<Q::Own>>) -> Result<(), LeaseError> {
        let ended = self.if_ours(end);
        if ended != Err(QueueError::WouldDeadlock.into()) && self.place.is_ours() {
            // Relaxed: spares the drop a second attempt, which would be in vain.
            self.is_open.store(false, Ordering::Relaxed);
        }
        ended
    }

    /// Does something with the lease, if it is this process's.
    fn if_ours(
        &self,
        work: impl FnOnce() -> Result<bool, Refused<Q::Own>>,
    ) -> Result<(), LeaseError> {
        if !self.place.is_ours() {
            return Err(LeaseError::Ended);
        }
        match work() {
            Ok(true) => Ok(()),
            // The engine's own reason to refuse a lease is that its queue was removed.
            Ok(false) | Err(Refused::Own(_)) => Err(LeaseError::Ended),
            Err(Refused::Fault(Fault::OwnedByCaller)) => Err(QueueError::WouldDeadlock.into()),
            Err(_) => {
                self.queue.note_damage();
                Err(QueueError::Damaged.into())
            }
        }
    }
}

impl<Q: Leasable> Drop for Lease<'_, Q> {
    fn drop(&mut self) {
        if *self.is_open.get_mut() && self.give_back_kept() == Err(QueueError::WouldDeadlock.into())
        {
            // A handler that has interrupted its own thread inside of the queue: there is no lock to be had, and no other process
            // changes the record meanwhile.
            self.queue.expire(&self.handle);
        }
    }
}
