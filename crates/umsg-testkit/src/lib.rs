//! The common parts of the tests of several crates: [`artefacts`] that cargo does not build for a test, [`compile`] for C programs, [`real_time`]
//! for threads, [`run`] for programs that must end in time, [`TestNamespace`] for their queues.

pub mod artefacts;
pub mod compile;
mod namespace;
pub mod real_time;
pub mod run;

pub use namespace::TestNamespace;
