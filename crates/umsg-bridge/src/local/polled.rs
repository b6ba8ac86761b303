//! Descriptors that the runtime polls.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime of the calling task.
#[allow(unsafe_code, reason = "a descriptor that the runtime keeps")]
pub fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the registration owns the descriptor, closes it when the registration ends, and always returns the same descriptor.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }
        .map_err(|error| io::Error::other(error.to_string()))
}
