//! fstat and its relatives: the functions show a queue's descriptor as a regular file of 80 bytes with the queue's mode.

use std::ffi::{c_char, c_int, c_uint};

use libc::stat;

use umsg::kernel_files::place::BLOCK;
pub(super) use umsg::kernel_files::place::SIZE;

use crate::mqueue;
use crate::{errno, next, ours};

/// The fields of statx(2) that an mqueue file system supports: all except the time of creation.
const STATX_KNOWN: c_uint = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;

hooks! {
    /// Gets the status of an open file.
    fn [fstat, fstat64](fd: c_int, out: *mut stat) -> c_int {
        next => amend(fd, out, next(fd, out))
    }

    /// Gets the status of an open file, in programs linked against glibc before 2.33.
    fn [__fxstat, __fxstat64](version: c_int, fd: c_int, out: *mut stat) -> c_int {
        next => amend(fd, out, next(version, fd, out))
    }

    /// Gets the status of a file by its path, or of an open file by an empty path.
    fn [fstatat, fstatat64](directory: c_int, path: *const c_char, out: *mut stat, flags: c_int) -> c_int {
        next => match mqueue::at(directory, path) {
            Some(place) => place.stat(out).unwrap_or_else(errno::fail),
            None => amend_at(directory, path, flags, out, next(directory, path, out, flags)),
        }
    }

    /// fstatat in programs linked against glibc before 2.33.
    fn [__fxstatat, __fxstatat64](version: c_int, directory: c_int, path: *const c_char, out: *mut stat, flags: c_int) -> c_int {
        next => match mqueue::at(directory, path) {
            Some(place) => place.stat(out).unwrap_or_else(errno::fail),
            None => amend_at(directory, path, flags, out, next(version, directory, path, out, flags)),
        }
    }
}

/// Gets the extended status of a file.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn statx(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller makes the promises of libc's statx. A successful call has filled `out`.
    unsafe {
        if let Some(place) = mqueue::at(directory, path) {
            return place.statx(flags, mask, out).unwrap_or_else(errno::fail);
        }
        let outcome = next::statx(directory, path, flags, mask, out);
        if outcome == 0
            && let Some(held) = ours::file(meant(directory, path, flags))
        {
            disguise_statx(held.queue.mode(), &mut *out);
        }
        outcome
    }
}

/// Returns the descriptor whose status a call with an empty path requests; -1 for any other call.
///
/// # Safety
/// `path` is NULL or a C string. With AT_EMPTY_PATH, the function reads the first byte of `path`; otherwise it reads nothing.
#[inline(always)]
unsafe fn meant(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: by this function's contract.
    let is_empty = flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path == 0 });
    if is_empty { directory } else { -1 }
}

/// # Safety
/// If `outcome` is 0, `out` is a status, and `path` is NULL or a C string.
#[inline(always)]
unsafe fn amend_at(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    out: *mut stat,
    outcome: c_int,
) -> c_int {
    if outcome != 0 {
        return outcome;
    }
    // SAFETY: by this function's contract.
    unsafe { amend(meant(directory, path, flags), out, outcome) }
}

/// # Safety
/// If `outcome` is 0, `out` is a status.
#[inline(always)]
unsafe fn amend(fd: c_int, out: *mut stat, outcome: c_int) -> c_int {
    if outcome == 0
        && let Some(held) = ours::file(fd)
    {
        // SAFETY: by this function's contract.
        disguise(held.queue.mode(), unsafe { &mut *out });
    }
    outcome
}

#[cold]
pub(crate) fn disguise(mode: u32, status: &mut stat) {
    status.st_mode = libc::S_IFREG | mode;
    status.st_size = SIZE;
    status.st_blocks = 0;
    // The type has 32 or 64 bits, depending on the architecture.
    status.st_blksize = BLOCK.into();
}

#[cold]
pub(crate) fn disguise_statx(mode: u32, status: &mut libc::statx) {
    status.stx_mask &= STATX_KNOWN;
    status.stx_mode = (libc::S_IFREG | mode) as u16;
    status.stx_size = SIZE.cast_unsigned();
    status.stx_blocks = 0;
    status.stx_blksize = BLOCK.into();
}
