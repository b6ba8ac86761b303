//! The order in which stored messages are delivered: POSIX queues by priority, System V queues by type or by arrival.
//! Under one lock, and derived: it can be rebuilt from the cells at any time.

mod priority;
mod typed;

pub(crate) use priority::Priorities;
pub use typed::Want;
pub(crate) use typed::{Kind, KindRoots, Place, Shelf, Typed};
