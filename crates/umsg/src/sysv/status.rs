//! The status of a queue: its description, counts and statistics.

use super::control::done;
use super::entry::Entry;
use super::error::ControlError;
use super::permission::Rights;
use super::queue::Queue;
use crate::statistics::statistics;
use std::time::{Duration, SystemTime};
use umsg_shm::arena;
use umsg_shm::sys::liveness::Liveness;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::segment::Fixed;
use umsg_shm::sysv_engine::{Counts, Engine};

/// Read permission of any class, which IPC_STAT asks for.
pub(super) const TO_LOOK: u32 = 0o444;

/// The status of a queue, apart from its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The description of the queue, as msgctl(2) gives it (IPC_STAT).
    pub entry: Entry,
    /// The longest possible message, in bytes.
    pub msgmax: usize,
    /// Process id of the creator; 0 if the queue was created in another PID or time namespace, because the id would name another process in the
    /// caller's namespace.
    pub creator: u32,
    /// The time of the creation.
    pub created: SystemTime,
    /// Number of leased messages: received in place, not yet acknowledged. They take room.
    pub leased: u64,
    /// The bytes of the leased and the delayed messages together.
    pub leased_bytes: u64,
    /// Number of delayed messages: sent or returned for a later delivery, and not due. They take room in the queue.
    pub delayed: u64,
    /// True if the queue is closed for sending. Also true if all its producers have died, although only the next send or receive then closes the
    /// queue.
    pub send_closed: bool,
    /// True if the end of the last producer closes the queue for sending.
    pub close_with_last_producer: bool,
    /// The delays before a returned message is delivered again: the delay after the first return, which doubles with each further return, and the
    /// longest delay. `None` for no delay.
    pub retry_delay: Option<(Duration, Duration)>,
    /// Number of living processes that count as producers.
    pub producers: usize,
    /// Number of living threads that wait for room.
    pub blocked_senders: usize,
    /// Number of living threads that wait for a message.
    pub blocked_receivers: usize,
    /// Bytes of memory in use by slots and blocks.
    pub memory: u64,
    /// Counts of events since the queue's creation, such as waits and repairs.
    pub statistics: Statistics,
    /// True if corruption was found in the queue's memory.
    pub damaged: bool,
}

statistics! {
    events {}
    repairs {
        /// Number of repairs after a process's death.
        repairs,
    }
}

impl Queue {
    /// Returns the queue's status. All counts belong to one instant.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(1, b"job")?;
    /// let status = queue.status()?;
    /// assert_eq!((status.entry.messages, status.entry.bytes), (1, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `PermissionDenied` (EACCES) if the caller may not read, as for IPC_STAT in msgctl(2); `Removed`.
    pub fn status(&self) -> Result<Status, ControlError> {
        let counts = counts(&self.engine)?;
        let fixed = self.engine.segment().fixed();
        let (segment, delivery) = (self.engine.segment(), self.delivery());
        let status = Status {
            entry: Entry::of(self.id(), fixed, &counts),
            msgmax: segment.layout().msgmax,
            creator: match segment.is_home() {
                true => fixed.header.creator(),
                false => 0,
            },
            created: SystemTime::UNIX_EPOCH + Duration::from_nanos(fixed.header.created_at()),
            leased: counts.leased.saturating_sub(counts.delayed),
            delayed: counts.delayed,
            send_closed: self.is_send_closed()
                || delivery.close_with_last_producer
                    && self.engine.has_lost_producers(thread::current()),
            close_with_last_producer: delivery.close_with_last_producer,
            retry_delay: delivery.retry_delay,
            producers: match delivery.close_with_last_producer {
                true => self.engine.producers(thread::current()).unwrap_or_default(),
                false => 0,
            },
            leased_bytes: counts.leased_bytes,
            blocked_senders: counts.senders as usize,
            blocked_receivers: counts.receivers as usize,
            memory: segment.memory() + arena::allocated(segment) as u64,
            statistics: statistics(fixed),
            damaged: fixed.header.damage.is_noted(),
        };
        // The segment may hold another queue by now.
        match self.is_removed() {
            true => Err(ControlError::Removed),
            false => Ok(status),
        }
    }

    /// Returns the description of the queue, as msgctl(2) gives it (IPC_STAT): a part of the [`status`](Self::status).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// assert_eq!(queue.entry()?.id, queue.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`status`](Self::status).
    pub fn entry(&self) -> Result<Entry, ControlError> {
        let counts = counts(&self.engine)?;
        let entry = Entry::of(self.id(), self.engine.segment().fixed(), &counts);
        // The segment may hold another queue by now.
        match self.is_removed() {
            true => Err(ControlError::Removed),
            false => Ok(entry),
        }
    }
}

/// Returns the queue's [`Statistics`].
pub(super) fn statistics(fixed: &Fixed) -> Statistics {
    Statistics::of(&fixed.counters, fixed.control.repairs())
}

/// Returns the counts of a queue that the caller may read.
fn counts(engine: &Engine) -> Result<Counts, ControlError> {
    may_look(engine)?;
    done(engine, engine.counts(thread::current()).map(Ok))
}

pub(super) fn may_look(engine: &Engine) -> Result<(), ControlError> {
    match Rights::of(engine.segment().fixed()).grant(TO_LOOK) {
        true => Ok(()),
        // The order of the kernel: a removal is reported first.
        false if engine.is_removed() => Err(ControlError::Removed),
        false => Err(ControlError::PermissionDenied),
    }
}
