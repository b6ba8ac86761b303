//! Reads the state of all queues and rings of a namespace repeatedly, for `umsg metrics` and `umsg top`.
//!
//! | what | where |
//! |---|---|
//! | the queues and rings, which stay mapped between two samples | [`gather`] |
//! | the state of one queue between two samples, and when the queue is opened again | [`kept`] |
//! | the figures of a queue, of any kind | [`figures`] |
//! | several threads | [`parallel`] |
//!
//! A sample takes no lock of a queue, and changes no queue.

pub mod figures;
pub mod gather;
mod kept;
pub mod parallel;
