//! How a queue is opened, and with which attributes it is created.

use super::access::Access;
use crate::namespace::Namespace;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use umsg_shm::posix_engine::segment::{OnFull, Policy};

/// How a queue is opened, and with which attributes it is created.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("umsg-options-{}", std::process::id()));
/// # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
/// # let namespace = umsg::Namespace::at(&dir)?;
/// use umsg::posix::OpenOptions;
///
/// let log = OpenOptions::new()
///     .write(true)
///     .create(true)
///     .mode(0o622) // others may send, only the owner receives
///     .max_messages(1000)
///     .message_size(256) // bytes
///     .namespace(&namespace)
///     .open("/log")?;
/// log.send(b"started", 0)?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    pub(super) access: Access,
    pub(super) create: bool,
    pub(super) exclusive: bool,
    pub(super) mode: u32,
    pub(super) max_messages: Option<u32>,
    pub(super) message_size: Option<u32>,
    pub(super) policy: Policy,
    pub(super) counted: bool,
    pub(super) remove_unused: bool,
    pub(super) namespace: Option<Namespace>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Neither receiving nor sending; an existing queue; mode 0600 and the namespace's default attributes (10 messages
    /// of 8192 bytes unless changed) if one is created.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// assert!(options.read(true).namespace(&namespace).open("/q").is_err(), "nothing is created");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new() -> Self {
        OpenOptions {
            access: Access {
                read: false,
                write: false,
            },
            create: false,
            exclusive: false,
            mode: 0o600,
            max_messages: None,
            message_size: None,
            policy: Policy::default(),
            counted: true,
            remove_unused: true,
            namespace: None,
        }
    }

    /// To receive.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let reader = OpenOptions::new().read(true).namespace(&namespace).open("/q")?;
    /// assert!(reader.send(b"job", 0).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.access.read = read;
        self
    }

    /// To send.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let writer = OpenOptions::new().write(true).namespace(&namespace).open("/q")?;
    /// assert!(writer.try_receive(&mut [0; 8192]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.access.write = write;
        self
    }

    /// Create the queue if there is none of the name (O_CREAT). An existing one keeps its attributes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.write(true).namespace(&namespace);
    /// assert!(options.open("/q").is_err());
    /// assert!(options.create(true).open("/q").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Fail if there is a queue of the name (O_EXCL); only together with [`create`](Self::create).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.write(true).create(true).exclusive(true).namespace(&namespace);
    /// assert!(options.open("/q").is_err(), "it exists");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exclusive(&mut self, exclusive: bool) -> &mut Self {
        self.exclusive = exclusive;
        self
    }

    /// Permission bits of a queue that is created, before the umask: r to receive, w to send.
    ///
    /// A process that may do either needs the queue's file mapped for writing. So the system keeps out users that may do neither, and the library keeps one that
    /// may do one from doing the other: that binds programs that use the library, not one that writes to the file itself. Such a
    /// program can read, forge and spoil messages of that queue, and nothing else (see `docs/protocols.md`, section 10). Where not
    /// all that may send are to be trusted with what the others send, give each of them a queue of its own with mode 0600, or 0660 and a
    /// group of two: what these modes say, the system enforces.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.mode(0o600);
    /// let queue = options.open("/q")?;
    /// assert_eq!(queue.mode() & 0o777, 0o600);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// How many messages a queue that is created may hold: 1 to the namespace's limit, at most 1,048,576.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.max_messages(1_000);
    /// let queue = options.open("/q")?;
    /// assert_eq!(queue.attributes().max_messages, 1_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_messages(&mut self, messages: u32) -> &mut Self {
        self.max_messages = Some(messages);
        self
    }

    /// How long a message may be in a queue that is created, in bytes: 1 to the namespace's limit, at most 16 MiB.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.message_size(64); // bytes
    /// let queue = options.open("/q")?;
    /// assert_eq!(queue.attributes().message_size, 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn message_size(&mut self, bytes: u32) -> &mut Self {
        self.message_size = Some(bytes);
        self
    }

    /// What a send does that finds a queue full which is created so. Default: it waits.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.max_messages(1).on_full(umsg::posix::OnFull::DropOldest);
    /// let queue = options.open("/q")?;
    /// queue.send(b"old", 0)?;
    /// queue.send(b"new", 0)?; // does not wait
    /// assert_eq!(queue.receive_vec()?.data, b"new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_full(&mut self, on_full: OnFull) -> &mut Self {
        self.policy.on_full = on_full;
        self
    }

    /// How long a message of a queue that is created stays worth delivering: one that is older is dropped when it is met,
    /// or goes to the [dead-letter queue](Self::dead_letter). Zero, the default, is for ever. Until they are met, messages
    /// that are too old count as queued. The age is measured on a clock that no process can
    /// set, to a few milliseconds, without the time that the machine is suspended.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.time_to_live(std::time::Duration::from_secs(3600));
    /// let queue = options.open("/q")?;
    /// assert!(queue.status().time_to_live.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_to_live(&mut self, time: Duration) -> &mut Self {
        self.policy.time_to_live = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// How often a message of a queue that is created may be [leased](super::Queue::receive_lease): one that came back so often goes
    /// to the [dead-letter queue](Self::dead_letter), which must be named too. 0, the default, is any number.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.max_deliveries(3).dead_letter("/failed");
    /// let queue = options.open("/q")?;
    /// assert_eq!(queue.status().max_deliveries, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_deliveries(&mut self, deliveries: u32) -> &mut Self {
        self.policy.max_deliveries = deliveries;
        self
    }

    /// The queue that gets what a queue that is created could not keep or deliver, with the same priority: in the same
    /// namespace, and created along with this one, with the same attributes and mode and no policy of its own, if there is none. It is not
    /// made again later, for then it would belong to the user that comes first, and stays when this queue goes. The process that
    /// finds such a message sends it there with its own rights. While that is not possible, the message stays set aside: it takes
    /// memory, but no place in its queue, as long as there are no more than 1,024 of them;
    /// [`Status::undelivered`](super::Status::undelivered) says why. A process that dies while it moves a message may leave it in both.
    ///
    /// Both queues must belong to the same user, when this one is created and when a message is moved: so no queue has its
    /// receivers write to a queue of another user. If the file of either changes hands, messages stay set aside until both have one
    /// owner, which must also be that of this queue's label (`chown -h`; see `docs/format.md`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.max_deliveries(1).dead_letter("/failed");
    /// let queue = options.open("/q")?;
    /// queue.send(b"bad job", 0)?;
    /// drop(queue.receive_lease()?); // not done, and not to be tried again
    /// let failed = OpenOptions::new().read(true).namespace(&namespace).open("/failed")?;
    /// assert_eq!(failed.receive_vec()?.data, b"bad job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dead_letter(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.policy.dead_letter = Some(name.as_ref().as_bytes().to_vec());
        self
    }

    /// Whether a queue that is created is removed when no process has it open any more, messages and all. Default: it stays until it
    /// is [unlinked](super::unlink).
    ///
    /// A process has the queue open until the handle is dropped, or the process ends, by whatever death, or executes another
    /// program; a forked child has it open, too, as long as it does not drop its copy of the handle. A process that drops the last handle removes the queue. If the last
    /// user was killed, or forgot the handle, the queue goes when a process next opens or creates one of its name, creates one like it, or
    /// lists the namespace ([`list`](super::list), `umsg ls`, `umsg gc`): none of them finds it.
    ///
    /// System V queues have no handles that could be closed, and a ring ends with its owner: neither can be made so.
    ///
    /// Costs some system calls when the queue is opened and closed, and no descriptor. In a namespace of several users only the queue's owner
    /// and root can remove it: if another user closes it last it stays, as it is, until one of them comes by, or a process opens it again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.remove_on_last_close(true);
    /// let queue = options.open("/q")?;
    /// drop(queue);
    /// assert!(umsg::posix::list(&namespace)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_on_last_close(&mut self, remove: bool) -> &mut Self {
        self.policy.remove_on_last_close = remove;
        self
    }

    /// Whether the handle counts as having the queue open, where the queue is [removed](Self::remove_on_last_close) when no process has.
    /// Default: it does. One that does not, for a look at a queue, neither keeps it nor removes it; a queue that is created so waits for the
    /// first handle that counts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.counted(false);
    /// let queue = options.open("/q")?;
    /// queue.send(b"job", 0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn counted(&mut self, counted: bool) -> &mut Self {
        self.counted = counted;
        self
    }

    /// Whether a queue is removed, and not found, that [goes with its last user](Self::remove_on_last_close) and that no process has open any
    /// more. Default: it is. Otherwise it is opened, as for a list of what would be removed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.remove_unused(true);
    /// let queue = options.open("/q")?;
    /// queue.send(b"job", 0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_unused(&mut self, remove: bool) -> &mut Self {
        self.remove_unused = remove;
        self
    }

    /// The namespace, in place of the one that [`Namespace::resolve`] gives.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.write(true).create(true).namespace(&namespace);
    /// options.open("/q")?;
    /// assert!(dir.path().join("mq/q").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn namespace(&mut self, namespace: &Namespace) -> &mut Self {
        self.namespace = Some(namespace.clone());
        self
    }
}
