//! Descriptors that the library opens for itself and keeps as numbers. Threads of a process use these descriptors under a queue's lock, but a hostile
//! process can overwrite the lock, and a program may close descriptors that it did not open.
//!
//! A forked child may have a number without its descriptor. The kernel copies the table of descriptors before the memory, and other threads of the
//! parent run meanwhile:
//!
//! | thread that forks | another thread | child |
//! |---|---|---|
//! | the kernel copies the descriptors | | |
//! | | opens a descriptor, stores its number | |
//! | the kernel copies the memory | | |
//! | | | has the number, which is free or belongs to another file |
//!
//! So a child checks each inherited number once before it uses or closes the descriptor.

use crate::sys::{clock, process, reserved_descriptors};
use rustix::fs::fstat;
use rustix::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The library's descriptors get numbers from this number on. If half of the limit of descriptors is lower, they get numbers from that half on.
/// Programs expect low numbers for their own descriptors.
const HIGH: u64 = 512;

/// The file to which a kept number refers, and the last check of this file. A program may close the descriptor, and the number may then belong to
/// another file.
#[derive(Debug)]
pub(crate) struct Sighting {
    device: AtomicU64,
    inode: AtomicU64,
    /// The time of the last check (CLOCK_MONOTONIC_COARSE).
    at: AtomicU64,
    /// The value of [`reserved_descriptors::given`] at the last check.
    given: AtomicU32,
    /// The epoch of the process that made the last check.
    epoch: AtomicU64,
}

// All accesses are Relaxed: the descriptor's number is published later, with a Release.
impl Sighting {
    pub(crate) const fn none() -> Sighting {
        Sighting {
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            at: AtomicU64::new(0),
            given: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    /// Returns a copy without a check, for another user of the same descriptor.
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
        self.note_check(clock::monotonic_coarse());
        Ok(())
    }

    fn note_check(&self, now: u64) {
        self.given
            .store(reserved_descriptors::given(), Ordering::Relaxed);
        self.at.store(now, Ordering::Relaxed);
        self.epoch.store(process::begin_epoch(), Ordering::Relaxed);
    }

    /// Returns whether the number may refer to another file: since the last check, the program got a reserved number, or the process was forked.
    #[inline(always)]
    pub(crate) fn is_doubtful(&self) -> bool {
        self.given.load(Ordering::Relaxed) != reserved_descriptors::given()
            || self.epoch.load(Ordering::Relaxed) != process::epoch()
    }

    /// Returns whether the number still refers to the same file at time `now` (CLOCK_MONOTONIC_COARSE). The file is checked once a tick. It is also
    /// checked after the program got a reserved number, and at the first call in a forked child.
    pub(crate) fn is_still(&self, number: RawFd, now: u64) -> bool {
        if self.at.load(Ordering::Relaxed) == now && !self.is_doubtful() {
            return true;
        }
        self.note_check(now);
        // SAFETY: the number may now belong to any descriptor. The descriptor is only inspected.
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

/// Moves a descriptor to a high number, if a high number is free.
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
        // The mark is removed first: if the drop-in intercepts close(2), a marked number can't be closed.
        reserved_descriptors::unmark(self.0.as_raw_fd());
        // SAFETY: this runs once, and the value is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Runs `finds` in a forked child, in which this descriptor is closed. Returns the result.
    fn in_child_without(number: RawFd, finds: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls the library, and leaves with _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the call takes a number, and the child does not use the descriptor before `finds`.
            unsafe { libc::close(number) };
            let found = finds();
            // SAFETY: the call takes a number. The child ends here.
            unsafe { libc::_exit(i32::from(found)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        libc::WEXITSTATUS(status) != 0
    }

    #[test]
    fn a_forked_child_without_an_inherited_descriptor_does_not_take_its_number_for_it() {
        let _alone = reserved_descriptors::tests::count_alone();
        let sighting = Sighting::none();
        let file = rustix::pipe::pipe().unwrap().0;
        let number = raise(file).unwrap().into_number();
        // SAFETY: `into_number` has just returned the number, and no other value has it.
        let own = unsafe { Own::at(number) };
        sighting.begin(&own).unwrap();
        let now = sighting.at.load(Ordering::Relaxed);
        assert!(sighting.is_still(number, now) && !sighting.is_doubtful());
        let finds = || sighting.is_doubtful() && !sighting.is_still(number, now);
        assert!(in_child_without(number, finds), "the child would close it");
        let is_there = || sighting.is_doubtful() && sighting.is_still(number, now);
        assert!(in_child_without(-1, is_there), "the child has it");
        assert!(sighting.is_still(number, now), "the parent still has it");
    }
}
