//! fcntl: the commands that duplicate a descriptor, and the command that returns its flags.

use std::ffi::c_int;

use umsg_shm::sys::reserved_descriptors;

use super::dup::enter_duplicate;
use crate::table::{self, Held};
use crate::{errno, next, ours};

/// The kernel's O_LARGEFILE, which open(2) sets on every file and libc calls 0.
const LARGEFILE: c_int = if cfg!(target_arch = "aarch64") {
    0o400_000
} else {
    0o100_000
};

/// Flags that come from how the segment's file was opened; a queue's descriptor has them not.
const FOREIGN: c_int = LARGEFILE | libc::O_TMPFILE | libc::O_NOFOLLOW;

/// Manipulates a descriptor.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    if reserved_descriptors::is(fd) {
        return errno::fail(libc::EBADF);
    }
    // SAFETY: the caller's promises to libc's fcntl are handed on.
    let outcome = unsafe { next::fcntl(fd, command, argument) };
    if table::knows(fd) {
        amend(fd, command, outcome)
    } else {
        outcome
    }
}

/// The name of fcntl in programs compiled for files larger than 2 GB.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    if reserved_descriptors::is(fd) {
        return errno::fail(libc::EBADF);
    }
    // SAFETY: the caller's promises to libc's fcntl64 are handed on.
    let outcome = unsafe { next::fcntl64(fd, command, argument) };
    if table::knows(fd) {
        amend(fd, command, outcome)
    } else {
        outcome
    }
}

#[cold]
fn amend(fd: c_int, command: c_int, outcome: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            enter_duplicate(fd, outcome);
            outcome
        }
        libc::F_GETFL if outcome >= 0 => {
            ours::file(fd).map_or(outcome, |held| shown(&held, outcome))
        }
        _ => outcome,
    }
}

/// The flags as the kernel would show them for a queue. A queue that was opened with access mode 3 shows that mode, independent of the
/// file's own description.
fn shown(held: &Held, flags: c_int) -> c_int {
    let without_access = !held.can_read() && !held.can_write();
    let access = if without_access { libc::O_ACCMODE } else { 0 };
    flags & !FOREIGN | access
}
