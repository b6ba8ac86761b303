//! The parts that the repairs of both engines share: the log of repairs, the survey of slots, and the salvage.

pub mod log;
#[cfg(not(loom))]
pub mod salvage;
pub(crate) mod survey;
