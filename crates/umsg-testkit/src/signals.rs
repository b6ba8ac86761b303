//! Signals that a thread waits for, instead of handling them.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::time::Duration;

/// Blocks a signal in the calling thread, and in the threads and processes that it starts. Returns a signal set that contains only this signal.
pub fn block(signal: i32) -> libc::sigset_t {
    // SAFETY: all zeros are a valid set, and the calls get pointers to it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        set
    }
}

/// Lets a program respond to SIGINT. A shell starts background jobs with SIGINT ignored, and the programs that a test in such a job starts would
/// ignore SIGINT, too.
pub fn heeding_interrupts(program: &mut Command) -> &mut Command {
    let default = || {
        // SAFETY: signal(2) is safe between fork and exec.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the function makes one system call.
    unsafe { program.pre_exec(default) }
}

/// Waits for a signal of the set, at most for the time `within`. Returns whether a signal came.
pub fn comes(set: &libc::sigset_t, within: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: within.as_secs() as libc::time_t,
        tv_nsec: within.subsec_nanos().into(),
    };
    // SAFETY: the call reads the set and the time.
    unsafe { libc::sigtimedwait(set, ptr::null_mut(), &raw const time) > 0 }
}
