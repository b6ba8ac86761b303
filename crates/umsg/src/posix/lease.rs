//! Receiving in place: leases.

use super::queue::Queue;
use crate::error::QueueError;
use crate::error::{Fault, LeaseError, ReceiveError};
use crate::leased::Leased;
use crate::until::realtime;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use umsg_shm::leases::InPlace;
use umsg_shm::leases::{Leases, State};
use umsg_shm::posix_engine::{Engine, LeaseHandle, Refused};
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::thread;

/// A message that was received where it lies: nothing is copied, and nothing is lost if its receiver dies.
///
/// The message counts for the queue's capacity until it is [acknowledged](Self::acknowledge). Dropping the lease, the
/// death of the process and the end of a [time limit](Self::limit) return the message to the head of its priority, and
/// the next receiver gets it; [`deliveries`](Self::deliveries) then says how often it was delivered. Leases may be
/// acknowledged in any order, by any thread of the process. A forked child does not own its parent's leases, and a process
/// that becomes another program (exec) has let go of them where that can be seen: not if addresses are not random, and not
/// by processes of other users.
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
#[derive(Debug)]
#[must_use = "a lease that is dropped returns its message to the queue"]
pub struct Lease<'q> {
    queue: &'q Queue,
    handle: LeaseHandle,
    leased: Leased,
}

impl Queue {
    /// Receives the message that is next where it lies. Source: none, the kernel's queues have no such call.
    ///
    /// # Blocking
    /// While the queue is empty, as [`receive`](Self::receive).
    ///
    /// # Errors
    /// All of [`ReceiveError`] but `Empty`, `TimedOut` and `BufferTooSmall`.
    ///
    /// # If the process dies
    /// The message goes back to the head of its priority: a process that finds the queue empty or full looks for dead holders,
    /// and a blocked process does so ten times a second.
    pub fn receive_lease(&self) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(Deadline::Never)
    }

    /// As [`receive_lease`](Self::receive_lease), if there is a message at once.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] (EAGAIN) and the others of [`ReceiveError`] but `TimedOut` and `BufferTooSmall`.
    pub fn try_receive_lease(&self) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(Deadline::Passed)
    }

    /// As [`receive_lease`](Self::receive_lease); waits at most `timeout`, on the monotonic clock.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the others of [`ReceiveError`] but `Empty` and `BufferTooSmall`.
    pub fn receive_lease_timeout(&self, timeout: Duration) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(Deadline::after(timeout))
    }

    /// As [`receive_lease`](Self::receive_lease); waits at most until `deadline`, on the system's clock.
    ///
    /// # Errors
    /// As [`receive_lease_timeout`](Self::receive_lease_timeout).
    pub fn receive_lease_deadline(&self, deadline: SystemTime) -> Result<Lease<'_>, ReceiveError> {
        self.lease_by(realtime(deadline))
    }

    fn lease_by(&self, deadline: Deadline) -> Result<Lease<'_>, ReceiveError> {
        if !self.access.read {
            return Err(ReceiveError::NotReadable);
        }
        let me = thread::current();
        let leased = match deadline {
            Deadline::Passed => self.engine.try_lease(me, deadline),
            _ => self.engine.lease(me, deadline),
        };
        let lease = leased
            .map_err(|refused| self.receive_error(refused))
            .and_then(|handle| self.lease_of(handle));
        // After the message has its owner: moving takes time and can fail.
        self.engine.do_chore();
        self.raise_fired(me, &lease);
        lease
    }

    fn lease_of(&self, handle: LeaseHandle) -> Result<Lease<'_>, ReceiveError> {
        match self.engine.place(&handle) {
            Ok(place) => Ok(Lease {
                queue: self,
                handle,
                leased: Leased::new(InPlace::new(place, handle.len)),
            }),
            Err(trouble) => {
                // No process has seen the message: it goes back, unless more is damaged than where it lies.
                expire(&self.engine, &handle);
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

    /// Priority, 0 to 32,767.
    pub fn priority(&self) -> u32 {
        self.handle.key as u32
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
        clock::shown(self.handle.sent_at)
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

    /// Lets the lease end by itself, `time` from now: the message then goes back to the head of its priority, whatever its
    /// holder does meanwhile. It does so when a process finds the queue empty or full, or receives beside other leases; a
    /// receiver that goes to sleep looks when the first lease ends, and all that are blocked ten times a second.
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
    /// [`LeaseError::Ended`] (ESTALE) if a time limit has ended the lease, or if this is a forked child of its holder: then
    /// another process gets the message, or got it already. [`QueueError::WouldDeadlock`](crate::QueueError::WouldDeadlock) (EDEADLK) in a signal handler that
    /// has interrupted a call on the same queue: then the message goes back to the head of its priority within a tenth of a
    /// second, as after a time limit.
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

    /// Returns the message to the head of its priority, as dropping the lease does.
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
        self.leased.end(|| {
            let ended = self.answer(engine.give_back(thread::current(), &self.handle));
            engine.do_chore();
            ended
        })
    }

    fn answer(&self, result: Result<bool, Refused>) -> Result<(), LeaseError> {
        match result {
            Ok(true) => Ok(()),
            Ok(false) => Err(LeaseError::Ended),
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
            expire(&self.queue.engine, &self.handle);
        }
    }
}

/// Has a lease end as if its time were up: of a handler that has interrupted its own thread inside of the queue, where there is no
/// lock to be had, or of nobody.
#[cold]
fn expire(engine: &Engine, handle: &LeaseHandle) {
    let segment = engine.segment();
    // The lock is this very thread's: no other process changes records meanwhile, and what was interrupted finds a lease whose
    // time is up, as it may at any moment. Of a lease that no process has, the record is damaged anyway.
    if let Ok(Some(hold)) = Leases::of(segment).find(handle.index, handle.ticket, State::Leased) {
        hold.until.set(1);
        // Relaxed: a hint to look. Should the interrupted call overwrite it, the next regular look finds the lease.
        segment.fixed().holding.due.store(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;
    use crate::posix::OpenOptions;
    use tempfile::TempDir;

    /// A queue in a directory of its own, and a message in it that does not fit into its cell.
    fn queue_with_a_message() -> (TempDir, Queue) {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.namespace(&Namespace::at(home.path()).unwrap());
        let queue = options.open("/q").unwrap();
        queue.send(&[b'm'; 4096], 3).unwrap();
        (home, queue)
    }

    /// Does `work` as a handler does that has interrupted its thread while it held the lock.
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
    fn a_message_that_lies_nowhere_is_not_kept_by_who_can_not_lease_it() {
        let (_home, queue) = queue_with_a_message();
        let lease = queue.try_receive_lease().unwrap();
        let cell = queue.engine.segment().cell(lease.handle.slot).unwrap();
        drop(lease);
        let block = cell.block.get();
        cell.block.set(0);
        assert_eq!(
            queue.try_receive_lease().unwrap_err(),
            ReceiveError::Queue(QueueError::Damaged)
        );
        assert_eq!(queue.attributes().leased, 0);
        cell.block.set(block);
        assert_eq!(queue.try_receive_lease().unwrap().to_vec(), [b'm'; 4096]);
    }
}
