//! Reservations: sending in place.

use super::queue::Queue;
use crate::error::{Fault, SendError};
use crate::lease::Holder;
use crate::until::{Until, realtime};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use umsg_shm::leases::InPlace;
use umsg_shm::leases::{Leases, State};
use umsg_shm::posix_engine::{Engine, LeaseHandle, Refused};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;

/// Room in a queue for a message that is written in place, and sent by [`commit`](Self::commit).
///
/// The reservation counts for the queue's capacity from the beginning. Other processes can send in the meantime: the message is delivered after all
/// messages of its priority that were sent before the commit. A drop of the reservation, or the death of the process, frees the room. A forked child
/// does not own its parent's reservations. An exec ends reservations as it ends leases.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("umsg-reserve-{}", std::process::id()));
/// # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
/// # let namespace = umsg::Namespace::at(&dir)?;
/// use umsg::posix::OpenOptions;
///
/// let mut options = OpenOptions::new();
/// options.read(true).write(true).create(true).max_messages(10).message_size(1 << 20);
/// let frames = options.namespace(&namespace).open("/frames")?;
///
/// let mut frame = frames.reserve(1 << 20)?; // bytes
/// frame.write_at(0, b"header");
/// frame.commit(0)?;
/// assert_eq!(frames.receive_lease()?.len(), 1 << 20);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a reservation that is dropped sends nothing"]
pub struct Reservation<'q> {
    queue: Holder<'q, Queue>,
    handle: LeaseHandle,
    place: InPlace,
    /// True if a drop of the reservation must free the room.
    open: bool,
}

impl Queue {
    /// Reserves room for a message of `len` bytes, to be written in place. The room first has arbitrary contents, possibly bytes of earlier messages.
    /// Source: none, the kernel's queues have no such call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut room = queue.reserve(64)?; // bytes
    /// room.write_at(0, b"written in place");
    /// room.truncate(16);
    /// room.commit(3)?;
    /// assert_eq!(queue.receive_vec()?.data, b"written in place");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full, as [`send`](Self::send) does.
    ///
    /// # Errors
    /// All errors of [`SendError`] except `Full`, `TimedOut` and `PriorityTooHigh`.
    ///
    /// # If the process dies
    /// If the process dies, the room is free again. A process that finds the queue full checks for dead owners of reservations. A blocked process
    /// checks ten times a second.
    pub fn reserve(&self, len: usize) -> Result<Reservation<'_>, SendError> {
        self.reserve_by(len, Deadline::Never)
    }

    /// Reserves room as [`reserve`](Self::reserve) does, if the queue has room now; does not wait for room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// drop(queue.try_reserve(64)?); // gives the room back
    /// assert_eq!(queue.attributes().reserved, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the other errors of [`SendError`] except `TimedOut` and `PriorityTooHigh`.
    pub fn try_reserve(&self, len: usize) -> Result<Reservation<'_>, SendError> {
        self.reserve_by(len, Deadline::Passed)
    }

    /// Reserves room as [`reserve`](Self::reserve) does; waits at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let second = std::time::Duration::from_secs(1);
    /// queue.reserve_timeout(3, second)?.commit(0)?;
    /// assert_eq!(queue.attributes().messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the other errors of [`SendError`] except `Full` and `PriorityTooHigh`.
    pub fn reserve_timeout(
        &self,
        len: usize,
        timeout: Duration,
    ) -> Result<Reservation<'_>, SendError> {
        self.reserve_by(len, Deadline::after(timeout))
    }

    /// Reserves room as [`reserve`](Self::reserve) does; waits at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// queue.reserve_deadline(3, soon)?.commit(0)?;
    /// assert_eq!(queue.attributes().messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`reserve_timeout`](Self::reserve_timeout).
    pub fn reserve_deadline(
        &self,
        len: usize,
        deadline: SystemTime,
    ) -> Result<Reservation<'_>, SendError> {
        self.reserve_by(len, realtime(deadline))
    }

    /// Reserves room as [`reserve`](Self::reserve) does, in a reservation that keeps the queue open. Waits as long as `until` says.
    /// The reservation can be kept in a struct, sent to another thread, and outlive the caller's handle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::sync::Arc;
    /// use umsg::posix::Until;
    ///
    /// let queue = Arc::new(queue);
    /// let mut room = queue.reserve_owned(3, Until::Now)?;
    /// let writer = std::thread::spawn(move || {
    ///     room.write_at(0, b"job");
    ///     room.commit(0)
    /// });
    /// writer.join().unwrap()?;
    /// assert_eq!(queue.receive_vec()?.data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::Full`] for [`Until::Now`], [`SendError::TimedOut`] for a time limit, and the errors of [`reserve`](Self::reserve).
    ///
    /// # If the process dies
    /// The death of the process has the same effect as for [`reserve`](Self::reserve). The room belongs to the process, not to the thread.
    pub fn reserve_owned(
        self: &Arc<Self>,
        len: usize,
        until: Until,
    ) -> Result<Reservation<'static>, SendError> {
        self.reserve_in(Holder::Shared(Arc::clone(self)), len, until.deadline())
    }

    pub(super) fn reserve_by(
        &self,
        len: usize,
        deadline: Deadline,
    ) -> Result<Reservation<'_>, SendError> {
        self.reserve_in(Holder::Borrowed(self), len, deadline)
    }

    fn reserve_in<'q>(
        &self,
        holder: Holder<'q, Queue>,
        len: usize,
        deadline: Deadline,
    ) -> Result<Reservation<'q>, SendError> {
        self.check_to_send(len)?;
        let me = thread::current();
        let handle = match deadline {
            Deadline::Passed => self.engine.try_reserve(me, len, deadline),
            _ => self.engine.reserve(me, len, deadline),
        }
        .map_err(|refused| self.send_error(refused))?;
        match self.engine.place(&handle) {
            Ok(place) => Ok(Reservation {
                queue: holder,
                handle,
                place: InPlace::new(place, len),
                open: true,
            }),
            Err(fault) => {
                // The message's slot is corrupted. If other data of the queue are corrupted, too, or if the owner of a lock is stopped, the
                // cancellation fails.
                let _ = self.engine.cancel(me, &handle, deadline);
                Err(self.send_error(fault.into()))
            }
        }
    }
}

impl Reservation<'_> {
    /// Returns the length of the message, in bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let room = queue.reserve(64)?; // bytes
    /// assert_eq!(room.len(), 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::len_without_is_empty, reason = "a message is no container")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// Returns the address of the message's room. The address is valid as long as the reservation. A forked child must not write to the room, because
    /// the message belongs to the parent.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut room = queue.reserve(64)?; // bytes
    /// // SAFETY: the room has 64 bytes.
    /// unsafe { room.as_mut_ptr().write_bytes(7, 64) };
    /// room.commit(0)?;
    /// assert_eq!(queue.receive_vec()?.data, [7; 64]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.place.start()
    }

    /// Returns the room as a slice.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut room = queue.reserve(64)?; // bytes
    /// // SAFETY: all processes that may open the queue keep to the protocol.
    /// unsafe { room.bytes_mut() }.fill(7);
    /// room.commit(0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// No other process may touch the bytes while the slice is in use. A forked child must not call this method, because the bytes belong to
    /// its parent. A process that keeps to the protocol does not touch the bytes, but a hostile process that may open the queue can.
    /// [`write_at`](Self::write_at) is always safe.
    #[allow(unsafe_code, reason = "shared memory as a slice")]
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: by this function's own contract.
        unsafe { self.place.bytes_mut() }
    }

    /// Copies bytes to `offset`. Returns the number of copied bytes: 0 in a forked child, where the message belongs to the
    /// parent.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut room = queue.reserve(64)?; // bytes
    /// assert_eq!(room.write_at(60, b"too long"), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> usize {
        self.place.write_at(offset, bytes)
    }

    /// Shortens the message: only its first `len` bytes are sent. In a forked child, the call has no effect, and the parent's message keeps its
    /// length.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut room = queue.reserve(64)?; // bytes
    /// room.truncate(3);
    /// assert_eq!(room.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn truncate(&mut self, len: usize) {
        self.place.truncate(len);
    }

    /// Sends the message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut room = queue.reserve(64)?; // bytes
    /// room.write_at(0, b"job");
    /// room.truncate(3);
    /// room.commit(5)?;
    /// assert_eq!(queue.receive_vec()?.priority, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks only while a process is stopped inside an operation on this queue.
    ///
    /// # Errors
    /// [`SendError::PriorityTooHigh`] (EINVAL); [`SendError::NotWritable`] (EBADF) in a forked child; `NoMemory`, `NoSpace`,
    /// `Damaged`, `WouldDeadlock`. After an error, the room is free again; after `WouldDeadlock`, the room may be free only after a tenth of a
    /// second.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the message was sent completely, or not at all.
    pub fn commit(self, priority: u32) -> Result<(), SendError> {
        self.commit_with(priority, |engine, handle, len, key| {
            engine.commit(thread::current(), handle, len, key)
        })
    }

    /// Sends the message for a delivery at `until`, a reading of the monotonic clock in nanoseconds.
    pub(super) fn commit_at(self, priority: u32, until: u64) -> Result<(), SendError> {
        self.commit_with(priority, |engine, handle, len, key| {
            engine.commit_at(thread::current(), handle, (len, key), until)
        })
    }

    pub(super) fn commit_with(
        mut self,
        priority: u32,
        commit: impl FnOnce(&Engine, &LeaseHandle, usize, usize) -> Result<bool, Refused>,
    ) -> Result<(), SendError> {
        if !Engine::is_priority(priority) {
            return Err(SendError::PriorityTooHigh);
        }
        if !self.place.is_ours() {
            return Err(SendError::NotWritable);
        }
        let engine = &self.queue.engine;
        match commit(engine, &self.handle, self.len(), priority as usize) {
            Ok(true) => {
                self.open = false;
                Ok(())
            }
            // Only a process that corrupts the queue takes away the reservation of a living process.
            Ok(false) => Err(self.queue.send_error(Fault::Damaged.into())),
            Err(refused) => Err(self.queue.send_error(refused)),
        }
    }
}

impl Reservation<'_> {
    /// Frees the room as after the death of its owner. For a signal handler that has interrupted its own thread inside the queue and can't get the
    /// lock.
    #[cold]
    fn abandon(&self) {
        let holds = Leases::of(self.queue.engine.segment());
        // This thread holds the lock, so no other process changes records. When the interrupted call continues, it finds a reservation whose owner is
        // dead, a case that every call handles.
        if let Ok(Some(record)) = holds.find(self.handle.index, self.handle.ticket, State::Reserved)
        {
            // No process with this id started at the changed time, so the owner counts as dead.
            record.birth.set(record.birth.get() ^ 1);
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.open && self.place.is_ours() {
            let cancelled =
                self.queue
                    .engine
                    .cancel(thread::current(), &self.handle, Deadline::Never);
            // Every other error means that the queue is corrupted.
            if cancelled == Err(Refused::Fault(Fault::OwnedByCaller)) {
                self.abandon();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;
    use crate::error::QueueError;
    use crate::posix::OpenOptions;

    #[test]
    fn room_that_can_not_be_given_back_inside_of_the_queue_is_free_later() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .max_messages(1)
            .message_size(8);
        options.namespace(&Namespace::at(home.path()).unwrap());
        let queue = options.open("/q").unwrap();
        for ends in [
            |room: Reservation<'_>| room.commit(0),
            |room: Reservation<'_>| {
                drop(room);
                Err(SendError::Queue(QueueError::WouldDeadlock))
            },
        ] {
            let room = queue.reserve_timeout(8, Duration::from_secs(10)).unwrap();
            // Simulates a handler that has interrupted its thread while the thread held the lock.
            let lock = &queue.engine.segment().fixed().receiver.lock;
            let Ok((held, _)) =
                lock.lock(thread::current(), queue.engine.segment(), Deadline::Never)
            else {
                panic!("the lock is free");
            };
            assert_eq!(ends(room), Err(SendError::Queue(QueueError::WouldDeadlock)));
            held.unlock();
        }
        let room = queue.reserve_timeout(8, Duration::from_secs(10)).unwrap();
        assert_eq!(room.commit(0), Ok(()));
    }
}
