//! The parts of tests/crash_points.rs.

pub mod acts;
pub mod holding;
pub mod judge;
pub mod receiving;
pub mod sending;
pub mod stage;
pub mod waiting;
