//! `UMSG_DEBUG=1`: the reason why a call failed, in one line on standard error.
//!
//! A program shows its user an errno at best, and EACCES does not say that a directory is not trusted.

use std::fmt::Display;

use crate::fd;

/// Prints why `function` failed on a name, if the user has asked for explanations.
pub(crate) fn explain(function: &str, name: &[u8], why: &dyn Display) {
    if !is_on() {
        return;
    }
    let line = format!("umsg: {function}(\"{}\"): {why}\n", name.escape_ascii());
    say(line.as_bytes());
}

/// Returns whether the user asked for explanations.
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
