//! POSIX message queues, System V message queues and message rings in shared memory. They have the semantics of Linux, and make no system call on
//! the fast path. They need neither root nor a daemon, and do not have the limits of the kernel. They survive the death of any
//! process at any instruction.
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
//! | subject | where |
//! |---|---|
//! | queues with a name, whose messages have priorities | [`posix`] |
//! | queues with a key, whose messages have types | [`sysv`] |
//! | queues for one receiver, which can wait until a number of messages have come | [`ring`] |
//! | queues in an event loop | [`posix::Queue::pollable`], [`sysv::Queue::pollable`]; for tokio: `aio`, with the feature `tokio` |
//! | the directory of the queues, and its limits | [`Namespace`], [`Limits`] |
//! | signal handlers that use queues, and truncated files | [`signals`] |
//! | inspection and repair of a queue | [`diagnosis`] |
//! | for programs that answer other programs' calls on queues | [`ipc`], [`kernel_files`] |
//!
//! docs/concepts.md explains how umsg works, and ARCHITECTURE.md says where the code is. docs/format.md draws every byte of a
//! segment. docs/protocols.md lists every state, barrier and crash point. docs/guarantees.md names each promise and the test
//! that shows it.
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(feature = "tokio")]
#[allow(unsafe_code, reason = "descriptors that a runtime keeps")]
pub mod aio;
pub mod diagnosis;
mod error;
mod io_error;
pub mod kernel_files;
mod last_close;
mod lease;
pub mod log;
mod namespace;
#[allow(unsafe_code, reason = "a table that is never freed, behind a pointer")]
mod notification;
pub mod posix;
pub mod ring;
#[allow(
    unsafe_code,
    reason = "siginfo and ucontext come as raw pointers from the kernel"
)]
pub mod signals;
mod stale_files;
mod statistics;
pub mod sysv;
mod until;

pub use error::{QueueError, SegmentError};
pub use lease::Lease;
pub use namespace::{
    Intruder, Limits, Namespace, NamespaceError, NamespaceKind, OutOfSight, PassedOver,
    SetupReport, TMPFILES, ipc,
};
pub use stale_files::StaleFiles;
pub use umsg_shm::doorbell::{Edges, Readiness};

/// Compiles and runs the programs of the README and the guide.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../README.md")]
    pub struct Readme;
    #[doc = include_str!("../../../docs/guide/work-queues.md")]
    pub struct WorkQueues;
    #[doc = include_str!("../../../docs/guide/system-v.md")]
    pub struct SystemV;
    #[doc = include_str!("../../../docs/guide/rings.md")]
    pub struct Rings;
    #[doc = include_str!("../../../docs/guide/event-loops.md")]
    pub struct EventLoops;
    #[doc = include_str!("../../../docs/guide/see.md")]
    pub struct See;
}

#[cfg(test)]
mod tests {
    #[test]
    fn handles_can_be_sent_to_and_shared_between_threads() {
        fn both<T: Send + Sync>() {}
        both::<crate::Namespace>();
        both::<crate::posix::Queue>();
        both::<crate::posix::Lease<'static>>();
        both::<crate::posix::Reservation<'static>>();
        both::<crate::posix::Producer<'static>>();
        both::<crate::posix::Snapshot>();
        both::<crate::sysv::Queue>();
        both::<crate::sysv::Lease<'static>>();
        both::<crate::ring::Sender>();
        fn one<T: Send>() {}
        one::<crate::ring::Ring>();
    }
}
