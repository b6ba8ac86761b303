//! fflush, fclose and fseek, for streams that write to the /proc/sys file of a limit. libc's streams write to the file without calling this library's
//! `write`, so the text takes effect in these functions ([`crate::knobs`]).

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, off_t};

use crate::{arrivals, errno, knobs, next, table};

/// libc's flag for a stream on which a write has failed, in the first word of a stream of glibc and of musl.
const HAS_FAILED: c_int = 0x20;

/// The streams that the program has opened for writing to the files of limits. Relaxed: a program that closes a stream uses it in no other thread.
static WRITTEN: [AtomicPtr<FILE>; 16] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 16];

/// Notes a stream that writes to a limit's file. If the list is full, text that is still in the stream's buffer at the end of the process has no
/// effect.
pub(super) fn note(stream: *mut FILE) {
    let empty = std::ptr::null_mut();
    let (new, failed) = (Ordering::Relaxed, Ordering::Relaxed);
    let mut places = WRITTEN.iter();
    let _ = places.find(|place| place.compare_exchange(empty, stream, new, failed).is_ok());
}

fn forget(stream: *mut FILE) {
    let empty = std::ptr::null_mut();
    for place in &WRITTEN {
        let _ = place.compare_exchange(stream, empty, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Applies the buffered text of the streams at the end of the process: libc writes the buffers only after the destructors of libraries.
pub(crate) fn settle_at_exit() {
    for place in &WRITTEN {
        let stream = place.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if !stream.is_null() {
            // SAFETY: the stream is open: `fclose` forgets a stream before it closes the stream. A failure can't be reported, as in libc.
            let _ = unsafe { settle(stream) };
        }
    }
}

/// Writes the buffered bytes of a stream, or with NULL of all streams.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fflush(stream: *mut FILE) -> c_int {
    // SAFETY: the caller makes the promises that libc's fflush requires.
    unsafe {
        let number = limit_of(stream);
        let outcome = next::fflush(stream);
        match number.map_or(Ok(()), knobs::settle) {
            Ok(()) => outcome,
            Err(errno) => {
                if !stream.is_null() {
                    *stream.cast::<c_int>() |= HAS_FAILED;
                }
                errno::fail(errno)
            }
        }
    }
}

/// Closes a stream.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the caller makes the promises that libc's fclose requires.
    unsafe {
        let settled = match limit_of(stream) {
            Some(number) => {
                next::fflush(stream);
                knobs::settle(number)
            }
            None => Ok(()),
        };
        forget(stream);
        let outcome = next::fclose(stream);
        settled.map_or_else(errno::fail, |()| outcome)
    }
}

hooks! {
    /// Moves a stream to its beginning. libc writes the buffered bytes first.
    fn [rewind](stream: *mut FILE) -> () {
        next => {
            // A failure can't be reported, as in libc.
            let _ = settle(stream);
            next(stream)
        }
    }

    /// Moves a stream. libc writes the buffered bytes first.
    fn [fseek](stream: *mut FILE, offset: c_long, whence: c_int) -> c_int {
        next => match settle(stream) {
            Ok(()) => next(stream, offset, whence),
            Err(errno) => errno::fail(errno),
        }
    }

    /// fseek with an offset of the type off_t.
    fn [fseeko, fseeko64](stream: *mut FILE, offset: off_t, whence: c_int) -> c_int {
        next => match settle(stream) {
            Ok(()) => next(stream, offset, whence),
            Err(errno) => errno::fail(errno),
        }
    }
}

/// Sets a limit to the text that a stream has written to the limit's file.
///
/// # Safety
/// `stream` is an open stream.
#[inline(always)]
unsafe fn settle(stream: *mut FILE) -> Result<(), c_int> {
    // SAFETY: by this function's contract.
    match unsafe { limit_of(stream) } {
        Some(number) => {
            // SAFETY: by this function's contract.
            unsafe { next::fflush(stream) };
            knobs::settle(number)
        }
        None => Ok(()),
    }
}

/// Returns the descriptor of a stream, if the stream writes to the file of a limit. NULL stands for all streams, of which only the standard output is
/// checked.
///
/// # Safety
/// `stream` is NULL or an open stream.
#[inline(always)]
unsafe fn limit_of(stream: *mut FILE) -> Option<c_int> {
    if !arrivals::are_expected() && !knobs::are_there() {
        return None;
    }
    // SAFETY: by this function's contract.
    unsafe { find_limit(stream) }
}

/// # Safety
/// The conditions of [`limit_of`].
#[cold]
unsafe fn find_limit(stream: *mut FILE) -> Option<c_int> {
    let before = errno::get();
    let number = if stream.is_null() {
        libc::STDOUT_FILENO
    } else {
        // SAFETY: the stream is open.
        unsafe { libc::fileno(stream) }
    };
    errno::set(before);
    // `knows` comes first because it inspects an inherited descriptor at the first query for its number.
    let is_queue = table::knows(number);
    (!is_queue && knobs::of(number).is_some()).then_some(number)
}
