//! The requests of the engines to the namespace of a queue's file. The engines have neither the path nor the names of the file.

use crate::fault::AttachError;
use rustix::io;
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Identifies a poll FIFO of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoName {
    /// The inode number of the queue's file.
    pub inode: u64,
    /// A random number. No two FIFOs of a queue have the same number.
    pub number: u64,
}

/// A namespace, as the engines of its queues use it.
///
/// Signal handlers may call all functions except those that make or sweep FIFOs, because these allocate memory.
pub trait Host: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Returns whether the namespace's limit permits `more` bytes of memory.
    fn allows(&self, more: usize) -> bool;

    /// Announces that the counts of the System V queue with this identifier may change: see `sysv_engine/counted.rs`.
    fn announce_counts(&self, id: i32);

    /// Returns this process's liveness id, and registers it if necessary; see [`Liveness::own`](crate::sys::liveness::Liveness::own).
    fn own_life(&self) -> u32;

    /// Returns this process's liveness id if it is registered. Makes no system call.
    fn known_life(&self) -> Option<u32>;

    /// Returns whether the process with a liveness id is proved to be dead.
    fn is_over(&self, life: u32) -> bool;

    /// Registers this process's liveness id, unless it is registered.
    ///
    /// # Errors
    /// `Unregistered` if the liveness id can't be registered.
    fn join(&self) -> Result<(), AttachError>;

    /// Opens a poll FIFO of the caller's user.
    ///
    /// # Errors
    /// [`NOT_OURS`] if the FIFO belongs to another user; ENXIO if the name leads to another kind of file; ESTALE if the namespace's path leads to
    /// another directory by now; the errors of open(2).
    fn open_fifo(&self, name: FifoName) -> io::Result<OwnedFd>;

    /// Creates a poll FIFO without a name, opens the FIFO, takes a shared lock on it, and then gives it the name `name`.
    ///
    /// # Errors
    /// The errors of mkfifo(3) and open(2).
    fn make_fifo(&self, name: FifoName) -> io::Result<OwnedFd>;

    /// Creates and opens a FIFO without a name.
    ///
    /// # Errors
    /// The errors of mkfifo(3) and open(2).
    fn make_private_fifo(&self) -> io::Result<OwnedFd>;

    /// Returns whether `name` still leads to this FIFO.
    fn leads_to(&self, name: FifoName, fifo: BorrowedFd<'_>) -> bool;

    /// Removes a poll FIFO, if the caller has the permission.
    fn remove_fifo(&self, name: FifoName);

    /// Removes some poll FIFOs that no process polls. The caller holds no lock of a queue, because a listing of the directory waits for the
    /// kernel's lock of that directory.
    fn sweep_fifos(&self);
}

/// The error of opening a poll FIFO of another user.
pub const NOT_OURS: io::Errno = io::Errno::PERM;
