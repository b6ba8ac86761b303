//! The common parts of the tests of several crates: [`artefacts`] that cargo does not build for a test, [`compile`] for C programs, [`programs`] for
//! those in the checkout, [`real_time`] for threads, [`run`] for programs that must end in time, [`signals`] that a thread waits for, [`users`] for
//! tests that act as several users, [`TestNamespace`] for the queues of programs.

pub mod artefacts;
pub mod compile;
mod namespace;
pub mod programs;
pub mod real_time;
pub mod run;
pub mod signals;
pub mod users;

pub use namespace::TestNamespace;
