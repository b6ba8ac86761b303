//! Snapshots: a queue's messages at one instant, in a file, and a new queue that is restored from this file.
//!
//! ```text
//!   queue --- of ---> Snapshot --- write ---> file --- read ---> Snapshot --- restore ---> new queue
//!        one hold of                                                \------- send_all ---> queue that exists
//!        the lock
//! ```
//!
//! docs/snapshot.md specifies the file byte by byte. Checksums cover all of the file, so a truncated or altered file is refused.
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("umsg-snapshot-{}", std::process::id()));
//! # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
//! # let namespace = umsg::Namespace::at(&dir)?;
//! use umsg::posix::{OpenOptions, Snapshot};
//!
//! let mut options = OpenOptions::new();
//! options.read(true).write(true).namespace(&namespace);
//! let orders = options.clone().create(true).open("/orders")?;
//! orders.send(b"an order", 3)?;
//!
//! let mut file = Vec::new();
//! orders.snapshot(&mut file)?;
//!
//! let snapshot = Snapshot::read(&mut &file[..])?;
//! let copy = snapshot.restore("/copy", &options)?;
//! assert_eq!(copy.peek(0)?.unwrap().data, b"an order");
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
pub(crate) mod format;
pub(crate) mod read;
mod restore;
pub(crate) mod write;

pub use error::{RestoreError, SnapshotError, SnapshotPart};

use super::history::History;
use super::queue::Queue;
use super::status;
use crate::error::ReceiveError;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::segment::{OnFull, Policy};
use umsg_shm::posix_engine::{PeekedMessages, SeenHistory};
use umsg_shm::sys::clock;

/// A queue's attributes and messages at one instant, in memory of the process.
#[derive(Debug)]
pub struct Snapshot {
    max_messages: u32,
    message_size: u32,
    mode: u32,
    /// The time of the snapshot, in nanoseconds since 1970.
    taken: u64,
    policy: Policy,
    send_closed: bool,
    /// The queue's name; empty if the caller gave no name.
    name: Vec<u8>,
    look: PeekedMessages,
}

/// The queue's attributes at the time of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// The queue's name, if the caller gave it.
    pub name: Option<OsString>,
    /// Capacity of the queue, in messages.
    pub max_messages: usize,
    /// Length of the longest message, in bytes.
    pub message_size: usize,
    /// The queue's permission bits.
    pub mode: u32,
    /// Number of messages, including the delayed messages.
    pub messages: usize,
    /// Number of messages that were sent or returned for a later delivery.
    pub delayed: usize,
    /// Number of bytes of all messages.
    pub bytes: u64,
    /// Time of the snapshot.
    pub taken: SystemTime,
    /// The queue's overflow policy.
    pub on_full: OnFull,
    /// The largest age of a message; `None` for no limit.
    pub time_to_live: Option<Duration>,
    /// The maximum number of leases of a message; `None` for no limit.
    pub max_deliveries: Option<u32>,
    /// The dead-letter queue, which gets the messages that the queue could not keep or deliver.
    pub dead_letter: Option<OsString>,
    /// True if the queue is removed when no process has it open any more.
    pub remove_on_last_close: bool,
    /// True if the queue was closed for sending.
    pub send_closed: bool,
    /// True if the end of the last producer closes the queue for sending.
    pub close_with_last_producer: bool,
    /// The delays before a returned message is delivered again: the delay after the first return, and the longest delay. `None` for no delay.
    pub retry_delay: Option<(Duration, Duration)>,
    /// The number of deliveries of higher priorities before a lower priority has its turn; `None` for strict order.
    pub fair_priorities: Option<u32>,
    /// True if the queue notes the events of its messages. The snapshot has no events.
    pub trace_messages: bool,
}

/// A message in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedMessage<'a> {
    /// The bytes of the message.
    pub data: &'a [u8],
    /// Priority, 0 to 32,767.
    pub priority: u32,
    /// Process id of the sender.
    pub pid: u32,
    /// Time of the send, accurate to a few milliseconds.
    pub sent: SystemTime,
    /// Number of leases that ended with the return of the message to the queue.
    pub returns: u32,
    /// The time from the snapshot until the delivery time of the message; `None` for a queued message.
    pub delay: Option<Duration>,
    history: Option<&'a SeenHistory>,
}

impl SavedMessage<'_> {
    /// Returns the history of a dead letter, or of a message that was a dead letter.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut options = umsg::posix::OpenOptions::new();
    /// # options.read(true).write(true).create(true).namespace(&namespace);
    /// # let jobs = options.max_deliveries(1).dead_letter("/jobs.failed").open("/jobs")?;
    /// # jobs.send(b"resize image 7", 0)?;
    /// # jobs.receive_lease()?.give_back()?;
    /// # let failed = umsg::posix::OpenOptions::new().read(true).write(true).namespace(&namespace).open("/jobs.failed")?;
    /// let snapshot = umsg::posix::Snapshot::of(&failed)?;
    /// let letter = snapshot.messages().next().expect("a message");
    /// assert_eq!(letter.history().expect("a dead letter").deliveries, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn history(&self) -> Option<History> {
        self.history
            .map(|seen| History::new(seen.id, &seen.history, time))
    }
}

impl Queue {
    /// Writes a snapshot of the queue: its attributes and all messages as they are at one instant. The call does not change the
    /// queue. To store the queue's name in the snapshot, use [`Snapshot::of`], [`Snapshot::named`] and [`Snapshot::write`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let mut file = Vec::new();
    /// assert_eq!(queue.snapshot(&mut file)?.messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Other receivers wait while the messages are copied, as in [`messages`](Self::messages), but not while the messages are written.
    ///
    /// # Errors
    /// [`SnapshotError::Queue`], with the errors of [`messages`](Self::messages); [`SnapshotError::Write`].
    ///
    /// # If the process dies
    /// If the process dies during the call, the queue loses nothing. A later read refuses the incomplete file.
    pub fn snapshot(&self, to: impl Write) -> Result<SnapshotInfo, SnapshotError> {
        let snapshot = Snapshot::of(self)?;
        snapshot.write(to)?;
        Ok(snapshot.info())
    }
}

impl Snapshot {
    /// Takes a snapshot into memory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// assert_eq!(umsg::posix::Snapshot::of(&queue)?.info().messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks as [`Queue::messages`] does.
    ///
    /// # Errors
    /// The errors of [`Queue::messages`].
    pub fn of(queue: &Queue) -> Result<Snapshot, ReceiveError> {
        // The state is read first: a queue that is already closed gets no message between the reading of the state and the copy of its messages.
        let send_closed = queue.engine.is_send_closed();
        let mut look = queue.look_at_all()?;
        for seen in &mut look.messages {
            // As a message's time of sending, the snapshot has the time from which its time to live counts. For a message that was sent for a later
            // delivery, that is the delivery time.
            seen.sent_at = clock::shown_nanoseconds(seen.lives_since);
        }
        for seen in &mut look.histories {
            seen.history = seen.history.with_times(clock::shown_nanoseconds);
        }
        let layout = queue.engine.segment().layout();
        Ok(Snapshot {
            max_messages: layout.max_messages as u32,
            message_size: layout.message_size as u32,
            mode: queue.mode(),
            taken: clock::realtime(),
            policy: queue.engine.policy().clone().without_label(),
            send_closed,
            name: Vec::new(),
            look,
        })
    }

    /// Adds the queue's name, of at most 256 bytes, because a handle does not know the name. A process that restores the snapshot can use the name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let snapshot = umsg::posix::Snapshot::of(&queue)?.named("/q");
    /// assert_eq!(snapshot.info().messages, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn named(mut self, name: impl AsRef<OsStr>) -> Snapshot {
        self.name = name.as_ref().as_bytes().to_vec();
        self.name.truncate(format::LONGEST_NAME);
        self
    }

    /// Returns the queue's attributes at the time of the snapshot.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// assert_eq!(umsg::posix::Snapshot::of(&queue)?.info().bytes, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn info(&self) -> SnapshotInfo {
        let policy = &self.policy;
        SnapshotInfo {
            name: (!self.name.is_empty()).then(|| OsString::from_vec(self.name.clone())),
            max_messages: self.max_messages as usize,
            message_size: self.message_size as usize,
            mode: self.mode,
            messages: self.look.messages.len(),
            delayed: self
                .look
                .messages
                .iter()
                .filter(|seen| seen.delay != 0)
                .count(),
            bytes: self.look.bytes.len() as u64,
            taken: time(self.taken),
            on_full: policy.on_full,
            time_to_live: (policy.time_to_live != 0)
                .then(|| Duration::from_nanos(policy.time_to_live)),
            max_deliveries: (policy.max_deliveries != 0).then_some(policy.max_deliveries),
            dead_letter: policy.dead_letter.clone().map(OsString::from_vec),
            remove_on_last_close: policy.remove_on_last_close,
            send_closed: self.send_closed,
            close_with_last_producer: policy.close_with_producers,
            retry_delay: status::retry_delay(policy),
            fair_priorities: (policy.fair_priorities != 0).then_some(policy.fair_priorities),
            trace_messages: policy.trace_messages,
        }
    }

    /// Returns the messages in order of delivery, and after them the delayed messages.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 7)?;
    /// let snapshot = umsg::posix::Snapshot::of(&queue)?;
    /// assert!(snapshot.messages().all(|message| message.priority == 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn messages(&self) -> impl ExactSizeIterator<Item = SavedMessage<'_>> {
        self.look
            .iter()
            .enumerate()
            .map(|(position, (seen, data))| SavedMessage {
                data,
                priority: seen.key as u32,
                pid: seen.pid,
                sent: time(seen.sent_at),
                returns: seen.returns,
                delay: (seen.delay != 0).then(|| Duration::from_nanos(seen.delay)),
                history: self.look.history(position),
            })
    }
}

fn time(nanoseconds: u64) -> SystemTime {
    status::time(nanoseconds).unwrap_or(SystemTime::UNIX_EPOCH)
}
