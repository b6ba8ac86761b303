//! The doorbell: a descriptor by which any event loop learns what a queue in memory is ready for.
//!
//! It is a FIFO that the processes of one user share: the kernel itself tells all pollers what it shows, also those that were given the
//! descriptor and know nothing of queues.
//!
//! | the FIFO holds | poll(2) says | shown while |
//! |---|---|---|
//! | nothing | OUT | there is no message |
//! | one to three packets | IN and OUT | there are messages, and room |
//! | four packets, all that fits | IN | there is no room |
//!
//! A thread that changes the queue changes the FIFO, under the queue's lock, and only while a process watches: the segment says so. What becomes
//! possible is shown *before* it is, what ends is taken back *after* it has: so a process that is killed in between leaves a poller
//! that looks in vain, never one that is not told. A process that looks meanwhile waits for the lock.
//!
//! A process that has the FIFO open to poll it holds a shared flock(2) on it, which the kernel drops when the last copy of the
//! descriptor is closed, by whatever death. A process that can lock it exclusively knows that nobody watches any more.
//!
//! A process can hold a FIFO's lock in the kernel for as long as it likes, and open(2), read(2), and write(2) of the FIFO then wait without
//! end. So no process opens, reads or writes a FIFO of another user. Its name begins with the inode number of the queue's file, which each
//! process finds out by itself: a segment can name no other queue's FIFO. Between users, [`helper`] passes the level on.
//!
//! A peer that breaks these rules can wake pollers for nothing, or not wake them, as it can take their messages away. It stops
//! nobody: the FIFO is never waited for.

#[cfg(not(loom))]
#[allow(unsafe_code, reason = "descriptors that are kept as numbers")]
mod descriptor;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "a table that is never freed, behind a pointer")]
pub(crate) mod helper;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "descriptors that are kept as numbers")]
mod kept_descriptor;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "a descriptor that is kept as a number")]
mod poll_fifo;
mod ringing;
#[cfg(not(loom))]
#[allow(
    unsafe_code,
    reason = "descriptors that are kept as numbers, and memory that the kernel reads"
)]
mod spare;
mod watched;

#[cfg(loom)]
pub(crate) use crate::model::doorbell::{Doorbell, Feed};
pub(crate) use ringing::{Level, Ringer, Words};
pub(crate) use watched::Watched;
#[cfg(not(loom))]
pub(crate) use {descriptor::Doorbell, watched::Polled};

use crate::sync::{AtomicU32, Ordering};
#[cfg(not(loom))]
use {crate::fault::Fault, rustix::io::Errno, std::time::Duration};

/// Packets that fit into the FIFO. One would do to show that there are messages and room; where all pollers are to look again though
/// nothing else is to be shown, one comes or goes.
pub(crate) const FULL: u32 = 4;

/// [`Words::watched`]: a process polls.
pub(crate) const LEVELS: u32 = 1;
/// A process wants to be told after each send and receive while there are messages.
pub(crate) const MESSAGES: u32 = 2;
/// The same while there is room.
pub(crate) const ROOM: u32 = 4;

/// A helper of the processes that poll the shared FIFO sleeps on [`Words::calls`]. Cleared by the call.
pub(crate) const HELPED: u32 = 8;
/// A helper of a process that polls a FIFO of its own does. Cleared by the call.
pub(crate) const PRIVATE: u32 = 16;

/// Whether a helper was called since it read `value` in [`Words::calls`].
pub(crate) fn is_called(calls: &AtomicU32, value: u32) -> bool {
    // Acquire: pairs with the release in `Ringer::call`, which has taken the helper's flag down before.
    calls.load(Ordering::Acquire) != value
}

/// How long a process that begins to poll, and one that stops polling, waits for a lock whose owner is stopped.
#[cfg(not(loom))]
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
#[cfg(not(loom))]
pub(crate) const GRACE: Duration = Duration::from_millis(10);

/// What came of looking for the FIFO of a name.
pub(crate) enum Lookup<G> {
    /// It can be rung.
    Found(G),
    /// There is none. A poller locks the FIFO before the segment names it, and a locked FIFO keeps its name: so no process polls.
    Missing,
    /// This process can't open it at present.
    Unavailable,
}

/// Why a queue can't be polled.
#[cfg(not(loom))]
pub(crate) fn why_not(trouble: Fault) -> Errno {
    match trouble {
        Fault::Damaged => Errno::BADMSG,
        Fault::NoSpace | Fault::OverLimit | Fault::UsedUp => Errno::NOSPC,
        Fault::NoMemory => Errno::NOMEM,
        Fault::Busy => Errno::AGAIN,
        Fault::OwnedByCaller => Errno::DEADLK,
    }
}

/// When a poller that asked for edges (EPOLLET) is told of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edges {
    /// Whenever the queue becomes readable, and whenever it becomes writable: enough for a poller that then goes on until the queue is empty,
    /// or full. Sends and receives that change neither cost nothing more.
    #[default]
    Changes,
    /// A process that polls for messages (EPOLLIN), also after each send and each receive that leaves some, as Linux does for its own queues. A
    /// system call each.
    Messages,
    /// As `Messages`, and a process that polls for room (EPOLLOUT) after each that leaves some.
    All,
}

impl Edges {
    pub fn flags(self) -> u32 {
        match self {
            Edges::Changes => LEVELS,
            Edges::Messages => LEVELS | MESSAGES,
            Edges::All => LEVELS | MESSAGES | ROOM,
        }
    }
}

/// What a queue is ready for at a moment: what poll(2) with no time-out says of its descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is a message: POLLIN.
    pub readable: bool,
    /// There is room: POLLOUT.
    pub writable: bool,
}
