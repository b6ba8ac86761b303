//! Deadlines, and the clocks that they are measured with.
//!
//! [`monotonic`] is the *machine's clock*: CLOCK_MONOTONIC as processes of the initial time namespace read it. The kernel
//! shifts that clock for processes of other time namespaces; here the shift is taken out again. All processes of a machine
//! therefore agree about the times that they leave in a segment, and no process can set this clock. It does not advance
//! while the machine is suspended.
//!
//! CLOCK_REALTIME can be set. Only the absolute time-outs of POSIX and times that are shown to people depend on it.

use std::time::{Duration, SystemTime};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// When a blocking call gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Never.
    Never,
    /// It has: the call must not block.
    Passed,
    /// At this reading of the machine's clock, in nanoseconds: relative time-outs.
    Monotonic(u64),
    /// At this reading of CLOCK_REALTIME, in nanoseconds since 1970: the absolute time-outs of POSIX.
    Realtime(u64),
}

impl Deadline {
    /// The deadline that lies `timeout` ahead on the monotonic clock.
    pub fn after(timeout: Duration) -> Deadline {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline::Monotonic(monotonic().saturating_add(nanoseconds))
    }

    /// Whether the deadline lies in the past.
    pub fn has_passed(self) -> bool {
        match self {
            Deadline::Never => false,
            Deadline::Passed => true,
            Deadline::Monotonic(at) => monotonic() >= at,
            Deadline::Realtime(at) => realtime() >= at,
        }
    }

    /// The earlier of this deadline and `slice` nanoseconds from now, on the machine's clock. The caller asks again at the end of
    /// the slice: so it follows a step of CLOCK_REALTIME, and a step back never makes a slice longer.
    pub fn or_slice(self, slice: u64) -> Deadline {
        let rest = match self {
            Deadline::Passed => return Deadline::Passed,
            Deadline::Monotonic(at) => {
                return Deadline::Monotonic(at.min(monotonic().saturating_add(slice)));
            }
            Deadline::Never => slice,
            Deadline::Realtime(at) => at.saturating_sub(realtime()).min(slice),
        };
        Deadline::Monotonic(monotonic().saturating_add(rest))
    }

    /// Whether the deadline is at most so many nanoseconds away.
    pub(crate) fn is_within(self, time: u64) -> bool {
        match self {
            Deadline::Never => false,
            Deadline::Passed => true,
            Deadline::Monotonic(at) => at <= monotonic().saturating_add(time),
            Deadline::Realtime(at) => at <= realtime().saturating_add(time),
        }
    }
}

#[cfg(not(loom))]
use super::process;
#[cfg(not(loom))]
use std::sync::atomic::Ordering;

#[cfg(not(loom))]
fn read(clock: rustix::time::ClockId) -> u64 {
    let clock = match cfg!(miri) {
        // Its time is its own, and the same in each run.
        true => rustix::time::ClockId::Monotonic,
        false => clock,
    };
    let now = rustix::time::clock_gettime(clock);
    (now.tv_sec as u64)
        .saturating_mul(SECOND)
        .saturating_add(now.tv_nsec as u64)
}

/// How far CLOCK_MONOTONIC is ahead in this process's time namespace, in nanoseconds. It is found out once a process and kept
/// in the page that a fork wipes: a child may be in another time namespace than its parent.
#[cfg(not(loom))]
#[inline(always)]
fn ahead() -> u64 {
    // Relaxed: the number is the whole message.
    let known = process::until_fork().map_or(0, |known| known.load(Ordering::Relaxed));
    match known & KNOWN {
        0 => find_ahead(),
        _ => known & !KNOWN,
    }
}

/// Set beside an offset that was found out, in place of its odd nanosecond.
#[cfg(not(loom))]
const KNOWN: u64 = 1;

#[cfg(not(loom))]
#[cold]
#[inline(never)]
fn find_ahead() -> u64 {
    let found = match cfg!(miri) {
        true => Ok(0),
        false => super::time_namespace::monotonic_offset(),
    };
    process::begin_epoch();
    if let (Ok(offset), Some(known)) = (found, process::until_fork()) {
        // Relaxed: as in `ahead`; threads that ask at once find the same.
        known.store(offset.cast_unsigned() | KNOWN, Ordering::Relaxed);
    }
    found.unwrap_or(0).cast_unsigned() & !KNOWN
}

/// The machine's clock in nanoseconds.
#[cfg(not(loom))]
pub fn monotonic() -> u64 {
    read(rustix::time::ClockId::Monotonic).wrapping_sub(ahead())
}

/// The machine's clock as of the last timer tick, in nanoseconds: never ahead of the clock, and some milliseconds behind.
#[cfg(not(loom))]
#[inline]
pub fn monotonic_coarse() -> u64 {
    read(rustix::time::ClockId::MonotonicCoarse).wrapping_sub(ahead())
}

/// A reading of the machine's clock as this process's CLOCK_MONOTONIC reads then, for the kernel.
#[cfg(not(loom))]
pub(super) fn for_kernel(at: u64) -> u64 {
    match at.checked_add_signed(ahead().cast_signed()) {
        Some(shown) => shown,
        None => at,
    }
}

/// The machine's clock in milliseconds, modulo 2^32: for people, to say for how long a thread waits. It comes round after 49 days.
#[cfg(not(loom))]
pub fn milliseconds() -> u32 {
    (monotonic_coarse() / 1_000_000) as u32
}

/// How old a reading of the machine's clock is, in nanoseconds. 0 for one from the future, as a process may write that scribbles.
#[inline(always)]
pub(crate) fn age(at: u64) -> u64 {
    let age = monotonic_coarse().wrapping_sub(at).cast_signed();
    age.max(0).cast_unsigned()
}

/// CLOCK_REALTIME in nanoseconds since 1970.
#[cfg(not(loom))]
pub fn realtime() -> u64 {
    read(rustix::time::ClockId::Realtime).wrapping_add(step::get())
}

/// CLOCK_REALTIME as of the last timer tick, in nanoseconds since 1970: a few nanoseconds to read, a few
/// milliseconds exact.
#[cfg(not(loom))]
#[inline]
pub(crate) fn realtime_coarse() -> u64 {
    read(rustix::time::ClockId::RealtimeCoarse).wrapping_add(step::get())
}

/// How far CLOCK_REALTIME is ahead of the machine's clock: the same number at each call, until the former is set.
fn realtime_ahead() -> u64 {
    loop {
        // The kernel renews the two coarse clocks together, at each tick.
        let before = monotonic_coarse();
        let realtime = realtime_coarse();
        if monotonic_coarse() == before {
            return realtime.wrapping_sub(before);
        }
    }
}

/// What CLOCK_REALTIME would have shown at a reading of the machine's clock, had it been set as it is now: for people.
pub fn shown(at: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(shown_nanoseconds(at))
}

/// As [`shown`], in nanoseconds since 1970.
pub fn shown_nanoseconds(at: u64) -> u64 {
    at.wrapping_add(realtime_ahead())
}

/// The reading of the machine's clock at a time of CLOCK_REALTIME, in nanoseconds since 1970. Of a time before the machine was started
/// it is a number below 0, in two's complement, as [`age`] and [`shown`] take it.
pub(crate) fn at_shown(nanoseconds: u64) -> u64 {
    nanoseconds.wrapping_sub(realtime_ahead())
}

/// Steps of CLOCK_REALTIME, for tests: a test can't set the machine's.
#[cfg(all(feature = "crash-points", not(loom)))]
pub(crate) mod step {
    use std::sync::atomic::{AtomicU64, Ordering};

    static STEP: AtomicU64 = AtomicU64::new(0);

    /// How far the clock was set forth, in nanoseconds.
    pub(super) fn get() -> u64 {
        // Relaxed: the number is the whole message.
        STEP.load(Ordering::Relaxed)
    }

    /// Sets the clock forth, or back, as this process reads it.
    pub(crate) fn set(nanoseconds: i64) {
        STEP.store(nanoseconds.cast_unsigned(), Ordering::Relaxed);
    }
}

#[cfg(not(any(feature = "crash-points", loom)))]
mod step {
    pub(super) const fn get() -> u64 {
        0
    }
}

#[cfg(loom)]
pub(crate) use crate::model::time::{monotonic, monotonic_coarse, realtime, realtime_coarse};
