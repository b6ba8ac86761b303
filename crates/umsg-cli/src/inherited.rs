//! Restores settings of this process for the programs that it starts: closed standard streams, and the dispositions of SIGPIPE and SIGXFSZ. Rust's
//! runtime opens closed streams and ignores SIGPIPE before main. This command itself ignores SIGXFSZ, so that a write beyond the limit of file sizes
//! is an error that the command can report.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::streams;

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static LARGE_FILES_IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds pointers to functions of this signature, which the C library calls once, before main, with arguments that the function
// may ignore. `inspect` makes only a system call and a store, which need no runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = inspect;

/// Records the dispositions of the caller, before the runtime changes them.
extern "C" fn inspect() {
    // Relaxed: the process has one thread.
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    LARGE_FILES_IGNORED.store(is_ignored(libc::SIGXFSZ), Ordering::Relaxed);
}

/// Returns whether the process ignores a signal.
pub fn is_ignored(signal: libc::c_int) -> bool {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the call only writes the current action to `found`, which exists during the call.
    let failed = unsafe { libc::sigaction(signal, ptr::null(), found.as_mut_ptr()) } != 0;
    // SAFETY: all zeros are a valid sigaction, and the call writes a valid one.
    let action = unsafe { found.assume_init() };
    !failed && action.sa_sigaction == libc::SIG_IGN
}

/// Ignores SIGXFSZ, so that a write beyond the limit of file sizes fails with EFBIG and does not end this command.
pub fn ignore_sigxfsz() {
    // SAFETY: this command has no handler for the signal, and an ignored signal runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Makes `command` start with the standard streams and the dispositions of this command's caller. The program may replace this process or run as its
/// child.
pub fn restore_on_exec(command: &mut Command) {
    streams::leave_closed();
    // Relaxed: see `inspect`.
    let ignored = PIPE_IGNORED.load(Ordering::Relaxed);
    let ignores_large_files = LARGE_FILES_IGNORED.load(Ordering::Relaxed);
    let restore = move || {
        if ignored {
            // SAFETY: this command has no handler for the signal, and an ignored signal runs no code.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        if !ignores_large_files {
            // SAFETY: this command has no handler for the signal, and the default disposition runs no code of this process.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls and does not allocate, so that it may run in a forked child, too.
    unsafe { command.pre_exec(restore) };
}

/// Sends SIGTERM to `command` when the thread that starts it ends, for example because this process is killed.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = rustix::process::getpid();
    let tie = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        // The parent may have died before the call.
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            false => Err(rustix::io::Errno::SRCH.into()),
        }
    };
    // SAFETY: the closure makes only async-signal-safe calls and does not allocate, so that it may run in a forked child, too.
    unsafe { command.pre_exec(tie) };
}
