//! The interface through which `umsg doctor --repair` makes an engine rebuild a queue from its intact messages (`posix_engine/salvage/`,
//! `sysv_engine/salvage.rs`).

use crate::fault::Fault;
use crate::lock::Lock;
use crate::repair::log::Damage;
use crate::sys::clock::Deadline;
use crate::sys::liveness::Liveness;
use crate::sys::thread::Thread;

/// An engine that can rebuild a corrupted queue.
pub trait Salvage {
    /// Takes all locks, even from dead owners, rebuilds the queue from its cells, and serves the waiters.
    ///
    /// `real` returns the allocated parts of the file. It is called when no other process can allocate more parts. `give_back` frees the memory of
    /// all slots from an index on. It is called when none of these slots has a message that is kept.
    ///
    /// # Errors
    /// `Busy` if the owner of a lock does not release it.
    fn salvage(
        &self,
        me: &Thread,
        deadline: Deadline,
        real: impl Fn() -> Real,
        give_back: impl Fn(usize),
    ) -> Result<Salvaged, Fault>;

    /// Takes over the locks, the leases and the waiter nodes of dead processes, and trusts all other contents. `knows_threads` says that this process
    /// can see all threads: an id without a visible thread then belongs to no living thread.
    ///
    /// # Errors
    /// `Busy` if the owner of a lock does not release it; `Damaged`.
    fn take_up(&self, me: &Thread, deadline: Deadline, knows_threads: bool) -> Result<(), Fault>;

    /// Returns the locks of the queue, in the order of a diagnosis.
    fn locks(&self) -> Vec<&Lock>;

    /// Returns the answers to questions about the processes that use the queue.
    fn lives(&self) -> &dyn Liveness;

    /// Returns the record of corruption and of a rebuild. A process can remove the record of corruption without a lock: the removal has no effect
    /// while the queue is being rebuilt.
    fn damage(&self) -> &Damage;
}

/// The sizes of the allocated parts of a segment's regions. The rest of each region was never used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real {
    /// The number of cells. For a System V queue, the number of cells with a place in the order.
    pub slots: usize,
    /// The number of entries of the ring. Only POSIX queues.
    pub entries: usize,
    /// The number of links of stored messages. Only for POSIX queues.
    pub links: usize,
    /// A bit for each page of list heads of priorities. Only for POSIX queues.
    pub fifos: u64,
    pub lease_records: usize,
    pub nodes: usize,
    /// The number of type records. Only for System V queues.
    pub kinds: usize,
    /// The number of granules of the arena.
    pub arena: u32,
    /// The number of entries in the table of lease times. Only for POSIX queues.
    pub deliveries: usize,
    /// The number of entries in the table of histories. Only for POSIX queues.
    pub histories: usize,
    /// The number of traces. Only POSIX queues.
    pub traces: usize,
}

/// The result of a salvage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// The number of messages that are kept.
    pub kept: u64,
    /// The number of messages that were corrupted, as far as the cells show.
    pub lost: u64,
}
