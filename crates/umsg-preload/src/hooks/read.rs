//! read and its relatives: a queue's descriptor reads as one line about the queue.

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};
use umsg::kernel_files::queue_line;

use crate::table::Held;
use crate::{errno, next, ours, pointer};

hooks! {
    /// Reads from the descriptor's position.
    fn [read](fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        next => match ours::file(fd) {
            Some(held) => read_here(&held, fd, &[part(buffer, len)]),
            None => next(fd, buffer, len),
        }
    }

    /// The variant of read that programs compiled with _FORTIFY_SOURCE call.
    fn [__read_chk](fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        next => match ours::file(fd) {
            Some(held) if len <= room => read_here(&held, fd, &[part(buffer, len)]),
            _ => next(fd, buffer, len, room),
        }
    }

    /// Reads from a position of the caller's choice.
    fn [pread, pread64](fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
        next => match ours::file(fd) {
            Some(held) => read_there(&held, &[part(buffer, len)], offset),
            None => next(fd, buffer, len, offset),
        }
    }

    /// The variant of pread that programs compiled with _FORTIFY_SOURCE call.
    fn [__pread_chk, __pread64_chk](fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t {
        next => match ours::file(fd) {
            Some(held) if len <= room => read_there(&held, &[part(buffer, len)], offset),
            _ => next(fd, buffer, len, offset, room),
        }
    }

    /// Reads into several buffers.
    fn [readv](fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        next => match ours::file(fd) {
            Some(held) => slice(parts, count).map_or_else(errno::fail, |parts| read_here(&held, fd, parts)),
            None => next(fd, parts, count),
        }
    }

    /// Reads into several buffers from a position of the caller's choice.
    fn [preadv, preadv64](fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        next => match ours::file(fd) {
            Some(held) => slice(parts, count).map_or_else(errno::fail, |parts| read_there(&held, parts, offset)),
            None => next(fd, parts, count, offset),
        }
    }
}

pub(super) fn part(buffer: *mut c_void, len: size_t) -> iovec {
    iovec {
        iov_base: buffer,
        iov_len: len,
    }
}

/// # Safety
/// `parts` has `count` elements, or is an address that a pointer check refuses.
pub(super) unsafe fn slice<'a>(parts: *const iovec, count: c_int) -> Result<&'a [iovec], c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Err(_) => Err(libc::EINVAL),
        Ok(_) if pointer::is_bad(parts) => Err(libc::EFAULT),
        // SAFETY: by this function's contract.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts(parts, count) }),
    }
}

/// Reads at the position of the open file description, and advances the position.
///
/// # Safety
/// The conditions of [`copy`].
#[cold]
unsafe fn read_here(held: &Held, fd: c_int, parts: &[iovec]) -> ssize_t {
    // SAFETY: lseek takes no pointers.
    let position = unsafe { next::lseek(fd, 0, libc::SEEK_CUR) };
    if position < 0 {
        return -1;
    }
    // SAFETY: by this function's contract.
    let read = unsafe { read_there(held, parts, position) };
    if read > 0 {
        // SAFETY: lseek takes no pointers.
        unsafe { next::lseek(fd, position + read as off_t, libc::SEEK_SET) };
    }
    read
}

/// # Safety
/// The conditions of [`copy`].
#[cold]
unsafe fn read_there(held: &Held, parts: &[iovec], offset: off_t) -> ssize_t {
    let Ok(offset) = usize::try_from(offset) else {
        return errno::fail(libc::EINVAL);
    };
    if !held.can_read() {
        return errno::fail(libc::EBADF);
    }
    let mut room = [0; 96];
    let text = line(held, &mut room);
    // SAFETY: by this function's contract.
    unsafe { copy(text.get(offset..).unwrap_or(&[]), parts) }
}

/// Returns the line that a program reads from a queue's descriptor.
pub(crate) fn line<'a>(held: &Held, room: &'a mut queue_line::Room) -> &'a [u8] {
    queue_line::of(&held.queue, room)
}

/// # Safety
/// Each part has the number of writable bytes that it states, or an address that a pointer check refuses.
unsafe fn copy(text: &[u8], parts: &[iovec]) -> ssize_t {
    let mut rest = text;
    for part in parts {
        let (now, later) = rest.split_at(rest.len().min(part.iov_len));
        if !now.is_empty() && pointer::is_bad(part.iov_base) {
            return if rest.len() < text.len() {
                (text.len() - rest.len()).cast_signed()
            } else {
                errno::fail(libc::EFAULT)
            };
        }
        // SAFETY: by this function's contract; `now` is not longer than the part. The text belongs to this library, so it does not overlap the part.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), part.iov_base.cast(), now.len()) };
        rest = later;
    }
    (text.len() - rest.len()).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::{copy, part};

    #[test]
    fn a_text_is_spread_over_the_parts() {
        let mut first = [0_u8; 2];
        let mut second = [0_u8; 9];
        let parts = [
            part(first.as_mut_ptr().cast(), 2),
            part(second.as_mut_ptr().cast(), 9),
        ];
        // SAFETY: the parts are the two arrays.
        assert_eq!(unsafe { copy(b"abcde", &parts) }, 5);
        assert_eq!((&first, &second[..4]), (b"ab", b"cde\0".as_slice()));
    }

    #[test]
    fn a_bad_address_after_some_bytes_shortens_the_read() {
        let mut first = [0_u8; 2];
        let parts = [
            part(first.as_mut_ptr().cast(), 2),
            part(std::ptr::null_mut(), 9),
        ];
        // SAFETY: the first part is the array. The function refuses the second part.
        assert_eq!(unsafe { copy(b"abcde", &parts) }, 2);
        // SAFETY: the call has one part, which the function refuses.
        assert_eq!(unsafe { copy(b"abcde", &parts[1..]) }, -1);
        // SAFETY: the call has one part, which the function refuses.
        assert_eq!(unsafe { copy(b"", &parts[1..]) }, 0);
    }
}
