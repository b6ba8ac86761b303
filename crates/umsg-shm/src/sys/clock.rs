//! Deadlines and their clocks.
//!
//! [`monotonic`] is the *machine's clock*: CLOCK_MONOTONIC as processes of the initial time namespace read it. The kernel shifts that clock
//! in other time namespaces, and this module removes the shift. So all processes of a machine agree about the times in a segment. No process
//! can set this clock. It does not advance while the machine is suspended.
//!
//! CLOCK_REALTIME can be set. Only the absolute time-outs of POSIX and displayed times depend on it.

use super::thread::Thread;
use std::time::{Duration, SystemTime};

/// The number of nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// The time at which a blocking call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The call has no deadline.
    Never,
    /// The call has no time left: it must not block.
    Passed,
    /// At this time of the machine's clock, in nanoseconds. Relative time-outs become such a deadline.
    Monotonic(u64),
    /// At this time of CLOCK_REALTIME, in nanoseconds since 1970. The absolute time-outs of POSIX become such a deadline.
    Realtime(u64),
}

impl Deadline {
    /// Returns the deadline that lies `timeout` from now, on the machine's clock.
    pub fn after(timeout: Duration) -> Deadline {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline::Monotonic(monotonic().saturating_add(nanoseconds))
    }

    /// Returns whether the deadline has passed.
    pub fn has_passed(self) -> bool {
        match self {
            Deadline::Never => false,
            Deadline::Passed => true,
            Deadline::Monotonic(at) => monotonic() >= at,
            Deadline::Realtime(at) => realtime() >= at,
        }
    }

    /// Returns the earlier of two times: this deadline, and `slice` nanoseconds from now on the machine's clock. A caller that waits calls this
    /// function again at the end of each slice. So the caller notices when CLOCK_REALTIME is set, and a slice never becomes longer when that clock is
    /// set back.
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

    /// Returns whether the deadline is at most `time` nanoseconds away.
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
#[inline(always)]
fn read(clock: rustix::time::ClockId) -> u64 {
    let clock = match cfg!(miri) {
        // Under Miri, time is virtual, and passes in the same way in each run.
        true => rustix::time::ClockId::Monotonic,
        false => clock,
    };
    let now = rustix::time::clock_gettime(clock);
    // The kernel's clocks end in 2262, before the sum overflows.
    (now.tv_sec as u64)
        .wrapping_mul(SECOND)
        .wrapping_add(now.tv_nsec as u64)
}

/// Returns the shift of CLOCK_MONOTONIC in this process's time namespace, in nanoseconds. Each process computes the shift once and keeps it in the
/// page that a fork wipes, because a child may have another time namespace than its parent.
#[cfg(not(loom))]
#[inline(always)]
fn ahead() -> u64 {
    // Relaxed: the number publishes no other data.
    let known = process::until_fork().map_or(0, |known| known.load(Ordering::Relaxed));
    match known & KNOWN {
        0 => find_ahead(),
        _ => known - KNOWN,
    }
}

/// Returns the shift of CLOCK_MONOTONIC, if this process has computed it.
#[cfg(not(loom))]
pub(super) fn known_ahead() -> Option<u64> {
    // Relaxed: as in `ahead`.
    let known = process::until_fork().map_or(0, |known| known.load(Ordering::Relaxed));
    (known & KNOWN != 0).then_some(known & !KNOWN)
}

/// The flag of a computed shift: the lowest bit, which the shift does not use.
#[cfg(not(loom))]
const KNOWN: u64 = 1;

#[cfg(not(loom))]
#[cold]
#[inline(never)]
fn find_ahead() -> u64 {
    let found = match cfg!(miri) {
        true => Ok(0),
        false => match super::parent::ahead() {
            Some(ahead) => Ok(ahead.cast_signed()),
            None => super::time_namespace::monotonic_offset(),
        },
    };
    process::begin_epoch();
    if let (Ok(offset), Some(known)) = (found, process::until_fork()) {
        // Relaxed: as in `ahead`. Threads that compute the shift at the same time get the same result.
        known.store(offset.cast_unsigned() | KNOWN, Ordering::Relaxed);
    }
    found.unwrap_or(0).cast_unsigned() & !KNOWN
}

/// Returns the machine's clock in nanoseconds.
#[cfg(not(loom))]
#[inline(never)]
pub fn monotonic() -> u64 {
    read(rustix::time::ClockId::Monotonic).wrapping_sub(ahead())
}

/// Returns the machine's clock at the last timer tick, in nanoseconds. The result is up to some milliseconds late, and never early.
#[cfg(not(loom))]
#[inline(always)]
pub fn monotonic_coarse() -> u64 {
    read(rustix::time::ClockId::MonotonicCoarse).wrapping_sub(ahead())
}

/// The value for a thread that has no copy of the shift yet. This value differs from all shifts, whose lowest bit is 0.
#[cfg(not(loom))]
pub(super) const NOT_NOTED: u64 = 1;

/// Returns the result of [`monotonic_coarse`] in fewer instructions, because each thread keeps a copy of the shift.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn monotonic_coarse_of(me: &Thread) -> u64 {
    let ahead = match me.ahead.get() {
        NOT_NOTED => note_ahead(me),
        noted => noted,
    };
    read(rustix::time::ClockId::MonotonicCoarse).wrapping_sub(ahead)
}

#[cfg(loom)]
pub(crate) fn monotonic_coarse_of(_: &Thread) -> u64 {
    monotonic_coarse()
}

#[cfg(not(loom))]
#[cold]
#[inline(never)]
fn note_ahead(me: &Thread) -> u64 {
    let ahead = ahead();
    // If the process has not stored the shift, the thread keeps no copy, and the next call tries again.
    if known_ahead().is_some() {
        me.ahead.set(ahead);
    }
    ahead
}

/// Converts a time of the machine's clock to this process's CLOCK_MONOTONIC, for system calls.
#[cfg(not(loom))]
pub(super) fn for_kernel(at: u64) -> u64 {
    match at.checked_add_signed(ahead().cast_signed()) {
        Some(shown) => shown,
        None => at,
    }
}

/// Returns the machine's clock in milliseconds, modulo 2^32, to display how long a thread has waited. The number wraps around after 49 days.
#[cfg(not(loom))]
pub fn milliseconds() -> u32 {
    (monotonic_coarse() / 1_000_000) as u32
}

/// Returns the nanoseconds since `at`, a time of the machine's clock. Returns 0 for a time in the future, which a hostile process may write.
#[inline(always)]
pub(crate) fn age(at: u64) -> u64 {
    let age = monotonic_coarse().wrapping_sub(at).cast_signed();
    age.max(0).cast_unsigned()
}

/// Returns CLOCK_REALTIME in nanoseconds since 1970.
#[cfg(not(loom))]
#[inline(never)]
pub fn realtime() -> u64 {
    read(rustix::time::ClockId::Realtime).wrapping_add(step::get())
}

/// Returns CLOCK_REALTIME at the last timer tick, in nanoseconds since 1970. The read takes a few nanoseconds, and its result is a few milliseconds
/// late.
#[cfg(not(loom))]
#[inline]
pub fn realtime_coarse() -> u64 {
    read(rustix::time::ClockId::RealtimeCoarse).wrapping_add(step::get())
}

/// Returns the difference of CLOCK_REALTIME and the machine's clock. Each call returns the same number until CLOCK_REALTIME is set.
fn realtime_ahead() -> u64 {
    loop {
        // The kernel updates the two coarse clocks together, at each tick.
        let before = monotonic_coarse();
        let realtime = realtime_coarse();
        if monotonic_coarse() == before {
            return realtime.wrapping_sub(before);
        }
    }
}

/// Converts a time of the machine's clock to CLOCK_REALTIME as it is set now, for display.
pub fn shown(at: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(shown_nanoseconds(at))
}

/// Converts a time of the machine's clock as [`shown`] does, but to nanoseconds since 1970.
pub fn shown_nanoseconds(at: u64) -> u64 {
    at.wrapping_add(realtime_ahead())
}

/// Converts a time of CLOCK_REALTIME, in nanoseconds since 1970, to the machine's clock. A time before the start of the machine is negative,
/// in two's complement; [`age`] and [`shown`] accept it.
pub fn at_shown(nanoseconds: u64) -> u64 {
    nanoseconds.wrapping_sub(realtime_ahead())
}

/// Converts a time of CLOCK_REALTIME, in nanoseconds since 1970, to the machine's clock. Returns the current time of the machine's clock if the given
/// time has passed.
#[cfg(not(loom))]
pub fn reading_at(nanoseconds: u64) -> u64 {
    let now = monotonic();
    let ahead = realtime_ahead();
    match nanoseconds.saturating_sub(now.wrapping_add(ahead)) {
        0 => now,
        _ => nanoseconds.wrapping_sub(ahead),
    }
}

/// Steps by which a test seems to set CLOCK_REALTIME, because a test can't set the machine's clock.
#[cfg(all(feature = "crash-points", not(loom)))]
pub(crate) mod step {
    use std::sync::atomic::{AtomicU64, Ordering};

    static STEP: AtomicU64 = AtomicU64::new(0);

    /// Returns the sum of the steps, in nanoseconds.
    pub(super) fn get() -> u64 {
        // Relaxed: the number publishes no other data.
        STEP.load(Ordering::Relaxed)
    }

    /// Sets CLOCK_REALTIME forward or back for this process.
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
