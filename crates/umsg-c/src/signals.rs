//! Signal handlers that use queues.

use std::ffi::{c_int, c_void};

use crate::error::{Failure, answer};

/// Defers a signal that arrived inside a call on a queue.
///
/// A signal handler that uses umsg calls this function first, with the three arguments that the kernel gave to the handler. So the handler must be
/// installed with `SA_SIGINFO`. If the signal interrupted this thread inside a critical section of a call on a queue, the handler has to return at
/// once. The signal is delivered again at the end of the section, less than a microsecond later. If the handler continues instead, its call may fail
/// with `EDEADLK`.
///
/// Signals that an instruction raises (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`, `SIGTRAP`, `SIGSYS`, `SIGABRT`) are
/// never deferred. A handler that does not use queues need not call this function. However, if such a handler runs just before a blocking call goes
/// to sleep, the call may miss the signal and sleep. After a handler that calls this function, the call always ends with `EINTR`.
///
/// # Return value
/// The call returns 1 if the handler has to return at once, and 0 if the handler may use queues.
///
/// # Errors
/// None.
///
/// # If the process dies
/// The call has no further effect.
///
/// # See also
/// umsg_mq_send(3), sigaction(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_defer_signal(
    signal: c_int,
    info: *const c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that these are the arguments that the kernel gave to the running handler.
    unsafe { umsg::signals::defer(signal, info.cast(), context.cast()) }.into()
}

/// Makes calls fail with an error if another process has truncated a queue's file.
///
/// If a mapped page of a queue has no memory, the kernel raises `SIGBUS` in the call on the queue, and the signal ends the process. This function
/// installs a handler of `SIGBUS` for the process. The handler maps pages of zeroes in place of the missing pages; the call on the queue then fails
/// with `EBADMSG`, and so does every later call of this process on that queue. Other causes of `SIGBUS` go to the handler that was installed before.
/// A handler that the program installs later replaces the function's handler. A second call does nothing. Programs under `umsg run` need not call the
/// function; other programs call it before they open the first queue.
///
/// A page has no memory if a process has truncated the file, or if the file system, or swap, can't read or write the page. A page that was never
/// used, or that was punched out of the file, has no memory if the file system or its quota is full.
///
/// The signal still ends the process if the page's memory is broken (`BUS_MCEERR_AR`), if the file is on hugetlbfs, or if the thread blocks
/// `SIGBUS`. A full memory control group raises only `SIGKILL`.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of sigaction(2).
///
/// # If the process dies
/// The handler ends with the process, and is not inherited over execve(2).
///
/// # See also
/// umsg_defer_signal(3), sigaction(2)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_catch_truncation() -> c_int {
    let caught = umsg::signals::catch_truncation();
    answer(caught.map(|()| 0).map_err(Failure::from))
}
