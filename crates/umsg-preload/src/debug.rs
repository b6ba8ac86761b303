//! `UMSG_DEBUG=1`: the reason why a call failed, in one line on standard error.
//!
//! Most programs show only an errno, and EACCES does not say, for example, that a directory is not trusted.

use std::ffi::CString;
use std::fmt::Display;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use umsg::Namespace;

use crate::{fd, kernel};

/// If the user has requested explanations, prints why `function` failed on a name, and the directory of the queues.
pub(crate) fn explain(function: &str, name: &[u8], why: &dyn Display) {
    if !is_on() {
        return;
    }
    let name = name.escape_ascii();
    let line = match Namespace::known_of_this_process() {
        Some(namespace) => {
            let directory = namespace.path().as_os_str().as_bytes().escape_ascii();
            format!("umsg: {function}(\"{name}\"): {why} (in {directory})\n")
        }
        // The reason already contains the directory.
        None => format!("umsg: {function}(\"{name}\"): {why}\n"),
    };
    say(line.as_bytes());
}

/// If the user has requested explanations, checks whether the kernel has a POSIX queue with the name that was not found. If it has, prints that the
/// queue may belong to a program that runs without the drop-in.
pub(crate) fn look_in_kernel(name: &[u8]) {
    let bare = name.strip_prefix(b"/").unwrap_or(name);
    let Ok(bare) = CString::new(bare) else {
        return;
    };
    if !is_on() {
        return;
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let arguments = [
        bare.as_ptr().expose_provenance(),
        flags as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the name ends with NUL and outlives the call, and without O_CREAT there are no further arguments.
    let queue = unsafe { kernel::call(libc::SYS_mq_open, arguments) };
    let is_there = !matches!(queue, Err(errno) if errno != libc::EACCES);
    if let Ok(queue) = queue.map(|queue| queue as i32) {
        // SAFETY: the kernel returned a new descriptor.
        drop(unsafe { OwnedFd::from_raw_fd(queue) });
    }
    if is_there {
        let name = name.escape_ascii();
        let line = format!(
            "umsg: mq_open(\"{name}\"): the kernel has a queue of this name, perhaps of a program that was started without `umsg run`\n"
        );
        say(line.as_bytes());
    }
}

/// Returns whether the user has requested explanations (UMSG_DEBUG).
pub(crate) fn is_on() -> bool {
    std::env::var_os("UMSG_DEBUG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Writes to standard error, by a bare system call.
pub(crate) fn say(line: &[u8]) {
    if let Some(stderr) = fd::borrow(libc::STDERR_FILENO) {
        // A failure here can't be reported.
        let _ = rustix::io::write(stderr, line);
    }
}
