//! Batches: several messages for one lock, one publication, one round of wake-ups.
//!
//! ```text
//!   sent = p                                                     batch_end = p + 4
//!      |                                                             |
//!   [ p: filled, old stamp | p+1: stamped | p+2: stamped | p+3: stamped | free ...
//!      ^
//!      the gate: receivers take positions in order, so nothing behind p is there before p's stamp is
//! ```
//!
//! A batch is sent by the stamp of its first message, which is stored last. If its sender dies before that, the other
//! stamps stand there and would pass for messages once a later send fills the gate; so `batch_end` says where the batch
//! ends before the first of them is stored, and the repair takes them back ([`crate::posix_engine::recover::sender_side`]).
//!
//! A sender that waits for room for a whole batch has no slots; see [`wait`].

mod receive;
mod send;
mod wait;

pub use receive::Sink;
pub use send::Batch;
pub(super) use send::Whole;
pub(super) use send::{take_back, unfinished};
#[cfg(not(loom))]
pub(super) use wait::NEVER;
pub(super) use wait::Turn;
