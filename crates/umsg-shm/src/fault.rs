//! What can go wrong below the faces: in an operation of an engine, and where a segment is made or attached to. The faces turn both into
//! their own errors.

#[cfg(not(loom))]
use rustix::io::Errno;

/// What can go wrong inside the engine, whatever the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The segment holds what no operation could have left there.
    Damaged,
    /// The file system is full.
    NoSpace,
    /// The namespace's limit of bytes is reached.
    OverLimit,
    /// The segment has no slot or no room in its arena any more, whatever memory there is.
    UsedUp,
    /// The machine or the memory cgroup has no memory left.
    NoMemory,
    /// A lock was not let go within the caller's patience.
    Busy,
    /// The calling thread holds the lock itself.
    OwnedByCaller,
}

#[cfg(not(loom))]
impl Fault {
    /// For errors of mapping and populating memory.
    pub(crate) fn from_memory(error: Errno) -> Fault {
        match error {
            Errno::NOSPC | Errno::DQUOT => Fault::NoSpace,
            _ => Fault::NoMemory,
        }
    }
}

/// Why there is no segment.
#[cfg(not(loom))]
#[derive(Debug)]
pub enum AttachError {
    /// The file is no segment, and why.
    NotAQueue(&'static str),
    /// It is a segment of another format or layout.
    OtherVersion { found: u32, expected: u32 },
    /// The header contradicts itself or the file's length.
    Damaged(&'static str),
    /// The file would be longer than the process may make one, in bytes.
    FileTooLarge { len: u64 },
    /// Processes of several PID namespaces use the queue, and this one can't register its life.
    Unregistered { call: &'static str, errno: Errno },
    /// The kernel or a sandbox refuses a system call that no queue works without.
    CallRefused { call: &'static str, errno: Errno },
    /// A file of this length can't be mapped.
    Mapping { errno: Errno, len: usize },
    /// A system call failed.
    System { call: &'static str, errno: Errno },
    /// See [`Fault`].
    Fault(Fault),
}

#[cfg(not(loom))]
impl AttachError {
    /// The error of mapping a file of that length.
    pub(crate) fn of_mapping(errno: Errno, len: usize) -> AttachError {
        AttachError::Mapping { errno, len }
    }

    /// The error of a system call.
    pub(crate) fn from_errno(call: &'static str, errno: Errno) -> AttachError {
        AttachError::System { call, errno }
    }
}

#[cfg(not(loom))]
impl From<Fault> for AttachError {
    fn from(trouble: Fault) -> AttachError {
        AttachError::Fault(trouble)
    }
}
