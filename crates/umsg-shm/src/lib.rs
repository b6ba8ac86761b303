//! The engines of umsg: POSIX and System V message queues in shared memory segments, and all code that changes a segment.
//!
//! This crate handles segments and processes. Paths of queues, names, the environment and the command line belong to the crate `umsg`, which programs
//! use. The interface of this crate follows the needs of `umsg` and changes with them.
//!
//! docs/concepts.md explains how the engines work, ARCHITECTURE.md declares the floors of the modules. docs/format.md draws every byte of a segment,
//! docs/protocols.md every state, barrier and crash point.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "readers of this crate document private items, too"
)]
#![allow(
    missing_docs,
    reason = "fields and steps that stand together share a comment"
)]
// In a model, some functions have no caller, and some counts are remainders of a division by 1.
#![cfg_attr(
    loom,
    allow(
        dead_code,
        private_interfaces,
        unused_imports,
        unused_macros,
        clippy::modulo_one,
        clippy::forget_non_drop
    )
)]

#[cfg(not(all(
    target_os = "linux",
    target_endian = "little",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "umsg supports only Linux on x86-64 and on little-endian aarch64, with pointers of 64 bits: \
     x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu, and the same with musl"
);

#[doc(hidden)]
#[cfg(not(any(loom, miri)))]
pub use probe;

#[cfg(any(loom, feature = "crash-points"))]
pub mod account;
pub mod announcements;
pub mod arena;
#[allow(
    unsafe_code,
    reason = "references into a mapping, and a table with a lock of its own"
)]
pub mod consent;
pub mod counters;
pub mod crash;
pub mod doorbell;
pub mod fault;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "the instruction of a system call")]
pub mod kernel;
pub mod leases;
pub mod lock;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "references into a mapping")]
pub mod memory;
#[cfg(loom)]
mod model;
pub mod posix_engine;
pub mod producers;
#[cfg(not(loom))]
#[allow(
    unsafe_code,
    reason = "values that are shared without a lock, and dropped by their last user"
)]
pub mod reclaim;
pub mod repair;
pub mod report;
#[cfg_attr(
    loom,
    allow(unsafe_code, reason = "cells that loom watches are Sync by protocol")
)]
pub mod sync;
#[allow(
    unsafe_code,
    reason = "system calls that rustix does not have, mappings, the robust list"
)]
pub mod sys;
pub mod sysv_engine;
#[cfg(all(any(test, feature = "testing"), not(loom)))]
pub mod threads;
#[macro_use]
mod tracepoint;
pub mod waiters;
