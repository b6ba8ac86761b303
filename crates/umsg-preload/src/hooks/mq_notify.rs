//! mq_notify: the process is notified when a message arrives at the empty queue.

use std::ffi::c_int;

use libc::sigevent;
use umsg::posix::{Notify, sigevent::wanted, withdraw_notification};
use umsg_shm::sys::stack::roomy;

use crate::{errno, next, ours, pointer, process};

/// Registers the process, or with NULL takes its registration back.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_notify(fd: c_int, event: *const sigevent) -> c_int {
    match ours::checked_queue(fd) {
        // SAFETY: the caller's promises to libc's mq_notify are handed on.
        Ok(None) => unsafe { next::mq_notify(fd, event) },
        Ok(Some(held)) if event.is_null() => {
            if process::owns_table() {
                roomy(|| withdraw_notification(held.identity));
            }
            0
        }
        // SAFETY: the caller promises an event as mq_notify wants it.
        Ok(Some(held)) => unsafe { checked(event) }
            .and_then(|how| roomy(|| held.queue.register(how)).map_err(|error| error.errno()))
            .map_or_else(errno::fail, |_| 0),
        Err(errno) => errno::fail(errno),
    }
}

/// # Safety
/// `event` is as mq_notify wants it, or an address that a pointer check refuses.
unsafe fn checked(event: *const sigevent) -> Result<Notify, c_int> {
    if pointer::is_bad(event) {
        return Err(libc::EFAULT);
    }
    // The parent's memory, in which the child would register its parent.
    if !process::owns_table() {
        return Err(libc::ENOMEM);
    }
    // SAFETY: by this function's contract.
    unsafe { wanted(event) }.map_err(|error| error.errno())
}
