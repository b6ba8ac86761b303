//! Child processes that work for one round, and must end by a deadline.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::machine;
use crate::supervisor;

/// The maximum time of one round. A healthy round takes about a second. A stuck round is killed, and the run fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until all children have ended.
///
/// # Errors
/// Fails if a child fails, dies, or is not done at the deadline.
pub fn wait_for_all(children: &mut [Child]) -> Result<(), Failure> {
    let end = Instant::now() + DEADLINE;
    while children.iter().any(|child| !child.ended) {
        wait_for_any(children, end)?;
        for child in &mut *children {
            child.look()?;
        }
    }
    Ok(())
}

/// Sleeps until one of the running children ends. Takes no CPU time from the children.
fn wait_for_any(children: &[Child], end: Instant) -> Result<(), Failure> {
    let left = end.saturating_duration_since(Instant::now());
    let wait = |child: &Child| libc::pollfd {
        // poll(2) ignores a negative descriptor.
        fd: if child.ended {
            -1
        } else {
            child.handle.as_raw_fd()
        },
        events: libc::POLLIN,
        revents: 0,
    };
    let mut waits: Vec<_> = children.iter().map(wait).collect();
    let milliseconds = left.as_millis() as i32;
    // SAFETY: the call gets the entries with their number, and the entries outlive the call.
    let ready = unsafe {
        libc::poll(
            waits.as_mut_ptr(),
            waits.len() as libc::nfds_t,
            milliseconds,
        )
    };
    match ready {
        0 => Err(Failure::new("a round was not finished in 30 s")),
        _ => Ok(()),
    }
}

/// A forked process. If the value is dropped before the process has ended, the process is killed and reaped.
pub struct Child {
    id: libc::pid_t,
    handle: OwnedFd,
    ended: bool,
}

impl Child {
    /// Runs `work` in a child on these CPUs. The child dies with its parent.
    pub fn start(
        cpus: &[usize],
        work: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let parent = std::process::id();
        // SAFETY: the process has one thread, so the child may call any function. A test process has several threads, but the children of tests take
        // no lock of the standard library.
        let id = match unsafe { libc::fork() } {
            -1 => return Err(Failure::system("fork")),
            0 => {
                supervisor::die_with_parent(parent);
                let code = match machine::pin_to(cpus).and_then(|()| work()) {
                    Ok(()) => 0,
                    Err(failure) => {
                        eprintln!("umsg-bench: {failure}");
                        1
                    }
                };
                supervisor::exit_child(code)
            }
            id => id,
        };
        // SAFETY: pidfd_open takes a process id and flags; the child is not reaped yet.
        let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
        if handle < 0 {
            let failure = Failure::system("pidfd_open");
            supervisor::kill(id, libc::SIGKILL);
            supervisor::reap(id, 0);
            return Err(failure);
        }
        // SAFETY: the call has just opened the descriptor, and no other value owns it.
        let handle = unsafe { OwnedFd::from_raw_fd(handle as i32) };
        Ok(Self {
            id,
            handle,
            ended: false,
        })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.id.cast_unsigned()
    }

    /// Stops the process until [`resume`](Self::resume). Has no effect on a stopped process.
    pub fn pause(&self) {
        supervisor::kill(self.id, libc::SIGSTOP);
    }

    /// Lets a stopped process continue.
    pub fn resume(&self) {
        supervisor::kill(self.id, libc::SIGCONT);
    }

    /// Records whether the child has ended. Fails if the child ended without success.
    fn look(&mut self) -> Result<(), Failure> {
        if self.ended {
            return Ok(());
        }
        let Some(status) = supervisor::reap(self.id, libc::WNOHANG) else {
            return Ok(());
        };
        self.ended = true;
        if status == 0 {
            Ok(())
        } else if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            Err(Failure::new(format!(
                "a process was killed by signal {signal}"
            )))
        } else {
            Err(Failure::new(
                "a child process failed: see the message above",
            ))
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.ended {
            supervisor::kill(self.id, libc::SIGKILL);
            supervisor::reap(self.id, 0);
        }
    }
}
