//! An open System V queue.

use super::error::{OpenError, ReceiveError, SendError};
use super::options::{OpenOptions, PRIVATE};
use super::permission::{Access, Judged};
use super::recycle::OwnFile;
use crate::error::Fault;
use crate::namespace::Namespace;
use crate::until::{Until, realtime};
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::order::Want;
use umsg_shm::sysv_engine::segment::{CLOSED, Segment};
use umsg_shm::sysv_engine::{Call, Engine, Refused, Taken, Why};
use umsg_shm::waiters::pacing::Waiting;

/// An open System V message queue. Threads may share it, and a forked child may go on using it.
///
/// Dropping it unmaps the queue; its messages stay until a process receives them or the queue is
/// [removed](Queue::remove).
///
/// The first send and the first receive check the caller's permission against the queue's mode. The next call checks it
/// again after each change of the queue's owner or mode.
///
/// # Threads
/// A queue is `Send` and `Sync`. So are its leases: they belong to the process, and any of its threads may end them.
/// Leases borrow the queue. So a thread that uses a lease needs a scope ([`std::thread::scope`]), or a lease that owns a share of
/// the queue ([`receive_lease_owned`](Self::receive_lease_owned)). A forked child may use the queue, but not its parent's leases.
pub struct Queue {
    pub(super) engine: Engine,
    pub(super) judged: Judged,
    pub(super) namespace: Namespace,
    /// The queue's file, if this process has created it and may use the segment again.
    pub(super) own_file: Option<Arc<OwnFile>>,
}

/// Shows the queue's key, its identifier and its present contents in numbers.
impl Debug for Queue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let now = self.engine.glance();
        f.debug_struct("Queue")
            .field("key", &format_args!("{:#x}", self.key()))
            .field("id", &self.id())
            .field("qbytes", &now.capacity)
            .field("messages", &now.queued.messages)
            .field("bytes", &now.queued.bytes)
            .field("leased", &now.leased.messages)
            .field("send_closed", &self.is_send_closed())
            .field("removed", &self.is_removed())
            .finish_non_exhaustive()
    }
}

/// Whether a receive learns of the end of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Heeds {
    /// The receive fails at the end.
    End,
    /// The receive waits, as msgrcv(2) does: the kernel's queues have no end.
    Nothing,
}

/// A received message, whose bytes are in the caller's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Length in bytes.
    pub len: usize,
    /// The message's type, 1 or more.
    pub mtype: i64,
}

impl From<Taken> for Received {
    fn from(taken: Taken) -> Self {
        Received {
            len: taken.len,
            mtype: taken.mtype,
        }
    }
}

impl Queue {
    pub(super) fn new(segment: Segment, namespace: &Namespace) -> Queue {
        Queue {
            engine: Engine::new(segment),
            judged: Judged::default(),
            namespace: namespace.clone(),
            own_file: None,
        }
    }

    /// Opens the queue of a key. Creates the queue (mode 0600) if there is none.
    ///
    /// ```no_run
    /// let queue = umsg::sysv::Queue::create(0x7507)?;
    /// queue.send(1, b"job")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(key: i32) -> Result<Queue, OpenError> {
        OpenOptions::new().create(true).open(key)
    }

    /// Opens the queue of a key.
    ///
    /// ```no_run
    /// let queue = umsg::sysv::Queue::open(0x7507)?;
    /// queue.send(1, b"job")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(key: i32) -> Result<Queue, OpenError> {
        OpenOptions::new().open(key)
    }

    /// Creates a queue without a key (mode 0600). Other processes find it only by its [`id`](Queue::id).
    ///
    /// ```no_run
    /// let queue = umsg::sysv::Queue::private()?;
    /// assert_eq!(queue.key(), 0);
    /// queue.remove()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn private() -> Result<Queue, OpenError> {
        OpenOptions::new().open(PRIVATE)
    }

    /// Returns the queue's identifier, as msgget(2) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let same = umsg::sysv::OpenOptions::new().namespace(&namespace).open_id(queue.id())?;
    /// assert_eq!(same.id(), queue.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(&self) -> i32 {
        self.engine.segment().tenure().id
    }

    /// Returns the queue's key; [`PRIVATE`] (0) without a key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// assert_eq!(queue.key(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self) -> i32 {
        self.engine.segment().fixed().header.key()
    }

    /// Returns whether the queue was removed. Every other call then fails.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// umsg::sysv::remove(&namespace, queue.id())?;
    /// assert!(queue.is_removed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_removed(&self) -> bool {
        self.engine.is_removed()
    }

    /// Returns the longest possible message, in bytes: the namespace's `msgmax` at the creation of the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// assert!(queue.send(1, &vec![0; queue.msgmax() + 1]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn msgmax(&self) -> usize {
        self.engine.segment().layout().msgmax
    }

    /// Sends a message. The type is 1 or more. Source: msgsnd(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(2, b"for two")?;
    /// queue.send(1, b"for one")?;
    /// let mut buffer = [0; 64];
    /// assert_eq!(queue.receive(Want::Exactly(1), &mut buffer)?.len, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While there is no room. Blocked senders get room in order of arrival. A shorter message may overtake a message that does
    /// not fit yet.
    ///
    /// # Errors
    /// All of [`SendError`] but `Full` and `TimedOut`.
    ///
    /// # If the process dies
    /// Before the call returns: the message was sent whole, or not at all.
    #[inline]
    pub fn send(&self, mtype: i64, message: &[u8]) -> Result<(), SendError> {
        self.send_by(mtype, message, Deadline::Never, Access::Send)
    }

    /// Sends a message if there is room at once (IPC_NOWAIT).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.try_send(1, b"job")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Never; if a process was stopped inside of an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the others of [`SendError`] but `TimedOut`.
    #[inline(always)]
    pub fn try_send(&self, mtype: i64, message: &[u8]) -> Result<(), SendError> {
        self.try_send_by(mtype, message, Access::Send)
    }

    /// Sends a message if there is room at once. With [`Access::Write`], as msgsnd(2) does, to a closed queue, too.
    #[inline(always)]
    pub(super) fn try_send_by(
        &self,
        mtype: i64,
        message: &[u8],
        access: Access,
    ) -> Result<(), SendError> {
        self.judged_send(mtype, message.len(), (Deadline::Passed, access), |call| {
            self.engine.try_send(call, mtype, message)
        })
    }

    /// Sends a message. Waits for room for at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let second = std::time::Duration::from_secs(1);
    /// queue.send_timeout(1, b"job", second)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While there is no room, or a process is stopped inside of an operation on the queue: until the time is over.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the others of [`SendError`] but `Full`.
    ///
    /// # If the process dies
    /// As for [`send`](Self::send).
    pub fn send_timeout(
        &self,
        mtype: i64,
        message: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_by(mtype, message, Deadline::after(timeout), Access::Send)
    }

    /// Sends a message. Waits for room until `deadline` at most, on the system's clock (CLOCK_REALTIME). A deadline in the past
    /// is no error if there is room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// queue.send_deadline(1, b"job", soon)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`send_timeout`](Self::send_timeout).
    ///
    /// # Errors
    /// As [`send_timeout`](Self::send_timeout).
    ///
    /// # If the process dies
    /// As for [`send`](Self::send).
    pub fn send_deadline(
        &self,
        mtype: i64,
        message: &[u8],
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_by(mtype, message, realtime(deadline), Access::Send)
    }

    /// Sends a message as [`send`](Queue::send) does. Waits as long as `until` says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send_until(1, b"job", umsg::sysv::Until::Now)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`send_timeout`](Queue::send_timeout); `Full` with [`Until::Now`].
    #[inline]
    pub fn send_until(&self, mtype: i64, message: &[u8], until: Until) -> Result<(), SendError> {
        self.send_by(mtype, message, until.deadline(), Access::Send)
    }

    /// Sends a message, and waits for room until the deadline. See [`try_send_by`](Self::try_send_by).
    pub(super) fn send_by(
        &self,
        mtype: i64,
        message: &[u8],
        deadline: Deadline,
        access: Access,
    ) -> Result<(), SendError> {
        self.judged_send(mtype, message.len(), (deadline, access), |call| {
            self.engine.send(call, mtype, message)
        })
    }

    /// Runs `work` with the permission to send a message of `len` bytes. Repeats both if the rights have changed meanwhile.
    #[inline(always)]
    pub(super) fn judged_send(
        &self,
        mtype: i64,
        len: usize,
        (deadline, access): (Deadline, Access),
        mut work: impl FnMut(&Call<'_>) -> Result<(), Refused>,
    ) -> Result<(), SendError> {
        self.check_to_send(mtype, len)?;
        let mut call = Call::new(thread::current(), deadline);
        loop {
            call.set_rights(self.may_send(access)?);
            match work(&call) {
                Ok(()) => return Ok(()),
                Err(Refused::Own(Why::Rejudge)) => {}
                Err(refused) => return Err(self.send_error(refused)),
            }
        }
    }

    /// Checks a message's length and type. Source: the order of checks in msgsnd(2).
    #[inline(always)]
    pub(super) fn check_to_send(&self, mtype: i64, len: usize) -> Result<(), SendError> {
        let max = self.msgmax();
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        if mtype < 1 {
            return Err(SendError::InvalidType);
        }
        Ok(())
    }

    /// Checks that the caller may send. Returns the version of the queue's rights for which this holds.
    #[inline(always)]
    pub(super) fn may_send(&self, access: Access) -> Result<u32, SendError> {
        self.judged
            .may(self.engine.segment().fixed(), access)
            .or_else(|_| self.may_send_slow())
    }

    /// Checks whether the caller may send to an open queue that the death of a producer may close. Other queues refuse the send.
    #[cold]
    fn may_send_slow(&self) -> Result<u32, SendError> {
        let fixed = self.engine.segment().fixed();
        let version = self.judged.may(fixed, Access::Write);
        if self.is_removed() {
            return Err(SendError::Removed);
        }
        let version = version.map_err(|_| SendError::PermissionDenied)?;
        if version & CLOSED != 0 || !self.engine.policy().close_with_producers {
            // The queue is closed for sending. It may be open again by now.
            return Err(SendError::Closed);
        }
        self.engine
            .look_for_producers(thread::current(), Deadline::Passed);
        // If the queue is closed by now, it has another version.
        Ok(version)
    }

    /// Checks that the caller may receive. Returns the version of the queue's rights for which this holds.
    #[inline(always)]
    pub(super) fn may_receive(&self) -> Result<u32, ReceiveError> {
        self.judged
            .may(self.engine.segment().fixed(), Access::Read)
            .map_err(|_| ReceiveError::PermissionDenied)
    }

    #[cold]
    pub(super) fn send_error(&self, refused: Refused) -> SendError {
        match refused {
            Refused::NotNow | Refused::Own(Why::Rejudge | Why::TooSmall { .. }) => SendError::Full,
            Refused::Closed => SendError::Closed,
            Refused::TimedOut => SendError::TimedOut,
            Refused::Interrupted => SendError::Interrupted,
            Refused::Own(Why::Removed) => SendError::Removed,
            Refused::Fault(fault) => {
                self.note(fault);
                fault.into()
            }
        }
    }

    #[cold]
    pub(super) fn receive_error(&self, refused: Refused) -> ReceiveError {
        match refused {
            Refused::NotNow | Refused::Own(Why::Rejudge) => ReceiveError::NoMessage,
            Refused::Closed => ReceiveError::Closed,
            Refused::Own(Why::TooSmall { len }) => ReceiveError::TooSmall { len },
            Refused::TimedOut => ReceiveError::TimedOut,
            Refused::Interrupted => ReceiveError::Interrupted,
            Refused::Own(Why::Removed) => ReceiveError::Removed,
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

    /// Receives the first wanted message. Source: msgrcv(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// let received = queue.receive(Want::Any, &mut buffer)?;
    /// assert_eq!((&buffer[..received.len], received.mtype), (&b"job"[..], 5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While there is no such message. The receivers that want a message get it in the order of their arrival. A receiver with
    /// too small a buffer fails, and the next receiver gets the message.
    ///
    /// # Errors
    /// [`ReceiveError::TooSmall`] if the message is longer than the buffer; the message stays in the queue. All others of
    /// [`ReceiveError`] but `NoMessage` and `TimedOut`.
    ///
    /// # If the process dies
    /// Before the call returns: the message is still in the queue, or it is lost if it was already copied out.
    #[inline]
    pub fn receive(&self, want: Want, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, false, (Deadline::Never, Heeds::End))
    }

    /// Receives the first wanted message, if there is one at once (IPC_NOWAIT).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// assert!(queue.try_receive(Want::Exactly(4), &mut buffer).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Never; if a process was stopped inside of an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`ReceiveError::NoMessage`] (ENOMSG) and the others of [`ReceiveError`] but `TimedOut`.
    #[inline]
    pub fn try_receive(&self, want: Want, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        self.try_receive_by(want, buffer, false, Heeds::End)
    }

    /// Receives the first wanted message. Waits for one for at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// let second = std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_timeout(Want::Any, &mut buffer, second)?.mtype, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While there is no such message, or a process is stopped inside of an operation on the queue: until the time is over.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the others of [`ReceiveError`] but `NoMessage`.
    ///
    /// # If the process dies
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(
        &self,
        want: Want,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, false, (Deadline::after(timeout), Heeds::End))
    }

    /// Receives the first wanted message. Waits for one until `deadline` at most, on the system's clock (CLOCK_REALTIME). A
    /// deadline in the past is no error if there is a message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_deadline(Want::Any, &mut buffer, soon)?.mtype, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`receive_timeout`](Self::receive_timeout).
    ///
    /// # Errors
    /// As [`receive_timeout`](Self::receive_timeout).
    ///
    /// # If the process dies
    /// As for [`receive`](Self::receive).
    pub fn receive_deadline(
        &self,
        want: Want,
        buffer: &mut [u8],
        deadline: SystemTime,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, false, (realtime(deadline), Heeds::End))
    }

    /// Receives the first wanted message, and cuts it off at the end of the buffer (MSG_NOERROR).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 2];
    /// assert_eq!(queue.receive_truncated(Want::Any, &mut buffer)?.len, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`receive`](Self::receive).
    ///
    /// # Errors
    /// All of [`ReceiveError`] but `TooSmall`, `NoMessage` and `TimedOut`.
    ///
    /// # If the process dies
    /// As for [`receive`](Self::receive).
    pub fn receive_truncated(
        &self,
        want: Want,
        buffer: &mut [u8],
    ) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, true, (Deadline::Never, Heeds::End))
    }

    /// Receives a message as [`receive_truncated`](Self::receive_truncated) does, if there is one at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 2];
    /// assert_eq!(queue.try_receive_truncated(Want::Any, &mut buffer)?.len, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`try_receive`](Self::try_receive).
    ///
    /// # Errors
    /// [`ReceiveError::NoMessage`] and the others of [`ReceiveError`] but `TooSmall` and `TimedOut`.
    pub fn try_receive_truncated(
        &self,
        want: Want,
        buffer: &mut [u8],
    ) -> Result<Received, ReceiveError> {
        self.try_receive_by(want, buffer, true, Heeds::End)
    }

    /// Receives a message as [`receive`](Queue::receive) does. Waits as long as `until` says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::Want;
    ///
    /// queue.send(5, b"job")?;
    /// let mut buffer = [0; 64];
    /// let now = umsg::sysv::Until::Now;
    /// assert_eq!(queue.receive_until(Want::Any, &mut buffer, false, now)?.mtype, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`receive_timeout`](Queue::receive_timeout); `NoMessage` with [`Until::Now`].
    #[inline]
    pub fn receive_until(
        &self,
        want: Want,
        buffer: &mut [u8],
        truncate: bool,
        until: Until,
    ) -> Result<Received, ReceiveError> {
        self.receive_by(want, buffer, truncate, (until.deadline(), Heeds::End))
    }

    /// Receives the first wanted message if there is one now.
    #[inline(always)]
    pub(super) fn try_receive_by(
        &self,
        want: Want,
        buffer: &mut [u8],
        truncate: bool,
        heeds: Heeds,
    ) -> Result<Received, ReceiveError> {
        self.judged_receive((Deadline::Passed, heeds), |call| {
            self.engine
                .try_receive(call, want, buffer, truncate)
                .map(Received::from)
        })
    }

    pub(super) fn receive_by(
        &self,
        want: Want,
        buffer: &mut [u8],
        truncate: bool,
        limits: (Deadline, Heeds),
    ) -> Result<Received, ReceiveError> {
        self.judged_receive(limits, |call| {
            self.engine
                .receive(call, want, buffer, truncate)
                .map(Received::from)
        })
    }

    /// Runs `work` with the permission to receive. Repeats both if the rights have changed meanwhile.
    #[inline(always)]
    pub(super) fn judged_receive<T>(
        &self,
        (deadline, heeds): (Deadline, Heeds),
        mut work: impl FnMut(&Call<'_>) -> Result<T, Refused>,
    ) -> Result<T, ReceiveError> {
        let mut call = Call::new(thread::current(), deadline);
        if heeds == Heeds::End {
            call.heed_end();
        }
        loop {
            call.set_rights(self.may_receive()?);
            match work(&call) {
                Err(Refused::Own(Why::Rejudge)) => {}
                other => return other.map_err(|refused| self.receive_error(refused)),
            }
        }
    }

    /// Sets how calls on this handle wait. The default is [`Waiting::Adaptive`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.set_waiting(umsg::posix::Waiting::Blocking);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_waiting(&self, waiting: Waiting) {
        self.engine.pacing.set(waiting);
    }

    /// Wakes served waiters before a call releases the queue's lock, as Linux did until 2016; for a measurement.
    #[doc(hidden)]
    pub fn set_wake_inside_lock(&self, inside: bool) {
        self.engine.set_wakes_inside(inside);
    }
}
