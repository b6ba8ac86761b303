//! A file lock that a process keeps until its death, without a descriptor.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

const PAGE: usize = 4096;

/// A locked open file description, which this process's mapping keeps. The drop ends both.
pub struct Locked(*mut std::ffi::c_void);

impl Locked {
    /// Keeps the lock until the process ends or executes another program.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the page is the one that `lock` mapped, and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.0, PAGE) };
    }
}

/// Locks a file for writing, through the open file description of the descriptor. The lock stays when the descriptor is closed. A forked
/// child does not inherit it.
///
/// # Errors
/// The system call that failed, and how.
pub fn lock(file: BorrowedFd<'_>) -> Result<Locked, (&'static str, Errno)> {
    call(file, libc::F_OFD_SETLK, libc::F_WRLCK).map_err(|e| ("fcntl", e))?;
    let (protection, flags) = (ProtFlags::empty(), MapFlags::SHARED);
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced; the page can't be touched.
    let page = unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, protection, flags, file, 0) };
    let page = page.map_err(|e| ("mmap", e))?;
    let locked = Locked(page);
    // SAFETY: the page was mapped just now and is ours.
    let kept = unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxDontFork) };
    kept.map_err(|e| ("madvise", e))?;
    Ok(locked)
}

/// Returns whether another open file description has the file locked for writing, or the answer is unknown.
pub fn is_locked(file: BorrowedFd<'_>) -> bool {
    match call(file, libc::F_OFD_GETLK, libc::F_RDLCK) {
        Ok(found) => found.l_type != libc::F_UNLCK as libc::c_short,
        Err(_) => true,
    }
}

fn call(
    file: BorrowedFd<'_>,
    command: libc::c_int,
    kind: libc::c_int,
) -> Result<libc::flock, Errno> {
    // SAFETY: `flock` consists of integers, for which zero is a value: from the beginning of the file to its end.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: the kernel reads and writes the structure, which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(lock),
    }
}
