//! Opening and creating queues.

use super::error::OpenError;
use super::queue::Queue;
pub(super) use super::registry::PRIVATE;
use super::registry::{self, GetRequest};
use crate::namespace::Namespace;

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
        }
    }

    /// Creates the queue if the key has none (IPC_CREAT).
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

    /// Fails if the key has a queue (IPC_EXCL); only together with [`create`](Self::create).
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
    /// A creation waits for processes that are creating or removing a queue: some microseconds each, and two seconds for a
    /// stopped process.
    ///
    /// # If the process dies
    /// During a creation: there is no queue, or a complete one.
    pub fn open(&self, key: i32) -> Result<Queue, OpenError> {
        let namespace = self.resolve()?;
        let request = GetRequest {
            create: self.create,
            exclusive: self.exclusive,
            mode: self.mode,
            asked: 0,
        };
        let obtained = registry::get(&namespace, key, request)?;
        Ok(Queue::new(obtained.attach(&namespace)?, &namespace))
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

    fn resolve(&self) -> Result<Namespace, OpenError> {
        match &self.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => Ok(Namespace::resolve()?),
        }
    }
}
