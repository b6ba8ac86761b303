//! The state of a queue, read without a lock.

use super::queue::Queue;
use super::status::{self, Attributes, Statistics};
use std::time::SystemTime;
use umsg_shm::arena;
use umsg_shm::leases;
use umsg_shm::sync::Ordering;
use umsg_shm::sys::clock;
use umsg_shm::waiters::{List, Waiters};

/// The state of a queue as [`Queue::glance`] sees it. Each number is correct; the numbers belong to one instant only if the queue is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Glance {
    /// The owner's user id, when the queue was opened.
    pub uid: u32,
    /// The owner's group id, when the queue was opened.
    pub gid: u32,
    /// The attributes of the queue.
    pub attributes: Attributes,
    /// Number of messages set aside for the dead-letter queue.
    pub set_aside: usize,
    /// Number of messages that take room in the queue: those to receive, and the leased, reserved and delayed ones. Messages that are set aside take
    /// room only beyond the first 1,024.
    pub occupied: usize,
    /// The number of messages that ever came to the queue. The count includes messages that are reserved or delayed, and so not yet in the queue.
    pub sent: u64,
    /// The bytes of the messages that ever came to the queue. The bytes of a reserved slot count when its message is sent. A repair of a corrupted
    /// queue restarts the count with the bytes of the messages that it kept.
    pub sent_bytes: u64,
    /// The number of messages that have ever left the queue: received for good, dropped, expired, moved to another queue, or given up before they
    /// were written.
    pub removed: u64,
    /// The bytes of the messages that have ever left the queue. A repair of a corrupted queue sets the count to 0.
    pub removed_bytes: u64,
    /// The time at which the oldest queued message was sent, or its delivery time if the message was delayed; `None` without a queued message. While
    /// messages are received, this may be the time of a later message.
    pub oldest: Option<SystemTime>,
    /// Time of the last send, accurate to a few milliseconds; `None` if there was none.
    pub last_send: Option<SystemTime>,
    /// Time of the last receive, accurate to a few milliseconds; `None` if there was none.
    pub last_receive: Option<SystemTime>,
    /// Threads that wait for room. Killed threads are not counted.
    pub blocked_senders: usize,
    /// Threads that wait for a message. Killed threads are not counted.
    pub blocked_receivers: usize,
    /// Bytes of memory in use by slots and blocks.
    pub memory: u64,
    /// Counts of events.
    pub statistics: Statistics,
    /// True if the queue is closed for sending. If all producers have died, the value is false until the next call closes the queue.
    pub send_closed: bool,
    /// True if the queue's memory held a state that no operation leaves behind.
    pub damaged: bool,
}

impl Queue {
    /// Returns the state of the queue. The call takes no lock and changes nothing, so it delays no other process. For programs
    /// that watch queues.
    ///
    /// [`status`](Self::status) repairs the queue after a death, and then shows the numbers after the repair. A glance shows the numbers as they
    /// are.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let glance = queue.glance();
    /// assert_eq!((glance.attributes.messages, glance.sent, glance.removed), (1, 1, 0));
    /// assert!(glance.oldest.unwrap().elapsed()?.as_secs() < 3600);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn glance(&self) -> Glance {
        let (engine, segment) = (&self.engine, self.engine.segment());
        let (fixed, waiters) = (segment.fixed(), Waiters::of(segment));
        let slots = fixed.geometry.slots() as usize;
        let totals = engine.totals();
        let (uid, gid) = self.owner;
        let attributes = status::attributes(engine);
        // Relaxed: the number is only displayed.
        let set_aside = fixed.leases.aside.load(Ordering::Relaxed);
        // Another process may have forged the numbers, so the sum must not overflow.
        let taking_room = [
            attributes.messages,
            attributes.leased,
            attributes.reserved,
            attributes.delayed,
            leases::in_the_way(set_aside) as usize,
        ];
        let occupied = taking_room.into_iter().fold(0, usize::saturating_add);
        Glance {
            uid,
            gid,
            attributes,
            occupied,
            set_aside: set_aside as usize,
            sent: totals.sent,
            sent_bytes: totals.sent_bytes,
            removed: totals.removed,
            removed_bytes: totals.removed_bytes,
            oldest: engine.oldest_hint().map(clock::shown),
            last_send: status::moment(fixed.sender.last_send()),
            last_receive: status::moment(fixed.receiver.last_receive()),
            blocked_senders: waiters.living(List::Senders),
            blocked_receivers: waiters.living(List::Receivers) + waiters.living(List::Offered),
            memory: segment.memory(slots) + arena::allocated(segment) as u64,
            statistics: status::statistics(fixed),
            send_closed: engine.is_send_closed(),
            // No queue holds more messages than it can have slots.
            damaged: fixed.header.damage.is_noted() || occupied > segment.layout().slots,
        }
    }

    /// Counts the queued messages by priority, the highest priority first, without taking a lock and without a change of the queue. In a queue with
    /// more than `most` messages, the call counts only messages of the highest priorities, and messages that came last.
    ///
    /// A hint: while the queue is in use, a message may be counted twice, or not at all.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"low", 1)?;
    /// queue.send(b"high", 9)?;
    /// queue.send(b"low, too", 1)?;
    /// assert_eq!(queue.glance_at_priorities(1000), [(9, 1), (1, 2)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn glance_at_priorities(&self, most: usize) -> Vec<(u32, u64)> {
        self.engine.priorities_hint(most)
    }
}
