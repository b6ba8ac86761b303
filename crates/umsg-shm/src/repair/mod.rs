//! What the repairs of both engines share: the log of what was repaired, the survey of slots, and the parts of a salvage.

pub mod log;
#[cfg(not(loom))]
pub mod salvage;
pub(crate) mod survey;
