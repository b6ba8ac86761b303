//! poll and ppoll: see [`polling`].

use std::ffi::c_int;
use std::time::Duration;

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

use crate::cancellation::cancellation_point;
use crate::polling::{self, Patience};
use crate::{errno, next};

cancellation_point! {
    /// Waits until a descriptor is ready. `timeout` is in milliseconds; a negative value means no limit.
    poll => poll_deferred
}

unsafe extern "C" fn poll_deferred(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller makes the promises that libc's poll requires.
    unsafe {
        if polling::concerns_us(fds, count) {
            poll_here(fds, count, timeout)
        } else {
            next::poll(fds, count, timeout)
        }
    }
}

cancellation_point! {
    /// The variant of poll that programs compiled with _FORTIFY_SOURCE call.
    __poll_chk => poll_chk_deferred
}

unsafe extern "C" fn poll_chk_deferred(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    // SAFETY: the caller makes the promises that libc's poll requires.
    unsafe {
        if has_room(count, room) && polling::concerns_us(fds, count) {
            poll_here(fds, count, timeout)
        } else {
            next::__poll_chk(fds, count, timeout, room)
        }
    }
}

cancellation_point! {
    /// Waits until a descriptor is ready, or until a handler has run for a signal that `mask` does not block.
    ppoll => ppoll_deferred
}

unsafe extern "C" fn ppoll_deferred(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller makes the promises that libc's ppoll requires.
    unsafe {
        if polling::concerns_us(fds, count) {
            ppoll_here(fds, count, timeout, mask)
        } else {
            next::ppoll(fds, count, timeout, mask)
        }
    }
}

cancellation_point! {
    /// The variant of ppoll that programs compiled with _FORTIFY_SOURCE call.
    __ppoll_chk => ppoll_chk_deferred
}

unsafe extern "C" fn ppoll_chk_deferred(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: the caller makes the promises that libc's ppoll requires.
    unsafe {
        if has_room(count, room) && polling::concerns_us(fds, count) {
            ppoll_here(fds, count, timeout, mask)
        } else {
            next::__ppoll_chk(fds, count, timeout, mask, room)
        }
    }
}

/// Checks that an array of `room` bytes has room for `count` entries. If not, libc ends the program.
fn has_room(count: nfds_t, room: size_t) -> bool {
    room / size_of::<pollfd>() >= count as usize
}

/// # Safety
/// The conditions of libc's poll.
unsafe fn poll_here(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let milliseconds = u64::try_from(timeout).ok();
    let patience = Patience {
        timeout: milliseconds.map(Duration::from_millis),
        mask: std::ptr::null(),
    };
    // SAFETY: by this function's contract.
    unsafe { polling::wait(fds, count, patience) }
}

/// # Safety
/// The conditions of libc's ppoll.
unsafe fn ppoll_here(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by this function's contract.
    match unsafe { crate::timeout::duration_of(timeout) } {
        // SAFETY: by this function's contract.
        Ok(timeout) => unsafe { polling::wait(fds, count, Patience { timeout, mask }) },
        Err(errno) => errno::fail(errno),
    }
}
