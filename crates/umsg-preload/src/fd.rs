//! System calls on a descriptor. They are bare system calls, because the drop-in hooks libc's functions.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// Wraps a descriptor number, if it is not negative. The kernel checks whether the descriptor is open.
pub(crate) fn borrow(number: c_int) -> Option<BorrowedFd<'static>> {
    // SAFETY: the number is not -1, and belongs to the program. It is only passed to system calls, which fail with EBADF if the descriptor is not
    // open. The code of the drop-in does not close it.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// Returns the flags of the descriptor's open file description, including the access mode.
pub(crate) fn status_flags(descriptor: BorrowedFd<'_>) -> Result<c_int, Errno> {
    // The flags are an int, which rustix represents as unsigned.
    rustix::fs::fcntl_getfl(descriptor).map(|flags| flags.bits().cast_signed())
}

/// Moves the descriptor to the lowest free number: lower numbers may have been in use while the file was opened.
pub(crate) fn lowest(descriptor: OwnedFd, close_on_exec: bool) -> OwnedFd {
    let lower = if close_on_exec {
        rustix::io::fcntl_dupfd_cloexec(&descriptor, 0)
    } else {
        rustix::io::dup(&descriptor)
    };
    match lower {
        Ok(lower) if lower.as_raw_fd() < descriptor.as_raw_fd() => lower,
        _ => descriptor,
    }
}

/// Returns the device and the inode of the file that is open as this descriptor.
pub(crate) fn identity(number: c_int) -> Option<(u64, u64)> {
    let status = rustix::fs::fstat(borrow(number)?).ok()?;
    Some((status.st_dev, status.st_ino))
}
