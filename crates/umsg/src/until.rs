//! Limits of waiting.

use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::Deadline;

/// How long a call waits: the argument of the methods whose names end with `_until`.
///
/// `send` waits as with `Forever`, `try_send` as with `Now`, `send_timeout` as with `After`, and `send_deadline` as with `Time`.
/// The other calls follow the same pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The call does not wait.
    Now,
    /// The call waits without a limit.
    Forever,
    /// The call waits for this duration, on the monotonic clock.
    After(Duration),
    /// The call waits until this time, on the system's clock (CLOCK_REALTIME), as mq_timedsend(3) does.
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

/// Converts a time to a deadline. A time before 1970 has passed.
pub(crate) fn realtime(time: SystemTime) -> Deadline {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Deadline::Realtime(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
