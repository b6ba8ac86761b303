//! Opening and creating queues.

use super::error::OpenError;
use super::queue::Queue;
pub(super) use super::registry::PRIVATE;
use super::registry::{self, GetRequest};
use crate::namespace::Namespace;
use std::time::Duration;
use umsg_shm::sysv_engine::segment::Policy;

/// Options for opening and creating a queue.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("umsg-sysv-{}", std::process::id()));
/// # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
/// # let namespace = umsg::Namespace::at(&dir)?;
/// use umsg::sysv::OpenOptions;
///
/// let jobs = OpenOptions::new()
///     .create(true)
///     .mode(0o620) // the group may send
///     .namespace(&namespace)
///     .open(0x1234)?;
/// let same = OpenOptions::new().namespace(&namespace).open_id(jobs.id())?;
/// assert_eq!(same.key(), 0x1234);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    create: bool,
    exclusive: bool,
    mode: u32,
    namespace: Option<Namespace>,
    policy: Policy,
    /// True for each of these options that the program has set: the retry delay, and the close with the last producer.
    asked: [bool; 2],
}

/// The delivery policy of a queue, which is set when the queue is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// The delays before a returned message is delivered again: the delay after the first return, which doubles with each further return, and the
    /// longest delay. `None` for no delay.
    pub retry_delay: Option<(Duration, Duration)>,
    /// True if the end of the last producer closes the queue for sending.
    pub close_with_last_producer: bool,
}

impl Queue {
    /// Returns the queue's delivery policy, which every user with access to the queue may know.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// assert_eq!(queue.delivery().retry_delay, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        let policy = self.engine.policy();
        let [first, most] = policy.retry_delay.map(Duration::from_nanos);
        Delivery {
            retry_delay: (!first.is_zero()).then(|| (first, most.max(first))),
            close_with_last_producer: policy.close_with_producers,
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Returns options that open an existing queue. A created queue gets mode 0600.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::sysv::OpenOptions;
    ///
    /// let error = OpenOptions::new().namespace(&namespace).open(7).unwrap_err();
    /// assert!(matches!(error, umsg::sysv::OpenError::NotFound));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new() -> Self {
        OpenOptions {
            create: false,
            exclusive: false,
            mode: 0o600,
            namespace: None,
            policy: Policy::default(),
            asked: [false; 2],
        }
    }

    /// Creates the queue if the key has no queue (IPC_CREAT).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::sysv::OpenOptions;
    ///
    /// let queue = OpenOptions::new().create(true).namespace(&namespace).open(7)?;
    /// assert_eq!(queue.key(), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Fails if the key has a queue (IPC_EXCL). The option takes effect only together with [`create`](Self::create).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.create(true).exclusive(true).namespace(&namespace);
    /// assert!(options.open(1).is_err(), "it exists");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exclusive(&mut self, exclusive: bool) -> &mut Self {
        self.exclusive = exclusive;
        self
    }

    /// Sets the permission bits of a created queue: read permits receiving, write permits sending. The umask has no effect on
    /// System V queues.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::sysv::OpenOptions;
    ///
    /// let queue = OpenOptions::new().create(true).mode(0o640).namespace(&namespace).open(7)?;
    /// assert_eq!(queue.entry()?.mode, 0o640);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Sets the delay before a message of a created queue is delivered again after its lease was returned, dropped, ran out of time, or lost its
    /// process. The delay is `first` after the first delivery, doubles after each further delivery, and is at most `most`. Other messages are not
    /// delayed. Zero, the default, means no delay. [`Lease::return_after`](super::Lease::return_after) sets another delay for one message. An
    /// existing queue with another delay is refused.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use std::time::Duration;
    /// use umsg::sysv::{OpenOptions, ReceiveError, Want};
    ///
    /// let mut options = OpenOptions::new();
    /// options.create(true).namespace(&namespace);
    /// options.retry_delay(Duration::from_millis(50), Duration::from_secs(60));
    /// let queue = options.open(7)?;
    /// queue.send(1, b"job")?;
    /// drop(queue.receive_lease(Want::Any)?); // not done
    /// assert_eq!(queue.try_receive_vec(Want::Any), Err(ReceiveError::NoMessage));
    /// assert_eq!(queue.receive_lease(Want::Any)?.deliveries(), 2); // after the delay
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_delay(&mut self, first: Duration, most: Duration) -> &mut Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.policy.retry_delay = [first, most].map(nanoseconds);
        self.asked[0] = true;
        self
    }

    /// Sets whether a created queue is closed for sending, as by [`close_send`](super::Queue::close_send), when its last
    /// [producer](super::Queue::producer) ends, even by a kill. A queue that had no producer yet stays open. By default producers are
    /// not counted. An existing queue that differs is refused.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::sysv::{OpenOptions, ReceiveError, Want};
    ///
    /// let mut options = OpenOptions::new();
    /// options.create(true).namespace(&namespace);
    /// let queue = options.close_with_last_producer(true).open(7)?;
    /// let producer = queue.producer()?;
    /// producer.send(1, b"the only one")?;
    /// drop(producer);
    /// assert_eq!(queue.receive_vec(Want::Any)?.data, b"the only one");
    /// assert_eq!(queue.receive_vec(Want::Any), Err(ReceiveError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_with_last_producer(&mut self, close: bool) -> &mut Self {
        self.policy.close_with_producers = close;
        self.asked[1] = true;
        self
    }

    /// Sets the namespace. The default is that of [`Namespace::resolve`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::sysv::OpenOptions;
    ///
    /// OpenOptions::new().create(true).namespace(&namespace).open(7)?;
    /// assert_eq!(umsg::sysv::list(&namespace)?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn namespace(&mut self, namespace: &Namespace) -> &mut Self {
        self.namespace = Some(namespace.clone());
        self
    }

    /// Opens the queue of a key. For [`PRIVATE`](super::PRIVATE), creates a queue without a key. Source: msgget(2).
    ///
    /// The mode of an existing queue is not checked here. Each later call checks the permission that it needs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::OpenOptions;
    ///
    /// let same = OpenOptions::new().namespace(&namespace).open(1)?;
    /// assert_eq!(same.id(), queue.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` (ENOENT), `AlreadyExists` (EEXIST), `PermissionDenied` (EACCES), `TooManyQueues` and `NoSpace` (ENOSPC); see
    /// [`OpenError`] for all.
    ///
    /// # Blocking
    /// A creation waits for processes that are creating or removing a queue: for some microseconds each, and for two seconds if such a process is
    /// stopped.
    ///
    /// # If the process dies
    /// If the process dies during a creation, there is no queue, or a complete queue.
    pub fn open(&self, key: i32) -> Result<Queue, OpenError> {
        let namespace = self.resolve()?;
        let request = GetRequest {
            create: self.create,
            exclusive: self.exclusive,
            mode: self.mode,
            asked: 0,
            policy: self.policy,
            reusable: false,
        };
        let obtained = registry::get(&namespace, key, request)?;
        let queue = Queue::new(obtained.attach(&namespace)?, &namespace);
        self.check_existing(&queue)?;
        Ok(queue)
    }

    /// Checks that an existing queue has the policy that the options ask for.
    pub(super) fn check_existing(&self, queue: &Queue) -> Result<(), OpenError> {
        let (wanted, found) = (self.policy, queue.engine.policy());
        let delay = |policy: Policy| format!("{:?}", policy.retry_delay.map(Duration::from_nanos));
        let closes = |policy: Policy| policy.close_with_producers.to_string();
        let options = [
            ("retry_delay", delay(wanted), delay(found)),
            ("close_with_last_producer", closes(wanted), closes(found)),
        ];
        for (is_asked, (what, wanted, found)) in self.asked.into_iter().zip(options) {
            if is_asked && wanted != found {
                return Err(OpenError::Differs {
                    what,
                    wanted,
                    found,
                });
            }
        }
        Ok(())
    }

    /// Opens the queue with an identifier.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// use umsg::sysv::OpenOptions;
    ///
    /// let same = OpenOptions::new().namespace(&namespace).open_id(queue.id())?;
    /// assert_eq!(same.key(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NoSuchId` (EINVAL), `PermissionDenied` (EACCES); see [`OpenError`] for all.
    pub fn open_id(&self, id: i32) -> Result<Queue, OpenError> {
        let namespace = self.resolve()?;
        registry::attach_id(&namespace, id).map(|segment| Queue::new(segment, &namespace))
    }

    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    fn resolve(&self) -> Result<Namespace, OpenError> {
        match &self.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => Ok(Namespace::resolve()?),
        }
    }
}
