//! Descriptors that the library opens for itself and keeps as numbers. Threads of a process use them under a queue's lock, but a hostile process can
//! overwrite the lock, and a program may close descriptors that it did not open.

use crate::sys::clock;
use crate::sys::reserved_descriptors;
use rustix::fs::fstat;
use rustix::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The library's descriptors have high numbers, because programs expect low ones for themselves: above half of the limit, or above this number.
const HIGH: u64 = 512;

/// The file of a descriptor, and the time of the last check: a program may close the descriptor, and the number may then belong to another file.
#[derive(Debug)]
pub(crate) struct Sighting {
    device: AtomicU64,
    inode: AtomicU64,
    /// The time of the last check (CLOCK_MONOTONIC_COARSE).
    at: AtomicU64,
    /// The value of [`reserved_descriptors::given`] at that time.
    given: AtomicU32,
}

// All accesses are Relaxed: the descriptor's number is published afterwards.
impl Sighting {
    pub(crate) const fn none() -> Sighting {
        Sighting {
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            at: AtomicU64::new(0),
            given: AtomicU32::new(0),
        }
    }

    /// Returns a copy, for another user of the same descriptor.
    pub(crate) fn copy(&self) -> Sighting {
        let copy = Sighting::none();
        copy.device
            .store(self.device.load(Ordering::Relaxed), Ordering::Relaxed);
        copy.inode
            .store(self.inode.load(Ordering::Relaxed), Ordering::Relaxed);
        copy
    }

    /// Records the file of a new descriptor.
    pub(crate) fn begin(&self, own: &Own) -> io::Result<()> {
        let stat = fstat(own)?;
        self.device.store(stat.st_dev, Ordering::Relaxed);
        self.inode.store(stat.st_ino, Ordering::Relaxed);
        self.at.store(clock::monotonic_coarse(), Ordering::Relaxed);
        self.given
            .store(reserved_descriptors::given(), Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether a number of the library was given to the program since the last check.
    #[inline(always)]
    pub(crate) fn is_doubtful(&self) -> bool {
        self.given.load(Ordering::Relaxed) != reserved_descriptors::given()
    }

    /// Returns whether the descriptor is still the same file at time `now` (CLOCK_MONOTONIC_COARSE). The check runs once a tick, and after a number
    /// was given to the program.
    pub(crate) fn is_still(&self, number: RawFd, now: u64) -> bool {
        if self.at.load(Ordering::Relaxed) == now && !self.is_doubtful() {
            return true;
        }
        self.given
            .store(reserved_descriptors::given(), Ordering::Relaxed);
        self.at.store(now, Ordering::Relaxed);
        // SAFETY: any descriptor may have this number now; it is only inspected.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let is_still = fstat(file).is_ok_and(|stat| {
            stat.st_dev == self.device.load(Ordering::Relaxed)
                && stat.st_ino == self.inode.load(Ordering::Relaxed)
        });
        if !is_still {
            reserved_descriptors::unmark(number);
        }
        is_still
    }
}

/// Moves a descriptor to a high number, if one is free.
pub(crate) fn raise(file: OwnedFd) -> io::Result<Own> {
    let most = crate::sys::limit::of_descriptors().unwrap_or(u64::MAX);
    let least = (most / 2).min(HIGH) as RawFd;
    Ok(Own::new(match io::fcntl_dupfd_cloexec(&file, least) {
        Ok(raised) => raised,
        Err(_) => file,
    }))
}

/// A descriptor whose number is marked as the library's own as long as it is open.
pub(crate) struct Own(ManuallyDrop<OwnedFd>);

impl Own {
    pub(crate) fn new(file: OwnedFd) -> Own {
        reserved_descriptors::mark(file.as_raw_fd());
        Own(ManuallyDrop::new(file))
    }

    /// Returns the number. The descriptor stays open and marked.
    pub(crate) fn into_number(self) -> RawFd {
        ManuallyDrop::new(self).0.as_raw_fd()
    }

    /// # Safety
    /// The number came from [`Own::into_number`], and no other `Own` has it.
    pub(crate) unsafe fn at(number: RawFd) -> Own {
        // SAFETY: by this function's contract.
        Own(ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) }))
    }
}

impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // The mark is removed first: where the drop-in intercepts close(2), a marked number can't be closed.
        reserved_descriptors::unmark(self.0.as_raw_fd());
        // SAFETY: this runs once, and the value is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
