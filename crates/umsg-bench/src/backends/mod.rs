//! One trait for all sides of the comparison, such as umsg and the kernel. Every measurement is generic over the trait and compiled for each side, so
//! a timed loop has no indirect call of the benchmark.

pub mod array2012;
mod descriptor;
pub mod dropin;
pub mod kernel;
pub mod library;
pub mod typed;
pub mod umsg;

use std::fmt;

use crate::failure::Failure;

/// The capacity of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The maximum number of messages.
    pub depth: u32,
    /// The maximum size of a message, in bytes.
    pub message_size: u32,
}

/// The errno of a failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The queue is full, or empty.
    pub const AGAIN: Self = Self(libc::EAGAIN);

    /// Returns the errno of the last failed call of libc.
    #[cold]
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// The way in which a call waits. Only umsg offers a choice: the kernel always puts the caller to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    Adaptive,
    Blocking,
}

/// A priority queue of messages, as POSIX describes it.
pub trait MessageQueue: Sized {
    /// Makes a queue that no other process can find, and that is removed with its last user.
    fn make(spec: &Spec) -> Result<Self, Failure>;

    /// Sends a message; waits while the queue is full.
    fn send(&self, message: &[u8], priority: u32) -> Result<(), Errno>;

    /// Sends a message, or fails with [`Errno::AGAIN`] if the queue is full.
    fn try_send(&self, message: &[u8], priority: u32) -> Result<(), Errno>;

    /// Receives a message; waits while the queue is empty. Returns the length in bytes.
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Receives a message, or fails with [`Errno::AGAIN`] if the queue is empty.
    fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Sets the way in which `send` and `receive` of this process wait.
    fn set_waiting(&self, _waiting: Waiting) {}
}

/// Returns a name that no other queue has, with the leading slash.
fn fresh_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    // Relaxed: each caller only needs a unique number.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("/umsg-bench-{}-{number}", std::process::id())
}
