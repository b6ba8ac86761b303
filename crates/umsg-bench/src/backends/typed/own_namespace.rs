//! An IPC namespace for the measurement alone, in which the measurement can raise the kernel's limits without an effect on other processes. To create
//! the namespace, the process needs CAP_SYS_ADMIN.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;

/// The file that sets the default capacity of queues in the present IPC namespace.
const QUEUE_BYTES: &str = "/proc/sys/kernel/msgmnb";

/// An entered IPC namespace. While this value exists, the calling process and its forked children are in the namespace. The process must have one
/// thread.
pub struct OwnNamespace {
    back: File,
}

impl OwnNamespace {
    /// Enters a new namespace in which a queue may hold this number of bytes. Returns None if the system does not permit it.
    pub fn enter(bytes: u64) -> Option<Self> {
        let back = File::open("/proc/self/ns/ipc").ok()?;
        // SAFETY: unshare takes only flags, and this process has no open queue in the namespace that it leaves.
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
        // SAFETY: the call takes flags and a descriptor that belongs to this value.
        let back = unsafe { libc::setns(self.back.as_raw_fd(), libc::CLONE_NEWIPC) };
        debug_assert_eq!(back, 0, "setns back into the first namespace");
    }
}
