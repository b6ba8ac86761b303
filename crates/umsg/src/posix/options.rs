//! Opening and creating.

use super::access::{Access, file_mode, is_granted};
use super::queue::Queue;
use crate::error::OpenError;
use crate::last_close::{self, LastClose};
use crate::namespace::{
    FileAccess, FileError, Hold, Limits, NameError, Namespace, NewDeadLetterLabel, Patience,
    QueueName, Removal, Unpublished, hold, hold_unnamed,
};
use rustix::fs::{OFlags, Stat};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::segment::{self, Layout, OnFull, Policy, Segment};
use umsg_shm::sync::Ordering;

/// How often a name is looked up again if other processes create and remove its queue meanwhile.
const ATTEMPTS: u32 = 1000;

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
    access: Access,
    create: bool,
    exclusive: bool,
    mode: u32,
    max_messages: Option<u32>,
    message_size: Option<u32>,
    policy: Policy,
    counted: bool,
    remove_unused: bool,
    namespace: Option<Namespace>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Neither receiving nor sending; an existing queue; mode 0600 and the namespace's default attributes (10 messages
    /// of 8192 bytes unless changed) if one is created.
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
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.access.read = read;
        self
    }

    /// To send.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.access.write = write;
        self
    }

    /// Create the queue if there is none of the name (O_CREAT). An existing one keeps its attributes.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Fail if there is a queue of the name (O_EXCL); only together with [`create`](Self::create).
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
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// How many messages a queue that is created may hold: 1 to the namespace's limit, at most 1,048,576.
    pub fn max_messages(&mut self, messages: u32) -> &mut Self {
        self.max_messages = Some(messages);
        self
    }

    /// How long a message may be in a queue that is created, in bytes: 1 to the namespace's limit, at most 16 MiB.
    pub fn message_size(&mut self, bytes: u32) -> &mut Self {
        self.message_size = Some(bytes);
        self
    }

    /// What a send does that finds a queue full which is created so. Default: it waits.
    pub fn on_full(&mut self, on_full: OnFull) -> &mut Self {
        self.policy.on_full = on_full;
        self
    }

    /// How long a message of a queue that is created stays worth delivering: one that is older is dropped when it is met,
    /// or goes to the [dead-letter queue](Self::dead_letter). Zero, the default, is for ever. Until they are met, messages
    /// that are too old count as queued. The age is measured on a clock that no process can
    /// set, to a few milliseconds, without the time that the machine is suspended.
    pub fn time_to_live(&mut self, time: Duration) -> &mut Self {
        self.policy.time_to_live = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// How often a message of a queue that is created may be [leased](Queue::receive_lease): one that came back so often goes
    /// to the [dead-letter queue](Self::dead_letter), which must be named too. 0, the default, is any number.
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
    pub fn remove_on_last_close(&mut self, remove: bool) -> &mut Self {
        self.policy.remove_on_last_close = remove;
        self
    }

    /// Whether the handle counts as having the queue open, where the queue is [removed](Self::remove_on_last_close) when no process has.
    /// Default: it does. One that does not, for a look at a queue, neither keeps it nor removes it; a queue that is created so waits for the
    /// first handle that counts.
    pub fn counted(&mut self, counted: bool) -> &mut Self {
        self.counted = counted;
        self
    }

    /// Whether a queue is removed, and not found, that [goes with its last user](Self::remove_on_last_close) and that no process has open any
    /// more. Default: it is. Otherwise it is opened, as for a list of what would be removed.
    pub fn remove_unused(&mut self, remove: bool) -> &mut Self {
        self.remove_unused = remove;
        self
    }

    /// The namespace, in place of the one that [`Namespace::resolve`] gives.
    pub fn namespace(&mut self, namespace: &Namespace) -> &mut Self {
        self.namespace = Some(namespace.clone());
        self
    }

    /// Opens the queue `name`: a slash and up to 255 bytes.
    ///
    /// # Errors
    /// As mq_open(3); see [`OpenError`] for each errno.
    ///
    /// # If the process dies
    /// While it creates a queue: there is no queue, or a whole one.
    pub fn open(&self, name: impl AsRef<OsStr>) -> Result<Queue, OpenError> {
        let name = QueueName::parse(name.as_ref())?;
        self.open_named(&self.resolve()?, &name)
    }

    /// As [`open`](Self::open), and with it a descriptor of the queue's file, on the lowest free number: with the
    /// access mode of these options, FD_CLOEXEC, and O_NONBLOCK if asked for. For the drop-in, whose mqd_t it is.
    ///
    /// # Errors
    /// As [`open`](Self::open).
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
            // The file was mapped through a descriptor for reading and writing that is closed by now: this one has the
            // lowest number, and a process with a single descriptor left can open a queue.
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

    /// For names that come from the directory itself.
    pub(super) fn open_named(
        &self,
        namespace: &Namespace,
        name: &QueueName,
    ) -> Result<Queue, OpenError> {
        match self.open_or_create(namespace, name)? {
            Opened::Created(queue, _) | Opened::Existing(queue) => Ok(queue),
        }
    }

    fn resolve(&self) -> Result<Namespace, OpenError> {
        match &self.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => Ok(Namespace::resolve()?),
        }
    }

    fn open_or_create(&self, namespace: &Namespace, name: &QueueName) -> Result<Opened, OpenError> {
        for _ in 0..ATTEMPTS {
            match self.open_existing(namespace, name) {
                Err(OpenError::NotFound) if self.create => {}
                Ok(_) if self.create && self.exclusive => return Err(OpenError::AlreadyExists),
                // It is there, whatever is wrong with it or with our permission.
                Err(_) if self.create && self.exclusive && exists(namespace, name) => {
                    return Err(OpenError::AlreadyExists);
                }
                other => return Ok(Opened::Existing(other?)),
            }
            match self.create_new(namespace, name) {
                // Another process was first; its queue is the one.
                Err(OpenError::AlreadyExists) if !self.exclusive => {}
                other => return other,
            }
        }
        Err(keeps_changing())
    }

    fn open_existing(&self, namespace: &Namespace, name: &QueueName) -> Result<Queue, OpenError> {
        let (last_close, file) = self.find(namespace, name)?;
        // In the kernel's order: a missing queue is reported first, and one may be created with no access at all.
        if !self.access.read && !self.access.write {
            return Err(OpenError::NoAccessMode);
        }
        let stat = rustix::fs::fstat(&file).map_err(|e| OpenError::from_errno("fstat", e))?;
        let mut segment = segment::attach(file.as_fd())?;
        match self.counted {
            true => segment.join(namespace.host())?,
            // A look needs no life.
            false => segment.count_in(namespace.host()),
        }
        self.open_attached(namespace, segment, &stat, last_close)
    }

    /// Opens a queue to send to it, if its file belongs to `owner`. None if the file is another user's: then the caller has read nothing of it.
    pub(super) fn open_of_owner(
        namespace: &Namespace,
        name: &OsStr,
        owner: u32,
    ) -> Result<Option<Queue>, OpenError> {
        let mut options = OpenOptions::new();
        options.write(true).counted(false);
        let (last_close, file) = options.find(namespace, &QueueName::parse(name)?)?;
        let stat = rustix::fs::fstat(&file).map_err(|e| OpenError::from_errno("fstat", e))?;
        if stat.st_uid != owner {
            return Ok(None);
        }
        let mut segment = segment::attach(file.as_fd())?;
        segment.join(namespace.host())?;
        options
            .open_attached(namespace, segment, &stat, last_close)
            .map(Some)
    }

    fn open_attached(
        &self,
        namespace: &Namespace,
        mut segment: Segment,
        stat: &Stat,
        last_close: Option<LastClose>,
    ) -> Result<Queue, OpenError> {
        // Relaxed: an old mode is as good as a new one to a call that runs beside chmod.
        let mode = segment.fixed().header.mode.load(Ordering::Relaxed);
        if !is_granted(self.access, mode, stat) {
            return Err(OpenError::PermissionDenied);
        }
        if let Some(last_close) = last_close {
            segment.set_last_close(Box::new(last_close));
        }
        Ok(Queue::new(segment, Some(namespace), self.access, stat))
    }

    /// The file of a queue that exists. If it goes with its last user, it is held by this opening of the file; then a process that drops it has to
    /// drop the other afterwards.
    fn find(
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
            // Whom it fails, for want of a descriptor for example, takes the queue as it is.
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

    fn create_new(&self, namespace: &Namespace, name: &QueueName) -> Result<Opened, OpenError> {
        let unnamed = self.build(namespace, name, None)?;
        self.publish(unnamed, name)
    }

    /// Creates a queue, with this mode whatever the umask, and has it filled before it gets its name: no process sees it half
    /// full, and if filling fails or the process dies there is no queue.
    pub(super) fn create_filled<E: From<OpenError>>(
        &self,
        name: &OsStr,
        mode: u32,
        fill: impl FnOnce(&Queue) -> Result<(), E>,
    ) -> Result<Queue, E> {
        let name = QueueName::parse(name).map_err(OpenError::from)?;
        let namespace = self.resolve()?;
        if exists(&namespace, &name) {
            return Err(OpenError::AlreadyExists.into());
        }
        let unnamed = self.build(&namespace, &name, Some(mode))?;
        fill(&unnamed.queue)?;
        unnamed.check_quota(&namespace)?;
        match self.publish(unnamed, &name)? {
            Opened::Created(queue, _) | Opened::Existing(queue) => Ok(queue),
        }
    }

    /// What a queue that is created does with messages that it can't take, keep or deliver.
    pub(super) fn set_policy(&mut self, policy: &Policy) {
        self.policy = policy.clone();
    }

    /// Makes a queue that has no name yet. Its mode is the given one, or that of the options, less the umask.
    fn build(
        &self,
        namespace: &Namespace,
        name: &QueueName,
        mode: Option<u32>,
    ) -> Result<Unnamed, OpenError> {
        let limits = namespace.limits()?;
        let layout = self.layout(&limits)?;
        self.check_policy(name)?;
        let limit = limits.max_queues;
        if !namespace.has_room_for_a_queue(limit)? {
            let gone = last_close::remove_all_unused(namespace)?;
            if gone.is_empty() || !namespace.has_room_for_a_queue(limit)? {
                return Err(OpenError::TooManyQueues(limit));
            }
        }
        if self.policy.remove_on_last_close {
            last_close::remove_some_unused(namespace)?;
        }
        let new = Unpublished::create(namespace, self.mode)?;
        crash_point!(CREATE_EMPTY);
        let label = self.provide_dead_letter_queue(namespace, &layout, new.file())?;
        crash_point!(CREATE_LABELLED);
        if !namespace.allows(0) {
            let gone = last_close::remove_all_unused(namespace)?;
            if gone.is_empty() || !namespace.allows(0) {
                return Err(OpenError::OverLimit);
            }
        }
        let mode = mode.unwrap_or(new.mode());
        if !limits.allow_mode(mode) {
            return Err(OpenError::ModeNotEnforced { mode });
        }
        let mut policy = self.policy.clone();
        policy.label = label.as_ref().map_or(0, NewDeadLetterLabel::number);
        let mut segment = segment::create(new.file(), layout, mode, &policy)?;
        segment.count_in(namespace.host());
        if self.policy.remove_on_last_close && self.counted {
            hold_unnamed(new.file()).map_err(|e| OpenError::from_errno("flock", e))?;
            segment.set_last_close(Box::new(LastClose::new(namespace, name)));
        }
        let stat = rustix::fs::fstat(new.file()).map_err(|e| OpenError::from_errno("fstat", e))?;
        crash_point!(CREATE_UNNAMED);
        let queue = Queue::new(segment, Some(namespace), self.access, &stat);
        Ok(Unnamed {
            new,
            label,
            queue,
            mode,
        })
    }

    /// Gives a queue its name.
    fn publish(&self, unnamed: Unnamed, name: &QueueName) -> Result<Opened, OpenError> {
        let Unnamed {
            new,
            label,
            queue,
            mode,
        } = unnamed;
        let goes = self.policy.remove_on_last_close;
        let descriptor = match self.file_access() {
            // That opening holds the queue, as long as it is mapped and no longer.
            FileAccess::ReadWrite if !goes => None,
            other => Some(new.reopen(other, false)?),
        };
        let file = match goes {
            true => new.publish_transient(name, file_mode(mode))?,
            false => new.publish(name, file_mode(mode))?,
        };
        crash_point!(CREATE_NAMED);
        if let Some(label) = label {
            label.keep();
        }
        let descriptor = match descriptor {
            Some(descriptor) => lower(file, descriptor)?,
            None => file,
        };
        Ok(Opened::Created(queue, descriptor))
    }

    fn layout(&self, limits: &Limits) -> Result<Layout, OpenError> {
        let messages = self.max_messages.unwrap_or(limits.default_messages);
        let size = self.message_size.unwrap_or(limits.default_message_size);
        check(
            "max_messages",
            messages,
            limits.max_messages.min(segment::MOST_MESSAGES),
        )?;
        check(
            "message_size",
            size,
            limits.max_message_size.min(segment::LARGEST_MESSAGE),
        )?;
        Ok(Layout::new(messages as usize, size as usize))
    }

    fn check_policy(&self, name: &QueueName) -> Result<(), OpenError> {
        match &self.policy.dead_letter {
            Some(dead) if QueueName::parse(OsStr::from_bytes(dead))? == *name => {
                return Err(OpenError::OwnDeadLetterQueue);
            }
            Some(_) => {}
            None if self.policy.max_deliveries != 0 => return Err(OpenError::NoDeadLetterQueue),
            None => {}
        }
        Ok(())
    }

    /// Makes the dead-letter queue if there is none, looks whether an existing one has the same owner and can take every
    /// message, and labels the file of the new queue with its name.
    fn provide_dead_letter_queue(
        &self,
        namespace: &Namespace,
        layout: &Layout,
        file: BorrowedFd<'_>,
    ) -> Result<Option<NewDeadLetterLabel>, OpenError> {
        let Some(name) = &self.policy.dead_letter else {
            return Ok(None);
        };
        let file = rustix::fs::fstat(file).map_err(|e| OpenError::from_errno("fstat", e))?;
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .mode(self.mode)
            .max_messages(layout.max_messages as u32)
            .message_size(layout.message_size as u32)
            .counted(false)
            .namespace(namespace)
            .open(OsStr::from_bytes(name));
        match opened {
            Ok(queue) if queue.attributes().message_size < layout.message_size => {
                return Err(OpenError::DeadLetterQueueTooSmall);
            }
            // Its mode may suit the processes that will send there.
            Ok(_) | Err(OpenError::PermissionDenied) => {}
            Err(error) => return Err(error),
        }
        let name = QueueName::parse(OsStr::from_bytes(name))?;
        if namespace.owner_of(&name)? != Some(file.st_uid) {
            return Err(OpenError::DeadLetterQueueOfAnother);
        }
        Ok(Some(NewDeadLetterLabel::make(namespace, &file, &name)?))
    }

    fn file_access(&self) -> FileAccess {
        match (self.access.read, self.access.write) {
            (true, false) => FileAccess::Read,
            (false, true) => FileAccess::Write,
            _ => FileAccess::ReadWrite,
        }
    }
}

/// A queue that was there, or a new one with a descriptor of its file.
enum Opened {
    Existing(Queue),
    Created(Queue, OwnedFd),
}

/// A whole queue that no other process can see yet.
struct Unnamed {
    new: Unpublished,
    label: Option<NewDeadLetterLabel>,
    queue: Queue,
    mode: u32,
}

impl Unnamed {
    /// Without a name it does not count in the namespace's limit of bytes.
    fn check_quota(&self, namespace: &Namespace) -> Result<(), OpenError> {
        let stat =
            rustix::fs::fstat(self.new.file()).map_err(|e| OpenError::from_errno("fstat", e))?;
        match namespace.allows(stat.st_blocks as usize * 512) {
            true => Ok(()),
            false => Err(OpenError::OverLimit),
        }
    }
}

fn check(what: &'static str, value: u32, max: u32) -> Result<(), OpenError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(OpenError::InvalidAttributes {
        what,
        value: value.into(),
        max: max.into(),
    })
}

/// Other processes have created and removed a queue of the name at each attempt.
#[cold]
fn keeps_changing() -> OpenError {
    OpenError::from_errno("open", rustix::io::Errno::AGAIN)
}

/// Whether something of that name exists.
fn exists(namespace: &Namespace, name: &QueueName) -> bool {
    match namespace.open_queue(name, FileAccess::Read, false) {
        Err(FileError::NotFound) => false,
        Ok((_, true)) => last_close::remove_unused(namespace, name) != Ok(Removal::Gone),
        _ => true,
    }
}

fn set_nonblocking(descriptor: &OwnedFd) -> Result<(), OpenError> {
    rustix::fs::fcntl_setfl(descriptor, OFlags::NONBLOCK)
        .map_err(|e| OpenError::from_errno("fcntl", e))
}

/// Closes `file` and gives its number, which is the lower, to `descriptor`.
fn lower(file: OwnedFd, descriptor: OwnedFd) -> Result<OwnedFd, OpenError> {
    let mut file = file;
    rustix::io::dup3(&descriptor, &mut file, rustix::io::DupFlags::CLOEXEC)
        .map_err(|e| OpenError::from_errno("dup3", e))?;
    Ok(file)
}

/// Device and inode number.
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

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotFound => OpenError::NotFound,
            FileError::AlreadyExists => OpenError::AlreadyExists,
            FileError::Denied => OpenError::PermissionDenied,
            FileError::Directory => OpenError::NotAQueue("a directory"),
            FileError::Symlink => OpenError::NotAQueue("a symbolic link"),
            FileError::Special => OpenError::NotAQueue("a FIFO, a socket or a device"),
            FileError::SecondName => OpenError::SecondName,
            FileError::TooManyFiles { errno } => OpenError::TooManyFiles(errno),
            FileError::NoSpace => OpenError::NoSpace,
            FileError::NoMemory => OpenError::NoMemory,
            FileError::System { call, errno } => OpenError::System {
                call,
                error: std::io::Error::from_raw_os_error(errno),
            },
            FileError::Namespace(error) => OpenError::Namespace(error),
        }
    }
}

impl From<crate::error::Fault> for OpenError {
    fn from(trouble: crate::error::Fault) -> Self {
        match trouble {
            crate::error::Fault::NoSpace | crate::error::Fault::UsedUp => OpenError::NoSpace,
            crate::error::Fault::OverLimit => OpenError::OverLimit,
            crate::error::Fault::NoMemory => OpenError::NoMemory,
            _ => OpenError::Damaged("its memory"),
        }
    }
}
