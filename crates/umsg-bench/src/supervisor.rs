//! Cleans up after the measurement.
//!
//! ```text
//! supervisor ──fork──▶ worker (measures) ──fork──▶ sender, receiver
//!  owns the directory    dies with the supervisor    die with the worker
//! ```
//!
//! The supervisor makes a namespace directory, and a directory for other libraries and servers. It waits for the worker until a deadline. As the
//! subreaper of all processes, the supervisor then reaps the remaining processes. Then it removes the directories, the kernel's System V queues, and
//! the files that other libraries left in shared memory. The supervisor cleans up even if the worker is killed, crashes or is interrupted from the
//! keyboard. The kernel's POSIX queues need no cleanup: they are unlinked as soon as they are open.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::ExitCode;
use std::ptr;
use std::time::{Duration, Instant};

use crate::backends::typed;
use crate::directory::Directory;
use crate::failure::Failure;
use crate::peers::scratch::{self, Scratch};

/// Runs `work` in a child process. `UMSG_DIR` names a namespace directory for the child alone, and `scratch` is a directory for other files.
pub fn run(
    deadline: Duration,
    work: impl FnOnce(&Scratch) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let directory = Directory::new(Path::new("/dev/shm"), "umsg-bench-")?;
    let scratch = scratch::Owned::new()?;
    let signals = block_signals()?;
    become_subreaper();
    let supervisor = std::process::id();
    // SAFETY: the process has one thread so far, so the child may continue normally.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::system("fork")),
        0 => {
            unblock(&signals);
            die_with_parent(supervisor);
            // SAFETY: this process has one thread, so no other thread reads the environment during the call.
            unsafe { std::env::set_var("UMSG_DIR", directory.path()) };
            let code = match work(scratch.scratch()) {
                Ok(()) => 0,
                Err(failure) => {
                    eprintln!("umsg-bench: {failure}");
                    1
                }
            };
            let _ = std::io::stdout().flush();
            exit_child(code)
        }
        worker => {
            let ended = wait_for(worker, &signals, deadline);
            if ended.is_err() {
                kill(worker, libc::SIGKILL);
            }
            reap_everyone();
            typed::sweep();
            drop((directory, scratch));
            ended
        }
    }
}

/// Ends a forked child at once, without running destructors; the parent cleans up. Takes no lock: a thread of the parent may have held a lock at the
/// fork, for example the lock of standard output.
pub fn exit_child(code: i32) -> ! {
    // SAFETY: `_exit` takes any number and does not return.
    unsafe { libc::_exit(code) }
}

/// Makes the kernel kill the calling process when its parent dies.
pub fn die_with_parent(parent: u32) {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // The parent may have died before the call above took effect. SAFETY: getppid has no conditions.
    if unsafe { libc::getppid() } as u32 != parent {
        exit_child(1);
    }
}

/// Sends a signal to a child of this process that has not been reaped.
pub fn kill(child: libc::pid_t, signal: i32) {
    // SAFETY: kill touches no memory. The child belongs to this process and is not reaped, so the id is still the child's.
    unsafe { libc::kill(child, signal) };
}

/// Blocks the signals that the supervisor takes with `sigtimedwait`.
fn block_signals() -> Result<libc::sigset_t, Failure> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that sigaddset then changes. The set is memory of this function, and all signal numbers exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) != 0 {
            return Err(Failure::system("sigprocmask"));
        }
        Ok(set.assume_init())
    }
}

fn unblock(signals: &libc::sigset_t) {
    // SAFETY: the set was initialised by `block_signals`, and a null pointer for the old mask is valid.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, signals, ptr::null_mut()) };
}

fn become_subreaper() {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes a flag and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Waits until the worker has ended, the time is up, or a signal requests a stop.
fn wait_for(
    worker: libc::pid_t,
    signals: &libc::sigset_t,
    deadline: Duration,
) -> Result<ExitCode, Failure> {
    let end = Instant::now() + deadline;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::new(
                "stopped: the time limit of --minutes has passed",
            ));
        }
        let timeout = libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(left.subsec_nanos()),
        };
        // SAFETY: the set is initialised, the timeout is valid, and a null pointer for the siginfo is valid.
        let signal = unsafe { libc::sigtimedwait(signals, ptr::null_mut(), &raw const timeout) };
        if signal > 0 && signal != libc::SIGCHLD {
            return Err(Failure::new(format!("stopped by signal {signal}")));
        }
        if let Some(status) = reap(worker, libc::WNOHANG) {
            return outcome(status);
        }
    }
}

/// Returns the wait status of a child that has ended.
pub fn reap(child: libc::pid_t, flags: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is a local of this function.
    let reaped = unsafe { libc::waitpid(child, &raw mut status, flags) };
    (reaped == child).then_some(status)
}

/// Waits for the remaining processes of the worker. The remaining processes die with the worker, so the wait ends.
fn reap_everyone() {
    // SAFETY: no status is asked for; -1 means any child.
    while unsafe { libc::waitpid(-1, ptr::null_mut(), 0) } > 0 {}
}

fn outcome(status: i32) -> Result<ExitCode, Failure> {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        return Err(Failure::new(format!(
            "the measuring process was killed by signal {signal}"
        )));
    }
    Ok(ExitCode::from(libc::WEXITSTATUS(status) as u8))
}
