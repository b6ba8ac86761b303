//! Objects that threads use without a lock, and that are dropped when no thread uses them any more (`thing` in the code). So a queue stays mapped
//! during a call, even if another thread closes or removes the queue meanwhile.
//!
//! ```text
//!   a table of Link(s)                 Slots                          notes: one record a thread
//!   [ .. | address of a slot | .. ] -> [ users, thing ] <------------ [ the slot that the thread's call is using ]
//! ```
//!
//! Each [`Link`] is counted as a user of its slot. A call that finds a slot through a link sets a hazard pointer instead of counting ([`notes`]). A
//! thread that empties the link releases the link's count. The last release retires the slot. The object in the slot is dropped when no hazard
//! pointer names the slot.
//!
//! No function takes a lock or allocates from the program's heap. So signal handlers may call all of them, and a forked child finds no incomplete
//! change. If another thread was moving a slot between lists at the fork, the child may never use this slot again.
//!
//! Three tables use this module: the drop-in's table of descriptors, the C library's handles, and the table of System V queues by identifier.

mod chunks;
mod link;
pub(crate) mod local;
pub mod notes;
mod published;
mod slots;
#[cfg(test)]
mod tests;

pub use chunks::{Chunks, Zeroed};
pub use link::{Held, Link, Word};
pub use published::Published;
pub use slots::{Slot, Slots};
