//! Until when a call waits, as its caller says it.

use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::Deadline;

/// Until when a call waits: what the names of the methods say, for those who implement another interface.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It does not wait.
    Now,
    Forever,
    /// So long, on the monotonic clock.
    After(Duration),
    /// Until then, on the system's clock.
    Time(SystemTime),
}

impl Until {
    #[inline]
    pub(crate) fn deadline(self) -> Deadline {
        match self {
            Until::Now => Deadline::Passed,
            Until::Forever => Deadline::Never,
            Until::After(timeout) => Deadline::after(timeout),
            Until::Time(time) => realtime(time),
        }
    }
}

/// A time as a deadline; one before 1970 has passed.
pub(crate) fn realtime(time: SystemTime) -> Deadline {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Deadline::Realtime(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
