//! The lock under which the name of a dead owner's ring is taken away.
//!
//! It is one of that ring's *file*: of two that find the owner dead, the slower one sees under the lock that the name is another
//! file's by now. Otherwise it would take the faster one's new ring away.

use rustix::fd::BorrowedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::time::Duration;
use umsg_shm::sys::thread::{self, Thread};

/// How often the lock is tried, and how long between: a process holds it for some microseconds.
const ATTEMPTS: u32 = 2000;
const NAP: Duration = Duration::from_millis(1);

/// The lock of a dead ring's file. The kernel drops it when its holder dies.
pub(super) struct Locked<'a> {
    file: BorrowedFd<'a>,
    me: &'static Thread,
}

impl<'a> Locked<'a> {
    /// None if a process keeps it.
    pub(super) fn of(file: BorrowedFd<'a>) -> Option<Locked<'a>> {
        // A signal handler that makes a ring of this name would wait for its own thread.
        let me = thread::current();
        for _ in 0..ATTEMPTS {
            me.critical.enter();
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Locked { file, me }),
                Err(error) => {
                    me.critical.leave();
                    if !matches!(error, Errno::WOULDBLOCK | Errno::INTR) {
                        return None;
                    }
                }
            }
            std::thread::sleep(NAP);
        }
        None
    }
}

impl Drop for Locked<'_> {
    /// Closing would not do: a child that another thread forks meanwhile has the lock too.
    fn drop(&mut self) {
        let _ = flock(self.file, FlockOperation::Unlock);
        self.me.critical.leave();
    }
}
