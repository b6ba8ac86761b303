//! The ways to pass messages: umsg, io_uring's MSG_RING, a channel, and a queue with an eventfd.

mod channel;
mod eventfd;
mod umsg;
mod uring;

pub use self::channel::Channel;
pub use self::eventfd::Eventfd;
pub use self::umsg::Umsg;
pub use self::uring::Uring;

use crate::failure::Failure;

/// The number of messages in a batch.
pub const BATCH: usize = 16;

/// The number of messages that may be sent and not yet received before a sender has to wait.
pub const ENTRIES: usize = 1024;

/// A way to pass messages. The value is made before the processes are forked.
pub trait Way: Sync {
    type Sender: Sender;
    type Receiver: Receiver;

    /// Returns a sending end. The sending thread calls this function.
    fn sender(&self) -> Result<Self::Sender, Failure>;

    /// Returns the receiving end. The receiving thread calls this function once.
    fn receiver(&self) -> Result<Self::Receiver, Failure>;
}

pub trait Sender {
    /// Posts up to [`BATCH`] messages, with one call if the way has a call for batches, and waits while there is no room.
    fn post_many(&mut self, value: u64, count: usize) -> Result<(), Failure>;

    /// Posts a message, and waits while there is no room.
    #[inline]
    fn post(&mut self, value: u64) -> Result<(), Failure> {
        self.post_many(value, 1)
    }

    /// Posts [`BATCH`] messages.
    #[inline]
    fn post_batch(&mut self, value: u64) -> Result<(), Failure> {
        self.post_many(value, BATCH)
    }
}

pub trait Receiver {
    /// Waits for this number of messages, or for one message if the variant can't wait for several.
    fn wait(&mut self, count: usize) -> Result<(), Failure>;

    /// Receives all messages that are in the ring, and passes their values to `visit`.
    fn drain(&mut self, visit: impl FnMut(u64)) -> Result<(), Failure>;

    /// Receives a message, and waits while there is none. Returns its value.
    fn next(&mut self) -> Result<u64, Failure>;
}

/// The payload length of variants with a payload, in bytes.
const PAYLOAD: usize = 64;
