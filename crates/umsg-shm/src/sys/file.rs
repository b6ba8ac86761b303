//! Small files of /proc, files without a name, and the identity of files.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, MemfdFlags, Mode, OFlags, StatxFlags, memfd_create, statx};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Creates a file in memory, which exists until its last descriptor is closed and its last mapping is removed. /proc displays `name`.
pub fn nameless(name: &str) -> Result<OwnedFd, Errno> {
    match cfg!(miri) {
        true => eventfd(0, EventfdFlags::CLOEXEC),
        false => memfd_create(name, MemfdFlags::CLOEXEC),
    }
}

/// The mode bits of other users than the owner.
const OTHERS: u32 = 0o077;

/// The identity and the permissions of a mapped file at the time of its fstat(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct FileIdentity {
    pub inode: u64,
    pub(crate) owner: u32,
    /// True if the mode grants a permission to other users than the owner.
    pub(crate) is_open_to_others: bool,
}

impl FileIdentity {
    pub(crate) fn of(file: BorrowedFd<'_>) -> Result<FileIdentity, Errno> {
        if cfg!(miri) {
            return Ok(FileIdentity::default());
        }
        let stat = rustix::fs::fstat(file)?;
        Ok(FileIdentity {
            inode: stat.st_ino,
            owner: stat.st_uid,
            is_open_to_others: stat.st_mode & OTHERS != 0,
        })
    }

    /// Records a new mode of the file.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        self.is_open_to_others = mode & OTHERS != 0;
    }

    /// Returns whether only processes of this process's user and of root can write the file.
    pub(crate) fn is_private(&self) -> bool {
        !self.is_open_to_others && (self.owner == 0 || self.owner == geteuid().as_raw())
    }
}

/// The identity of a file in its file system. No earlier file with the same inode number had this identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Born {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// The time of birth, in seconds and nanoseconds.
    pub(crate) time: (u64, u64),
}

/// Returns the identity of a regular file. If a process serves the file system (FUSE), the function does not ask that process.
///
/// # Errors
/// ENXIO for another kind of file, or if the file system has no birth times; the errors of statx(2).
pub(crate) fn inode_and_birth(file: BorrowedFd<'_>) -> Result<Born, Errno> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::BTIME;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, c"", flags, wanted)?;
    let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    if !is_regular || stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return Err(Errno::NXIO);
    }
    Ok(Born {
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        time: (stat.stx_btime.tv_sec as u64, stat.stx_btime.tv_nsec.into()),
    })
}

/// Reads a whole file by bare system calls. Another preloaded library may replace functions of libc, and its replacement may itself use a queue (as
/// fakeroot does in fstat).
pub fn read(path: &str) -> Result<Vec<u8>, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    let mut part = [0; 1024];
    loop {
        match rustix::io::read(&file, &mut part) {
            Ok(0) => return Ok(text),
            Ok(len) => text.extend_from_slice(&part[..len]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_longer_than_a_part_is_read_whole() {
        let own = std::env::current_exe().unwrap();
        let expected = std::fs::read("/proc/self/environ").unwrap();
        assert_eq!(super::read("/proc/self/environ").unwrap(), expected);
        let program = super::read(own.to_str().unwrap()).unwrap();
        assert!(program.len() > 10_000 && program == std::fs::read(own).unwrap());
        assert_eq!(super::read("/proc/none"), Err(rustix::io::Errno::NOENT));
    }
}
