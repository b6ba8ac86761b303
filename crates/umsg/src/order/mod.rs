//! The order in which stored messages are delivered: POSIX queues by priority, System V queues by type or by arrival.
//! Under one lock, and derived: it can be rebuilt from the cells at any time.

mod priority;
#[allow(
    dead_code,
    unused_imports,
    reason = "shipped ahead of the engine of System V queues, its one user"
)]
mod typed;

pub(crate) use priority::Priorities;
