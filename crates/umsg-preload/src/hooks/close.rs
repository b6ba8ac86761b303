//! The hooks of close, mq_close, close_range, closefrom.
//!
//! A descriptor's entry leaves the table before the descriptor is closed. After the close, another thread may already use the number for another
//! queue.
//!
//! The library's own descriptors ([`umsg_shm::sys::reserved_descriptors`]) stay open in all of these calls.

use std::ffi::{c_int, c_uint};

use umsg_shm::sys::reserved_descriptors;
use umsg_trace::Function;

use crate::trace::{self, Copied, Described};
use crate::{arrivals, errno, fd, kept, kernel, next, ours, process, table};

/// Closes a descriptor, which may be a queue's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    // SAFETY: the caller makes the promises that libc's close requires.
    unsafe { close_here(fd, next::close) }
}

/// Closes a queue's descriptor, or, as in glibc, any other descriptor. Unlike close, mq_close is not a cancellation point.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_close(fd: c_int) -> c_int {
    // SAFETY: the caller makes the promises that close requires.
    unsafe { close_here(fd, bare_close) }
}

/// # Safety
/// The conditions of libc's close.
unsafe fn bare_close(fd: c_int) -> c_int {
    // SAFETY: the call takes no pointers, and the caller may close the descriptor. The result of close fits into an int.
    unsafe { kernel::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) }
        .map_or_else(errno::fail, |result| result as c_int)
}

/// Closes a descriptor. The drop-in can't call the exported `close` instead, because that name may refer to an earlier library's function.
///
/// # Safety
/// The conditions of libc's close.
#[inline(always)]
unsafe fn close_here(fd: c_int, close: unsafe fn(c_int) -> c_int) -> c_int {
    if table::knows(fd) {
        // SAFETY: by this function's contract.
        return unsafe { close_known(fd, close) };
    }
    if reserved_descriptors::is(fd) {
        return errno::fail(libc::EBADF);
    }
    // SAFETY: by this function's contract.
    unsafe { close(fd) }
}

/// # Safety
/// The conditions of libc's close.
#[cold]
unsafe fn close_known(fd: c_int, close: unsafe fn(c_int) -> c_int) -> c_int {
    if !process::owns_table() {
        // SAFETY: by this function's contract.
        return unsafe { close(fd) };
    }
    let name = trace::name(fd);
    trace::recorded(
        || {
            ours::withdraw_notification(fd);
            let word = table::take(fd);
            // SAFETY: by this function's contract.
            let outcome = unsafe { close(fd) };
            word.into_iter().for_each(kept::release);
            drop_if_readopted(fd);
            outcome
        },
        Function::MqClose,
        |_| Described {
            arguments: [fd.into(), 0, 0, 0, 0],
            queue: name,
            data: Copied::default(),
        },
    )
}

/// Drops the entry of a closed number. Another thread's call may have seen the descriptor open, and entered its number again before the close.
fn drop_if_readopted(fd: c_int) {
    if table::knows(fd) && fd::identity(fd).is_none() {
        table::take(fd).into_iter().for_each(table::Word::release);
    }
}

/// Closes all descriptors from `first` to `last`, or sets their close-on-exec flags.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let known = (libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE).cast_signed();
    let closes = flags & !known == 0 && flags & libc::CLOSE_RANGE_CLOEXEC.cast_signed() == 0;
    let mut first = first;
    if flags & libc::CLOSE_RANGE_CLOEXEC.cast_signed() != 0 {
        // The inherited queues are entered into the table first: with FD_CLOEXEC, a descriptor would no longer look inherited.
        arrivals::look_at_all();
    }
    if closes && first <= last {
        forget_between(first, last);
        while let Some(ours) = reserved_descriptors::first_between(first, last) {
            // SAFETY: the caller makes the promises that libc's close_range requires.
            if ours > first && unsafe { next::close_range(first, ours - 1, flags) } != 0 {
                return -1;
            }
            if ours == last {
                return 0;
            }
            first = ours + 1;
        }
    }
    // SAFETY: the caller makes the promises that libc's close_range requires.
    unsafe { next::close_range(first, last, flags) }
}

/// Closes all descriptors from `first` on.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let mut first = first.max(0);
    forget_between(first.cast_unsigned(), c_uint::MAX);
    while let Some(ours) = reserved_descriptors::first_between(first.cast_unsigned(), c_uint::MAX) {
        let ours = ours.cast_signed();
        for number in first..ours {
            // SAFETY: the caller's promises to libc's closefrom include those that close requires.
            unsafe { next::close(number) };
        }
        first = ours + 1;
    }
    // SAFETY: the caller makes the promises that libc's closefrom requires.
    unsafe { next::closefrom(first) };
}

fn forget_between(first: c_uint, last: c_uint) {
    if umsg::posix::has_notifications() {
        // The inherited queues are entered into the table first: closing an inherited descriptor also ends a registration for notification.
        arrivals::look_at_all();
    }
    let mut known = table::known_between(first, last).peekable();
    if known.peek().is_some() && process::owns_table() {
        known
            .inspect(|&fd| ours::withdraw_notification(fd))
            .filter_map(table::take)
            .for_each(table::Word::release);
    }
}
