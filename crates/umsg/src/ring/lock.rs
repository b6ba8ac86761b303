//! The lock that protects the removal of a dead owner's ring.
//!
//! The lock belongs to the *file* of the dead owner's ring. Two processes may find the owner dead at the same time. The faster process removes the
//! file under the lock, and then creates its own ring. When the slower process gets the lock, it finds that another file has the name. Without the
//! lock, the slower process would remove the new ring of the faster process.

use rustix::fd::BorrowedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::time::Duration;
use umsg_shm::sys::thread::{self, Thread};

/// The number of attempts to take the lock. A process holds the lock for some microseconds.
const ATTEMPTS: u32 = 2000;
/// The pause between two attempts.
const NAP: Duration = Duration::from_millis(1);

/// The lock of a dead ring's file. The kernel releases the lock when its owner dies.
pub(super) struct Locked<'a> {
    file: BorrowedFd<'a>,
    me: &'static Thread,
}

impl<'a> Locked<'a> {
    /// Takes the lock. Returns `None` if another process keeps the lock.
    pub(super) fn of(file: BorrowedFd<'a>) -> Option<Locked<'a>> {
        // Signals are deferred: a signal handler that makes a ring of this name would wait for the lock of its own thread.
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
    /// Unlocks explicitly. Closing the file is not enough: a child that another thread has forked since the locking would still hold the lock.
    fn drop(&mut self) {
        let _ = flock(self.file, FlockOperation::Unlock);
        self.me.critical.leave();
    }
}
