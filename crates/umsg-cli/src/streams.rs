//! Checks standard input and output as the caller of this command has set them.
//!
//! Rust's runtime opens /dev/null in place of a closed standard stream. Its `Stdin` treats EBADF as the end of the input, and its `Stdout` treats
//! EBADF as success. So a received message would be lost, with exit code 0. Therefore this module inspects the streams before the runtime does, and
//! it checks their access modes before use.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};

static INPUT_CLOSED: AtomicBool = AtomicBool::new(false);
static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);
static ERRORS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds pointers to functions of this signature, which the C library calls once, before main, with arguments that the function
// may ignore. `inspect` makes only system calls and stores, which need no runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = inspect;

extern "C" fn inspect() {
    let is_closed = |stream| rustix::io::fcntl_getfd(stream) == Err(Errno::BADF);
    // Relaxed: the process has one thread.
    INPUT_CLOSED.store(is_closed(rustix::stdio::stdin()), Ordering::Relaxed);
    OUTPUT_CLOSED.store(is_closed(rustix::stdio::stdout()), Ordering::Relaxed);
    ERRORS_CLOSED.store(is_closed(rustix::stdio::stderr()), Ordering::Relaxed);
}

/// Closes the streams that were closed when this process started, for the program that replaces this process.
pub fn leave_closed() {
    for (closed, stream) in [
        (&INPUT_CLOSED, rustix::stdio::stdin()),
        (&OUTPUT_CLOSED, rustix::stdio::stdout()),
        (&ERRORS_CLOSED, rustix::stdio::stderr()),
    ] {
        // Relaxed: see `inspect`.
        if closed.load(Ordering::Relaxed) {
            // If the call fails, the stream stays open on /dev/null, which is harmless.
            let _ = rustix::io::fcntl_setfd(stream, FdFlags::CLOEXEC);
        }
    }
}

/// Returns an error if standard input is closed, or is open only for writing.
pub fn check_input() -> io::Result<()> {
    // Relaxed: see `inspect`.
    let closed = INPUT_CLOSED.load(Ordering::Relaxed);
    check(
        closed,
        rustix::stdio::stdin(),
        OFlags::WRONLY,
        Unusable::WriteOnly,
    )
}

/// Returns an error if standard output is closed, or is open only for reading.
pub fn check_output() -> io::Result<()> {
    // Relaxed: see `inspect`.
    let closed = OUTPUT_CLOSED.load(Ordering::Relaxed);
    check(
        closed,
        rustix::stdio::stdout(),
        OFlags::RDONLY,
        Unusable::ReadOnly,
    )
}

fn check(closed: bool, stream: BorrowedFd<'_>, wrong: OFlags, why: Unusable) -> io::Result<()> {
    if closed {
        return Err(io::Error::other(Unusable::Closed));
    }
    let access = rustix::fs::fcntl_getfl(stream)? & OFlags::RWMODE;
    match access == wrong {
        true => Err(io::Error::other(why)),
        false => Ok(()),
    }
}

/// The reason why a standard stream can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unusable {
    Closed,
    ReadOnly,
    WriteOnly,
}

impl std::error::Error for Unusable {}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unusable::Closed => "the stream is closed; redirect it with <, > or |",
            Unusable::ReadOnly => "the stream is open for reading only; redirect it with > or |",
            Unusable::WriteOnly => "the stream is open for writing only; redirect it with < or |",
        })
    }
}
