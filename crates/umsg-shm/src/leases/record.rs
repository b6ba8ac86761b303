//! The record of a held message, and what a segment of either kind says of all of them.

use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64};
use crate::waiters::Links;

/// A message that is held beyond a call; see [`super`].
#[repr(C, align(16))]
#[derive(Default)]
pub struct LeaseRecord {
    /// See the table in [`super`].
    pub state: Guarded32,
    pub slot: Guarded32,
    /// Neighbours in the list of lease records, as index + 1; 0 for none. A free record: the next free one.
    pub next: Guarded32,
    pub previous: Guarded32,
    /// The process that holds it, and what tells it from others of that id; see [`crate::sys::process::birth`].
    pub pid: Guarded32,
    /// How often the message has been delivered, this time included.
    pub deliveries: Guarded32,
    pub birth: Guarded64,
    /// No other lease or reservation ever has it.
    pub(crate) ticket: Guarded64,
    /// The machine's clock, in nanoseconds, at which a lease ends by itself; 0 for never.
    pub until: Guarded64,
}

/// Messages that are held beyond a call; see [`super`].
#[repr(C, align(128))]
#[derive(Default)]
pub struct LeaseRoots {
    /// The records in use.
    pub list: Links,
    /// First free record, as index + 1.
    pub free: Guarded32,
    /// Records that are real memory; those that were ever used.
    pub usable: Guarded32,
    pub used: Guarded32,
    /// How many of the held are reserved, and on their way to the dead-letter queue.
    pub reserved: AtomicU32,
    pub aside: AtomicU32,
    /// The ticket that was given last.
    pub(crate) ticket: Guarded64,
    /// The machine's clock in nanoseconds: when the first lease may end by itself, 0 for never; after when a look which of the
    /// holders lives is worth its time again.
    pub due: AtomicU64,
    pub look_after: AtomicU64,
    /// The slot, plus one, that came back to the store last: probably the neighbour of the next that does.
    pub returned: Guarded32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<LeaseRecord>() == 48);
