//! mq_notify: not offered for queues of ours.

use std::ffi::c_int;

use libc::sigevent;

use crate::{errno, next, ours, pointer};

/// Largest number of a signal.
const SIGNALS: c_int = 64;

/// For a queue of ours: ENOSYS once the arguments are found valid, and 0 for taking a registration back, of which there is
/// none.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_notify(fd: c_int, event: *const sigevent) -> c_int {
    match ours::checked_queue(fd) {
        // SAFETY: the caller's promises to libc's mq_notify are handed on.
        Ok(None) => unsafe { next::mq_notify(fd, event) },
        // SAFETY: as above.
        Ok(Some(_)) => unsafe { judge(event) }.unwrap_or_else(errno::fail),
        Err(errno) => errno::fail(errno),
    }
}

/// # Safety
/// `event` is readable, or NULL, or an address that a pointer check refuses.
unsafe fn judge(event: *const sigevent) -> Result<c_int, c_int> {
    if event.is_null() {
        return Ok(0);
    }
    if pointer::is_bad(event) {
        return Err(libc::EFAULT);
    }
    // SAFETY: by this function's contract. Unaligned as the kernel would take it.
    let event = unsafe { event.read_unaligned() };
    match event.sigev_notify {
        libc::SIGEV_SIGNAL if !(0..=SIGNALS).contains(&event.sigev_signo) => Err(libc::EINVAL),
        libc::SIGEV_SIGNAL | libc::SIGEV_NONE | libc::SIGEV_THREAD => Err(libc::ENOSYS),
        _ => Err(libc::EINVAL),
    }
}
