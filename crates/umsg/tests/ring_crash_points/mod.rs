//! The parts of tests/ring_crash_points.rs.

pub mod judge;
pub mod owners;
pub mod senders;
pub mod stage;

/// The ring's name.
pub const NAME: &str = "/ring";
