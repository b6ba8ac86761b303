//! An open System V queue.

use super::error::OpenError;
use super::options::{OpenOptions, PRIVATE};
use super::permission::Judged;
use super::recycle::OwnFile;
use crate::error::Fault;
use crate::namespace::Namespace;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use umsg_shm::sysv_engine::Engine;
use umsg_shm::sysv_engine::segment::Segment;
use umsg_shm::waiters::pacing::Waiting;

/// An open System V message queue. Threads may share the value, and a forked child may go on using it.
///
/// Dropping the value unmaps the queue; its messages stay until a process receives them or the queue is [removed](Queue::remove).
///
/// The first send and the first receive check the caller's permission against the queue's mode. After each change of the queue's owner or mode, the
/// next call checks the permission again.
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

/// Shows the queue's key, identifier and capacity, the counts of its messages, and whether it is closed for sending or removed.
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

impl Queue {
    pub(super) fn new(segment: Segment, namespace: &Namespace) -> Queue {
        Queue {
            engine: Engine::new(segment),
            judged: Judged::default(),
            namespace: namespace.clone(),
            own_file: None,
        }
    }

    /// Opens the queue of a key. Creates the queue (mode 0600) if it does not exist.
    ///
    /// ```no_run
    /// let queue = umsg::sysv::Queue::create(0x7507)?;
    /// queue.send(1, b"job")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`].
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
    /// The errors of [`OpenOptions::open`].
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
    /// The errors of [`OpenOptions::open`].
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

    /// Sets the last sender (msg_lspid) to `process`, for which the caller has just sent a message.
    #[doc(hidden)]
    pub fn name_sender(&self, process: u32) {
        self.engine.name_sender(process);
    }

    /// Sets the last receiver (msg_lrpid) to `process`, for which the caller has just received a message.
    #[doc(hidden)]
    pub fn name_receiver(&self, process: u32) {
        self.engine.name_receiver(process);
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

    pub(super) fn note(&self, fault: Fault) {
        if fault == Fault::Damaged {
            self.engine.note_damage();
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

    /// Sets whether a call wakes served waiters before it releases the queue's lock, as Linux did until 2016; for a measurement.
    #[doc(hidden)]
    pub fn set_wake_inside_lock(&self, inside: bool) {
        self.engine.set_wakes_inside(inside);
    }
}
