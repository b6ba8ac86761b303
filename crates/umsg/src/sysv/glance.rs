//! The state of a System V queue, read without its lock.

use super::entry::Entry;
use super::error::ControlError;
use super::queue::Queue;
use super::status::{Statistics, may_look, statistics};
use std::time::{Duration, SystemTime};
use umsg_shm::arena;

/// The state of a queue as [`Queue::glance`] sees it. Each number is correct; the numbers belong to one instant only if the queue is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Glance {
    /// The description of the queue.
    pub entry: Entry,
    /// Number of leased messages: received in place, not yet acknowledged. They take room.
    pub leased: u64,
    /// Number of delayed messages: sent or returned for a later delivery, and not due. They take room.
    pub delayed: u64,
    /// The bytes of the leased and the delayed messages together.
    pub leased_bytes: u64,
    /// The number of messages that ever came to the queue, with the delayed ones. A repair of a corrupted queue sets the number to that of the messages
    /// in the queue.
    pub sent: u64,
    /// Number of messages that have ever left the queue. If messages are moving at this moment, a later number may be smaller by these messages.
    pub removed: u64,
    /// The time at which the oldest queued message was sent; `None` without a queued message. While messages are received, this may be the time
    /// of a later message.
    pub oldest: Option<SystemTime>,
    /// Number of living threads that wait for room.
    pub blocked_senders: usize,
    /// Number of living threads that wait for a message.
    pub blocked_receivers: usize,
    /// Bytes of memory in use by slots and blocks.
    pub memory: u64,
    /// Counts of events since the queue's creation, such as waits and repairs.
    pub statistics: Statistics,
    /// True if the queue is closed for sending. If all producers have died, the value is false until the next call closes the queue.
    pub send_closed: bool,
    /// True if corruption was found in the queue's memory.
    pub damaged: bool,
}

impl Queue {
    /// Returns the state of the queue. The call takes no lock and changes nothing, so it delays no other process. For
    /// programs that watch queues.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(1, b"job")?;
    /// let glance = queue.glance()?;
    /// assert_eq!((glance.entry.messages, glance.sent, glance.removed), (1, 1, 0));
    /// assert!(glance.oldest.unwrap().elapsed()?.as_secs() < 3600);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `PermissionDenied` (EACCES) if the caller may not read, as for IPC_STAT in msgctl(2); `Removed`.
    pub fn glance(&self) -> Result<Glance, ControlError> {
        may_look(&self.engine)?;
        let (segment, counts) = (self.engine.segment(), self.engine.counts_hint());
        let fixed = segment.fixed();
        let leased = counts.leased.saturating_sub(counts.delayed);
        let (sent, removed) = self.engine.totals();
        let glance = Glance {
            entry: Entry::of(self.id(), fixed, &counts),
            leased,
            delayed: counts.delayed,
            leased_bytes: counts.leased_bytes,
            sent,
            removed,
            oldest: self
                .engine
                .oldest_hint()
                .map(|at| SystemTime::UNIX_EPOCH + Duration::from_nanos(at)),
            blocked_senders: counts.senders as usize,
            blocked_receivers: counts.receivers as usize,
            memory: segment.memory() + arena::allocated(segment) as u64,
            statistics: statistics(fixed),
            send_closed: self.is_send_closed(),
            damaged: fixed.header.damage.is_noted(),
        };
        // The segment may hold another queue by now.
        match self.is_removed() {
            true => Err(ControlError::Removed),
            false => Ok(glance),
        }
    }

    /// Returns up to `most` types of queued messages in ascending order, with the number of messages of each, as [`types`](Self::types) does, but
    /// without taking the queue's lock.
    ///
    /// The result is a hint: while the queue is in use, a type may be missing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// assert_eq!(queue.glance_at_types(10)?, [(5, 1)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `PermissionDenied` (EACCES) unless the caller may read.
    pub fn glance_at_types(&self, most: usize) -> Result<Vec<(i64, u32)>, ControlError> {
        may_look(&self.engine)?;
        Ok(self.engine.types_hint(most))
    }
}
