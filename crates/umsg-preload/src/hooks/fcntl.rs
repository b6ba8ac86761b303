//! fcntl: the commands that duplicate a descriptor, and the commands that read or change its flags. ioctl: the requests that change these flags.

use std::ffi::{c_int, c_ulong};

use umsg_shm::sys::reserved_descriptors;

use super::dup::{enter_duplicate, share};
use crate::table::ACCESS_MODE;
use crate::table::{self, Held};
use crate::{arrivals, errno, fd, next, ours};

/// The kernel's value of O_LARGEFILE. open(2) sets this flag on every file; libc defines it as 0.
const LARGEFILE: c_int = if cfg!(target_arch = "aarch64") {
    0o400_000
} else {
    0o100_000
};

/// Requests of ioctl, as numbers of 32 bits: the kernel reads only the lower half of a request. In C, the type of a request depends on the libc.
const FIONBIO: u32 = libc::FIONBIO as u32;
const FIOCLEX: u32 = libc::FIOCLEX as u32;
const FIONCLEX: u32 = libc::FIONCLEX as u32;

/// Flags that the segment's file was opened with and that F_GETFL must not show.
const FOREIGN: c_int = LARGEFILE | libc::O_TMPFILE | libc::O_NOFOLLOW;

hooks! {
    /// Manipulates a descriptor.
    fn [fcntl, fcntl64](fd: c_int, command: c_int, argument: usize) -> c_int {
        next => manipulate(fd, command, argument, || next(fd, command, argument))
    }
}

#[inline(always)]
fn manipulate(fd: c_int, command: c_int, argument: usize, call: impl FnOnce() -> c_int) -> c_int {
    if reserved_descriptors::is(fd) {
        return errno::fail(libc::EBADF);
    }
    if table::knows(fd) {
        on_queue(fd, command, argument, call)
    } else {
        call()
    }
}

/// Manipulates a device, or the flags of any file.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: the caller makes the promises that libc's ioctl requires.
    let call = || unsafe { next::ioctl(fd, request, argument) };
    match request as u32 {
        FIOCLEX => {
            // The descriptor is inspected before FD_CLOEXEC is set: with FD_CLOEXEC, the descriptor would no longer look inherited.
            arrivals::look_once(fd);
            call()
        }
        FIONBIO if table::knows(fd) => change_flags(fd, call),
        FIONCLEX if table::knows(fd) => {
            share(fd);
            call()
        }
        _ => call(),
    }
}

#[cold]
fn on_queue(fd: c_int, command: c_int, argument: usize, call: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            share(fd);
            let outcome = call();
            enter_duplicate(fd, outcome);
            outcome
        }
        libc::F_GETFL => match call() {
            flags if flags >= 0 => ours::file(fd).map_or(flags, |held| shown(&held, flags)),
            failed => failed,
        },
        libc::F_SETFL if argument as c_int & libc::O_DIRECT != 0 && ours::file(fd).is_some() => {
            errno::fail(libc::EINVAL)
        }
        libc::F_SETFL => change_flags(fd, call),
        libc::F_SETFD if argument as c_int & libc::FD_CLOEXEC == 0 => {
            share(fd);
            call()
        }
        _ => call(),
    }
}

/// Runs a call that may change O_NONBLOCK of a queue's descriptor.
#[cold]
fn change_flags(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    match (table::hold(fd), fd::borrow(fd)) {
        (Some(held), Some(descriptor)) => held.blocking.change(descriptor, call),
        _ => call(),
    }
}

/// Returns the flags that the kernel would show for a queue. A queue that was opened with access mode 3 shows that mode, independent of the
/// file's own description.
fn shown(held: &Held, flags: c_int) -> c_int {
    let without_access = !held.can_read() && !held.can_write();
    let access = if without_access { ACCESS_MODE } else { 0 };
    flags & !FOREIGN | access | held.shown_flags
}
