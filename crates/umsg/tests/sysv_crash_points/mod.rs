//! The parts of tests/sysv_crash_points.rs.

pub mod acts;
pub mod changing;
pub mod holding;
pub mod judge;
pub mod receiving;
pub mod sending;
pub mod stage;
pub mod waiting;
