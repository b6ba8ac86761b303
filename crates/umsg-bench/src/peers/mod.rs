//! The alternatives for sending messages: libraries, other facilities of the kernel, and servers. Each alternative is used as its own documentation
//! recommends; its function `about` describes the use.
//!
//! ```text
//!   Peer ──make──▶ Link ──sender()──▶ Sender     in the process that sends
//!  (there or not)       ──receiver()─▶ Receiver  in the one that receives
//! ```
//!
//! The parent makes a link before it forks the processes, and each process makes its own end of the link. The reason: processes can't share a
//! connection to a server, or the state that a library keeps for its process. As with [`crate::backends`], every measurement is compiled for each
//! peer.
//!
//! | module | peers |
//! |---|---|
//! | `queue` | umsg itself, and the kernel's POSIX queue |
//! | `descriptor` | pipe, Unix socket, eventfd |
//! | `channel` | crossbeam-channel |
//! | `plug` | peers that are compiled separately and loaded: Boost.Interprocess (`boost`), iceoryx2 (`iceoryx`) |
//! | `server` | servers: Redis (`redis`), NATS (`nats`), each by its client library |

pub mod boost;
pub mod channel;
pub mod descriptor;
pub mod iceoryx;
pub mod nats;
mod plug;
pub mod queue;
pub mod redis;
pub mod scratch;
mod server;

use crate::backends::{Errno, Spec};
use crate::failure::Failure;

/// The length of every message that the peers send, in bytes.
pub const SIZE: usize = 64;

/// The way in which an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The end does not wait: the caller tries again.
    Polling,
    /// The end waits as its library does by default.
    Waiting,
    /// The end waits as with `Waiting`, but several messages may be in transit at once. This mode is for peers in which each single message would
    /// cost a reply of a server, or a system call that programs save by buffering.
    Piped,
    /// The end sleeps at once instead of spinning, if the peer offers the choice.
    Asleep,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Waiting | Self::Piped => "waiting",
            Self::Asleep => "asleep",
        }
    }
}

/// The capabilities of the peer. Operations that the peer lacks are not measured.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// True if the peer has calls that do not wait, and polling with these calls makes sense.
    pub polls: bool,
    /// True if the peer carries bytes, not only wake-ups.
    pub carries: bool,
    /// True if the peer sends between processes, not only between threads.
    pub crosses: bool,
}

impl Abilities {
    /// The abilities of a peer that has all of them.
    pub const ALL: Self = Self {
        polls: true,
        carries: true,
        crosses: true,
    };
}

/// An alternative that carries messages: a library, a facility of the kernel, or a server.
pub trait Peer {
    type Link: Link;

    const ABILITIES: Abilities;

    /// Returns the heading of the peer's column.
    fn name(&self) -> &'static str;

    /// Returns the peer's version, and the way in which the benchmark uses the peer.
    fn about(&self) -> String;

    /// Makes a queue, a channel or a connection, for one sender and one receiver at a time. Only forked children, and processes that know the name,
    /// have access.
    fn make(&self, spec: &Spec) -> Result<Self::Link, Failure>;

    /// Returns the CPU time that the peer's server has taken so far, in nanoseconds; 0 without a server.
    fn server_cpu(&self) -> u64 {
        0
    }
}

/// A queue, channel or connection, which carries messages in one direction.
pub trait Link: Sync {
    type Sender<'a>: Sender
    where
        Self: 'a;
    type Receiver<'a>: Receiver
    where
        Self: 'a;

    /// Makes the sending end. The sending process calls this once.
    fn sender(&self, way: Way) -> Result<Self::Sender<'_>, Failure>;

    /// Makes the receiving end. The sending process makes its end only after the receiving end exists.
    fn receiver(&self, way: Way) -> Result<Self::Receiver<'_>, Failure>;
}

/// The end that sends.
pub trait Sender {
    /// Sends a message; waits while there is no room.
    fn send(&mut self, message: &[u8]) -> Result<(), Errno>;

    /// Sends a message, or fails with [`Errno::AGAIN`] if there is no room.
    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno>;

    /// Sends the messages that this end has buffered, if any.
    fn flush(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// The end that receives.
pub trait Receiver {
    /// Receives a message; waits until there is one.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno>;

    /// Receives a message, or fails with [`Errno::AGAIN`] if there is none.
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno>;
}

/// Fails unless a received message has the length of the sent messages.
#[inline]
fn whole(length: usize) -> Result<(), Errno> {
    match length {
        SIZE => Ok(()),
        _ => Err(Errno(libc::EBADMSG)),
    }
}
