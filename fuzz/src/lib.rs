//! The work of the fuzz targets with their input. No input may crash a target or keep it busy for long.
//!
//! | target | meaning of the input |
//! |---|---|
//! | [`attach`] | bytes that overwrite parts of the file of a queue of either kind, or of a ring, or that replace the file, before the file is opened and used |
//! | [`namespace`] | the record of a namespace, the file that identifiers come from, labels of System V queues |
//! | [`snapshot`] | a snapshot, or bytes that overwrite parts of one |
//! | [`posix`], [`sysv`], [`ring`] | words to be written in the segment of a queue in use, and calls, in turn |
//!
//! The main workspace's tests run the same functions on a few inputs (`crates/umsg/tests/fuzz_targets.rs`), with Rust's stable toolchain.

pub mod attach;
mod home;
mod input;
pub mod namespace;
pub mod posix;
pub mod ring;
mod segment;
pub mod snapshot;
pub mod sysv;

pub use home::Home;
