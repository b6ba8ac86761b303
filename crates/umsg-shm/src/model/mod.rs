//! Replacements for the system on which the protocols run, so that loom can explore them.
//!
//! Under `--cfg loom` the shipped code of the engine is compiled on top of this module. Atomics are loom's. Guarded words are plain memory to loom,
//! so loom reports a missing barrier as a race. A segment is a few vectors ([`segment`]). A futex is a list of parked threads ([`futex`]). A thread
//! stores its id and the words that it has named to the kernel ([`thread`]). Each thread has its own time ([`time`]). A thread can die at any crash
//! point ([`crash`]).
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p umsg-shm --release --lib model -- --test-threads=2 --nocapture
//! ```
//!
//! With `LOOM_MAX_PREEMPTIONS=4`, loom allows more preemptions than each model does by itself.

pub mod consent;
pub mod crash;
pub mod doorbell;
#[allow(
    unsafe_code,
    reason = "the kernel of a model remembers words by their addresses"
)]
pub mod futex;
pub mod inheritance;
#[allow(unsafe_code, reason = "cells that loom watches are Sync by protocol")]
pub mod segment;
pub mod sysv;
#[cfg(test)]
mod tests;
#[allow(
    unsafe_code,
    reason = "a thread names a word to the kernel by its address"
)]
pub mod thread;
pub mod time;
pub mod world;
