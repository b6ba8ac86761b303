//! Opening queues by name.

use super::access::{Access, is_granted};
use super::create::exists;
use super::options::OpenOptions;
use super::queue::Queue;
use crate::error::OpenError;
use crate::last_close::{self, LastClose};
use crate::namespace::{
    FileAccess, FileError, Hold, NameError, Namespace, Patience, QueueName, Removal, hold,
};
use rustix::fs::{OFlags, Stat};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::segment::{self, Segment};

/// The maximum number of attempts to look up a name while other processes create and remove a queue with that name.
const ATTEMPTS: u32 = 1000;

impl OpenOptions {
    /// Opens the queue `name`: a slash and up to 255 bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let queue = options.open("/orders")?;
    /// queue.send(b"an order", 0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of mq_open(3); see [`OpenError`] for each errno. [`OpenError::NoAccessMode`] (EINVAL) without
    /// [`read`](Self::read) and [`write`](Self::write); [`OpenError::Differs`] (EINVAL) for an existing queue that
    /// [`existing`](Self::existing) does not accept.
    ///
    /// # If the process dies
    /// If the process was creating the queue, the queue does not exist, or is complete.
    pub fn open(&self, name: impl AsRef<OsStr>) -> Result<Queue, OpenError> {
        let name = QueueName::parse(name.as_ref())?;
        self.open_named(&self.resolve()?, &name)
    }

    /// Opens the queue as [`open`](Self::open) does, and returns a descriptor of its file as well. The descriptor has the lowest free number, the
    /// access mode of these options, FD_CLOEXEC, and O_NONBLOCK on request. The drop-in returns the descriptor as mqd_t.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::{OpenOptions, Queue};
    /// use std::os::fd::AsFd;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let (queue, descriptor) = options.open_with_descriptor("/orders", false)?;
    /// let same = Queue::from_fd(descriptor.as_fd())?;
    /// assert_eq!(same.identity(), queue.identity());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with_descriptor(
        &self,
        name: impl AsRef<OsStr>,
        nonblocking: bool,
    ) -> Result<(Queue, OwnedFd), OpenError> {
        let name = QueueName::parse(name.as_ref())?;
        let namespace = self.resolve()?;
        for _ in 0..ATTEMPTS {
            let found = match self.open_or_create(&namespace, &name)? {
                Opened::Created(queue, descriptor) => {
                    if nonblocking {
                        set_nonblocking(&descriptor)?;
                    }
                    return Ok((queue, descriptor));
                }
                Opened::Existing(queue) => queue,
            };
            // The descriptor through which the file was mapped is already closed. So this descriptor gets the lowest number, and
            // a process with a single descriptor left can open a queue.
            let descriptor = match namespace.open_queue_file(&name, self.file_access(), nonblocking)
            {
                Err(FileError::NotFound) => continue,
                other => other?,
            };
            if identity(descriptor.as_fd())? == found.identity() {
                return Ok((found, descriptor));
            }
        }
        Err(keeps_changing())
    }

    /// Opens a queue under a name that the caller has read from the namespace's directory.
    pub(super) fn open_named(
        &self,
        namespace: &Namespace,
        name: &QueueName,
    ) -> Result<Queue, OpenError> {
        match self.open_or_create(namespace, name)? {
            Opened::Created(queue, _) | Opened::Existing(queue) => Ok(queue),
        }
    }

    pub(super) fn resolve(&self) -> Result<Namespace, OpenError> {
        match &self.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => Ok(Namespace::resolve()?),
        }
    }

    pub(super) fn open_or_create(
        &self,
        namespace: &Namespace,
        name: &QueueName,
    ) -> Result<Opened, OpenError> {
        for _ in 0..ATTEMPTS {
            let found = match self.create && namespace.is_free(name) {
                true => Err(OpenError::NotFound),
                false => self.open_existing(namespace, name),
            };
            match found {
                Err(OpenError::NotFound) if self.create => {}
                Ok(_) if self.create && self.exclusive => return Err(OpenError::AlreadyExists),
                // The queue exists, even if it is corrupted or the caller has no permission.
                Err(_) if self.create && self.exclusive && exists(namespace, name) => {
                    return Err(OpenError::AlreadyExists);
                }
                other => return Ok(Opened::Existing(other?)),
            }
            if self.has_no_access() && !self.without_access {
                return Err(OpenError::NoAccessMode);
            }
            match self.create_new(namespace, name) {
                // Another process has created the queue. The next attempt opens that queue.
                Err(OpenError::AlreadyExists) if !self.exclusive => {}
                other => return other,
            }
        }
        Err(keeps_changing())
    }

    pub(super) fn open_existing(
        &self,
        namespace: &Namespace,
        name: &QueueName,
    ) -> Result<Queue, OpenError> {
        let (last_close, file) = self.find(namespace, name)?;
        // The order of errors is the kernel's: a missing queue is reported first.
        if self.has_no_access() {
            return Err(OpenError::NoAccessMode);
        }
        let stat = rustix::fs::fstat(&file).map_err(|e| OpenError::from_errno("fstat", e))?;
        let mut segment = segment::attach(file.as_fd())?;
        match self.counted {
            true => segment.join(namespace.host())?,
            // A handle that does not count needs no life file.
            false => segment.count_in(namespace.host()),
        }
        let queue = self.open_attached((namespace, name), segment, &stat, last_close)?;
        self.check_existing(&queue)?;
        Ok(queue)
    }

    fn has_no_access(&self) -> bool {
        !self.access.read && !self.access.write
    }

    /// Opens a queue to send to it, if its file belongs to `owner`, or to any user if `owner` is `None`. Returns `None` for a file of another user,
    /// without reading the file.
    pub(super) fn open_of_owner(
        namespace: &Namespace,
        name: &OsStr,
        owner: Option<u32>,
    ) -> Result<Option<Queue>, OpenError> {
        let mut options = OpenOptions::new();
        options.write(true).counted(false);
        let name = QueueName::parse(name)?;
        let (last_close, file) = options.find(namespace, &name)?;
        let stat = rustix::fs::fstat(&file).map_err(|e| OpenError::from_errno("fstat", e))?;
        if owner.is_some_and(|owner| stat.st_uid != owner) {
            return Ok(None);
        }
        let mut segment = segment::attach(file.as_fd())?;
        segment.join(namespace.host())?;
        options
            .open_attached((namespace, &name), segment, &stat, last_close)
            .map(Some)
    }

    pub(super) fn open_attached(
        &self,
        (namespace, name): (&Namespace, &QueueName),
        mut segment: Segment,
        stat: &Stat,
        last_close: Option<LastClose>,
    ) -> Result<Queue, OpenError> {
        // Relaxed: a call that runs at the same time as chmod may see the old mode or the new one.
        let mode = segment.fixed().header.mode();
        if !is_granted(self.access, mode, stat) {
            return Err(OpenError::PermissionDenied);
        }
        if let Some(last_close) = last_close {
            segment.set_last_close(Box::new(last_close));
        }
        let place = (Some(namespace), Some(name.with_slash()));
        Ok(Queue::new(segment, place, self.access, stat))
    }

    /// Finds the file of an existing queue. If the queue is removed on the last close, this opening of the file keeps the queue in existence. The
    /// caller must drop the file before the returned [`LastClose`], which removes the queue if no process has the file open.
    pub(super) fn find(
        &self,
        namespace: &Namespace,
        name: &QueueName,
    ) -> Result<(Option<LastClose>, OwnedFd), OpenError> {
        let mut patience = Patience::default();
        let mut attempts = 0;
        loop {
            let (file, goes) = namespace.open_queue(name, FileAccess::ReadWrite, false)?;
            if !goes {
                return Ok((None, file));
            }
            // If the process can't remove the queue, for example for lack of a descriptor, it opens the queue as it is.
            if self.remove_unused
                && attempts < ATTEMPTS
                && let Ok(Removal::Gone) = last_close::remove_unused(namespace, name)
            {
                attempts += 1;
                continue;
            }
            if !self.counted {
                return Ok((None, file));
            }
            crash_point!(OPEN_FOUND);
            match hold(file.as_fd()).map_err(|e| OpenError::from_errno("flock", e))? {
                Hold::Held => return Ok((Some(LastClose::new(namespace, name)), file)),
                Hold::Gone if attempts < ATTEMPTS => attempts += 1,
                Hold::Gone => return Err(keeps_changing()),
                Hold::Leaving if patience.wait() => {}
                Hold::Leaving => return Err(OpenError::Leaving),
            }
        }
    }

    pub(super) fn file_access(&self) -> FileAccess {
        self.access.into()
    }
}

impl From<Access> for FileAccess {
    fn from(access: Access) -> FileAccess {
        match (access.read, access.write) {
            (true, false) => FileAccess::Read,
            (false, true) => FileAccess::Write,
            _ => FileAccess::ReadWrite,
        }
    }
}

/// An existing queue, or a new queue with a descriptor of its file.
pub(super) enum Opened {
    Existing(Queue),
    Created(Queue, OwnedFd),
}

/// Returns the error for a name at which other processes created or removed a queue during each attempt.
#[cold]
fn keeps_changing() -> OpenError {
    OpenError::from_errno("open", rustix::io::Errno::AGAIN)
}

fn set_nonblocking(descriptor: &OwnedFd) -> Result<(), OpenError> {
    rustix::fs::fcntl_setfl(descriptor, OFlags::NONBLOCK)
        .map_err(|e| OpenError::from_errno("fcntl", e))
}

/// Returns the device and the inode number of a file.
pub(super) fn identity(file: BorrowedFd<'_>) -> Result<(u64, u64), OpenError> {
    let stat = rustix::fs::fstat(file).map_err(|e| OpenError::from_errno("fstat", e))?;
    Ok((stat.st_dev, stat.st_ino))
}

impl From<NameError> for OpenError {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Invalid => OpenError::InvalidName,
            NameError::NotFound => OpenError::NotFound,
            NameError::Denied => OpenError::DeniedName,
            NameError::TooLong => OpenError::NameTooLong,
        }
    }
}
