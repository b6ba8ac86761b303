//! System calls that the kernel or a sandbox refuses, and the consequences.

use std::io;
use umsg_shm::sys::required::check_for_inheritance;

/// A system call that is refused to the calling process. Queues work without the call, but a part of their guarantees is missing.
#[derive(Debug)]
#[non_exhaustive]
pub struct RefusedCall {
    /// The name of the call, with its operation.
    pub call: &'static str,
    /// The error of the call.
    pub error: io::Error,
    /// The guarantee that is missing without the call.
    pub consequence: &'static str,
}

/// Returns the optional system calls that the kernel or a sandbox refuses to the calling thread. Processes in other sandboxes may have other lists.
///
/// # Blocking
/// Never blocks.
///
/// ```
/// for refused in umsg::diagnosis::refused_calls() {
///     eprintln!("{}: {}. {}", refused.call, refused.error, refused.consequence);
/// }
/// ```
#[must_use]
pub fn refused_calls() -> Vec<RefusedCall> {
    let refused = check_for_inheritance().err().map(|refused| RefusedCall {
        call: refused.call,
        error: refused.errno.into(),
        consequence: "A thread with a real-time policy lends no priority to the owner of the lock for which it waits, so a thread of medium \
                      priority can delay it without limit",
    });
    refused.into_iter().collect()
}
