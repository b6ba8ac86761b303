//! Messages that a program brings from outside of the namespace: each arrives once, even if the program dies.

use super::queue::Queue;
use super::reservation::Reservation;
use super::transfer;
use crate::error::{ReceiveError, SendError};
use std::time::{SystemTime, UNIX_EPOCH};
use umsg_shm::posix_engine::{Arrival, Origin as Recorded};
use umsg_shm::sys::clock::{self, Deadline};
use umsg_shm::sys::thread;

/// The origin of a message outside the queues of this namespace: a source, and the message's number in that source. The queue stores the lower 48
/// bits of both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// A number that identifies the source, for example a hash of its name. Two sources of one queue must have different numbers.
    pub source: u64,
    /// The message's number in its source. The source must not use a number again.
    pub number: u64,
}

impl Origin {
    fn recorded(self) -> Recorded {
        Recorded {
            queue: self.source,
            ticket: self.number,
        }
    }
}

impl Reservation<'_> {
    /// Sends the message and leaves a record of its arrival in the queue; a single store to memory does both. The record outlasts the process, and
    /// lasts until [`Queue::forget_arrival`]. `sent` is the time of the first send, from which a time to live counts; `None` for now. Returns the
    /// message's [number](super::Lease::message_id) in this queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use umsg::posix::Origin;
    ///
    /// let origin = Origin { source: 7, number: 1 };
    /// let room = queue.reserve(0)?;
    /// room.commit_from(3, origin, None)?;
    /// // Had this process died here, the next process would find the record, and would not send the message again.
    /// assert_eq!(queue.arrivals(7)?, [1]);
    /// queue.forget_arrival(origin)?;
    /// assert_eq!(queue.receive_vec()?.priority, 3);
    /// assert_eq!(queue.arrivals(7)?, []);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Only while a process is stopped inside an operation on this queue.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    ///
    /// # If the process dies
    /// Before the call returns: the message was sent and has a record, or the message was not sent.
    pub fn commit_from(
        self,
        priority: u32,
        origin: Origin,
        sent: Option<SystemTime>,
    ) -> Result<u64, SendError> {
        let since = |sent: SystemTime| sent.duration_since(UNIX_EPOCH).unwrap_or_default();
        let sent_at = sent.map(|sent| clock::at_shown(since(sent).as_nanos() as u64));
        let mut number = 0;
        self.commit_with(priority, |engine, handle, len, key| {
            let room = umsg_shm::posix_engine::LeaseHandle { len, ..*handle };
            let arrival = Arrival {
                origin: origin.recorded(),
                history: None,
                trace: None,
                sent_at,
            };
            let me = thread::current();
            let arrived = engine.arrive(me, &room, key, &arrival, Deadline::Never)?;
            number = arrived.unwrap_or(0);
            Ok(arrived.is_some())
        })?;
        Ok(number)
    }
}

impl Queue {
    /// Returns a number that no other queue of this machine has had since the machine started. All handles of one queue return the same number. A
    /// queue that is removed and created again has another number.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut options = umsg::posix::OpenOptions::new();
    /// # options.read(true).write(true).create(true).namespace(&namespace);
    /// let (one, other) = (options.open("/one")?, options.open("/other")?);
    /// assert_ne!(one.serial(), other.serial());
    /// assert_eq!(one.serial(), options.open("/one")?.serial());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serial(&self) -> u64 {
        transfer::number(self.identity.1, &self.engine)
    }

    /// Returns the numbers of the messages of a source whose arrivals the queue still records, see [`Reservation::commit_from`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// assert_eq!(queue.arrivals(7)?, [], "no message came from this source");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Damaged`, `WouldDeadlock`.
    pub fn arrivals(&self, source: u64) -> Result<Vec<u64>, ReceiveError> {
        let arrivals = self
            .engine
            .arrivals(thread::current(), source, Deadline::Never);
        arrivals.map_err(|refused| self.receive_error(refused))
    }

    /// Returns the [numbers](super::Lease::message_id) of the messages that have a number: all messages that were leased, delayed or [brought from
    /// outside](Reservation::commit_from) and have not left the queue. The result leaves out a message that was handed over to a blocked receiver and
    /// not taken yet.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// assert!(queue.message_ids()?.is_empty(), "it was neither leased nor delayed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Receivers wait during the call, for a time in proportion to all messages.
    ///
    /// # Errors
    /// `Damaged`, `WouldDeadlock`; `TimedOut` if a process was stopped inside an operation on this queue.
    pub fn message_ids(&self) -> Result<Vec<u64>, ReceiveError> {
        let numbers = self.engine.numbers(thread::current());
        numbers.map_err(|refused| self.receive_error(refused))
    }

    /// Removes the record of a message's arrival from this queue. Call this method after the arrival was noted at the source. The call has no effect
    /// if the queue has no record with this origin.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.forget_arrival(umsg::posix::Origin { source: 7, number: 1 })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Damaged`, `WouldDeadlock`.
    pub fn forget_arrival(&self, origin: Origin) -> Result<(), ReceiveError> {
        let forgotten =
            self.engine
                .forget_arrival(thread::current(), origin.recorded(), Deadline::Never);
        forgotten.map_err(|refused| self.receive_error(refused))
    }
}
