//! The record of a held message, and the roots of all records in a segment.

use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64};
use crate::sys::clock;
use crate::waiters::Links;

/// The record of a message that a process holds beyond a call: see [`super`].
#[repr(C, align(16))]
#[derive(Default)]
pub struct LeaseRecord {
    /// The state: see the table in [`super`].
    pub state: Guarded32,
    pub slot: Guarded32,
    /// The next record in the list of lease records, as index + 1; 0 for none. In a free record: the next free record.
    pub next: Guarded32,
    /// The previous record in the list of lease records, as index + 1; 0 for none.
    pub previous: Guarded32,
    /// The process that holds the message. Its birth distinguishes it from other processes with the same id: see [`crate::sys::process::birth`].
    /// While delayed messages are delivered, a link replaces the birth in their records: see [`super::due`].
    pub pid: Guarded32,
    /// The number of deliveries of the message, including the present delivery.
    pub deliveries: Guarded32,
    pub birth: Guarded64,
    /// A number that no other lease or reservation ever has.
    pub(crate) ticket: Guarded64,
    /// The end of the lease, or the delivery time of the delayed message: a time of the monotonic clock, in nanoseconds; 0 for never.
    pub until: Guarded64,
}

impl LeaseRecord {
    /// Returns the place of a delayed message in the order of delivery: first by the delivery time, then by the order of sends.
    pub(crate) fn place_in_time(&self) -> (u64, u64) {
        (self.until.get(), self.ticket.get())
    }

    /// Returns the time at which a message that is returned now is delivered again, in nanoseconds of the monotonic clock; None for at once. The
    /// delay is `first` after the first delivery. The delay doubles with each further delivery, up to `most`.
    pub(crate) fn retry_at(&self, [first, most]: [u64; 2]) -> Option<u64> {
        if first == 0 {
            return None;
        }
        let doublings = self.deliveries.get().saturating_sub(1).min(63);
        let delay = first.saturating_mul(1 << doublings).min(most.max(first));
        Some(clock::monotonic().saturating_add(delay))
    }
}

/// The roots of the records in a segment: their lists and counts.
#[repr(C, align(128))]
#[derive(Default)]
pub struct LeaseRoots {
    /// The records in use.
    pub list: Links,
    /// The first free record, as index + 1; 0 for none.
    pub free: Guarded32,
    /// The number of records that have memory.
    pub usable: Guarded32,
    /// The number of records that were ever used.
    pub used: Guarded32,
    /// The number of reserved messages.
    pub reserved: AtomicU32,
    /// The number of messages that are set aside for the dead-letter queue.
    pub aside: AtomicU32,
    /// The last ticket that was issued.
    pub(crate) ticket: Guarded64,
    /// Two times of the monotonic clock, in nanoseconds. `due`: the first end of a lease or the first delivery time of a delayed message; 0 for
    /// never. `look_after`: the next scan for dead holders may begin after this time.
    pub due: AtomicU64,
    pub look_after: AtomicU64,
    /// The slot whose message last returned to the store, plus one: a hint for the place of the next returned message.
    pub returned: Guarded32,
    /// The number of delayed messages.
    pub delayed: AtomicU32,
    /// Only for POSIX queues: the number of slots for which the table of delivery times has memory, and the number for the table of histories.
    pub(crate) deliveries: Guarded32,
    pub(crate) histories: Guarded32,
    /// The kinds of changes that time or a death alone may bring, as noted since the queue was created: see [`crate::doorbell::MESSAGES_LATER`].
    pub later: AtomicU32,
    /// The number of slots for which the table of traces has memory. POSIX queues only.
    pub(crate) traces: Guarded32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<LeaseRecord>() == 48);
