//! Deadlines, and the three clocks that they are measured with.

use std::time::Duration;

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// When a blocking call gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// Never.
    Never,
    /// It has: the call must not block.
    Passed,
    /// At this reading of CLOCK_MONOTONIC, in nanoseconds: relative time-outs.
    Monotonic(u64),
    /// At this reading of CLOCK_REALTIME, in nanoseconds since 1970: the absolute time-outs of POSIX.
    Realtime(u64),
}

impl Deadline {
    /// The deadline that lies `timeout` ahead on the monotonic clock.
    pub(crate) fn after(timeout: Duration) -> Deadline {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline::Monotonic(monotonic().saturating_add(nanoseconds))
    }

    /// Whether the deadline lies in the past.
    pub(crate) fn has_passed(self) -> bool {
        match self {
            Deadline::Never => false,
            Deadline::Passed => true,
            Deadline::Monotonic(at) => monotonic() >= at,
            Deadline::Realtime(at) => realtime() >= at,
        }
    }

    /// The earlier of this deadline and `slice` nanoseconds from now, on this deadline's own clock.
    pub(crate) fn or_slice(self, slice: u64) -> Deadline {
        match self {
            Deadline::Never => Deadline::Monotonic(monotonic().saturating_add(slice)),
            Deadline::Passed => Deadline::Passed,
            Deadline::Monotonic(at) => {
                Deadline::Monotonic(at.min(monotonic().saturating_add(slice)))
            }
            Deadline::Realtime(at) => Deadline::Realtime(at.min(realtime().saturating_add(slice))),
        }
    }
}

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

/// CLOCK_MONOTONIC in nanoseconds.
#[cfg(not(loom))]
pub(crate) fn monotonic() -> u64 {
    read(rustix::time::ClockId::Monotonic)
}

/// CLOCK_MONOTONIC as of the last timer tick, in nanoseconds: never ahead of the clock, and some milliseconds behind.
#[cfg(not(loom))]
#[inline]
pub(crate) fn monotonic_coarse() -> u64 {
    read(rustix::time::ClockId::MonotonicCoarse)
}

/// CLOCK_MONOTONIC in milliseconds, modulo 2^32: for people, to say for how long somebody waits. It comes round after 49 days.
#[cfg(not(loom))]
pub(crate) fn milliseconds() -> u32 {
    (monotonic_coarse() / 1_000_000) as u32
}

/// CLOCK_REALTIME in nanoseconds since 1970.
#[cfg(not(loom))]
pub(crate) fn realtime() -> u64 {
    read(rustix::time::ClockId::Realtime)
}

/// CLOCK_REALTIME as of the last timer tick, in nanoseconds since 1970: a few nanoseconds to read, a few
/// milliseconds exact.
#[cfg(not(loom))]
#[inline]
pub(crate) fn realtime_coarse() -> u64 {
    read(rustix::time::ClockId::RealtimeCoarse)
}

#[cfg(loom)]
pub(crate) use crate::model::time::{monotonic, monotonic_coarse, realtime, realtime_coarse};
