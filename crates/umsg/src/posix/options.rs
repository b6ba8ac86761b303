//! Options for opening and creating queues.

use super::access::Access;
use super::existing::{Asked, Existing};
use crate::namespace::Namespace;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use umsg_shm::posix_engine::segment::{OnFull, Policy};

/// Options for opening a queue, and the attributes of a created queue.
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
    pub(super) asked: Asked,
    pub(super) existing: Existing,
    /// True if a queue may be created for neither sending nor receiving.
    pub(super) without_access: bool,
    /// The RLIMIT_MSGQUEUE of another process, for which the queue is created.
    pub(super) bytes_of_user: Option<Option<u64>>,
    pub(super) counted: bool,
    pub(super) remove_unused: bool,
    pub(super) recyclable: bool,
    pub(super) namespace: Option<Namespace>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Returns options that open an existing queue, for neither receiving nor sending. A created queue has mode 0600 and the
    /// namespace's default attributes: 10 messages of 8192 bytes unless changed.
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
            asked: Asked::default(),
            existing: Existing::default(),
            without_access: false,
            bytes_of_user: None,
            counted: true,
            remove_unused: true,
            recyclable: false,
            namespace: None,
        }
    }

    /// Opens the queue for receiving.
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

    /// Opens the queue for sending.
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

    /// Creates the queue if no queue has the name (O_CREAT). An existing queue keeps its attributes; see [`existing`](Self::existing).
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

    /// Fails if a queue with the name exists (O_EXCL). The option takes effect only together with [`create`](Self::create).
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

    /// Sets the result of opening an existing queue that differs from these options. By default, opening fails if a policy that was set differs.
    /// Capacity and message size may differ, as in mq_open(3): the handle then uses the queue's own values.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::{Existing, OnFull, OpenOptions};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.max_messages(100).open("/log")?;
    ///
    /// options.on_full(OnFull::DropOldest);
    /// let error = options.open("/log").unwrap_err();
    /// assert!(error.to_string().contains("on_full is Block, not DropOldest"));
    /// let queue = options.existing(Existing::Any).open("/log")?;
    /// assert_eq!(queue.status().on_full, OnFull::Block);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn existing(&mut self, existing: Existing) -> &mut Self {
        self.existing = existing;
        self
    }

    /// Sets the RLIMIT_MSGQUEUE of the process for which a queue is created, if that process is not the caller. None means no limit.
    #[doc(hidden)]
    pub fn bytes_of_user(&mut self, limit: Option<u64>) -> &mut Self {
        self.bytes_of_user = Some(limit);
        self
    }

    /// Sets whether a queue may be created for neither sending nor receiving. Linux creates such a queue for access mode 3 of mq_open(3).
    #[doc(hidden)]
    pub fn without_access(&mut self, permit: bool) -> &mut Self {
        self.without_access = permit;
        self
    }

    /// Sets the permission bits of a created queue, before the umask: r to receive, w to send.
    ///
    /// To send or to receive, a process needs the queue's file mapped for writing. The system denies all access to users with neither permission. The
    /// library enforces the difference between send-only and receive-only access. This rule binds programs that use the library, but not a process
    /// that writes to the file itself. Such a process can read, forge and corrupt messages of that queue, and nothing else (see `docs/protocols.md`,
    /// section 10).
    ///
    /// If the senders must not see each other's messages, give each sender its own queue with mode 0600, or 0660 and a group of
    /// two users. The system enforces these modes.
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

    /// Sets the capacity of a created queue, in messages: 1 to the namespace's limit, at most 1,048,576.
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

    /// Sets the largest message of a created queue, in bytes: 1 to the namespace's limit, at most 16 MiB.
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

    /// Sets the overflow policy of a created queue: the behaviour of a send that finds the queue full. By default the send
    /// waits.
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
        self.asked.on_full = true;
        self.policy.on_full = on_full;
        self
    }

    /// Sets the time to live of messages in a created queue. A receiver that finds an older message drops the message, or moves it to the
    /// [dead-letter queue](Self::dead_letter). Zero, the default, means no limit. Expired messages count as queued until a receiver finds them. The
    /// time begins with the send. For a message that is [sent for a later time](super::Queue::send_after), the time begins at the delivery time. A
    /// message that is returned keeps its age, also while the message is delayed.
    ///
    /// The age is measured on a clock that no process can set, accurate to a few milliseconds. The age does not include the time that the machine is
    /// suspended.
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
        self.asked.time_to_live = true;
        self.policy.time_to_live = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Sets how often a message of a created queue may be [leased](super::Queue::receive_lease). After that number of leases, a returned message
    /// moves to the [dead-letter queue](Self::dead_letter), which must be named, too. 0, the default, means no limit. If a message is sent back from
    /// the dead-letter queue, its count begins again at 0.
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
        self.asked.max_deliveries = true;
        self.policy.max_deliveries = deliveries;
        self
    }

    /// Sets the delay before a message of a created queue is delivered again after its lease was returned, dropped, ran out of time, or lost its
    /// process. The delay is `first` after the first delivery, doubles after each further delivery, and is `most` at most. Other messages are not
    /// delayed. Zero, the default, means no delay. [`Lease::return_after`](super::Lease::return_after) sets another delay for one message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use std::time::Duration;
    /// use umsg::posix::{OpenOptions, ReceiveError};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// options.retry_delay(Duration::from_millis(50), Duration::from_secs(60));
    /// let queue = options.open("/q")?;
    /// queue.send(b"job", 0)?;
    /// drop(queue.receive_lease()?); // not done
    /// assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    /// assert_eq!(queue.receive_lease()?.deliveries(), 2); // after the delay
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_delay(&mut self, first: Duration, most: Duration) -> &mut Self {
        self.asked.retry_delay = true;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.policy.retry_delay = [first, most].map(nanoseconds);
        self
    }

    /// Sets the dead-letter queue of a created queue. The dead-letter queue gets the messages that the queue could not keep or deliver, with the same
    /// priority. The dead-letter queue is in the same namespace. If the dead-letter queue does not exist, it is created along with this queue, with
    /// the same attributes and mode, and without a policy. The dead-letter queue stays when this queue is removed. If the dead-letter queue is
    /// removed later, no process creates it again: a new one would belong to the first user that finds it missing.
    ///
    /// The process that finds a message for the dead-letter queue moves the message with its own rights. While the move is not possible, the message
    /// stays set aside; [`Status::undelivered`](super::Status::undelivered) gives the reason. A message set aside takes memory. The message does not
    /// count towards the capacity of its queue as long as at most 1,024 messages are set aside. If a process dies while it moves a message, the
    /// message may be in both queues.
    ///
    /// Both queues must belong to the same user, when this queue is created and when a message is moved. So no queue makes its
    /// receivers write to a queue of another user. If the owner of either file changes, messages stay set aside until both files
    /// and this queue's label have one owner (`chown -h`; see `docs/format.md`).
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
        self.asked.dead_letter = true;
        self.policy.dead_letter = Some(name.as_ref().as_bytes().to_vec());
        self
    }

    /// Sets whether a created queue is removed, with its messages, when no process has it open any more. By default the queue
    /// stays until it is [unlinked](super::unlink).
    ///
    /// A process has the queue open until it drops the handle, ends in any way, or executes another program. A forked child has
    /// the queue open, too, until it drops its copy of the handle. The process that drops the last handle removes the queue.
    ///
    /// If the last process was killed or leaked its handle, another process removes the queue later. That process is the next one that opens or
    /// creates a queue of this name, creates another queue with this option, or lists the namespace ([`list`](super::list), `umsg ls`, `umsg gc`).
    ///
    /// The option exists only for POSIX queues: System V queues have no handles to close, and a ring ends with its owner.
    ///
    /// The option costs some system calls when the queue is opened and closed, and no descriptor. In a namespace of several users only the queue's
    /// owner and root can remove the queue. If another user closes the queue last, the queue stays until the owner or root uses the namespace, or a
    /// process opens the queue again.
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
        self.asked.remove_on_last_close = true;
        self.policy.remove_on_last_close = remove;
        self
    }

    /// Sets whether a created queue is closed for sending, as by [`close_send`](super::Queue::close_send), when its last
    /// [producer](super::Queue::producer) ends, even by a kill. A queue that had no producer yet is not closed. By default producers are not counted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::{OpenOptions, ReceiveError};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let queue = options.close_with_last_producer(true).open("/q")?;
    /// let producer = queue.producer()?;
    /// producer.send(b"the only one", 0)?;
    /// drop(producer);
    /// assert_eq!(queue.receive_vec()?.data, b"the only one");
    /// assert_eq!(queue.receive_vec(), Err(ReceiveError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_with_last_producer(&mut self, close: bool) -> &mut Self {
        self.asked.close_with_producers = true;
        self.policy.close_with_producers = close;
        self
    }

    /// Sets fair priorities of a created queue: after `after` deliveries during which a message of a lower priority waited, a message of a lower
    /// priority is delivered. The lower priorities take turns, in descending order. So messages of lower priority do not wait for ever behind a
    /// stream of urgent messages: they get one of `after + 1` deliveries. `after` is at most 65,535. 0, the default, is the strict order of POSIX.
    ///
    /// Only the order of delivery between priorities changes. Within a priority the oldest message comes first. The turns apply to every receiver of
    /// the queue, also to a program that uses libc's functions. A lease counts as a delivery. A full queue with [`OnFull::DropOldest`] still drops
    /// messages of the lowest priority.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let queue = options.fair_priorities(2).open("/q")?;
    /// for priority in [9, 9, 9, 9, 1] {
    ///     queue.send(b"job", priority)?;
    /// }
    /// let order: Vec<u32> = (0..5).map(|_| queue.receive_vec().unwrap().priority).collect();
    /// assert_eq!(order, [9, 9, 1, 9, 9]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fair_priorities(&mut self, after: u32) -> &mut Self {
        self.asked.fair_priorities = true;
        self.policy.fair_priorities = after;
        self
    }

    /// Sets whether a created queue notes the events of its messages: each delivery on a lease and its end, and each move to a dead-letter queue and
    /// back, with time and process. [`peek`](super::Queue::peek) and [`messages`](super::Queue::messages) return the events. A message takes its
    /// events along to a dead-letter queue and back, and a queue without the option continues the events of that message.
    ///
    /// With the option, a delivery and a return take some nanoseconds more, and each slot that held a leased message takes 256 bytes of memory. A
    /// send, and a receive without a lease, cost the same as without the option. By default, events are not noted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::{EventKind, OpenOptions};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let queue = options.trace_messages(true).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// queue.receive_lease()?.give_back()?;
    /// let message = queue.peek(0)?.unwrap();
    /// let kinds: Vec<EventKind> = message.events.iter().map(|event| event.kind).collect();
    /// assert_eq!(kinds, [EventKind::Sent, EventKind::Delivered, EventKind::Returned]);
    /// assert!(message.events.iter().all(|event| event.pid == std::process::id()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trace_messages(&mut self, trace: bool) -> &mut Self {
        self.asked.trace_messages = true;
        self.policy.trace_messages = trace;
        self
    }

    /// Sets whether the handle counts as an open handle of a queue with [`remove_on_last_close`](Self::remove_on_last_close). By default it counts. A
    /// handle that does not count is for inspection: it neither keeps nor removes the queue. A queue that is created with such a handle stays at
    /// least until the first handle that counts is opened.
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

    /// Sets the result of opening a queue with [`remove_on_last_close`](Self::remove_on_last_close) that no process has open any more. By default,
    /// the call removes the queue and does not find it. With `false`, the call opens the queue, for example to list the queues that would be removed.
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

    /// Sets the namespace, instead of the namespace that [`Namespace::resolve`] gives.
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
