//! The order in which stored messages are delivered. Private to the receivers' side, and derived: it can be rebuilt
//! from the cells at any time.

mod priority;

pub(crate) use priority::Priorities;
