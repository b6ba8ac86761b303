//! Things that threads use without a lock, and that are dropped as soon as no process uses them any more: a queue stays mapped under a
//! call, even if another thread closes or removes it meanwhile.
//!
//! ```text
//!   a table of Link(s)                 Slots                          notes: one record a thread
//!   [ .. | address of a slot | .. ] -> [ users, thing ] <------------ [ the slot that the thread's call is using ]
//! ```
//!
//! A [`Link`] counts as a user of the slot that it leads to. A call that finds a slot through a link leaves a note instead of
//! counting ([`notes`]). A process that empties the link gives its count back; the last one retires the slot, and the thing in it is
//! dropped when no note names it.
//!
//! Nothing here takes a lock or allocates from the program's heap, so all of it may be used in signal handlers, and a forked child
//! finds nothing half done (but may keep for ever a slot that another thread was just moving).
//!
//! The users: the drop-in's table of descriptors, and the table of System V queues by their ids.

mod chunks;
mod link;
pub mod notes;
mod published;
mod slots;
#[cfg(test)]
mod tests;

pub use chunks::{Chunks, Zeroed};
pub use link::{Held, Link, Word};
pub use published::Published;
pub use slots::{Slot, Slots};
