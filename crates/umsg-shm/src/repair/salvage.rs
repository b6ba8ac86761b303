//! What `umsg doctor --repair` asks of the engine of a queue of either kind: that it makes the queue anew of what is whole
//! (`queue/salvage/`, `typed/salvage.rs`).

use crate::fault::Fault;
use crate::lock::Lock;
use crate::repair::log::Damage;
use crate::sys::clock::Deadline;
use crate::sys::liveness::Liveness;
use crate::sys::thread::Thread;

/// See the module.
pub trait Salvage {
    /// Takes all locks, each from a dead owner if need be, rebuilds the queue from what its cells say, and serves the waiters. `real` says how
    /// much of the file is memory, once no process can add to it any more; `give_back` gives back the memory behind so many slots, once it is
    /// sure that no message there is kept.
    ///
    /// # Errors
    /// `Busy` if a lock's owner does not let go.
    fn salvage(
        &self,
        me: &Thread,
        deadline: Deadline,
        real: impl Fn() -> Real,
        give_back: impl Fn(usize),
    ) -> Result<Salvaged, Fault>;

    /// Takes up what the dead have left, the locks, what they held and their places among waiters, without doubting anything else.
    /// `knows_threads`: a thread that does not exist here does not exist elsewhere.
    ///
    /// # Errors
    /// `Busy` if a lock's owner does not let go; `Damaged`.
    fn take_up(&self, me: &Thread, deadline: Deadline, knows_threads: bool) -> Result<(), Fault>;

    /// Its locks, in the order in which a diagnosis has them.
    fn locks(&self) -> Vec<&Lock>;

    /// What is known of the processes that use the queue.
    fn lives(&self) -> &dyn Liveness;

    /// Where it is noted that bytes make no sense, and that the queue is being made anew. Taking the note away needs no lock: it leaves a
    /// queue alone that is being made anew.
    fn damage(&self) -> &Damage;
}

/// How much of each region of a segment is real memory: what lies beyond was never used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real {
    /// Cells; of a System V queue those that have their place.
    pub slots: usize,
    /// Entries of the ring and links of stored messages, of POSIX queues.
    pub entries: usize,
    pub links: usize,
    /// Which pages with the heads of priorities' lists, one bit each, of POSIX queues.
    pub fifos: u64,
    pub lease_records: usize,
    pub nodes: usize,
    /// Records of types, of System V queues.
    pub kinds: usize,
    /// Granules of the arena.
    pub arena: u32,
}

/// What came of a salvage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Messages that are kept.
    pub kept: u64,
    /// Messages that were there as far as could be told, and made no sense.
    pub lost: u64,
}
