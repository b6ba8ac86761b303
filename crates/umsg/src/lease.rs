//! Leases: messages that are received in place, from POSIX and System V queues.

use crate::error::{LeaseError, QueueError};
use std::fmt::{self, Debug, Formatter};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use umsg_shm::fault::Fault;
use umsg_shm::leases::{InPlace, LeaseHandle};
use umsg_shm::sys::clock;
use umsg_shm::waiters::wait::Refused;

/// A queue that leases messages. Its engine implements the operations of a lease.
pub trait Leasable {
    /// The priority of a POSIX message, or the type of a System V message.
    type Key: Copy + Debug;
    /// The engine's own reason to refuse a call.
    type Own;

    /// Returns the address of the first byte of a leased message.
    fn place(&self, handle: &LeaseHandle<Self::Key>) -> Result<*mut u8, Fault>;
    /// Sets the time at which a lease ends by itself. Returns false if the lease had already ended.
    fn limit(
        &self,
        handle: &LeaseHandle<Self::Key>,
        until: u64,
    ) -> Result<bool, Refused<Self::Own>>;
    /// Ends a lease and removes its message. Returns false if the lease had already ended.
    fn acknowledge(&self, handle: &LeaseHandle<Self::Key>) -> Result<bool, Refused<Self::Own>>;
    /// Ends a lease and returns its message to the queue. Returns false if the lease had already ended.
    fn give_back(&self, handle: &LeaseHandle<Self::Key>) -> Result<bool, Refused<Self::Own>>;
    /// Ends a lease without the queue's lock, as if the time limit of the lease had passed.
    fn expire(&self, handle: &LeaseHandle<Self::Key>);
    /// Marks the segment as corrupted.
    fn note_damage(&self);
    /// Converts the stored time of a send to a [`SystemTime`].
    fn sent(sent_at: u64) -> SystemTime;
}

/// The way in which a lease or a reservation keeps its queue open.
#[derive(Debug)]
pub(crate) enum Holder<'q, Q> {
    Borrowed(&'q Q),
    Shared(Arc<Q>),
}

impl<Q> Deref for Holder<'_, Q> {
    type Target = Q;

    fn deref(&self) -> &Q {
        match self {
            Holder::Borrowed(queue) => queue,
            Holder::Shared(queue) => queue,
        }
    }
}

/// A message that was received in place. The message is not copied, and is not lost if its receiver dies. For the aliases of the two kinds
/// of queues, see [`posix::Lease`](crate::posix::Lease) and [`sysv::Lease`](crate::sysv::Lease).
///
/// A lease belongs to a process. Any thread of the process may end it, in any order with other leases. The lease borrows the
/// queue, or shares the ownership of a queue in an [`Arc`]. The second kind, `Lease<'static>`, can be kept in a struct and moved to a
/// thread that outlives the caller.
#[must_use = "a lease that is dropped returns its message to the queue"]
pub struct Lease<'q, Q: Leasable> {
    pub(crate) queue: Holder<'q, Q>,
    pub(crate) handle: LeaseHandle<Q::Key>,
    place: InPlace,
    /// True if the message is still to be acknowledged or returned.
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
    pub(crate) fn of(queue: Holder<'q, Q>, handle: LeaseHandle<Q::Key>) -> Result<Self, Fault> {
        match queue.place(&handle) {
            Ok(start) => Ok(Lease {
                queue,
                handle,
                place: InPlace::new(start, handle.len),
                is_open: AtomicBool::new(true),
            }),
            Err(fault) => {
                // The place of the message is corrupted. The process has not used the message yet, so the message goes back to the queue. That fails
                // only if other parts of the queue are corrupted, too.
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

    /// Returns the number of leases of the message so far, including this one: 1 for the first lease.
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

    /// Returns the time of the call that sent the message, accurate to a few milliseconds.
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

    /// Returns the stored time of the send, in nanoseconds on the clock of the queue: the same at each lease of the message.
    #[doc(hidden)]
    pub fn stamp(&self) -> u64 {
        self.handle.sent_at
    }

    /// Returns the address of the message. The address is valid as long as the lease.
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
    /// No process may write the bytes as long as the slice is in use. A process that keeps to the protocol does not write them
    /// before the lease ends; a [time limit](Self::limit) can end the lease at any moment. A hostile process that may open the
    /// queue can write them at any time. [`read_at`](Self::read_at) and [`to_vec`](Self::to_vec) are always safe.
    #[allow(unsafe_code, reason = "shared memory as a slice")]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: by this function's own contract.
        unsafe { self.place.bytes() }
    }

    /// Copies bytes of the message from `offset` on. Returns the number of copied bytes.
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

    /// Sets a time limit: the lease ends by itself, `time` from now, and the message goes back to its place in the queue.
    ///
    /// After that time, a process that finds the queue empty or full, or that receives while other leases exist, ends the lease. A receiver that goes
    /// to sleep wakes up for the first lease that ends. Every blocked receiver checks the leases ten times a second.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"resize image 7", 3)?;
    /// let lease = queue.receive_lease()?;
    /// lease.limit(std::time::Duration::from_millis(1))?;
    /// // Another process gets the message after the limit.
    /// let again = queue.receive_lease()?;
    /// assert_eq!(again.deliveries(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LeaseError::Ended`] (ESTALE) if an earlier limit has ended the lease.
    pub fn limit(&self, time: Duration) -> Result<(), LeaseError> {
        self.if_ours(|| {
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            // In a record, 0 stands for no limit.
            let until = clock::monotonic().saturating_add(nanoseconds).max(1);
            self.queue.limit(&self.handle, until)
        })
    }

    /// Ends the lease and removes the message, so that the room of the message is free again.
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
    /// Blocks only while a process is stopped inside an operation on this queue.
    ///
    /// # Errors
    /// [`LeaseError::Ended`] (ESTALE) if a time limit has ended the lease, if the queue was removed, or if the caller is a
    /// forked child of the lease's owner. After a time limit another process gets the message, or has received it already.
    ///
    /// [`QueueError::WouldDeadlock`] (EDEADLK) in a signal handler that has interrupted a call on the same queue. The message
    /// then goes back to its place within a tenth of a second, as after a time limit.
    pub fn acknowledge(self) -> Result<(), LeaseError> {
        self.acknowledge_kept()
    }

    /// Acknowledges the message as [`acknowledge`](Self::acknowledge) does, and keeps the lease after `WouldDeadlock`. After
    /// every other result the lease has ended.
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
    /// The errors of [`acknowledge`](Self::acknowledge).
    pub fn give_back(self) -> Result<(), LeaseError> {
        self.give_back_kept()
    }

    /// Returns the message as [`give_back`](Self::give_back) does, and keeps the lease after `WouldDeadlock`. After every other
    /// result the lease has ended.
    #[doc(hidden)]
    pub fn give_back_kept(&self) -> Result<(), LeaseError> {
        self.end(|| self.queue.give_back(&self.handle))
    }

    /// Ends the lease, except if the caller could not get the queue's lock.
    pub(crate) fn end(
        &self,
        end: impl FnOnce() -> Result<bool, Refused<Q::Own>>,
    ) -> Result<(), LeaseError> {
        let ended = self.if_ours(end);
        if ended != Err(QueueError::WouldDeadlock.into()) && self.place.is_ours() {
            // Relaxed: the flag only saves the drop a second attempt.
            self.is_open.store(false, Ordering::Relaxed);
        }
        ended
    }

    /// Runs an operation on the lease if the lease belongs to this process.
    fn if_ours(
        &self,
        work: impl FnOnce() -> Result<bool, Refused<Q::Own>>,
    ) -> Result<(), LeaseError> {
        if !self.place.is_ours() {
            return Err(LeaseError::Ended);
        }
        match work() {
            Ok(true) => Ok(()),
            // The engine refuses a lease only after the queue was removed.
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
            // A signal handler has interrupted its own thread inside a call on the queue, so the handler can't get the lock. Because the interrupted
            // thread holds the lock, no other process changes the lease record meanwhile.
            self.queue.expire(&self.handle);
        }
    }
}
