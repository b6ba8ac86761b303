//! An IPC namespace that belongs to the measurement alone, in which the kernel's limits may be raised without any process
//! else noticing. It takes CAP_SYS_ADMIN.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;

/// The capacity of a queue, as the sysctl of the present namespace.
const QUEUE_BYTES: &str = "/proc/sys/kernel/msgmnb";

/// While it lives, the calling process (of one thread) and the children that it forks are in the namespace.
pub struct OwnNamespace {
    back: File,
}

impl OwnNamespace {
    /// Enters a new namespace in which a queue may hold this number of bytes. None if that is not permitted.
    pub fn enter(bytes: u64) -> Option<Self> {
        let back = File::open("/proc/self/ns/ipc").ok()?;
        // SAFETY: takes flags; this process has no open queue in the namespace that it leaves.
        if unsafe { libc::unshare(libc::CLONE_NEWIPC) } != 0 {
            return None;
        }
        let entered = Self { back };
        fs::write(QUEUE_BYTES, bytes.to_string()).ok()?;
        Some(entered)
    }
}

impl Drop for OwnNamespace {
    fn drop(&mut self) {
        // SAFETY: takes a descriptor, ours, and flags.
        let back = unsafe { libc::setns(self.back.as_raw_fd(), libc::CLONE_NEWIPC) };
        debug_assert_eq!(back, 0, "the way back into the namespace that we came from");
    }
}
