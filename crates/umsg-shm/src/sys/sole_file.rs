//! A file of which the process keeps an opening for itself, and the proof that no other opening exists.
//!
//! The kernel grants a write lease only if no other open file description of the file exists (fcntl(2), `F_SETLEASE`). A mapping keeps the
//! description with which it was made, so a process that has the file mapped counts, too. A process that was forked shares this
//! description; the caller has to know its forks.
//!
//! A process that opens the file during the lease waits until the lease ends, a moment later, and the kernel signals the holder of the
//! lease. The signal is SIGURG: by default it has no effect, and programs expect it at any time.

use super::reserved_descriptors::{self, Own};
use rustix::fs::{FallocateFlags, Stat, fallocate, fstat};
use rustix::io::Errno;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Not in the libc crate. Source: fcntl(2).
const F_SETSIG: libc::c_int = 10;

/// The least limit of descriptors of a process that keeps files.
const LEAST_LIMIT: u64 = 1024;

/// See the module.
#[derive(Debug)]
pub struct SoleFile {
    descriptor: ManuallyDrop<Own>,
    /// Device and inode.
    identity: (u64, u64),
}

impl SoleFile {
    /// Keeps an opening for reading and writing, which no other code of the process uses.
    ///
    /// # Errors
    /// `MFILE` if the process may have few descriptors: the program needs them. Those of fcntl(2).
    pub fn keep(file: OwnedFd) -> Result<SoleFile, Errno> {
        if super::limit::of_descriptors().is_some_and(|most| most < LEAST_LIMIT) {
            return Err(Errno::MFILE);
        }
        let stat = fstat(&file)?;
        let descriptor = reserved_descriptors::raise(file)?;
        fcntl(&descriptor, F_SETSIG, libc::SIGURG)?;
        Ok(SoleFile {
            descriptor: ManuallyDrop::new(descriptor),
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    /// Returns device and inode.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns what fstat(2) says. None if the program has closed the descriptor.
    pub fn stat(&self) -> Option<Stat> {
        let stat = fstat(self.descriptor.as_fd()).ok()?;
        ((stat.st_dev, stat.st_ino) == self.identity).then_some(stat)
    }

    /// Returns whether this is the only open file description of the file. The caller owns the file, and has called [`stat`](Self::stat).
    pub fn is_only_opening(&self) -> bool {
        let lease = |kind| fcntl(&self.descriptor, libc::F_SETLEASE, kind);
        lease(libc::F_WRLCK).is_ok() && lease(libc::F_UNLCK).is_ok()
    }

    /// Gives back the pages of a part of the file, which reads as zeroes afterwards.
    ///
    /// # Errors
    /// Those of fallocate(2).
    pub fn free(&self, part: Range<usize>) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len = (part.end - part.start) as u64;
        fallocate(self.descriptor.as_fd(), flags, part.start as u64, len)
    }
}

/// A bare system call: the drop-in hides the library's descriptors from libc's function.
fn fcntl(descriptor: &Own, command: libc::c_int, argument: libc::c_int) -> Result<(), Errno> {
    let number = descriptor.as_fd().as_raw_fd();
    // SAFETY: takes a descriptor that is open as long as `descriptor`, and numbers.
    match unsafe { libc::syscall(libc::SYS_fcntl, number, command, argument) } {
        0 => Ok(()),
        _ => Err(Errno::from_raw_os_error(super::errno())),
    }
}

impl Drop for SoleFile {
    fn drop(&mut self) {
        // The program may have closed the number and opened another file there.
        if self.stat().is_some() {
            // SAFETY: this runs once, and the value is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.descriptor) };
        } else {
            reserved_descriptors::unmark(self.descriptor.as_fd().as_raw_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};

    /// A file that was opened by a path: the kernel does not count the opening by memfd_create(2).
    fn sole() -> SoleFile {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        SoleFile::keep(open("/dev/shm", flags, Mode::RUSR | Mode::WUSR).unwrap()).unwrap()
    }

    fn open_again(file: &SoleFile, flags: OFlags) -> OwnedFd {
        let number = file.descriptor.as_fd().as_raw_fd();
        open(format!("/proc/self/fd/{number}"), flags, Mode::empty()).unwrap()
    }

    #[test]
    fn a_further_opening_of_any_kind_is_seen_as_long_as_it_lives() {
        let file = sole();
        assert!(file.is_only_opening());
        for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
            let other = open_again(&file, flags);
            assert!(!file.is_only_opening());
            drop(other);
            assert!(file.is_only_opening());
        }
    }

    #[test]
    fn a_mapping_of_a_further_opening_is_seen() {
        let file = sole();
        let other = open_again(&file, OFlags::RDWR);
        rustix::fs::ftruncate(&other, 4096).unwrap();
        let mapping = crate::sys::map::Mapping::of_file(other.as_fd(), 4096).unwrap();
        drop(other);
        assert!(!file.is_only_opening());
        drop(mapping);
        assert!(file.is_only_opening());
    }

    #[test]
    fn a_number_that_the_program_took_away_is_left_alone() {
        let file = sole();
        let number = file.descriptor.as_fd().as_raw_fd();
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: places a file at a number that only this test uses.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), number) }, number);
        assert!(file.stat().is_none());
        drop(file);
        assert!(!reserved_descriptors::is(number));
        // SAFETY: the number is this test's, and closed here.
        assert_eq!(unsafe { libc::close(number) }, 0);
    }
}
