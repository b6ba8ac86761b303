//! The node of a blocked thread, and the ends of a list of nodes, as they lie in a segment of either kind.

use crate::sync::{AtomicU32, Guarded32, Guarded64};

/// Threads that can be blocked on a queue with their place kept; further ones look again every millisecond.
#[cfg(not(loom))]
pub const NODES: usize = 4096;
#[cfg(loom)]
pub const NODES: usize = 4;

/// What a blocked thread leaves for those that may end its waiting; see [`super`].
#[repr(C, align(64))]
#[derive(Default)]
pub struct Node {
    /// The state, and the futex that the thread sleeps on; see the table in [`super`].
    pub(crate) word: AtomicU32,
    /// Which list the node is in.
    pub list: Guarded32,
    /// Neighbours in that list, as index + 1; 0 for none.
    pub next: Guarded32,
    pub previous: Guarded32,
    /// A blocked sender's own message, [`NO_SLOT`] of a batch; the message offered to a receiver.
    pub slot: Guarded32,
    /// The thread's scheduling rank, once a thread waits beside it: lower is served first.
    pub rank: Guarded32,
    /// The thread, its process and its start time in clock ticks since boot: proof of its death where the kernel
    /// could not mark the word.
    pub tid: Guarded32,
    pub pid: Guarded32,
    pub birth: Guarded64,
    /// Order of arrival among equal ranks.
    pub ticket: Guarded64,
    /// The machine's clock, in nanoseconds, at the offer; of a batch, since when it is its
    /// turn, before that when a process last asked whether its thread lives.
    pub(crate) offered_at: Guarded64,
    /// Of a batch: how many messages it waits to send at once.
    pub wanted: Guarded32,
    /// Since when it waits: the machine's clock in milliseconds, modulo 2^32. For people.
    pub since: Guarded32,
}

/// In place of a slot: the node of a sender that waits for room for a whole batch. Its messages are nowhere but in its
/// own memory.
pub const NO_SLOT: u32 = u32::MAX;

/// Ends and length of a list of nodes. Ends are index + 1; 0 for none.
#[repr(C)]
#[derive(Default)]
pub struct Links {
    pub head: Guarded32,
    pub tail: Guarded32,
    /// Read by spinners and by `status` as a hint.
    pub len: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == 64);
