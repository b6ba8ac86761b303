//! Memory that processes share.

use crate::errno::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::AtomicU32;

/// Makes memory that this process shares with the children that it forks. The memory is zero at first, and stays mapped until a call of
/// [`unmap_words`].
///
/// # Errors
/// The errors of `mmap`.
pub fn shared_words(count: usize) -> Result<&'static [AtomicU32], Errno> {
    map_words(count, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
}

/// Maps the first `count` words of a file, which is long enough. The words stay mapped until a call of [`unmap_words`].
///
/// # Errors
/// The errors of `mmap`.
pub fn words_of(file: BorrowedFd<'_>, count: usize) -> Result<&'static [AtomicU32], Errno> {
    map_words(count, libc::MAP_SHARED, file.as_raw_fd())
}

/// Unmaps words. The caller must be the last code in this process that uses the words.
pub fn unmap_words(words: &'static [AtomicU32]) {
    let start = words.as_ptr().cast_mut().cast();
    // SAFETY: `map_words` mapped the words with this length, and the caller has the last reference.
    unsafe { libc::munmap(start, size_of_val(words)) };
}

fn map_words(count: usize, flags: i32, fd: RawFd) -> Result<&'static [AtomicU32], Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no other mapping.
    let start = unsafe { libc::mmap(ptr::null_mut(), count * 4, protection, flags, fd, 0) };
    if start == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: the memory is anonymous or within the file, aligned to a page, and only used as atomics. Only `unmap_words` unmaps it, after the last
    // use.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), count) })
}
