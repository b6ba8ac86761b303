//! The doorbell: a descriptor that shows an event loop whether a queue in memory is ready for a receive or a send.
//!
//! The doorbell is a FIFO that the processes of one user share. The kernel itself notifies all pollers, including processes that received the
//! descriptor and don't use this library.
//!
//! | the FIFO holds | poll(2) says | shown while |
//! |---|---|---|
//! | nothing | OUT | there is no message |
//! | one to three packets | IN and OUT | there are messages, and room |
//! | four packets, all that fits | IN | there is no room |
//!
//! A queue with neither messages nor room shows room. When room becomes free, all pollers are woken.
//!
//! A thread that changes the queue also changes the FIFO, under the queue's lock, but only while the segment says that a process polls. The FIFO
//! shows a message or room *before* it exists, and withdraws it *after* it is gone. If the thread is killed between these steps, a poller wakes up
//! without reason, but no poller misses an event. A poller that tries the queue meanwhile waits for the lock. There is one exception: the sender of a
//! message to an empty queue rings after the unlock, see [`deferred`].
//!
//! A polling process holds a shared flock(2) on the FIFO. The kernel releases this lock when the last copy of the descriptor is closed, also after a
//! death. If a process gets the exclusive lock, no process polls any more.
//!
//! A process can hold the FIFO's internal lock in the kernel for any time, and open(2), read(2) and write(2) of the FIFO then block. Therefore a
//! process never opens, reads or writes a FIFO of another user. The FIFO's name begins with the inode number of the queue's file. Each process
//! reads this number itself, so a segment can't name the FIFO of another queue. Between users, a [`helper`] passes the level on.
//!
//! A hostile process can wake pollers without reason, or leave them asleep, just as it can take their messages. A hostile process can't block other
//! processes: no operation waits for the FIFO.

mod deferred;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "descriptors that are kept as numbers")]
mod descriptor;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "a table that is never freed, behind a pointer")]
pub(crate) mod helper;
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
pub(crate) use crate::model::doorbell::{Doorbell, Feed, PollFifo};
pub use deferred::DeferredRing;
pub(crate) use deferred::{Deferred, Ticket};
pub(crate) use ringing::{Level, Ringer, Words};
pub(crate) use watched::Watched;
#[cfg(not(loom))]
pub(crate) use {descriptor::Doorbell, poll_fifo::PollFifo, watched::Polled};

use crate::sync::{AtomicU32, Ordering};
#[cfg(not(loom))]
use {crate::fault::Fault, rustix::io::Errno, std::time::Duration};

/// The capacity of the FIFO, in packets. One packet suffices to show messages and room. More packets are for edges: if all pollers have to check the
/// queue again although the level is unchanged, a packet is added or removed.
pub(crate) const FULL: u32 = 4;

/// A flag of [`Ringer::watched`]: a process polls.
pub(crate) const LEVELS: u32 = 1;
/// A flag of [`Ringer::watched`]: a process wants an edge after each send and receive while the queue has messages.
pub(crate) const MESSAGES: u32 = 2;
/// A flag of [`Ringer::watched`]: a process wants an edge after each send and receive while the queue has room.
pub(crate) const ROOM: u32 = 4;

/// A flag of [`Ringer::watched`]: a helper of processes that poll the shared FIFO sleeps on [`Words::calls`]. A call of the helper clears the flag.
pub(crate) const HELPED: u32 = 8;
/// A flag of [`Ringer::watched`]: a helper of a process with a private FIFO sleeps on [`Words::calls`]. A call of the helper clears the flag.
pub(crate) const PRIVATE: u32 = 16;

/// The kind of change that time or a death alone may bring to the messages: a delayed message becomes due, or a leased message is returned.
pub(crate) const MESSAGES_LATER: u32 = 1;
/// The kind of change that time or a death alone may bring to the room: a reservation ends.
pub(crate) const ROOM_LATER: u32 = 2;

/// A flag of [`Ringer::watched`]: the doorbell shows a message until a call finds no message. A process sets the flag if time or a death may bring
/// messages, and processes poll without a helper that checks the queue. The call that finds no message starts the helper of its process.
pub(crate) const LOOK_FOR_MESSAGES: u32 = 32;
/// A flag of [`Ringer::watched`]: the doorbell shows room until a call finds no room. Otherwise the flag is used like [`LOOK_FOR_MESSAGES`].
pub(crate) const LOOK_FOR_ROOM: u32 = 64;

/// A flag of [`Ringer::watched`]: the helpers for deadlines check the queue once a slice, because a process holds a message or room and may die.
pub(crate) const SLICES: u32 = 128;

/// Returns whether a helper was called after it read `value` in [`Words::calls`].
pub(crate) fn is_called(calls: &AtomicU32, value: u32) -> bool {
    // Acquire: pairs with the release in `Ringer::call`. The caller of the helper clears the helper's flag before it changes the number.
    calls.load(Ordering::Acquire) != value
}

/// The time for which a process that begins polling waits for a lock with a stopped owner.
#[cfg(not(loom))]
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// The time for which a process that stops polling waits for a lock with a stopped owner.
#[cfg(not(loom))]
pub(crate) const GRACE: Duration = Duration::from_millis(10);

/// The result of a search for a FIFO by its name.
pub(crate) enum Lookup<G> {
    /// The FIFO is usable.
    Found(G),
    /// The FIFO does not exist, so no process polls. The reason: a poller locks the FIFO before the segment names the FIFO, and a locked FIFO keeps
    /// its name.
    Missing,
    /// This process can't open the FIFO at present.
    Unavailable,
}

/// Returns the errno that says why a queue can't be polled.
#[cfg(not(loom))]
pub(crate) fn why_not(fault: Fault) -> Errno {
    match fault {
        Fault::Damaged => Errno::BADMSG,
        Fault::NoSpace | Fault::OverLimit | Fault::UsedUp => Errno::NOSPC,
        Fault::NoMemory => Errno::NOMEM,
        Fault::Busy => Errno::AGAIN,
        Fault::OwnedByCaller => Errno::DEADLK,
    }
}

/// The events that an edge-triggered poller (EPOLLET) receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edges {
    /// An event when the queue becomes readable, and when it becomes writable. This suffices for a poller that continues after an event until the
    /// queue is empty or full. A send or receive that leaves the readiness unchanged costs nothing more.
    #[default]
    Changes,
    /// In addition, an EPOLLIN event after each send, and after each receive that leaves messages, as for Linux's own queues. Each event costs a
    /// system call.
    Messages,
    /// The events of `Messages`, and an EPOLLOUT event after each send and each receive that leaves room.
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

/// The readiness of a queue at a moment, as poll(2) without a wait reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// The queue has a message: POLLIN.
    pub readable: bool,
    /// The queue has room: POLLOUT.
    pub writable: bool,
}
