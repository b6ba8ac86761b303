//! write and its relatives, and other calls that change a file: none of them changes a queue.

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use crate::table::Held;
use crate::{errno, next, ours};

/// The kernel's answer to a write.
fn refuse<T: From<i8>>(held: &Held) -> T {
    errno::fail(if held.can_write() {
        libc::EINVAL
    } else {
        libc::EBADF
    })
}

/// Writes at the descriptor's position.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    match ours::file(fd) {
        Some(held) => refuse(&held),
        // SAFETY: the caller's promises to libc's write are handed on.
        None => unsafe { next::write(fd, buffer, len) },
    }
}

/// Writes at a position of the caller's choice.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pwrite(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    offset: off_t,
) -> ssize_t {
    match ours::file(fd) {
        Some(held) => refuse(&held),
        // SAFETY: the caller's promises to libc's pwrite are handed on.
        None => unsafe { next::pwrite(fd, buffer, len, offset) },
    }
}

/// pwrite under its other name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    offset: off_t,
) -> ssize_t {
    match ours::file(fd) {
        Some(held) => refuse(&held),
        // SAFETY: the caller's promises to libc's pwrite64 are handed on.
        None => unsafe { next::pwrite64(fd, buffer, len, offset) },
    }
}

/// Writes from several buffers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    match ours::file(fd) {
        Some(held) => refuse(&held),
        // SAFETY: the caller's promises to libc's writev are handed on.
        None => unsafe { next::writev(fd, parts, count) },
    }
}

/// Writes from several buffers at a position of the caller's choice.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pwritev(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    match ours::file(fd) {
        Some(held) => refuse(&held),
        // SAFETY: the caller's promises to libc's pwritev are handed on.
        None => unsafe { next::pwritev(fd, parts, count, offset) },
    }
}

/// pwritev under its other name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pwritev64(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    match ours::file(fd) {
        Some(held) => refuse(&held),
        // SAFETY: the caller's promises to libc's pwritev64 are handed on.
        None => unsafe { next::pwritev64(fd, parts, count, offset) },
    }
}

/// A queue has nothing to bring to a disk: EINVAL.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    match ours::file(fd) {
        Some(_) => errno::fail(libc::EINVAL),
        // SAFETY: takes a number.
        None => unsafe { next::fsync(fd) },
    }
}

/// As fsync.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    match ours::file(fd) {
        Some(_) => errno::fail(libc::EINVAL),
        // SAFETY: takes a number.
        None => unsafe { next::fdatasync(fd) },
    }
}

/// Has no effect on a queue.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    match ours::file(fd) {
        Some(held) => truncate(&held, len),
        // SAFETY: takes numbers.
        None => unsafe { next::ftruncate(fd, len) },
    }
}

/// ftruncate under its other name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ftruncate64(fd: c_int, len: off_t) -> c_int {
    match ours::file(fd) {
        Some(held) => truncate(&held, len),
        // SAFETY: takes numbers.
        None => unsafe { next::ftruncate64(fd, len) },
    }
}

/// The kernel changes the size that fstat shows, which has no meaning for the queue, and the queue works as before.
fn truncate(held: &Held, len: off_t) -> c_int {
    if len < 0 || !held.can_write() {
        errno::fail(libc::EINVAL)
    } else {
        0
    }
}
