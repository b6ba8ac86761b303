//! write and its relatives, and other calls that change a file. None of these calls changes a queue. A write may set a limit ([`knobs`]).

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use super::read::{part, slice};
use crate::table::Held;
use crate::{errno, knobs, ours};

/// Returns the kernel's answer to a write to a queue; `None` for any other file.
#[inline(always)]
fn refused(fd: c_int) -> Option<ssize_t> {
    let held = ours::file(fd)?;
    Some(errno::fail(if held.can_write() {
        libc::EINVAL
    } else {
        libc::EBADF
    }))
}

/// Answers a write from several buffers, if the descriptor writes to the file of a limit. `None` for any other file.
///
/// # Safety
/// The conditions of libc's writev.
#[inline(always)]
unsafe fn written(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: Option<off_t>,
) -> Option<ssize_t> {
    knobs::of(fd)?;
    // SAFETY: by this function's contract.
    unsafe {
        match slice(parts, count) {
            Ok(parts) => knobs::written(fd, parts, offset),
            Err(errno) => Some(errno::fail(errno)),
        }
    }
}

hooks! {
    /// Writes at the descriptor's position.
    fn [write](fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
        next => refused(fd)
            .or_else(|| knobs::written(fd, &[part(buffer.cast_mut(), len)], None))
            .unwrap_or_else(|| next(fd, buffer, len))
    }

    /// Writes at a position of the caller's choice.
    fn [pwrite, pwrite64](fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
        next => refused(fd)
            .or_else(|| knobs::written(fd, &[part(buffer.cast_mut(), len)], Some(offset)))
            .unwrap_or_else(|| next(fd, buffer, len, offset))
    }

    /// Writes from several buffers.
    fn [writev](fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        next => refused(fd)
            .or_else(|| written(fd, parts, count, None))
            .unwrap_or_else(|| next(fd, parts, count))
    }

    /// Writes from several buffers at a position of the caller's choice.
    fn [pwritev, pwritev64](fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        next => refused(fd)
            .or_else(|| written(fd, parts, count, Some(offset)))
            .unwrap_or_else(|| next(fd, parts, count, offset))
    }

    /// Writes a file to the disk. For a queue, this fails with EINVAL.
    fn [fsync, fdatasync](fd: c_int) -> c_int {
        next => match ours::file(fd) {
            Some(_) => errno::fail(libc::EINVAL),
            None => next(fd),
        }
    }

    /// Changes the length of a file. The call has no effect on a queue.
    fn [ftruncate, ftruncate64](fd: c_int, len: off_t) -> c_int {
        next => match ours::file(fd) {
            Some(held) => truncate(&held, len),
            None => next(fd, len),
        }
    }
}

/// Answers ftruncate for a queue. In the kernel, the call only changes the size that fstat shows, which has no meaning for the queue.
fn truncate(held: &Held, len: off_t) -> c_int {
    if len < 0 || !held.can_write() {
        errno::fail(libc::EINVAL)
    } else {
        0
    }
}
