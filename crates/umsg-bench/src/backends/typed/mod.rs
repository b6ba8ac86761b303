//! One trait for all sides of the comparison of System V queues. As with [`super::MessageQueue`], every measurement is compiled for each side.

pub mod dropin;
pub mod identifier;
pub mod kernel;
pub mod own_namespace;
mod register;
pub mod umsg;

pub use register::{prepare, sweep};

use super::{Errno, Waiting};
use crate::failure::Failure;

/// The length of each message, in bytes: the text of a message is one `u64`.
pub const SIZE: u64 = size_of::<u64>() as u64;

/// The default limit for the bytes of all messages of a queue: the kernel's limit for an unprivileged process.
pub const DEFAULT_BYTES: u64 = 16_384;

/// The rule by which a receive selects its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The oldest message of this type.
    Exactly(i64),
    /// The oldest message of the lowest type, if the lowest type is at most this number.
    Lowest(i64),
    /// The oldest message whose type differs from this number.
    Except(i64),
}

/// The total contents of a namespace's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub messages: u64,
    pub bytes: u64,
}

/// A queue of typed messages, as System V has it.
pub trait TypedQueue: Sized + Sync {
    /// Makes a queue for this number of bytes of messages. The queue is removed when this value is dropped.
    fn make(bytes: u64) -> Result<Self, Failure>;

    /// Returns the total number of messages, and of their bytes, in all queues of the namespace.
    fn totals() -> Result<Totals, Failure>;

    /// Sends a message; waits while the queue is full.
    fn send(&self, mtype: i64, number: u64) -> Result<(), Errno>;

    /// Sends a message, or fails with [`Errno::AGAIN`] if the queue is full.
    fn try_send(&self, mtype: i64, number: u64) -> Result<(), Errno>;

    /// Receives the wanted message, and waits for it. Returns the number that is the message's text.
    fn receive(&self, want: Want) -> Result<u64, Errno>;

    /// Receives the wanted message, or fails with ENOMSG if there is none. Returns the number that is the message's text.
    fn try_receive(&self, want: Want) -> Result<u64, Errno>;

    /// Sets the way in which `send` and `receive` wait.
    fn set_waiting(&self, _waiting: Waiting) {}
}
