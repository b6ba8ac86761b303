//! A file lock that a process keeps until its death, without a descriptor.

use super::file_lock::{self, Lock};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

const PAGE: usize = 4096;

/// A locked open file description, which a mapping of this process keeps open. The drop ends the mapping and the lock.
pub struct Locked(*mut std::ffi::c_void);

impl Locked {
    /// Keeps the lock until the process ends or executes another program.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: `lock` mapped this page, and nothing refers to the page.
        let _ = unsafe { rustix::mm::munmap(self.0, PAGE) };
    }
}

/// Locks a file for writing, through the open file description of this descriptor. The lock stays when the descriptor is closed. A forked child does
/// not inherit the lock.
///
/// # Errors
/// The system call that failed, and its error.
pub fn lock(file: BorrowedFd<'_>) -> Result<Locked, (&'static str, Errno)> {
    file_lock::set(file, Lock::Exclusive).map_err(|e| ("fcntl", e))?;
    let (protection, flags) = (ProtFlags::empty(), MapFlags::SHARED);
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced; the page can't be touched.
    let page = unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, protection, flags, file, 0) };
    let page = page.map_err(|e| ("mmap", e))?;
    let locked = Locked(page);
    // SAFETY: the page was mapped just now, and this process uses it alone.
    let kept = unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxDontFork) };
    kept.map_err(|e| ("madvise", e))?;
    Ok(locked)
}

/// Returns whether another open file description has the file locked for writing, or whether the system refuses to answer.
pub fn is_locked(file: BorrowedFd<'_>) -> bool {
    file_lock::is_forbidden(file, Lock::Shared).unwrap_or(true)
}
