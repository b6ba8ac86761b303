//! An open queue.

use super::access::{Access, file_mode};
use super::dead_letter;
use super::open::identity;
use super::options::OpenOptions;
use super::status::{self, Attributes, Status};
use crate::error::SegmentError;
use crate::error::{Fault, OpenError, ReceiveError, SendError};
use crate::last_close::LastClose;
use crate::namespace::{Hold, Namespace, QueueName, hold, whereabouts};
use crate::until::realtime;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Debug, Formatter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use umsg_shm::lock::STOPPED;
use umsg_shm::posix_engine::segment::{self, Segment};
use umsg_shm::posix_engine::{Engine, Refused, Taken};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::waiters::pacing::Waiting;

/// An open message queue. Threads may share it, and a forked child may continue to use it.
///
/// Dropping it unmaps the queue. The messages stay until a process receives them or the queue is [unlinked](super::unlink). A
/// queue with [`remove_on_last_close`](OpenOptions::remove_on_last_close) is removed with its last handle.
///
/// # Threads
/// A queue is `Send` and `Sync`. So are its leases and reservations: they belong to the process, and any of its threads may end them. They
/// borrow the queue. A thread that takes a lease or a reservation along needs a scope ([`std::thread::scope`]), or a lease that owns a
/// share of the queue ([`receive_lease_owned`](Self::receive_lease_owned), [`reserve_owned`](Self::reserve_owned)). A forked child may use
/// the queue, but none of its parent's leases.
pub struct Queue {
    pub(crate) engine: Engine,
    /// The name when the queue was opened, with its slash; `None` if the queue had no name any more.
    pub(super) name: Option<OsString>,
    /// The namespace of the queue's file, if it is known.
    pub(super) namespace: Option<Namespace>,
    pub(super) access: Access,
    /// The file's device and inode number, owner and group.
    pub(super) identity: (u64, u64),
    pub(super) owner: (u32, u32),
}

/// Shows the queue's name when it was opened, its attributes and its present contents in numbers.
impl Debug for Queue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let now = status::attributes(&self.engine);
        f.debug_struct("Queue")
            .field("name", &self.name)
            .field("max_messages", &now.max_messages)
            .field("message_size", &now.message_size)
            .field("messages", &now.messages)
            .field("bytes", &now.bytes)
            .field("reserved", &now.reserved)
            .field("leased", &now.leased)
            .field("send_closed", &self.is_send_closed())
            .finish_non_exhaustive()
    }
}

/// A received message. Its bytes are in the caller's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Length in bytes.
    pub len: usize,
    /// Priority, 0 to 32,767.
    pub priority: u32,
}

impl Queue {
    /// Makes a handle. `namespace` and `name` are those of the queue's file, if they are known.
    pub(super) fn new(
        mut segment: Segment,
        (namespace, name): (Option<&Namespace>, Option<OsString>),
        access: Access,
        stat: &Stat,
    ) -> Queue {
        dead_letter::believe(&mut segment, namespace, stat);
        let mut engine = Engine::new(segment);
        engine.set_chore(dead_letter::chore(
            &engine,
            (namespace, name.as_deref()),
            stat,
        ));
        let identity = (stat.st_dev, stat.st_ino);
        engine.set_identity(identity, crate::notification::raise_own);
        Queue {
            engine,
            name,
            namespace: namespace.cloned(),
            access,
            identity,
            owner: (stat.st_uid, stat.st_gid),
        }
    }

    /// Opens a queue for sending and receiving, and creates it (mode 0600) if there is none. An existing queue keeps its own
    /// attributes. `message_size` is in bytes.
    ///
    /// ```no_run
    /// let queue = umsg::posix::Queue::create("/orders", 1_000, 256)?;
    /// queue.send(b"an order", 0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`].
    pub fn create(
        name: impl AsRef<OsStr>,
        max_messages: u32,
        message_size: u32,
    ) -> Result<Queue, OpenError> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .max_messages(max_messages)
            .message_size(message_size)
            .open(name)
    }

    /// Opens an existing queue for sending and receiving.
    ///
    /// ```no_run
    /// let queue = umsg::posix::Queue::open("/orders")?;
    /// println!("{:?}", queue.receive_vec()?.data);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`].
    pub fn open(name: impl AsRef<OsStr>) -> Result<Queue, OpenError> {
        OpenOptions::new().read(true).write(true).open(name)
    }

    /// Attaches to the queue whose file is open as `descriptor`, for the access that the descriptor's access mode allows. The
    /// caller keeps the descriptor. It may be inherited, received over a socket, or made by
    /// [`OpenOptions::open_with_descriptor`].
    ///
    /// The handle of a queue with [`remove_on_last_close`](OpenOptions::remove_on_last_close) counts as an open handle if the caller can
    /// open the file again. It does not count in three cases: the file of another user was passed to the caller, no descriptor is left, or
    /// the descriptor was made together with the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use std::os::fd::AsFd;
    /// use umsg::posix::{OpenOptions, Queue};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let (queue, descriptor) = options.open_with_descriptor("/q", false)?;
    /// queue.send(b"job", 0)?;
    /// let same = Queue::from_fd(descriptor.as_fd())?;
    /// assert_eq!(same.receive_vec()?.data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SegmentError::NotAQueue`](crate::SegmentError::NotAQueue) if the descriptor is not a queue's; otherwise the errors of
    /// [`OpenOptions::open`].
    pub fn from_fd(descriptor: BorrowedFd<'_>) -> Result<Queue, OpenError> {
        let flags =
            rustix::fs::fcntl_getfl(descriptor).map_err(|e| OpenError::from_errno("fcntl", e))?;
        let mode = flags & OFlags::RWMODE;
        let access = Access {
            read: mode != OFlags::WRONLY,
            write: mode != OFlags::RDONLY,
        };
        let stat = rustix::fs::fstat(descriptor).map_err(|e| OpenError::from_errno("fstat", e))?;
        let found = found(descriptor);
        let goes = found.as_ref().is_some_and(|found| found.goes);
        let is_enough = access.read && access.write;
        // Declared before the file, because the file is dropped first.
        let mut last_close = None;
        let file = match is_enough && !goes {
            true => None,
            false => match reopen(descriptor, &stat) {
                // The caller may not open the file again, for example after it gave up its user. It has the queue open, and the handle does
                // not count.
                Err(_) if is_enough => None,
                file => Some(file?),
            },
        };
        if let (Some(found), Some(file)) = (&found, &file)
            && found.goes
            && let Some(name) = &found.name
            && hold(file.as_fd()) == Ok(Hold::Held)
        {
            last_close = Some(LastClose::new(&found.namespace, name));
        }
        let mut segment = segment::attach(file.as_ref().map_or(descriptor, AsFd::as_fd))?;
        if let Some(last_close) = last_close {
            segment.set_last_close(Box::new(last_close));
        }
        if let Some(found) = &found {
            segment.join(found.namespace.host())?;
        }
        let namespace = found.as_ref().map(|found| &found.namespace);
        let name = found
            .as_ref()
            .and_then(|found| Some(found.name.as_ref()?.with_slash()));
        Ok(Queue::new(segment, (namespace, name), access, &stat))
    }

    /// Sends a message. Source: mq_send(3).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"later", 0)?;
    /// queue.send(b"first", 9)?;
    /// assert_eq!(queue.receive_vec()?.data, b"first");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While the queue is full. Blocked senders get room in order of their threads' scheduling priority, then of arrival.
    ///
    /// # Errors
    /// All of [`SendError`] but `Full` and `TimedOut`.
    ///
    /// # If the process dies
    /// Before the call returns: the message was sent completely, or not at all.
    #[inline]
    pub fn send(&self, message: &[u8], priority: u32) -> Result<(), SendError> {
        self.send_by(message, priority, Deadline::Never, true)
    }

    /// Sends a message if there is room at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::SendError;
    ///
    /// while queue.try_send(b"job", 0).is_ok() {}
    /// assert_eq!(queue.try_send(b"job", 0), Err(SendError::Full));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Never; if a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the others of [`SendError`] but `TimedOut`.
    #[inline(always)]
    pub fn try_send(&self, message: &[u8], priority: u32) -> Result<(), SendError> {
        self.send_by(message, priority, Deadline::Passed, false)
    }

    /// Sends a message as [`try_send`](Self::try_send) does, for a call that waits until `deadline` if there is no room. If a
    /// process is stopped inside an operation, the call returns by `deadline`, too.
    #[doc(hidden)]
    pub fn try_send_until(
        &self,
        message: &[u8],
        priority: u32,
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_by(message, priority, no_later_than(deadline), false)
    }

    /// Sends a message; waits for room at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let second = std::time::Duration::from_secs(1);
    /// queue.send_timeout(b"job", 0, second)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While the queue is full, or a process is stopped inside an operation on it, until the time is over.
    ///
    /// # If the process dies
    /// As for [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the others of [`SendError`] but `Full`.
    pub fn send_timeout(
        &self,
        message: &[u8],
        priority: u32,
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_by(message, priority, Deadline::after(timeout), true)
    }

    /// Sends a message; waits for room at most until `deadline`, on the system's clock (CLOCK_REALTIME), as
    /// mq_timedsend(3) does. A deadline in the past is no error if there is room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// queue.send_deadline(b"job", 0, soon)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`send_timeout`](Self::send_timeout).
    ///
    /// # If the process dies
    /// As for [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the others of [`SendError`] but `Full`.
    pub fn send_deadline(
        &self,
        message: &[u8],
        priority: u32,
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_by(message, priority, realtime(deadline), true)
    }

    #[inline(always)]
    fn send_by(
        &self,
        message: &[u8],
        priority: u32,
        deadline: Deadline,
        blocks: bool,
    ) -> Result<(), SendError> {
        if !Engine::is_priority(priority) {
            return Err(SendError::PriorityTooHigh);
        }
        self.check_to_send(message.len())?;
        let me = thread::current();
        let result = if blocks {
            self.engine.send(me, message, priority as usize, deadline)
        } else {
            self.engine
                .try_send(me, message, priority as usize, deadline)
        };
        result.map_err(|refused| self.send_error(refused))
    }

    /// Checks that the handle may send, and that the queue takes messages of `len` bytes.
    #[inline(always)]
    pub(super) fn check_to_send(&self, len: usize) -> Result<(), SendError> {
        if !self.access.write {
            return Err(SendError::NotWritable);
        }
        let max = self.engine.segment().layout().message_size;
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        Ok(())
    }

    #[cold]
    pub(super) fn send_error(&self, refused: Refused) -> SendError {
        self.engine.do_chore();
        match refused {
            Refused::NotNow | Refused::Own(_) => SendError::Full,
            Refused::TimedOut => SendError::TimedOut,
            Refused::Interrupted => SendError::Interrupted,
            Refused::Closed => SendError::Closed,
            Refused::Fault(fault) => {
                self.note(fault);
                fault.into()
            }
        }
    }

    /// Receives the next message: the oldest of the highest priority. The buffer must have room for the queue's message size,
    /// however short the message is. Source: mq_receive(3).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 3)?;
    /// let mut buffer = vec![0; queue.attributes().message_size];
    /// let received = queue.receive(&mut buffer)?;
    /// assert_eq!((&buffer[..received.len], received.priority), (&b"job"[..], 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While the queue is empty. Blocked receivers get messages in order of their threads' scheduling priority, then of
    /// arrival.
    ///
    /// # Errors
    /// All of [`ReceiveError`] but `Empty` and `TimedOut`.
    ///
    /// # If the process dies
    /// Before the call returns: the message is still in the queue, or lost if the call had copied it already.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, Deadline::Never, true)
    }

    /// Receives a message if there is one at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::ReceiveError;
    ///
    /// let mut buffer = vec![0; queue.attributes().message_size];
    /// assert_eq!(queue.try_receive(&mut buffer), Err(ReceiveError::Empty));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Never; if a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] (EAGAIN) and the others of [`ReceiveError`] but `TimedOut`.
    #[inline(always)]
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, Deadline::Passed, false)
    }

    /// Receives a message as [`try_receive`](Self::try_receive) does, for a call that waits until `deadline` if there is no
    /// message. If a process is stopped inside an operation, the call returns by `deadline`, too.
    #[doc(hidden)]
    pub fn try_receive_until(
        &self,
        buffer: &mut [u8],
        deadline: SystemTime,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, no_later_than(deadline), false)
    }

    /// Receives a message; waits for one at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::ReceiveError;
    ///
    /// let mut buffer = vec![0; queue.attributes().message_size];
    /// let moment = std::time::Duration::from_millis(1);
    /// assert_eq!(queue.receive_timeout(&mut buffer, moment), Err(ReceiveError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While the queue is empty, or a process is stopped inside an operation on it, until the time is over.
    ///
    /// # If the process dies
    /// As for [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the others of [`ReceiveError`] but `Empty`.
    pub fn receive_timeout(
        &self,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, Deadline::after(timeout), true)
    }

    /// Receives a message; waits for one at most until `deadline`, on the system's clock (CLOCK_REALTIME), as
    /// mq_timedreceive(3) does. A deadline in the past is no error if there is a message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let mut buffer = vec![0; queue.attributes().message_size];
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_deadline(&mut buffer, soon)?.len, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`receive_timeout`](Self::receive_timeout).
    ///
    /// # If the process dies
    /// As for [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the others of [`ReceiveError`] but `Empty`.
    pub fn receive_deadline(
        &self,
        buffer: &mut [u8],
        deadline: SystemTime,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(buffer, realtime(deadline), true)
    }

    /// Raises, at the end of a receive, the signal of a notification that fired before the message was received.
    #[inline(always)]
    pub(super) fn raise_fired<T, E>(&self, me: &thread::Thread, received: &Result<T, E>) {
        if received.is_ok() && crate::notification::concerns(me) {
            self.engine.raise_fired(me);
            crate::notification::note_raised_elsewhere(&self.engine);
            crate::notification::take_raised(me);
        }
    }

    #[inline(always)]
    pub(super) fn receive_by(
        &self,
        buffer: &mut [u8],
        deadline: Deadline,
        blocks: bool,
    ) -> Result<Received, ReceiveError> {
        if !self.access.read {
            return Err(ReceiveError::NotReadable);
        }
        let needed = self.engine.segment().layout().message_size;
        if buffer.len() < needed {
            return Err(ReceiveError::BufferTooSmall {
                len: buffer.len(),
                needed,
            });
        }
        let me = thread::current();
        let result = if blocks {
            self.engine.receive(me, buffer, deadline)
        } else {
            self.engine.try_receive(me, buffer, deadline)
        };
        self.engine.do_chore();
        self.raise_fired(me, &result);
        match result {
            Ok(Taken { len, key, .. }) => Ok(Received {
                len,
                priority: key as u32,
            }),
            Err(refused) => Err(self.receive_error(refused)),
        }
    }

    #[cold]
    pub(super) fn receive_error(&self, refused: Refused) -> ReceiveError {
        match refused {
            Refused::NotNow | Refused::Own(_) => ReceiveError::Empty,
            Refused::TimedOut => ReceiveError::TimedOut,
            Refused::Interrupted => ReceiveError::Interrupted,
            Refused::Closed => ReceiveError::Closed,
            Refused::Fault(fault) => {
                self.note(fault);
                fault.into()
            }
        }
    }

    pub(super) fn note(&self, fault: Fault) {
        if fault == Fault::Damaged {
            self.engine.note_damage();
        }
    }

    /// Returns the queue's attributes and its current contents in numbers.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let attributes = queue.attributes();
    /// assert_eq!((attributes.messages, attributes.bytes), (1, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// After a process died inside an operation on this queue: for the repair, and at most a second.
    pub fn attributes(&self) -> Attributes {
        self.engine.repair_receivers(thread::current());
        status::attributes(&self.engine)
    }

    /// Returns the complete status of the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let status = queue.status();
    /// assert!(status.last_send.is_some() && !status.damaged);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`attributes`](Self::attributes).
    pub fn status(&self) -> Status {
        self.engine.repair_receivers(thread::current());
        status::status(self)
    }

    /// Sets how calls on this handle wait.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.set_waiting(umsg::posix::Waiting::Blocking);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_waiting(&self, waiting: Waiting) {
        self.engine.pacing.set(waiting);
    }

    /// Returns device and inode number of the queue's file. They are equal for two handles of one queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let other = OpenOptions::new().read(true).namespace(&namespace).open("/q")?;
    /// assert_eq!(other.identity(), queue.identity());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns the queue's permission bits.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// assert_eq!(queue.mode() & 0o777, 0o600);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mode(&self) -> u32 {
        status::mode(self.engine.segment().fixed())
    }

    /// Changes the queue's permission bits, as fchmod(2) on its descriptor does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use std::os::fd::AsFd;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let (queue, descriptor) = options.open_with_descriptor("/q", false)?;
    /// queue.set_mode(descriptor.as_fd(), 0o660)?;
    /// assert_eq!(queue.mode() & 0o777, 0o660);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// EPERM if the caller is neither the owner nor privileged; EINVAL if `descriptor` is not this queue's; `ModeNotEnforced` (EACCES).
    pub fn set_mode(&self, descriptor: BorrowedFd<'_>, mode: u32) -> Result<(), OpenError> {
        if identity(descriptor)? != self.identity {
            return Err(OpenError::Segment(SegmentError::NotAQueue(
                "the descriptor of another file",
            )));
        }
        let mode = mode & 0o7777;
        if let Some(namespace) = &self.namespace
            && !namespace.limits()?.allow_mode(mode)
        {
            return Err(OpenError::ModeNotEnforced { mode });
        }
        rustix::fs::fchmod(descriptor, Mode::from_raw_mode(file_mode(mode))).map_err(|error| {
            OpenError::Segment(SegmentError::System {
                call: "fchmod",
                error: error.into(),
            })
        })?;
        self.engine.segment().fixed().header.set_mode(mode);
        Ok(())
    }
}

/// Opens the file of a descriptor again, for reading and writing.
fn reopen(descriptor: BorrowedFd<'_>, stat: &Stat) -> Result<OwnedFd, OpenError> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let open = |access: OFlags| {
        rustix::fs::open(&path, access | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| OpenError::from_errno("open", e))
    };
    // A file of another kind must not be opened for writing just for this check.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::Segment(SegmentError::NotAQueue(
            "not a regular file",
        )));
    }
    segment::check(open(OFlags::RDONLY)?.as_fd())?;
    let file = open(OFlags::RDWR)?;
    if identity(file.as_fd())? != (stat.st_dev, stat.st_ino) {
        return Err(OpenError::Segment(SegmentError::NotAQueue(
            "the descriptor changed meanwhile",
        )));
    }
    Ok(file)
}

/// The place of a queue's file.
struct Found {
    namespace: Namespace,
    /// `None` for the descriptor with which the queue was created: its file had no name then, and /proc shows none.
    name: Option<QueueName>,
    /// The queue is removed on the last close.
    goes: bool,
}

/// Returns the place of a queue's file. `None` if the queue has no name any more, or the caller may not read its directory.
fn found(descriptor: BorrowedFd<'_>) -> Option<Found> {
    // Not libc's readlink, for which the drop-in shows a queue's name.
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    let found = whereabouts(Path::new(OsStr::from_bytes(path.as_bytes())))?;
    let name = QueueName::parse(&slashed(found.name)).ok();
    if found.goes && name.is_none() {
        return None;
    }
    Some(Found {
        namespace: Namespace::existing(found.namespace).ok()?,
        name,
        goes: found.goes,
    })
}

fn slashed(name: &OsStr) -> OsString {
    let mut whole = OsString::from("/");
    whole.push(name);
    whole
}

/// Returns the name, with its slash, of the queue whose file has this path. For the drop-in, which checks no other file.
#[doc(hidden)]
#[must_use]
pub fn name_of_file(path: &Path) -> Option<OsString> {
    whereabouts(path).map(|found| slashed(found.name))
}

/// Returns the time at which an attempt of a call with this deadline stops waiting for a stopped process.
fn no_later_than(deadline: SystemTime) -> Deadline {
    realtime(deadline).or_slice(STOPPED)
}
