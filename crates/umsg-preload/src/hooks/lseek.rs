//! lseek: to the program, a queue's descriptor refers to a file of 80 bytes, as in the kernel. So the descriptor has a position.

use std::ffi::c_int;

use libc::off_t;

use super::stat::SIZE;
use crate::{errno, next, ours};

/// Moves the position of an open file, or of a queue's descriptor.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    match ours::file(fd) {
        Some(_) => seek(fd, offset, whence),
        // SAFETY: the call takes no pointers.
        None => unsafe { next::lseek(fd, offset, whence) },
    }
}

/// Moves the position, as `lseek` does.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    match ours::file(fd) {
        Some(_) => seek(fd, offset, whence),
        // SAFETY: the call takes no pointers.
        None => unsafe { next::lseek64(fd, offset, whence) },
    }
}

/// Moves the position of a queue's descriptor. The position belongs to the open file description, so the kernel stores it for the segment's file.
/// Only the size of the segment's file is hidden: the program sees 80 bytes.
#[cold]
fn seek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    let (offset, whence) = match whence {
        libc::SEEK_END => (SIZE.saturating_add(offset), libc::SEEK_SET),
        libc::SEEK_DATA | libc::SEEK_HOLE if !(0..SIZE).contains(&offset) => {
            return errno::fail(libc::ENXIO);
        }
        libc::SEEK_DATA => (offset, libc::SEEK_SET),
        libc::SEEK_HOLE => (SIZE, libc::SEEK_SET),
        other => (offset, other),
    };
    // SAFETY: the call takes no pointers.
    unsafe { next::lseek(fd, offset, whence) }
}
