//! Small files of /proc, and files without a name.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::io::Errno;

/// A file in memory, which goes with its last descriptor and mapping. `name` is for who looks into /proc.
pub(crate) fn nameless(name: &str) -> Result<OwnedFd, Errno> {
    match cfg!(miri) {
        true => eventfd(0, EventfdFlags::CLOEXEC),
        false => memfd_create(name, MemfdFlags::CLOEXEC),
    }
}

/// All of a file, by bare system calls: another preloaded library may stand in front of libc's names, and ask a queue what to
/// answer (fakeroot does for fstat).
pub(crate) fn read(path: &str) -> Result<Vec<u8>, Errno> {
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
