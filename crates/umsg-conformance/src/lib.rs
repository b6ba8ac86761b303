//! Conformance tests that run unchanged on the kernel, the library, the C library and the drop-in.
//!
//! On this machine, the kernel's `mq_*` calls are right by definition. This crate checks in five ways that umsg behaves like them:
//!
//! - [`cases`]: sentences, each about one behaviour, that are written once and run on every [`backend`] ([`instantiate!`] makes a test of each case);
//! - [`compare`]: random operations by several processes and users, on a kernel queue and on umsg in lockstep. Every return value, errno, byte and
//!   priority is compared. A history with a difference is shortened, as long as it still shows a difference;
//! - [`lives`]: random operations by processes that fork, run other programs, pass descriptors on and are killed;
//! - [`ring`]: random operations on a pair of io_uring's rings and on a pair of umsg's rings;
//! - `tests/programs.rs`: existing programs of other authors, on the kernel and under the drop-in.
//!
//! ```text
//!   cases ─────► site ──► backend ──┬─► kernel    glibc's mq_*
//!                                   ├─► drop-in   libumsg_preload.so, each symbol by dlsym
//!                                   ├─► C         libumsg.so, likewise
//!   compare ──► worker ──────┘      └─► native    umsg::posix
//! ```
//!
//! Each case and each history runs in separate child processes, which have their own descriptors, umask, user and signals. So a crash fails only one
//! test, and a process that hangs is killed.

pub mod backend;
#[macro_use]
pub mod cases;
pub mod children;
pub mod compare;
pub mod epoll;
pub mod errno;
pub mod library;
pub mod lives;
pub mod ring;
pub mod runner;
pub mod site;
pub mod stage;
pub mod sys;
pub mod sysv;
