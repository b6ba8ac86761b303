//! Standard input and output as this command was given them.
//!
//! Rust's runtime opens /dev/null in place of a standard stream that is closed, and its `Stdin` and `Stdout` take EBADF for
//! an end and for success. For a command that takes messages out of a queue both are wrong: what it received would be gone,
//! with exit code 0. So the streams are looked at before the runtime does, and asked what they are open for before they
//! are used.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};

static INPUT_CLOSED: AtomicBool = AtomicBool::new(false);
static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);
static ERRORS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds pointers to functions of this signature, which the C library calls once, before main, with
// arguments that may be ignored. `look` needs nothing that main's runtime sets up: it makes system calls and stores.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    let is_closed = |stream| rustix::io::fcntl_getfd(stream) == Err(Errno::BADF);
    // Relaxed: there is one thread, and main comes later in it.
    INPUT_CLOSED.store(is_closed(rustix::stdio::stdin()), Ordering::Relaxed);
    OUTPUT_CLOSED.store(is_closed(rustix::stdio::stdout()), Ordering::Relaxed);
    ERRORS_CLOSED.store(is_closed(rustix::stdio::stderr()), Ordering::Relaxed);
}

/// Closes the streams again that were closed at the start, for the program that replaces this one.
pub fn leave_closed() {
    for (closed, stream) in [
        (&INPUT_CLOSED, rustix::stdio::stdin()),
        (&OUTPUT_CLOSED, rustix::stdio::stdout()),
        (&ERRORS_CLOSED, rustix::stdio::stderr()),
    ] {
        // Relaxed: see `look`.
        if closed.load(Ordering::Relaxed) {
            // If that fails, the stream stays the null device, which is harmless.
            let _ = rustix::io::fcntl_setfd(stream, FdFlags::CLOEXEC);
        }
    }
}

/// An error unless standard input can be read.
pub fn check_input() -> io::Result<()> {
    // Relaxed: see `look`.
    let closed = INPUT_CLOSED.load(Ordering::Relaxed);
    check(
        closed,
        rustix::stdio::stdin(),
        OFlags::WRONLY,
        Unusable::WriteOnly,
    )
}

/// An error unless standard output can be written.
pub fn check_output() -> io::Result<()> {
    // Relaxed: see `look`.
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

/// Why a stream can't be used.
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
            Unusable::Closed => "it is closed; redirect it to a file or a pipe",
            Unusable::ReadOnly => "it is open for reading only; redirect it with > or |",
            Unusable::WriteOnly => "it is open for writing only; redirect it with < or |",
        })
    }
}
