//! Receiving in place.

use super::error::{LeaseError, ReceiveError};
use super::queue::Queue;
use crate::error::Fault;
use crate::error::QueueError;
use crate::leased::Leased;
use crate::until::{Until, realtime};
use std::time::{Duration, SystemTime};
use umsg_shm::leases::InPlace;
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::order::Want;
use umsg_shm::sysv_engine::{LeaseHandle, Refused, Why};

/// A message that was received where it lies, and stays there until it is acknowledged. Until then it takes room in the queue
/// and no other process receives it.
///
/// # If the process dies
/// The message goes back to its place in the queue, and so it does if the lease is dropped. A process that finds nothing in the queue, or
/// no room, takes back what the dead held, and so do all that are blocked, ten times a second.
///
/// # If the queue is removed
/// The bytes stay readable as long as the lease; ending it says [`LeaseError::Ended`].
#[derive(Debug)]
#[must_use = "a lease that is dropped returns its message"]
pub struct Lease<'a> {
    queue: &'a Queue,
    handle: LeaseHandle,
    leased: Leased,
}

impl Queue {
    /// Receives the first message that is wanted, and leaves it in its place.
    ///
    /// # Blocking
    /// As [`receive`](Queue::receive).
    ///
    /// # Errors
    /// All of [`ReceiveError`] but `NoMessage`, `TooSmall` and `TimedOut`.
    ///
    /// # If the process dies
    /// See [`Lease`].
    pub fn receive_lease(&self, want: Want) -> Result<Lease<'_>, ReceiveError> {
        self.receive_lease_until(want, Until::Forever)
    }

    /// As [`receive_lease`](Queue::receive_lease), if there is a message at once.
    ///
    /// # Blocking
    /// As [`try_receive`](Queue::try_receive).
    ///
    /// # Errors
    /// [`ReceiveError::NoMessage`] and the others of [`ReceiveError`] but `TooSmall` and `TimedOut`.
    pub fn try_receive_lease(&self, want: Want) -> Result<Lease<'_>, ReceiveError> {
        self.receive_lease_until(want, Until::Now)
    }

    /// As [`receive_lease`](Queue::receive_lease); waits at most `timeout`, on the monotonic clock.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] and the others of [`ReceiveError`] but `NoMessage` and `TooSmall`.
    pub fn receive_lease_timeout(
        &self,
        want: Want,
        timeout: Duration,
    ) -> Result<Lease<'_>, ReceiveError> {
        self.receive_lease_until(want, Until::After(timeout))
    }

    /// As [`receive_lease`](Queue::receive_lease); waits at most until `deadline`, on the system's clock.
    ///
    /// # Errors
    /// As [`receive_lease_timeout`](Queue::receive_lease_timeout).
    pub fn receive_lease_deadline(
        &self,
        want: Want,
        deadline: SystemTime,
    ) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(want, realtime(deadline))
    }

    /// As [`receive_lease`](Queue::receive_lease); waits as long as `until` says.
    ///
    /// # Errors
    /// As [`receive_lease_timeout`](Queue::receive_lease_timeout); `NoMessage` with [`Until::Now`].
    pub fn receive_lease_until(&self, want: Want, until: Until) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(want, until.deadline())
    }

    fn lease_by(&self, want: Want, deadline: Deadline) -> Result<Lease<'_>, ReceiveError> {
        let handle = self.judged_receive(deadline, |call| self.engine.lease(call, want))?;
        match self.engine.place(&handle) {
            Ok(place) => Ok(Lease {
                queue: self,
                handle,
                leased: Leased::new(InPlace::new(place, handle.len)),
            }),
            Err(trouble) => {
                // No process has seen the message: it goes back, unless more is damaged than where it lies.
                self.engine.expire(&handle);
                Err(self.receive_error(trouble.into()))
            }
        }
    }
}

impl Lease<'_> {
    /// Length of the message, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a message is no container")]
    pub fn len(&self) -> usize {
        self.leased.place.len()
    }

    /// Its type, 1 or more.
    pub fn mtype(&self) -> i64 {
        self.handle.key
    }

    /// How often the message has been delivered as a lease, this time included: 1 the first time.
    pub fn deliveries(&self) -> u32 {
        self.handle.deliveries
    }

    /// Process id of the sender.
    pub fn pid(&self) -> u32 {
        self.handle.pid
    }

    /// When it was sent, to a few milliseconds.
    pub fn sent(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.handle.sent_at)
    }

    /// Where the message lies. Valid as long as the lease.
    pub fn as_ptr(&self) -> *const u8 {
        self.leased.place.start()
    }

    /// The message as a slice.
    ///
    /// # Safety
    /// No process may write the bytes as long as the slice is in use. Processes that keep to the protocol don't, until the
    /// lease ends, which a [time limit](Self::limit) can bring about at any moment; a hostile one that may open the
    /// queue always can. [`read_at`](Self::read_at) and [`to_vec`](Self::to_vec) are safe in any case.
    #[allow(unsafe_code, reason = "shared memory as a slice")]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: by this function's own contract.
        unsafe { self.leased.place.bytes() }
    }

    /// Copies bytes of the message from `offset` on; answers how many there were.
    pub fn read_at(&self, offset: usize, buffer: &mut [u8]) -> usize {
        self.leased.place.read_at(offset, buffer)
    }

    /// A copy of the message.
    pub fn to_vec(&self) -> Vec<u8> {
        self.leased.place.to_vec()
    }

    /// Lets the lease end by itself, `time` from now: the message then goes back to its place, whatever its holder does
    /// meanwhile.
    ///
    /// # Errors
    /// [`LeaseError::Ended`] (ESTALE) if an earlier limit has ended it.
    pub fn limit(&self, time: Duration) -> Result<(), LeaseError> {
        let (engine, until) = (&self.queue.engine, Leased::until(time));
        self.leased
            .with(|| self.answer(engine.limit(thread::current(), &self.handle, until)))
    }

    /// The message is dealt with: it is gone, and its room free.
    ///
    /// # Blocking
    /// Only while a process is stopped inside of an operation on this queue.
    ///
    /// # Errors
    /// [`LeaseError::Ended`] (ESTALE) if a time limit has ended the lease, if the queue was removed, or if this is a forked
    /// child of its holder. [`QueueError::WouldDeadlock`](crate::QueueError::WouldDeadlock) (EDEADLK) in a signal handler that has interrupted a call on the
    /// same queue: then the message goes back to its place, as after a time limit.
    pub fn acknowledge(self) -> Result<(), LeaseError> {
        self.acknowledge_kept()
    }

    /// [`acknowledge`](Self::acknowledge) for a process that keeps the lease: it goes on after `WouldDeadlock`, and has ended after any
    /// other answer.
    #[doc(hidden)]
    pub fn acknowledge_kept(&self) -> Result<(), LeaseError> {
        let engine = &self.queue.engine;
        self.leased
            .end(|| self.answer(engine.acknowledge(thread::current(), &self.handle)))
    }

    /// Returns the message to its place in the queue, as dropping the lease does.
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    pub fn give_back(self) -> Result<(), LeaseError> {
        self.give_back_kept()
    }

    /// [`give_back`](Self::give_back) for a process that keeps the lease, as [`acknowledge_kept`](Self::acknowledge_kept).
    #[doc(hidden)]
    pub fn give_back_kept(&self) -> Result<(), LeaseError> {
        let engine = &self.queue.engine;
        self.leased
            .end(|| self.answer(engine.give_back(thread::current(), &self.handle)))
    }

    fn answer(&self, result: Result<bool, Refused>) -> Result<(), LeaseError> {
        match result {
            Ok(true) => Ok(()),
            Ok(false) | Err(Refused::Own(Why::Removed)) => Err(LeaseError::Ended),
            Err(Refused::Fault(Fault::OwnedByCaller)) => {
                Err(LeaseError::Queue(QueueError::WouldDeadlock))
            }
            Err(_) => {
                self.queue.engine.note_damage();
                Err(LeaseError::Queue(QueueError::Damaged))
            }
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if self.leased.is_open()
            && self.give_back_kept() == Err(LeaseError::Queue(QueueError::WouldDeadlock))
        {
            // A handler that has interrupted its own thread inside of the queue: there is no lock to be had, and the record
            // is changed by nobody meanwhile.
            self.queue.engine.expire(&self.handle);
        }
    }
}
