//! An open queue.

use super::access::{Access, file_mode};
use super::dead_letter;
use super::open::identity;
use super::options::OpenOptions;
use super::status::{self, Attributes, Status};
use crate::error::SegmentError;
use crate::error::{Fault, OpenError};
use crate::namespace::Namespace;
use crate::until::realtime;
use rustix::fs::{Mode, Stat};
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Debug, Formatter};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;
use umsg_shm::lock::STOPPED;
use umsg_shm::posix_engine::Engine;
use umsg_shm::posix_engine::segment::Segment;
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;
use umsg_shm::waiters::pacing::Waiting;

/// An open message queue. Threads may share it, and a forked child may continue to use it.
///
/// A drop unmaps the queue. The messages stay until a process receives them or the queue is [unlinked](super::unlink). A queue with
/// [`remove_on_last_close`](OpenOptions::remove_on_last_close) is removed with its last handle.
///
/// # Threads
/// A queue is `Send` and `Sync`, and so are its leases and reservations. A lease or a reservation belongs to the process, and any thread of the
/// process may end it. A lease or a reservation borrows the queue, so a thread that takes it over needs a scope ([`std::thread::scope`]). A lease or
/// a reservation that owns a share of the queue needs no scope ([`receive_lease_owned`](Self::receive_lease_owned),
/// [`reserve_owned`](Self::reserve_owned)). A forked child may use the queue, but not the leases of its parent.
pub struct Queue {
    pub(crate) engine: Engine,
    /// The name that the queue had when it was opened, with its slash; `None` if the queue had no name at that time.
    pub(super) name: Option<OsString>,
    /// The namespace of the queue's file, if it is known.
    pub(super) namespace: Option<Namespace>,
    pub(super) access: Access,
    /// The file's device and inode number, owner and group.
    pub(super) identity: (u64, u64),
    pub(super) owner: (u32, u32),
}

/// Shows the name that the queue had when it was opened, its attributes, and the counts of its contents. Also shows whether the queue is closed for
/// sending.
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
        if let Some(name) = name.as_deref().filter(|_| umsg_shm::report::is_on()) {
            engine.set_name(name.as_bytes());
        }
        Queue {
            engine,
            name,
            namespace: namespace.cloned(),
            access,
            identity,
            owner: (stat.st_uid, stat.st_gid),
        }
    }

    /// Opens a queue for sending and receiving, and creates it (mode 0600) if it does not exist. An existing queue keeps its own
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

    pub(super) fn note(&self, fault: Fault) {
        if fault == Fault::Damaged {
            self.engine.note_damage();
        }
    }

    /// Returns the queue's attributes, and the counts of its queued, reserved, leased and delayed messages.
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
    /// Blocks only after a process has died inside an operation on this queue: during the repair, for at most a second.
    pub fn attributes(&self) -> Attributes {
        self.engine.repair_receivers(thread::current());
        status::settled_attributes(&self.engine)
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
    /// Blocks as [`attributes`](Self::attributes) does.
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

    /// Returns device and inode number of the queue's file. Two handles of one queue return the same numbers.
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
    /// EPERM if the caller is neither the owner nor privileged; EINVAL if `descriptor` does not belong to this queue; `ModeNotEnforced` (EACCES).
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

/// Returns the time until which one attempt of a call with this deadline waits for a stopped process: the deadline, or [`STOPPED`] from now, if that
/// is earlier.
pub(super) fn no_later_than(deadline: SystemTime) -> Deadline {
    realtime(deadline).or_slice(STOPPED)
}
