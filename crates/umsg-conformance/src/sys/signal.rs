//! Sets the effects of signals on this process.

use super::check;
use crate::errno::Errno;
use std::ptr;
use std::time::Duration;

/// The function `sigaction`, or a backend's replacement of it.
pub type Sigaction = unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;

/// Installs a handler for a signal, by `sigaction`.
///
/// # Errors
/// The errors of `sigaction`.
pub fn handle_signal(
    sigaction: Sigaction,
    signal: i32,
    handler: extern "C" fn(i32),
    flags: i32,
) -> Result<(), Errno> {
    // SAFETY: the structure consists of integers and function addresses, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: the action is valid, and its handler takes the signal number. No old action is requested.
    check(unsafe { sigaction(signal, &action, ptr::null_mut()) }).map(drop)
}

/// Makes the kernel send this process the signal SIGALRM once, after this time.
pub fn start_timer(after: Duration) {
    let time = |after: Duration| libc::timeval {
        tv_sec: after.as_secs() as i64,
        tv_usec: after.subsec_micros().into(),
    };
    let timer = libc::itimerval {
        it_interval: time(Duration::ZERO),
        it_value: time(after),
    };
    // SAFETY: the timer is valid, and no old timer is requested.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, ptr::null_mut()) };
}

/// Makes this process ignore a signal, or restores the signal's default action.
pub fn set_disposition(signal: i32, disposition: libc::sighandler_t) {
    // SAFETY: the disposition is SIG_IGN or SIG_DFL.
    unsafe { libc::signal(signal, disposition) };
}
