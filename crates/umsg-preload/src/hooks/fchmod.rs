//! fchmod: a queue's mode is in its header; the file's own mode controls mapping it.

use std::ffi::c_int;

use libc::mode_t;

use crate::table::Held;
use crate::{errno, fd, next, ours};

/// Sets the mode bits of an open file, or of a queue.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fchmod(number: c_int, mode: mode_t) -> c_int {
    match ours::file(number) {
        Some(held) => set_mode(&held, number, mode).unwrap_or_else(errno::fail),
        // SAFETY: the call takes no pointers.
        None => unsafe { next::fchmod(number, mode) },
    }
}

fn set_mode(held: &Held, number: c_int, mode: mode_t) -> Result<c_int, c_int> {
    let descriptor = fd::borrow(number).ok_or(libc::EBADF)?;
    held.queue
        .set_mode(descriptor, mode)
        .map_err(|error| error.errno())?;
    Ok(0)
}
