//! Signal handlers that use queues.

use std::ffi::{c_int, c_void};

use crate::error::{Failure, answer};

/// Puts off a signal whose handler must not use a queue now.
///
/// To be called first in a signal handler that uses umsg, with the three arguments that the kernel gave to it; so the
/// handler must have been installed with `SA_SIGINFO`. If the signal interrupted this thread inside a critical section of
/// a call on a queue, the handler has to return at once: the signal is delivered again as soon as the section is over,
/// which is well below a microsecond later. A handler that goes on instead may find that its call fails with `EDEADLK`.
///
/// Signals that an instruction raises itself (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`, `SIGTRAP`, `SIGSYS`, `SIGABRT`) are
/// never put off. Handlers that don't use queues need not call it.
///
/// # Return value
/// 1 if the handler has to return at once, 0 if it may use queues.
///
/// # Errors
/// None.
///
/// # If the process dies
/// Nothing is left.
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

/// Makes an error of a queue whose file a peer has cut short.
///
/// The kernel raises `SIGBUS` in a call on a queue whose mapped page can't be had, which ends the process. This function installs a
/// handler of `SIGBUS` for the process: it puts pages of zeroes in their place and lets the call on the queue fail with
/// `EBADMSG`, and so does every later one in this process. What is not umsg's goes to the handler that was installed before; one
/// that is installed later takes its place. A second call does nothing. Programs under `umsg run` need not call it; others call it before
/// they open the first queue.
///
/// A page can't be had if a process has cut the file short; if the page was never used, or was punched out of the file, and the file
/// system or its quota is full; or if the file system, or swap, can't read or write it.
///
/// The process ends all the same if the page's memory is broken (`BUS_MCEERR_AR`), if the file lies on hugetlbfs, or if the thread blocks
/// `SIGBUS`. A memory control group that is full raises no signal but `SIGKILL`.
///
/// # Return value
/// 0, or -1 with `errno` set.
///
/// # Errors
/// Those of sigaction(2).
///
/// # If the process dies
/// Nothing is left. The program that it becomes by execve(2) has no handler.
///
/// # See also
/// umsg_defer_signal(3), sigaction(2)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_catch_truncation() -> c_int {
    let caught = umsg::signals::catch_truncation();
    answer(caught.map(|()| 0).map_err(Failure::from))
}
