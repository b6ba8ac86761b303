//! Checks whether a descriptor is a queue of umsg, for calls that can afford a system call. A send or a receive only reads the table.

use std::ffi::c_int;

use crate::adopt::adopt;
use crate::table::{self, Held};
use crate::{fd, process};

/// Returns the queue of a descriptor, for calls that take any file (read, fstat, lseek ...). For a descriptor without an entry in the table, the
/// check costs one read of the table. For a descriptor with an entry, the file itself is checked, too.
#[inline(always)]
pub(crate) fn file(number: c_int) -> Option<Held> {
    if table::knows(number) {
        checked(number)
    } else {
        None
    }
}

/// Returns the queue of a descriptor, for mq_* functions, which take a queue. If the table has no entry for the descriptor, the file is checked.
///
/// Returns `Ok(None)` if the descriptor is not a queue of umsg: the caller then passes the call on. An error is an errno.
pub(crate) fn checked_queue(number: c_int) -> Result<Option<Held>, c_int> {
    match file(number) {
        Some(held) => Ok(Some(held)),
        None => adopt(number),
    }
}

#[cold]
fn checked(number: c_int) -> Option<Held> {
    let held = table::hold(number)?;
    if fd::identity(number) == Some(held.identity) {
        return Some(held);
    }
    // A bare system call has closed the descriptor, and its number may belong to another file: the entry is stale.
    if process::owns_table() {
        table::forget(number, held.word());
    }
    None
}

/// Ends the process's registration with a queue when the process closes a descriptor of the queue, as the kernel does. The close of any descriptor of
/// the queue ends the registration, but a close in a child does not.
#[inline(always)]
pub(crate) fn withdraw_notification(number: c_int) {
    if umsg::posix::has_notifications()
        && let Some(held) = table::hold(number)
    {
        umsg::posix::withdraw_notification_at_close(held.identity);
    }
}
