//! One set of cases for the kernel, the library, the C library and the drop-in.
//!
//! The behaviour of the kernel's `mq_*` calls on this machine is right by definition. This crate checks in five ways that umsg behaves in the same
//! way:
//!
//! - [`cases`]: sentences about one behaviour each, written once and run on every [`backend`]
//!   ([`instantiate!`] makes a test of each);
//! - [`compare`]: random operations by several processes and users, on a kernel queue and on umsg in lockstep. Every return value, errno, byte and
//!   priority is compared. A history with a difference is cut down to a short one that still shows it;
//! - [`lives`]: the same with processes that fork, run other programs, pass descriptors on and are killed;
//! - [`ring`]: random operations on a pair of io_uring's rings and on a pair of umsg's;
//! - `tests/programs.rs`: programs that others wrote, on the kernel and under the drop-in.
//!
//! ```text
//!   cases ─────► site ──► backend ──┬─► kernel    glibc's mq_*
//!                                   ├─► drop-in   libumsg_preload.so, each symbol by dlsym
//!                                   ├─► C         libumsg.so, likewise
//!   compare ──► worker ──────┘      └─► native    umsg::posix
//! ```
//!
//! Each case and each history runs in separate child processes, with descriptors, umask, user and signals of its own. So a crash fails only one
//! test, and a hang ends with a kill.

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
