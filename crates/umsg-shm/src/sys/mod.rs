//! The interface to the system: threads and their robust lists, futexes, clocks, mappings.
//!
//! This module has most of the library's unsafe system calls. Other modules with unsafe code state their reason: mainly signal handlers
//! (`signals`), descriptors that are kept as numbers (`doorbell`), and lock-free sharing (`reclaim`).
//!
//! Miri has threads and futexes, but no files in memory, no mappings of files, no robust list and no other processes. Beside each such call is its
//! replacement under `cfg!(miri)`: a segment is private memory, and no thread dies.

#[cfg(not(loom))]
pub mod arguments;
pub mod clock;
pub(crate) mod cpu;
#[cfg(not(loom))]
pub mod critical;
#[cfg(not(loom))]
pub mod cut;
#[cfg(not(loom))]
pub mod detached;
#[cfg(not(loom))]
pub mod exists;
#[cfg(not(loom))]
pub mod extent;
#[cfg(not(loom))]
pub mod file;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "a call with a structure of libc")]
pub(crate) mod file_lock;
pub mod futex;
pub(crate) mod home;
pub(crate) mod inheritance;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "a request of ioctl")]
pub mod ipc_namespace;
#[cfg(not(loom))]
pub(crate) mod kept_descriptor;
#[cfg(not(loom))]
pub mod life;
#[cfg(not(loom))]
pub mod limit;
pub mod liveness;
#[cfg(not(loom))]
pub mod map;
#[cfg(not(loom))]
pub mod mask;
#[cfg(not(loom))]
pub mod parent;
pub mod process;
#[cfg(not(loom))]
pub mod random;
#[cfg(not(loom))]
pub mod required;
#[cfg(not(loom))]
pub mod reserved_descriptors;
#[cfg(not(loom))]
pub mod rights;
#[cfg(not(loom))]
pub(crate) mod robust;
pub(crate) mod scratch;
#[cfg(not(loom))]
pub mod stack;
#[cfg(not(loom))]
pub mod stat;
pub mod thread;
#[cfg(not(loom))]
mod time_namespace;
pub(crate) mod urgency;
mod valgrind;

/// Returns the calling thread's errno.
#[cfg(not(loom))]
pub(crate) fn errno() -> i32 {
    // SAFETY: glibc and musl return a pointer to the calling thread's errno, valid while the thread lives.
    unsafe { *libc::__errno_location() }
}
