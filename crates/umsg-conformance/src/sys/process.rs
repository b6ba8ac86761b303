//! Creates, ends and awaits processes, and starts threads of C.

use super::check;
use crate::errno::Errno;
use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

/// A process id, or a thread id.
pub type Pid = i32;

/// Returns the id of this process.
pub fn pid() -> Pid {
    // SAFETY: the call has no preconditions.
    unsafe { libc::getpid() }
}

/// Returns the id of this thread.
pub fn tid() -> Pid {
    // SAFETY: the call has no preconditions.
    unsafe { libc::gettid() }
}

/// The result of a fork.
pub enum Forked {
    /// The caller is the parent. The value is the child's process id.
    Parent(Pid),
    /// The caller is the child.
    Child,
}

/// `fork`.
///
/// # Errors
/// The errors of `fork`.
pub fn fork() -> Result<Forked, Errno> {
    // SAFETY: the child only uses parts of glibc that work after a fork (memory, files), and ends with `leave`.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child)),
    }
}

/// Ends this process at once, without exit handlers.
pub fn leave(status: i32) -> ! {
    // SAFETY: the call has no preconditions.
    unsafe { libc::_exit(status) }
}

/// `kill`. If the process no longer exists, the call does nothing.
pub fn kill(pid: Pid, signal: i32) {
    assert!(!(-1..=1).contains(&pid), "a signal to process {pid}");
    // SAFETY: the call has no preconditions.
    unsafe { libc::kill(pid, signal) };
}

/// Makes this process the leader of a new process group.
pub fn lead_group() {
    // SAFETY: the call has no preconditions.
    unsafe { libc::setpgid(0, 0) };
}

/// Makes the kernel kill this process when its parent ends.
pub fn die_with_parent() {
    // SAFETY: the call has no preconditions.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process returned this status.
    Exit(i32),
    /// This signal killed the process.
    Signal(i32),
}

/// Waits until a child ends, at most for `patience`. Returns None if the child has not ended.
pub fn wait(child: Pid, patience: Duration) -> Option<End> {
    let mut pause = Pause::new(patience);
    loop {
        let mut status = 0;
        // SAFETY: the call writes the status to a local.
        let waited = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if waited == child {
            return Some(if libc::WIFSIGNALED(status) {
                End::Signal(libc::WTERMSIG(status))
            } else {
                End::Exit(libc::WEXITSTATUS(status))
            });
        }
        if waited == -1 && Errno::last() != Errno::EINTR {
            return None;
        }
        if !pause.again() {
            return None;
        }
    }
}

/// A wait with a time limit. Its pauses are short at first and get longer.
pub struct Pause {
    until: Instant,
    next: Duration,
}

impl Pause {
    /// Begins a wait of at most `patience`.
    pub fn new(patience: Duration) -> Pause {
        Pause {
            until: Instant::now() + patience,
            next: Duration::from_micros(20),
        }
    }

    /// Pauses once. If the time limit has passed, returns false at once.
    pub fn again(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        std::thread::sleep(self.next);
        self.next = (self.next * 2).min(Duration::from_millis(5));
        true
    }
}

/// Returns the state letter of a thread or process in `/proc`. Returns `None` if the thread or process no longer exists.
pub fn state(id: Pid) -> Option<u8> {
    let text = std::fs::read(format!("/proc/{id}/stat")).ok()?;
    let after = text.iter().rposition(|&byte| byte == b')')?;
    text.get(after + 2).copied()
}

/// Returns whether a thread or process sleeps until an event or a signal.
pub fn is_asleep(id: Pid) -> bool {
    state(id) == Some(b'S')
}

/// Returns whether a process has ended, whether or not its parent has waited for it.
pub fn is_gone(pid: Pid) -> bool {
    match state(pid) {
        None | Some(b'X') => true,
        // The first thread has ended, but other threads of the process may still run.
        Some(b'Z') => threads(pid).is_none_or(|threads| threads <= 1),
        Some(_) => false,
    }
}

/// Returns the number of threads of a process, as `/proc` shows it.
fn threads(pid: Pid) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(')')?;
    after.split_whitespace().nth(17)?.parse().ok()
}

/// Waits until a process has ended, whether or not its parent has waited for it. Returns false if the process has not ended in time.
pub fn wait_until_gone(pid: Pid, patience: Duration) -> bool {
    let mut pause = Pause::new(patience);
    while !is_gone(pid) {
        if !pause.again() {
            return false;
        }
    }
    true
}

/// Starts a thread of C. The thread may be cancelled, because it owns no values that Rust has to drop.
///
/// # Errors
/// The errors of `pthread_create`.
///
/// # Safety
/// The target of the argument has to outlive the thread.
pub unsafe fn start_thread(
    thread: &mut libc::pthread_t,
    function: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> Result<(), Errno> {
    type Function = extern "C" fn(*mut c_void) -> *mut c_void;
    // SAFETY: the two types differ only in whether an unwinding may pass through the function. The frames of libc let an unwinding pass.
    let function = unsafe { std::mem::transmute::<*const (), Function>(function as *const ()) };
    // SAFETY: the call gets room for the thread's handle, default attributes and a function of the right type. The caller promises that the target of
    // the argument lives long enough.
    match unsafe { libc::pthread_create(thread, ptr::null(), function, argument) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}
