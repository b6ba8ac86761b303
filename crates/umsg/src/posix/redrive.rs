//! Redriving: sending dead letters back to the queues from which they come.
//!
//! The history of a message names its source, and every process that may use the dead-letter queue can forge that name. The caller sends with its own
//! rights. So a message returns to the queue in its history only if that queue
//!
//! - has the same owner as the dead-letter queue, compared on the opened files, and
//! - has this dead-letter queue as its dead-letter queue, by a label that its owner made (`namespace/dead_letters.rs`).
//!
//! If the caller [names the queue](Redrive::to), these checks are omitted.
//!
//! A message is in one of the queues at each instant that a receiver can observe, even if the process is killed (see `posix/transfer.rs`). The
//! message of a killed process stays held in the dead-letter queue. The next redrive finds out whether this message has arrived in the destination
//! queue. Then the redrive ends the move, or makes the message an ordinary dead letter again.

use super::directory::list_untouched;
use super::history::{DeadReason, History};
use super::options::OpenOptions;
use super::queue::Queue;
use super::transfer;
use crate::error::{OpenError, ReceiveError, SendError};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::{DeadLetter, LeaseHandle, Origin};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;

/// The time for which each step in the destination queue waits for a lock whose owner is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Selects the dead letters that [`Queue::redrive`] sends back, and their destination. By default: all dead letters, each to the queue from which
/// it comes.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Redrive {
    to: Option<OsString>,
    id: Option<u64>,
    reason: Option<DeadReason>,
    source: Option<OsString>,
    most: Option<usize>,
}

impl Redrive {
    /// Selects all dead letters.
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
    /// use umsg::posix::Redrive;
    ///
    /// assert_eq!(failed.dead_letters(&Redrive::new())?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new() -> Redrive {
        Redrive::default()
    }

    /// Sends the messages to this queue of the same namespace, instead of the queues from which they come.
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
    /// use umsg::posix::Redrive;
    ///
    /// failed.redrive(&Redrive::new().to("/jobs"))?;
    /// assert_eq!(jobs.try_receive_vec()?.data, b"resize image 7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to(mut self, name: impl AsRef<OsStr>) -> Redrive {
        self.to = Some(name.as_ref().to_owned());
        self
    }

    /// Selects the message with this [`History::id`].
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
    /// use umsg::posix::Redrive;
    ///
    /// let first = &failed.dead_letters(&Redrive::new())?[0];
    /// assert_eq!(failed.redrive(&Redrive::new().id(first.id))?.messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(mut self, id: u64) -> Redrive {
        self.id = Some(id);
        self
    }

    /// Selects messages that left their source for this reason.
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
    /// use umsg::posix::{DeadReason, Redrive};
    ///
    /// assert_eq!(failed.redrive(&Redrive::new().reason(DeadReason::Expired))?.messages, 0);
    /// assert_eq!(failed.redrive(&Redrive::new().reason(DeadReason::Undelivered))?.messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reason(mut self, reason: DeadReason) -> Redrive {
        self.reason = Some(reason);
        self
    }

    /// Selects messages that come from this queue.
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
    /// use umsg::posix::Redrive;
    ///
    /// assert_eq!(failed.dead_letters(&Redrive::new().source("/jobs"))?.len(), 1);
    /// assert!(failed.dead_letters(&Redrive::new().source("/mails"))?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn source(mut self, name: impl AsRef<OsStr>) -> Redrive {
        self.source = Some(name.as_ref().to_owned());
        self
    }

    /// Selects at most this many messages, in the order in which the queue would deliver them.
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
    /// use umsg::posix::Redrive;
    ///
    /// assert_eq!(failed.redrive(&Redrive::new().count(10))?.messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(mut self, most: usize) -> Redrive {
        self.most = Some(most);
        self
    }

    fn selects(&self, letter: &DeadLetter) -> bool {
        let source = letter.history.source();
        self.id.is_none_or(|id| id == letter.id)
            && self
                .reason
                .is_none_or(|reason| reason == letter.history.reason)
            && self
                .source
                .as_ref()
                .is_none_or(|name| name.as_bytes() == source)
    }
}

/// A dead letter that was peeked at and stays in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeekedLetter {
    /// The history of the dead letter.
    pub history: History,
    /// Length of the whole message, in bytes.
    pub len: usize,
    /// The message's first bytes, or all of them.
    pub data: Vec<u8>,
}

/// The result of [`Queue::redrive`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Redriven {
    /// The number of messages that were sent back.
    pub messages: usize,
    /// The messages that stay in the dead-letter queue: one entry for each destination queue.
    pub refused: Vec<Refused>,
}

/// Messages that could not be sent back.
#[derive(Debug)]
#[non_exhaustive]
pub struct Refused {
    /// The queue to which the messages could not be sent. `None`: their history names no queue.
    pub queue: Option<OsString>,
    /// The number of these messages.
    pub messages: usize,
    /// The reason for the first of these messages.
    pub why: RedriveFailure,
}

/// The reason why a message could not be sent back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedriveFailure {
    /// The history names no queue, or the handle does not know its namespace.
    #[error(
        "the original queue of the messages is unknown: name the queue to send the messages to"
    )]
    NoSource,
    /// The destination queue is the dead-letter queue itself.
    #[error("the messages are already in this queue: name another queue")]
    SameQueue,
    /// The queue in the history belongs to another user than the dead-letter queue.
    #[error(
        "the original queue and the dead-letter queue have different owners: name the queue to send the messages to"
    )]
    OtherOwner,
    /// The queue in the history has no dead-letter queue, or its dead-letter queue is another queue. The history may be forged, or the queue was
    /// removed and created again.
    #[error(
        "the original queue does not name this queue as its dead-letter queue: name the queue to send the messages to"
    )]
    NotItsSource,
    /// The destination queue does not exist or can't be opened.
    #[error(transparent)]
    Open(OpenError),
    /// The destination queue does not accept the message: the queue is full or closed, or its message size is smaller.
    #[error(transparent)]
    Send(SendError),
}

impl RedriveFailure {
    /// Returns the error number of the failure.
    ///
    /// ```
    /// assert_eq!(umsg::posix::RedriveFailure::NoSource.errno(), libc::ENOENT);
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            RedriveFailure::NoSource => libc::ENOENT,
            RedriveFailure::SameQueue => libc::EINVAL,
            RedriveFailure::OtherOwner => libc::EPERM,
            RedriveFailure::NotItsSource => libc::ESTALE,
            RedriveFailure::Open(error) => error.errno(),
            RedriveFailure::Send(error) => error.errno(),
        }
    }

    /// Returns whether the failure concerns only this message, so that another message may be sent to the same queue.
    fn is_of_message(&self) -> bool {
        matches!(self, RedriveFailure::Send(SendError::TooLong { .. }))
    }
}

/// The queues to which a call sends messages. An `Err` stands for a queue that accepts no message now, or that the call could not open; the reason is
/// in `redriven`.
struct Targets<'a> {
    from: &'a Queue,
    number: u64,
    queues: BTreeMap<Vec<u8>, Result<Queue, ()>>,
    redriven: Redriven,
}

impl Queue {
    /// Returns the histories of the dead letters that `which` selects, in order of delivery. A message that was sent back to this queue counts only
    /// if `which` names the queue to send it to ([`Redrive::to`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::Redrive;
    ///
    /// queue.send(b"no dead letter", 0)?;
    /// assert!(queue.dead_letters(&Redrive::new())?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`messages`](Self::messages).
    pub fn dead_letters(&self, which: &Redrive) -> Result<Vec<History>, ReceiveError> {
        let letters = self.find_dead_letters(which, 0)?.into_iter();
        Ok(letters
            .map(|letter| History::of(letter.id, &letter.history))
            .collect())
    }

    /// Returns the dead letters that `which` selects, in order of delivery, with up to `most` bytes of each message. The messages stay in the
    /// queue.
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
    /// use umsg::posix::Redrive;
    ///
    /// let letters = failed.peek_dead_letters(&Redrive::new(), 6)?;
    /// assert_eq!((&letters[0].data[..], letters[0].len), (&b"resize"[..], 14));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Other receivers wait while the call copies the messages. Senders do not wait.
    ///
    /// # Errors
    /// The errors of [`messages`](Self::messages).
    pub fn peek_dead_letters(
        &self,
        which: &Redrive,
        most: usize,
    ) -> Result<Vec<PeekedLetter>, ReceiveError> {
        let letters = self.find_dead_letters(which, most)?.into_iter();
        Ok(letters
            .map(|letter| PeekedLetter {
                history: History::of(letter.id, &letter.history),
                len: letter.len,
                data: letter.start,
            })
            .collect())
    }

    /// Returns the dead letters with up to `bytes` bytes of each message.
    fn find_dead_letters(
        &self,
        which: &Redrive,
        bytes: usize,
    ) -> Result<Vec<DeadLetter>, ReceiveError> {
        self.check_to_look()?;
        let most = which.most.unwrap_or(usize::MAX);
        self.engine
            .dead_letters(thread::current(), (most, bytes), |letter| {
                which.selects(letter) && (which.to.is_some() || !self.is_source_of(letter))
            })
            .map_err(|refused| self.receive_error(refused))
    }

    /// Returns whether a message with a history comes from this queue: it was sent back, and is no dead letter here.
    fn is_source_of(&self, letter: &DeadLetter) -> bool {
        let name = self.name.as_ref().map(|name| name.as_bytes());
        name == Some(letter.history.source())
    }

    /// Sends dead letters back to the queues from which they come, behind the messages that are already in these queues. The dead letters keep bytes,
    /// priority and history. The deliveries of each letter are counted from 0 again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::{OpenOptions, Redrive};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let jobs = options.max_deliveries(1).dead_letter("/jobs.failed").open("/jobs")?;
    /// jobs.send(b"resize image 7", 0)?;
    /// jobs.receive_lease()?.give_back()?; // failed
    ///
    /// let failed = OpenOptions::new().read(true).namespace(&namespace).open("/jobs.failed")?;
    /// assert_eq!(failed.redrive(&Redrive::new())?.messages, 1);
    /// let job = jobs.receive_lease()?;
    /// assert_eq!((job.deliveries(), job.history()?.unwrap().redrives), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A message that was sent back to this queue counts as a dead letter of it only if `which` names the queue to send it to ([`Redrive::to`]).
    ///
    /// # Blocking
    /// Does not wait for room. If a process is stopped inside an operation on the destination queue, a step waits for at most a second.
    ///
    /// # Errors
    /// The errors of [`messages`](Self::messages) for this queue. [`Redriven::refused`] counts the messages that another queue did not
    /// take, with the reason. These messages keep their places.
    ///
    /// # If the process dies
    /// If the process dies during the call, no message is lost, and none is in two queues. If a message was being sent, it stays held for the dead
    /// process; the next call of this method sends or returns it.
    pub fn redrive(&self, which: &Redrive) -> Result<Redriven, ReceiveError> {
        self.check_to_look()?;
        let mut targets = Targets {
            from: self,
            number: transfer::number(self.identity.1, &self.engine),
            queues: BTreeMap::new(),
            redriven: Redriven::default(),
        };
        // This step comes first: it turns the messages that dead processes held into ordinary dead letters.
        targets.find_out()?;
        for letter in self.find_dead_letters(which, 0)? {
            targets.redrive(which, &letter)?;
        }
        Ok(targets.redriven)
    }
}

impl Targets<'_> {
    /// Ends the moves that dead processes began: finds out whether their messages have arrived.
    fn find_out(&mut self) -> Result<(), ReceiveError> {
        let (engine, me) = (&self.from.engine, thread::current());
        let left = engine
            .left_redrives(me)
            .map_err(|refused| self.from.receive_error(refused))?;
        for (handle, to) in left {
            let Some(has_arrived) = self.has_arrived(&handle, to) else {
                continue;
            };
            engine
                .end_redrive(me, &handle, has_arrived)
                .map_err(|refused| self.from.receive_error(refused))?;
        }
        Ok(())
    }

    /// Returns whether a message has arrived in the queue with the number `to`. Returns None if a queue that may have this number can't be opened. In
    /// that case, the message stays held until a process with the permission runs a redrive.
    fn has_arrived(&self, handle: &LeaseHandle, to: u64) -> Option<bool> {
        let namespace = self.from.namespace.as_ref()?;
        let mut is_certain = true;
        for listed in list_untouched(namespace).ok()? {
            let queue = match listed.queue {
                Ok(queue) => queue,
                Err(OpenError::NotFound) => continue,
                // Only a process that may send to a queue can have sent the message to it. So a queue that can't be opened for reading is opened for
                // sending.
                Err(_) => match OpenOptions::open_of_owner(namespace, &listed.name, None) {
                    Ok(Some(queue)) => queue,
                    _ => {
                        is_certain = false;
                        continue;
                    }
                },
            };
            if transfer::number(queue.identity.1, &queue.engine) == to {
                let by = Deadline::after(PATIENCE);
                return queue
                    .engine
                    .has_arrived(thread::current(), self.origin(handle), by)
                    .ok();
            }
        }
        // If every queue was opened, no queue has this number: the destination queue and its messages no longer exist.
        is_certain.then_some(false)
    }

    fn origin(&self, handle: &LeaseHandle) -> Origin {
        Origin {
            queue: self.number,
            ticket: handle.ticket,
        }
    }

    /// Sends one message back.
    fn redrive(&mut self, which: &Redrive, letter: &DeadLetter) -> Result<(), ReceiveError> {
        let name = match &which.to {
            Some(name) => name.as_bytes().to_vec(),
            None => letter.history.source().to_vec(),
        };
        if !self.queues.contains_key(&name) {
            let opened = self.open(&name, which.to.is_none());
            let opened = opened.map_err(|why| self.refuse(&name, Some(why)));
            self.queues.insert(name.clone(), opened);
        } else if self.queues.get(&name).is_some_and(Result::is_err) {
            self.refuse(&name, None);
        }
        let Some(Ok(to)) = self.queues.get(&name) else {
            return Ok(());
        };
        let (engine, me) = (&self.from.engine, thread::current());
        let place = (letter.slot, letter.id);
        let number = transfer::number(to.identity.1, &to.engine);
        let departure = engine
            .begin_redrive(me, place, number)
            .map_err(|refused| self.from.receive_error(refused))?;
        // `None`: another process has taken the message.
        let Some(departure) = departure else {
            return Ok(());
        };
        let mut history = departure.history;
        history.redrives = history.redrives.saturating_add(1);
        let origin = self.origin(&departure.handle);
        let copy = (origin, &history, departure.trace.as_ref());
        let sent = transfer::send_copy(engine, &departure.handle, to, copy, PATIENCE);
        engine
            .end_redrive(me, &departure.handle, sent.is_ok())
            .map_err(|refused| self.from.receive_error(refused))?;
        match sent {
            Ok(()) => {
                crash_point!(MOVE_ENDED);
                // If `forget_arrival` fails, the next redrive ends the record of this arrival.
                let by = Deadline::after(PATIENCE);
                let _ = to.engine.forget_arrival(me, origin, by);
                self.redriven.messages += 1;
            }
            Err(error) => {
                let why = RedriveFailure::Send(error);
                if !why.is_of_message() {
                    self.queues.insert(name.clone(), Err(()));
                }
                self.refuse(&name, Some(why));
            }
        }
        Ok(())
    }

    /// Opens a destination queue, and ends the records that dead processes have left in that queue.
    fn open(&self, name: &[u8], is_source: bool) -> Result<Queue, RedriveFailure> {
        let namespace = match &self.from.namespace {
            Some(namespace) if !name.is_empty() => namespace,
            _ => return Err(RedriveFailure::NoSource),
        };
        let owner = is_source.then_some(self.from.owner.0);
        let queue = OpenOptions::open_of_owner(namespace, OsStr::from_bytes(name), owner)
            .map_err(RedriveFailure::Open)?
            .ok_or(RedriveFailure::OtherOwner)?;
        if queue.identity == self.from.identity {
            return Err(RedriveFailure::SameQueue);
        }
        let own = self.from.name.as_ref().map(|name| name.as_bytes());
        if is_source && (own.is_none() || queue.engine.policy().dead_letter.as_deref() != own) {
            return Err(RedriveFailure::NotItsSource);
        }
        // If this call fails, the next redrive ends the records of these arrivals.
        let _ = transfer::forget_left_arrivals(&self.from.engine, self.number, &queue, PATIENCE);
        Ok(queue)
    }

    /// Counts a message that stays in the dead-letter queue. For each destination, the first reason is reported.
    fn refuse(&mut self, name: &[u8], why: Option<RedriveFailure>) {
        let queue = (!name.is_empty()).then(|| OsString::from_vec(name.to_vec()));
        let refused = &mut self.redriven.refused;
        match refused.iter_mut().find(|entry| entry.queue == queue) {
            Some(entry) => entry.messages += 1,
            None => refused.extend(why.map(|why| Refused {
                queue,
                messages: 1,
                why,
            })),
        }
    }
}
