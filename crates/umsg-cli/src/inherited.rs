//! What Rust's runtime changes before main, or `exec` of its standard library, and a program under `umsg run` is to have as
//! its caller meant it: closed standard streams, and an ignored SIGPIPE, as services of systemd have it. And SIGXFSZ, which this command
//! ignores, so that a file that may not be so long is an error that it can tell.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::streams;

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static LARGE_FILES_IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds pointers to functions of this signature, which the C library calls once, before main, with
// arguments that may be ignored. `look` needs nothing that main's runtime sets up: it makes a system call and a store.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

/// The runtime ignores SIGPIPE itself.
extern "C" fn look() {
    // Relaxed: there is one thread, and main comes later in it.
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    LARGE_FILES_IGNORED.store(is_ignored(libc::SIGXFSZ), Ordering::Relaxed);
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action it only writes the present one, to a place for one that lives long enough.
    let failed = unsafe { libc::sigaction(signal, ptr::null(), found.as_mut_ptr()) } != 0;
    // SAFETY: all zeros are a valid sigaction, and so is what the call wrote.
    let action = unsafe { found.assume_init() };
    !failed && action.sa_sigaction == libc::SIG_IGN
}

/// From now on a file that would be longer than the process may make one is an error, EFBIG, and not this command's end.
pub fn take_large_files_for_errors() {
    // SAFETY: it replaces no handler of ours, and to ignore a signal runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Has `exec` of this command hand on what the caller gave.
pub fn hand_on(command: &mut Command) {
    streams::leave_closed();
    // Relaxed: see `look`.
    let ignored = PIPE_IGNORED.load(Ordering::Relaxed);
    let ignores_large_files = LARGE_FILES_IGNORED.load(Ordering::Relaxed);
    let restore = move || {
        if ignored {
            // SAFETY: it replaces no handler of ours, and to ignore a signal runs no code.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        if !ignores_large_files {
            // SAFETY: as above; the program that follows is to have what its caller had.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: `exec` calls it in this process, which has one thread; it makes calls that signal-safety(7) allows even after
    // a fork, and allocates nothing.
    unsafe { command.pre_exec(restore) };
}
