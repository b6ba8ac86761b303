//! The node of a blocked thread, and the ends of a list of nodes, as they lie in a segment of either kind.

use crate::sync::{AtomicU32, Guarded32, Guarded64};

/// The largest number of nodes, and so of threads that can wait in the lists. Other threads get no node, and retry every millisecond.
#[cfg(not(loom))]
pub const NODES: usize = 4096;
#[cfg(loom)]
pub const NODES: usize = 4;

/// The record of a blocked thread, for the threads that end its wait: see [`super`].
#[repr(C, align(64))]
#[derive(Default)]
pub struct Node {
    /// The state, which is also the futex on which the thread sleeps: see the table in [`super`].
    pub(crate) word: AtomicU32,
    /// The list that the node is in.
    pub list: Guarded32,
    /// The next node in the list, as index + 1; 0 for none.
    pub next: Guarded32,
    /// The previous node in the list, as index + 1; 0 for none.
    pub previous: Guarded32,
    /// The slot of a blocked sender's message ([`NO_SLOT`] for a batch), or of the message offered to a receiver.
    pub slot: Guarded32,
    /// The thread's scheduling rank; lower ranks are served first. The rank is set as soon as a second thread waits.
    pub rank: Guarded32,
    /// The thread, its process, and its start time in clock ticks since boot. These fields can prove the thread's death if the kernel could not mark
    /// the word.
    pub tid: Guarded32,
    pub pid: Guarded32,
    pub birth: Guarded64,
    /// The order of arrival among nodes of equal rank.
    pub ticket: Guarded64,
    /// A time in nanoseconds of the monotonic clock. For a receiver: the time of the offer. For a batch that has its turn: the time at which the turn
    /// began. For a batch that waits for its turn: the time of the last check that its thread lives.
    pub(crate) offered_at: Guarded64,
    /// For a batch: the number of its messages. For a receiver of a POSIX queue: 1 if it leases, else 0.
    pub wanted: Guarded32,
    /// The start of the wait in milliseconds of the monotonic clock, modulo 2^32. For diagnosis.
    pub since: Guarded32,
}

/// The value of `slot` in the node of a sender that waits for room for a whole batch. The messages are in the sender's own memory.
pub const NO_SLOT: u32 = u32::MAX;

/// The ends and the length of a list of nodes. An end is the index of a node plus one; 0 for an empty list.
#[repr(C)]
#[derive(Default)]
pub struct Links {
    pub head: Guarded32,
    pub tail: Guarded32,
    /// The length of the list. Spinning threads and `status` read it as a hint.
    pub len: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == 64);
