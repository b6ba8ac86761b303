//! What the engines ask of the namespace in which a queue's file lies. They know neither its path nor its names.

use crate::fault::AttachError;
use rustix::io;
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Which poll FIFO of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoName {
    /// The inode number of the queue's file.
    pub inode: u64,
    /// A random number, which differs among the FIFOs of one queue.
    pub number: u64,
}

/// A namespace, for the queues in it.
///
/// Handlers may call everything but the functions that make or sweep FIFOs: these allocate memory.
pub trait Host: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Whether `more` bytes may come into use.
    fn allows(&self, more: usize) -> bool;

    /// The number of this process's life: see [`Liveness::own`](crate::sys::liveness::Liveness::own).
    fn own_life(&self) -> u32;

    /// Whether a life is proved to be over.
    fn is_over(&self, life: u32) -> bool;

    /// Registers this process's life, unless that was done before.
    ///
    /// # Errors
    /// `Unregistered`.
    fn join(&self) -> Result<(), AttachError>;

    /// Opens a poll FIFO of the caller's.
    ///
    /// # Errors
    /// [`NOT_OURS`] if the FIFO belongs to another user; ENXIO if the name leads to another kind of file; ESTALE if the namespace is out of
    /// sight; those of open(2).
    fn open_fifo(&self, name: FifoName) -> io::Result<OwnedFd>;

    /// Makes a poll FIFO, opens it, and locks it (shared) before it has its name.
    ///
    /// # Errors
    /// Those of mkfifo(3) and open(2).
    fn make_fifo(&self, name: FifoName) -> io::Result<OwnedFd>;

    /// Makes a FIFO without a name, and opens it.
    ///
    /// # Errors
    /// Those of mkfifo(3) and open(2).
    fn make_private_fifo(&self) -> io::Result<OwnedFd>;

    /// Whether a name leads to this FIFO.
    fn leads_to(&self, name: FifoName, fifo: BorrowedFd<'_>) -> bool;

    /// Removes a poll FIFO, as far as the caller may.
    fn remove_fifo(&self, name: FifoName);

    /// Removes some poll FIFOs that no process polls. Under no queue's lock: the listing waits for the directory's lock.
    fn sweep_fifos(&self);
}

/// The error of opening a poll FIFO of another user.
pub const NOT_OURS: io::Errno = io::Errno::PERM;
