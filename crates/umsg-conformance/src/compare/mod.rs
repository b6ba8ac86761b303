//! Random operations on a kernel queue and on umsg in lockstep.

mod random;

pub use random::Random;
