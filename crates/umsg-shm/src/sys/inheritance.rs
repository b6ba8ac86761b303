//! Futexes with priority inheritance.
//!
//! The word of such a futex contains the thread id of its owner. A thread that waits for the futex lends its priority to the owner. If the owner
//! itself waits for such a futex, the next owner gets the priority, too. The kernel reads the owner from the word; it does not matter which thread
//! stored the id. Source: linux/kernel/futex/pi.c; FUTEX_LOCK_PI2 in futex(2). The time-out of FUTEX_LOCK_PI2 is a time of CLOCK_MONOTONIC.

/// The reason why a futex with priority inheritance was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    TimedOut,
    /// The word names the calling thread.
    Own,
    /// The word names a thread that does not exist.
    NoThread,
    /// The kernel has no such futexes, a sandbox refuses them, or the word contradicts the kernel's own list of its waiters.
    Refused,
}

#[cfg(not(loom))]
pub(crate) use real::{take, unlock, wait_for_owner};

#[cfg(not(loom))]
mod real {
    use super::NotTaken;
    use crate::sync::{AtomicU32, Ordering};
    use crate::sys::clock::Deadline;
    use crate::sys::futex::monotonic;

    /// FUTEX_LOCK_PI2 of linux/futex.h.
    const LOCK_PI2: i32 = 13;

    /// Takes a futex for the calling thread. Waits for its owner until `deadline`.
    pub(crate) fn take(word: &AtomicU32, tid: u32, deadline: Deadline) -> Result<(), NotTaken> {
        // Acquire: pairs with the release of the previous owner. Relaxed on failure: the kernel reads the word again.
        match word.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => wait_for_owner(word, deadline),
        }
    }

    /// Waits until the owner that the word names unlocks the futex, and takes the futex.
    pub(crate) fn wait_for_owner(word: &AtomicU32, deadline: Deadline) -> Result<(), NotTaken> {
        let timeout = monotonic(deadline).ok_or(NotTaken::TimedOut)?;
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the kernel checks the address, and changes the word atomically; `timeout` is null or points to a timespec that outlives
        // the call.
        let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), LOCK_PI2, 0, timeout) };
        if result >= 0 {
            return Ok(());
        }
        Err(match crate::sys::errno() {
            libc::ETIMEDOUT => NotTaken::TimedOut,
            libc::EDEADLK => NotTaken::Own,
            libc::ESRCH => NotTaken::NoThread,
            _ => NotTaken::Refused,
        })
    }

    /// Unlocks a futex that names the calling thread, and hands it to the waiter with the highest priority. Returns false if the kernel
    /// refuses.
    pub(crate) fn unlock(word: &AtomicU32) -> bool {
        // SAFETY: the kernel checks the address, and changes the word atomically.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_UNLOCK_PI) == 0 }
    }
}

/// Checks that the kernel takes and unlocks a futex with priority inheritance.
///
/// # Errors
/// The operation that the kernel refused, and the error.
#[cfg(not(loom))]
pub(super) fn probe() -> Result<(), (&'static str, rustix::io::Errno)> {
    let word = crate::sync::AtomicU32::new(0);
    let refused = |call| (call, rustix::io::Errno::from_raw_os_error(super::errno()));
    // No thread owns the word: the kernel stores the id of this thread, and does not wait.
    match wait_for_owner(&word, super::clock::Deadline::Never) {
        Ok(()) => {}
        Err(_) => return Err(refused("futex (FUTEX_LOCK_PI2)")),
    }
    match unlock(&word) {
        true => Ok(()),
        false => Err(refused("futex (FUTEX_UNLOCK_PI)")),
    }
}

#[cfg(loom)]
pub(crate) use crate::model::inheritance::{take, unlock, wait_for_owner};
