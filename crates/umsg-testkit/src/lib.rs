//! The common parts of the tests of several crates. For files: [`artefacts`] that cargo does not build for a test, and [`TestNamespace`] for the
//! queues of programs. For programs: [`compile`] for C programs, [`programs`] for the C programs in the checkout, and [`run`] for programs that must
//! end in time. For threads and users: [`real_time`], [`signals`] that a thread waits for, and [`users`] for tests that act as several users.

pub mod artefacts;
pub mod compile;
mod namespace;
pub mod programs;
pub mod real_time;
pub mod run;
pub mod signals;
pub mod users;

pub use namespace::{TestNamespace, ipc_directories};
