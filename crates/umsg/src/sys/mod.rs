//! The system below: threads and their robust lists, futexes, clocks, mappings.
//!
//! Most of the library's unsafe system calls live here. What is unsafe elsewhere is allowed where its module is named, with the reason:
//! above all handlers (`signals`), descriptors that are kept as numbers (`doorbell`), what is shared without a lock (`reclaim`).
//!
//! Miri has threads and futexes, but no files in memory, no mappings of them, no robust list and no other processes. What does without
//! stands beside the call that it has not, behind `cfg!(miri)`: a segment is memory of its own, and nobody dies.

pub(crate) mod clock;
pub(crate) mod cpu;
#[cfg(not(loom))]
pub(crate) mod critical;
#[cfg(not(loom))]
pub(crate) mod cut;
#[cfg(not(loom))]
pub(crate) mod exists;
#[cfg(not(loom))]
pub(crate) mod extent;
#[cfg(not(loom))]
pub(crate) mod file;
pub(crate) mod futex;
pub(crate) mod home;
#[cfg(not(loom))]
pub(crate) mod life;
#[cfg(not(loom))]
pub(crate) mod limit;
#[cfg(not(loom))]
pub(crate) mod map;
#[cfg(not(loom))]
pub(crate) mod mask;
pub(crate) mod process;
#[cfg(not(loom))]
pub(crate) mod random;
#[cfg(not(loom))]
pub(crate) mod required;
#[cfg(not(loom))]
pub(crate) mod rights;
#[cfg(not(loom))]
pub(crate) mod robust;
pub(crate) mod scratch;
#[cfg(not(loom))]
pub(crate) mod stack;
#[cfg(not(loom))]
pub(crate) mod stat;
pub(crate) mod thread;
#[cfg(not(loom))]
mod time_namespace;
mod valgrind;

/// The calling thread's errno.
#[cfg(not(loom))]
pub(crate) fn errno() -> i32 {
    // SAFETY: glibc and musl return a pointer to the calling thread's errno, valid while the thread lives.
    unsafe { *libc::__errno_location() }
}
