//! POSIX message queues, System V message queues and message rings in shared memory: the semantics of Linux, no system call on the
//! fast path, no limits of the kernel, no root, no daemon, and safe against the death of any process at any instruction.
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("umsg-lib-{}", std::process::id()));
//! # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
//! # let namespace = umsg::Namespace::at(&dir)?;
//! use umsg::posix::OpenOptions;
//!
//! let queue = OpenOptions::new()
//!     .read(true)
//!     .write(true)
//!     .create(true)
//!     .max_messages(65_536)
//!     .message_size(1024) // bytes
//! #   .namespace(&namespace)
//!     .open("/orders")?;
//! queue.send(b"an urgent one", 9)?;
//!
//! let mut buffer = [0; 1024];
//! let received = queue.receive(&mut buffer)?;
//! assert_eq!((&buffer[..received.len], received.priority), (&b"an urgent one"[..], 9));
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | what you look for | where |
//! |---|---|
//! | queues with a name, whose messages have priorities | [`posix`] |
//! | queues with a key, whose messages have types | [`sysv`] |
//! | messages for one receiver, which it can wait for in any number | [`ring`] |
//! | queues in an event loop | [`posix::Queue::pollable`], [`sysv::Queue::pollable`]; in tokio's `aio`, with the feature `tokio` |
//! | which directory holds the queues, and its limits | [`Namespace`], [`Limits`] |
//! | handlers that use queues; files that are cut short | [`signals`] |
//! | what is the matter with a queue | [`diagnosis`] |
//!
//! ARCHITECTURE.md follows a message through the code, docs/format.md draws every byte of a segment, docs/protocols.md every state,
//! barrier and crash point; docs/guarantees.md says what is promised, and which test shows it.
#![deny(unsafe_code)]
// A model has no faces that would use everything, and counts modulo one.
#![cfg_attr(
    loom,
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        clippy::modulo_one,
        clippy::forget_non_drop
    )
)]

#[cfg(all(feature = "tokio", not(loom)))]
#[allow(unsafe_code, reason = "descriptors that a runtime keeps")]
pub mod aio;
mod arena;
mod counters;
#[doc(hidden)]
pub mod crash;
#[cfg(not(loom))]
pub mod diagnosis;
mod doorbell;
mod error;
mod holds;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "copies in and out of a message's place")]
mod in_place;
#[cfg(not(loom))]
mod last_close;
#[cfg(not(loom))]
mod left_over;
mod lives;
mod lock;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "references into a mapping")]
mod memory;
mod mended;
#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod namespace;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "a table that is never freed, behind a pointer")]
mod notice;
mod order;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod own;
mod pacing;
#[cfg(not(loom))]
pub mod posix;
mod queue;
#[cfg(not(loom))]
#[doc(hidden)]
#[allow(
    unsafe_code,
    reason = "things that are shared without a lock, and dropped by who is last"
)]
pub mod reclaim;
#[cfg(not(loom))]
pub mod ring;
#[cfg(not(loom))]
mod salvage;
mod segment;
#[allow(
    unsafe_code,
    reason = "siginfo and ucontext come as raw pointers from the kernel"
)]
pub mod signals;
mod survey;
#[cfg_attr(
    loom,
    allow(unsafe_code, reason = "cells that loom watches are Sync by protocol")
)]
mod sync;
#[allow(
    unsafe_code,
    reason = "system calls that rustix does not have, mappings, the robust list"
)]
mod sys;
#[cfg(not(loom))]
pub mod sysv;
#[cfg(all(test, not(loom)))]
mod threads;
mod trouble;
mod typed;
#[cfg(not(loom))]
mod until;
mod waiters;
mod wakes;

#[cfg(not(loom))]
pub use doorbell::{Edges, Readiness};
#[cfg(not(loom))]
#[doc(hidden)]
pub use sys::stack::roomy;

#[cfg(not(loom))]
pub use left_over::LeftOver;
#[cfg(not(loom))]
pub use namespace::{
    Intruder, Limits, Namespace, NamespaceError, NamespaceKind, OutOfSight, PassedOver,
    SetupReport, TMPFILES,
};

/// Compiles and runs the programs of the README and the guide.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../README.md")]
    pub struct Readme;
    #[doc = include_str!("../../../docs/guide.md")]
    pub struct Guide;
}
