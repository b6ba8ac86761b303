//! The record of a held message, and the roots of all records in a segment.

use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64};
use crate::sys::clock;
use crate::waiters::Links;

/// A message that is held beyond a call; see [`super`].
#[repr(C, align(16))]
#[derive(Default)]
pub struct LeaseRecord {
    /// See the table in [`super`].
    pub state: Guarded32,
    pub slot: Guarded32,
    /// The next record in the list of lease records, as index + 1; 0 for none. In a free record: the next free record.
    pub next: Guarded32,
    /// The previous record in that list, as index + 1; 0 for none.
    pub previous: Guarded32,
    /// The process that holds the message, and its birth, which distinguishes it from other processes with the same id; see
    /// [`crate::sys::process::birth`]. In the record of a due message, a link replaces the birth; see [`super::due`].
    pub pid: Guarded32,
    /// The number of deliveries of the message, including this one.
    pub deliveries: Guarded32,
    pub birth: Guarded64,
    /// A number that no other lease or reservation ever has.
    pub(crate) ticket: Guarded64,
    /// The time of the monotonic clock, in nanoseconds, at which the lease expires; 0 for never.
    pub until: Guarded64,
}

impl LeaseRecord {
    /// Returns the place of a delayed message among the delayed messages: the time for which it is due, and the order of sends.
    pub(crate) fn place_in_time(&self) -> (u64, u64) {
        (self.until.get(), self.ticket.get())
    }

    /// Returns when the message is delivered again if it is returned now, in nanoseconds of the monotonic clock; None for at once. The delay
    /// is `first` after the first delivery, and doubles with each further one up to `most`.
    pub(crate) fn retry_at(&self, [first, most]: [u64; 2]) -> Option<u64> {
        if first == 0 {
            return None;
        }
        let doublings = self.deliveries.get().saturating_sub(1).min(63);
        let delay = first.saturating_mul(1 << doublings).min(most.max(first));
        Some(clock::monotonic().saturating_add(delay))
    }
}

/// Messages that are held beyond a call; see [`super`].
#[repr(C, align(128))]
#[derive(Default)]
pub struct LeaseRoots {
    /// The records in use.
    pub list: Links,
    /// First free record, as index + 1.
    pub free: Guarded32,
    /// The number of records that are real memory.
    pub usable: Guarded32,
    /// The number of records that were ever used.
    pub used: Guarded32,
    /// The number of reserved messages.
    pub reserved: AtomicU32,
    /// The number of messages on their way to the dead-letter queue.
    pub aside: AtomicU32,
    /// The last ticket that was issued.
    pub(crate) ticket: Guarded64,
    /// Times of the monotonic clock in nanoseconds: the first expiry of a lease, 0 for never; and the earliest time of the next scan for dead
    /// holders.
    pub due: AtomicU64,
    pub look_after: AtomicU64,
    /// The number, plus one, of the slot whose message returned to the store last: a hint for the place of the next returned message.
    pub returned: Guarded32,
    /// The number of messages that are delivered later.
    pub delayed: AtomicU32,
    /// Two numbers of slots: those for which the table of delivery times has memory, and those for which the table of histories has memory. POSIX
    /// queues only.
    pub(crate) deliveries: Guarded32,
    pub(crate) histories: Guarded32,
    /// The changes that time or a death alone may bring, since the queue was created: see
    /// [`crate::doorbell::MESSAGES_LATER`].
    pub later: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<LeaseRecord>() == 48);
