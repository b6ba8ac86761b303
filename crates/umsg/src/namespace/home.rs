//! The home of a process: the boot and the PID namespace in which its thread ids are valid.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs;
use rustix::io::Errno;

use super::error::NamespaceError;
use umsg_shm::sys::file;

const PID_NAMESPACE: &str = "/proc/self/ns/pid";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A PID namespace, as /proc/self/ns/pid identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PidNamespace {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// The boot and the PID namespace of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) boot: [u8; 16],
    pub(super) pid_namespace: PidNamespace,
}

impl Home {
    /// Returns the home of the calling process. The result is not cached, because a forked child may live in another PID namespace.
    pub(super) fn of_caller() -> Result<Home, NamespaceError> {
        let pid_namespace = pid_namespace()
            .map_err(|e| NamespaceError::system("stat", Path::new(PID_NAMESPACE), e))?;
        Ok(Home {
            boot: boot_id()?,
            pid_namespace,
        })
    }
}

/// Returns the PID namespace of the calling process.
pub(super) fn pid_namespace() -> Result<PidNamespace, Errno> {
    let stat = fs::stat(PID_NAMESPACE)?;
    Ok(PidNamespace {
        device: stat.st_dev,
        inode: stat.st_ino,
    })
}

/// Returns the random number of this boot. The number never changes, so it is read once.
pub(super) fn boot_id() -> Result<[u8; 16], NamespaceError> {
    // Zero means that the UUID was not read yet: in a version 4 UUID, both halves have a bit that is set. Relaxed: a thread that sees only one half
    // reads both again, and each reader finds the same value.
    static HALVES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    let halves = [
        HALVES[0].load(Ordering::Relaxed),
        HALVES[1].load(Ordering::Relaxed),
    ];
    if halves.contains(&0) {
        let id = read_boot_id()?;
        HALVES[0].store((id >> 64) as u64, Ordering::Relaxed);
        HALVES[1].store(id as u64, Ordering::Relaxed);
        return Ok(id.to_be_bytes());
    }
    Ok((u128::from(halves[0]) << 64 | u128::from(halves[1])).to_be_bytes())
}

fn read_boot_id() -> Result<u128, NamespaceError> {
    let refuse = |e| NamespaceError::system("read", Path::new(BOOT_ID), e);
    let text = file::read(BOOT_ID).map_err(refuse)?;
    let digits = String::from_utf8_lossy(&text).trim().replace('-', "");
    u128::from_str_radix(&digits, 16).map_err(|_| refuse(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_always_finds_itself_at_the_same_home() {
        let (first, second) = (Home::of_caller().unwrap(), Home::of_caller().unwrap());
        assert_eq!(first, second);
        assert_eq!(u128::from_be_bytes(first.boot), read_boot_id().unwrap());
    }
}
