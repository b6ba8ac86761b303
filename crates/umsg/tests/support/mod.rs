//! Common parts of the tests that kill processes or exhaust their resources: a private directory, processes, memory that outlives them,
//! and the record of every message.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub mod actor;
pub mod child;
pub mod clerk;
pub mod events;
pub mod face;
pub mod fault;
pub mod hands;
pub mod harass;
pub mod journal;
#[cfg(feature = "crash-points")]
pub mod killing;
pub mod place;
pub mod points;
pub mod scarce;
pub mod seccomp;
pub mod shared;
#[cfg(feature = "crash-points")]
pub mod stage;
pub mod turns;
pub mod users;
pub mod written;

use journal::How;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Fails unless an error matches a pattern and has an error number.
#[macro_export]
macro_rules! expect_error {
    ($error:expr, $pattern:pat $(if $guard:expr)?, $errno:expr $(, $($case:tt)+)?) => {
        let case = <[String]>::concat(&[$(format!($($case)+))?]);
        assert!(matches!($error, $pattern $(if $guard)?), "{case}: {}", $error);
        assert_eq!($error.errno(), $errno);
    };
}

/// Tests that measure stalls take turns: libtest would run them side by side.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CLOCK_MONOTONIC in nanoseconds: comparable between processes.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Checks `ready` every fifth of a millisecond, for at most `patience`. Returns whether it became true.
#[must_use]
pub fn wait_until(patience: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    loop {
        if ready() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Polls until the descriptor is readable, for at most the time of `how`. Returns whether it is readable.
pub fn poll_readable(descriptor: BorrowedFd<'_>, how: How) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let time = match how {
        How::Try => Some(Duration::ZERO),
        How::Block => None,
        How::Within(time) => Some(time),
        How::At(time) => Some(time.duration_since(SystemTime::now()).unwrap_or_default()),
    };
    let time = time.map(|time| Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    // An error is EINTR.
    poll(&mut polled, time.as_ref()).is_ok_and(|count| count == 1)
}

/// Nanoseconds as milliseconds, for people.
pub fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// A small generator (xorshift64*): the same numbers for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Sets the number of descriptors that this process may have from now on. Returns the previous number.
pub fn limit_descriptors(soft: u64) -> u64 {
    // SAFETY: a limit that is filled in, and of this process.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = soft;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}
