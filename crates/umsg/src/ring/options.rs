//! Options for making rings.

use super::directory::{self, Name};
use super::doorbell::{Button, Doorbell};
use super::error::RingError;
use super::message::{HEAD, INLINE};
use super::place::DoorbellPath;
use super::receiver::Ring;
use super::shared::Shared;
use crate::error::OpenError;
use crate::error::QueueError;
use crate::namespace::{FileError, NameError, Namespace, QueueName, RINGS, Unpublished};
use rustix::fd::{AsFd, BorrowedFd};
use std::ffi::OsStr;
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::segment::{self, Layout, Policy, Segment};
use umsg_shm::posix_engine::{DISABLED, ENABLED};
use umsg_shm::sys::liveness;
use umsg_shm::sys::random::random;
use umsg_shm::sys::required;
use umsg_shm::sys::{file, process, thread};

/// Options for creating a ring.
///
/// ```
/// use umsg::ring::{Options, Post};
/// let mut ring = Options::new().entries(256).create()?;
/// let sender = ring.sender();
/// std::thread::spawn(move || sender.send(&Post::new(7).payload(b"work")).unwrap());
/// let message = ring.receive()?;
/// assert_eq!((message.user_data, message.payload), (7, &b"work"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    entries: u32,
    overflow: u32,
    longest: u32,
    disabled: bool,
    mode: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl Options {
    /// Returns options for 1,024 entries, 65,536 more in the overflow, payloads of up to 64 bytes, an enabled ring, and mode
    /// 0600.
    ///
    /// ```
    /// use umsg::ring::Options;
    ///
    /// let mut ring = Options::new().create()?;
    /// assert!(ring.try_receive().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new() -> Options {
        Options {
            entries: 1024,
            overflow: 65_536,
            longest: INLINE as u32,
            disabled: false,
            mode: 0o600,
        }
    }

    /// Sets how many messages the ring holds without overflow.
    ///
    /// ```
    /// use umsg::ring::Options;
    ///
    /// let ring = Options::new().entries(64).create()?;
    /// assert_eq!(ring.status().entries, 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn entries(&mut self, entries: u32) -> &mut Self {
        self.entries = entries;
        self
    }

    /// Sets how many more messages the ring holds, in order, before it is full. These messages take memory only while they are in the ring.
    ///
    /// ```
    /// use umsg::ring::Options;
    ///
    /// let ring = Options::new().entries(1).overflow(2).create()?;
    /// let sender = ring.sender();
    /// for number in 0..3 {
    ///     sender.try_send(&umsg::ring::Post::new(number))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn overflow(&mut self, overflow: u32) -> &mut Self {
        self.overflow = overflow;
        self
    }

    /// Sets the longest payload, in bytes, for [`Sender::send_long`](super::Sender::send_long); at least 64.
    ///
    /// ```
    /// use umsg::ring::Options;
    ///
    /// let ring = Options::new().longest(4096).create()?; // bytes
    /// assert_eq!(ring.sender().longest(), 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn longest(&mut self, bytes: u32) -> &mut Self {
        self.longest = bytes.max(INLINE as u32);
        self
    }

    /// Sets whether the ring refuses senders until [`Ring::enable`].
    ///
    /// ```
    /// use umsg::ring::Options;
    ///
    /// let ring = Options::new().disabled(true).create()?;
    /// assert!(ring.sender().try_send(&umsg::ring::Post::new(1)).is_err());
    /// ring.enable();
    /// ring.sender().try_send(&umsg::ring::Post::new(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disabled(&mut self, disabled: bool) -> &mut Self {
        self.disabled = disabled;
        self
    }

    /// Sets the permission bits of a named ring, before the umask: a user with write permission may send.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::ring::Options;
    ///
    /// let ring = Options::new().mode(0o600).create_in(&namespace, "/jobs")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Makes a ring without a name, for the threads of this process and its forked children.
    ///
    /// ```
    /// use umsg::ring::Options;
    ///
    /// let mut ring = Options::new().create()?;
    /// ring.sender().send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.receive()?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RingError::InvalidEntries`], and the errors of opening queues.
    pub fn create(&self) -> Result<Ring, RingError> {
        required::check_for_rings().map_err(OpenError::from)?;
        let file =
            file::nameless("umsg-ring").map_err(|e| OpenError::from_errno("memfd_create", e))?;
        let segment = self.fill(file.as_fd(), 0o600)?;
        let (doorbell, button) =
            Doorbell::pair().map_err(|e| OpenError::from_errno("socketpair", e))?;
        Ok(Ring::new(Shared::new(segment, button), doorbell, None))
    }

    /// Makes a ring with a name, a slash and up to 255 bytes, by which other processes of the namespace find the ring. The name is removed when the
    /// ring is dropped. A ring whose owner has died is replaced.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::ring::Options;
    ///
    /// let mut ring = Options::new().create_in(&namespace, "/jobs")?;
    /// let sender = umsg::ring::Sender::open_in(&namespace, "/jobs")?; // in any process
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.receive()?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RingError::Owned`] if another process has a ring of this name, and the errors of opening queues.
    ///
    /// # If the process dies
    /// If the process dies during the call, the ring does not exist, or is complete. If the process dies after the call, senders learn that the owner
    /// is dead.
    pub fn create_in(
        &self,
        namespace: &Namespace,
        name: impl AsRef<OsStr>,
    ) -> Result<Ring, RingError> {
        required::check_for_rings().map_err(OpenError::from)?;
        let name = QueueName::parse(name.as_ref()).map_err(|error| match error {
            // The name `/` is valid for looking a ring up, but not for creating one.
            NameError::NotFound => OpenError::InvalidName,
            other => other.into(),
        })?;
        loop {
            if !namespace.allows(0) {
                return Err(OpenError::Queue(QueueError::OverLimit).into());
            }
            let new =
                Unpublished::create_in(namespace, RINGS, self.mode).map_err(OpenError::from)?;
            let mut segment = self.fill(new.file(), new.mode())?;
            segment.count_in(namespace.host());
            name_owner(&segment);
            segment.fixed().ownership.set_fifo_number(random());
            let mode = new.mode();
            match new.publish(&name, file_mode(mode)) {
                Ok(file) => {
                    crash_point!(RING_NAMED);
                    let name = Name::new(namespace, name, file.as_fd())?;
                    return match doorbell_of(namespace, file.as_fd(), &segment, file_mode(mode)) {
                        Ok((place, doorbell)) => {
                            crash_point!(RING_MADE);
                            let shared = Shared::new(segment, Button::Named(place));
                            Ok(Ring::new(shared, doorbell, Some(name)))
                        }
                        Err(error) => {
                            // Without a doorbell no process can wait for the ring.
                            name.remove();
                            Err(error.into())
                        }
                    };
                }
                // A ring with this name exists. If its owner is dead, the ring is removed, and the next attempt can create the new ring.
                Err(FileError::AlreadyExists) => match directory::remove(namespace, &name, false) {
                    Ok(()) | Err(RingError::NotFound) => {}
                    Err(error) => return Err(error),
                },
                Err(error) => return Err(OpenError::from(error).into()),
            }
        }
    }

    fn fill(&self, file: BorrowedFd<'_>, mode: u32) -> Result<Segment, RingError> {
        let all = u64::from(self.entries) + u64::from(self.overflow);
        let max = u64::from(segment::MOST_MESSAGES);
        if self.entries == 0 || all > max {
            return Err(RingError::InvalidEntries { value: all, max });
        }
        let layout = Layout::new(all as usize, HEAD + self.longest as usize);
        let segment = segment::create(file, layout, mode, &Policy::default())?;
        name_owner(&segment);
        let state = if self.disabled { DISABLED } else { ENABLED };
        segment.fixed().ownership.begin(self.entries, state);
        Ok(segment)
    }
}

/// Records this process as the receiver, before other processes see the segment.
fn name_owner(segment: &Segment) {
    let me = thread::current();
    let birth = liveness::birth(segment, || process::birth(me.pid()));
    segment.fixed().ownership.name_owner(me.pid(), birth);
}

/// Returns the mode of the file: a user with permission to send has to map the file for reading and writing.
fn file_mode(mode: u32) -> u32 {
    ((mode >> 1 & 0o111) * 6) | 0o600
}

/// Makes the doorbell of a ring that has just got its name.
fn doorbell_of(
    namespace: &Namespace,
    file: BorrowedFd<'_>,
    segment: &Segment,
    mode: u32,
) -> Result<(DoorbellPath, Doorbell), OpenError> {
    let place = DoorbellPath::of(namespace, file, segment)
        .map_err(|e| OpenError::from_errno("fstat", e))?;
    let doorbell = Doorbell::at(place.path().to_owned(), mode)
        .map_err(|e| OpenError::from_errno("bind", e))?;
    Ok((place, doorbell))
}
