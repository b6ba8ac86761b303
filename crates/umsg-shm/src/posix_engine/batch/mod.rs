//! Batches: several messages that are sent or received under one lock. The messages of a batch are published together, and cause one round of
//! wake-ups.
//!
//! ```text
//!   sent = p                                                     batch_end = p + 4
//!      |                                                             |
//!   [ p: filled, old stamp | p+1: stamped | p+2: stamped | p+3: stamped | free ...
//!      ^
//!      the gate: receivers take positions in order, and find nothing behind p before p has its stamp
//! ```
//!
//! The stamp of the first message is stored last, and this store sends the whole batch. The cell of the first message is called the gate. If the
//! sender died before it stored this stamp, a later send could fill the gate, and receivers would take the cells with the other stamps for messages.
//! Therefore `batch_end` is stored before all stamps, and the repair removes the stamps up to `batch_end`
//! ([`crate::posix_engine::recover::sender_side`]).
//!
//! A sender that waits for room for a whole batch takes no slots: see [`wait`].

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
