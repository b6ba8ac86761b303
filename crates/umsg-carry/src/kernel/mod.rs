//! The kernel's own queues. This module makes the system calls itself, because in a program under `umsg run` libc's functions use umsg's queues.

pub mod posix;
pub mod sysv;

use rustix::io::Errno;
use std::ffi::c_long;

/// Makes a system call.
///
/// # Safety
/// The arguments meet the conditions of the system call.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: by this function's contract.
    let result = unsafe { umsg_shm::kernel::call(number, arguments) };
    result
        .map(isize::cast_unsigned)
        .map_err(Errno::from_raw_os_error)
}
