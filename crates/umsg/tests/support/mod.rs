//! The parts that most tests share: a private directory, processes, memory that outlives them, and limits.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub mod child;
pub mod due;
pub mod events;
pub mod face;
pub mod fault;
pub mod place;
pub mod scan;
pub mod scarce;
pub mod seccomp;
pub mod shared;
pub mod users;
pub mod written;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Fails unless an error matches the pattern and has the expected error number.
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

/// Returns the time of CLOCK_MONOTONIC in nanoseconds, which is comparable between processes.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Checks `ready` every fifth of a millisecond, for at most `patience`. Returns whether `ready` became true.
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

/// Converts nanoseconds to milliseconds, for texts.
pub fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// A small generator of pseudo-random numbers (xorshift64*): the same numbers for the same seed.
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

/// Sets the maximum number of descriptors that this process may have from now on. Returns the previous maximum.
pub fn limit_descriptors(soft: u64) -> u64 {
    // SAFETY: the first call fills in the limit, and the second call changes the limit of this process.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = soft;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}
