//! Descriptors that the library opens for itself and keeps as numbers: threads of a process use them under a queue's lock, but a peer can
//! scribble in that, and a program may close what it does not know.

use crate::sys::clock;
use crate::sys::reserved_descriptors;
use rustix::fs::fstat;
use rustix::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Descriptors of ours have numbers above half of those there can be, at most above this: programs expect theirs to be low.
const HIGH: u64 = 512;

/// Which file a descriptor is, and when that was looked at last: a program may close what it does not know, and the number then be
/// another file's.
#[derive(Debug)]
pub(super) struct Sighting {
    device: AtomicU64,
    inode: AtomicU64,
    /// CLOCK_MONOTONIC_COARSE.
    at: AtomicU64,
    /// [`reserved_descriptors::given`] then.
    given: AtomicU32,
}

// Relaxed throughout: the number by which a descriptor is known is published afterwards.
impl Sighting {
    pub(super) const fn none() -> Sighting {
        Sighting {
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            at: AtomicU64::new(0),
            given: AtomicU32::new(0),
        }
    }

    /// What is known of it, for another that looks at the same descriptor.
    pub(super) fn copy(&self) -> Sighting {
        let copy = Sighting::none();
        copy.device
            .store(self.device.load(Ordering::Relaxed), Ordering::Relaxed);
        copy.inode
            .store(self.inode.load(Ordering::Relaxed), Ordering::Relaxed);
        copy
    }

    /// Sees a descriptor for the first time.
    pub(super) fn begin(&self, own: &Own) -> io::Result<()> {
        let stat = fstat(own)?;
        self.device.store(stat.st_dev, Ordering::Relaxed);
        self.inode.store(stat.st_ino, Ordering::Relaxed);
        self.at.store(clock::monotonic_coarse(), Ordering::Relaxed);
        self.given
            .store(reserved_descriptors::given(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether a number of the library's was given to the program since.
    #[inline(always)]
    pub(super) fn is_doubtful(&self) -> bool {
        self.given.load(Ordering::Relaxed) != reserved_descriptors::given()
    }

    /// Whether a descriptor still is that file, at this reading of CLOCK_MONOTONIC_COARSE: it is looked at once a tick, and when some
    /// number was given away.
    pub(super) fn is_still(&self, number: RawFd, now: u64) -> bool {
        if self.at.load(Ordering::Relaxed) == now && !self.is_doubtful() {
            return true;
        }
        self.given
            .store(reserved_descriptors::given(), Ordering::Relaxed);
        self.at.store(now, Ordering::Relaxed);
        // SAFETY: whatever has this number now, it is only looked at.
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

/// Moves a descriptor to a high number, if there is one.
pub(super) fn raise(bell: OwnedFd) -> io::Result<Own> {
    let most = crate::sys::limit::of_descriptors().unwrap_or(u64::MAX);
    let least = (most / 2).min(HIGH) as RawFd;
    Ok(Own::new(match io::fcntl_dupfd_cloexec(&bell, least) {
        Ok(raised) => raised,
        Err(_) => bell,
    }))
}

/// A descriptor whose number is marked as the library's own as long as it is open.
pub(super) struct Own(ManuallyDrop<OwnedFd>);

impl Own {
    pub(super) fn new(file: OwnedFd) -> Own {
        reserved_descriptors::mark(file.as_raw_fd());
        Own(ManuallyDrop::new(file))
    }

    /// It stays open, and marked.
    pub(super) fn into_number(self) -> RawFd {
        ManuallyDrop::new(self).0.as_raw_fd()
    }

    /// # Safety
    /// The number came from [`Own::into_number`], and is in no other owner.
    pub(super) unsafe fn at(number: RawFd) -> Own {
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
        // First: no process can close a marked number where the drop-in stands before close.
        reserved_descriptors::unmark(self.0.as_raw_fd());
        // SAFETY: once, and it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
