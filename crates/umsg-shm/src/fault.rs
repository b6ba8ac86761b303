//! The errors of the engines' operations, and of creating and attaching segments. The public interfaces convert these errors into their own errors.

#[cfg(not(loom))]
use rustix::io::Errno;

/// The errors that every operation of an engine can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The segment holds a value that no operation writes: it is corrupted.
    Damaged,
    /// The file system is full.
    NoSpace,
    /// The namespace's limit of bytes is reached.
    OverLimit,
    /// All slots, or all of the arena, are in use, whether or not the system has memory.
    UsedUp,
    /// The machine or the memory cgroup has no memory left.
    NoMemory,
    /// The owner of a lock did not release it within the caller's time.
    Busy,
    /// The calling thread already holds the lock.
    OwnedByCaller,
}

#[cfg(not(loom))]
impl Fault {
    /// Converts an error of mapping or allocating memory.
    pub(crate) fn from_memory(error: Errno) -> Fault {
        match error {
            Errno::NOSPC | Errno::DQUOT => Fault::NoSpace,
            _ => Fault::NoMemory,
        }
    }
}

/// The reason why a segment was not created or attached.
#[cfg(not(loom))]
#[derive(Debug)]
pub enum AttachError {
    /// The file is not a segment; the text says why.
    NotAQueue(&'static str),
    /// The segment has another format or layout.
    OtherVersion { found: u32, expected: u32 },
    /// The header contradicts itself or the file's length.
    Damaged(&'static str),
    /// The file would be `len` bytes long, which exceeds the process's limit on the size of files.
    FileTooLarge { len: u64 },
    /// Processes of several PID namespaces use the queue, and this process can't register its liveness id.
    Unregistered { call: &'static str, errno: Errno },
    /// The kernel or a sandbox refuses a system call that every queue needs.
    CallRefused { call: &'static str, errno: Errno },
    /// A file of this length can't be mapped.
    Mapping { errno: Errno, len: usize },
    /// A system call failed.
    System { call: &'static str, errno: Errno },
    /// The file is that of a removed queue.
    Removed,
    /// An error that the operations of an engine have, too.
    Fault(Fault),
}

#[cfg(not(loom))]
impl AttachError {
    /// Returns the error of mapping a file of this length.
    pub(crate) fn of_mapping(errno: Errno, len: usize) -> AttachError {
        AttachError::Mapping { errno, len }
    }

    /// Returns the error of a system call.
    pub(crate) fn from_errno(call: &'static str, errno: Errno) -> AttachError {
        AttachError::System { call, errno }
    }
}

#[cfg(not(loom))]
impl From<Fault> for AttachError {
    fn from(fault: Fault) -> AttachError {
        AttachError::Fault(fault)
    }
}
