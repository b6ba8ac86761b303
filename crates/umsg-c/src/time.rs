//! Times: deadlines of calls, and times in a status.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libc::timespec;
use umsg::posix::Until;
use umsg_shm::sys::arguments;

use crate::error::Failure;
use crate::handle::Open;
use crate::pointer;

/// Returns the deadline of a call; `None` for no limit. A bad address or an invalid time is the first error that a call reports, even if the call
/// would not wait.
///
/// # Safety
/// `timeout` is NULL, or a readable timespec, or an address that a pointer check refuses.
#[inline(always)]
pub(crate) unsafe fn deadline(timeout: *const timespec) -> Result<Option<SystemTime>, Failure> {
    // SAFETY: by this function's contract.
    let Some(time) = (unsafe { pointer::read(timeout, "the time-out")? }) else {
        return Ok(None);
    };
    // A time beyond the range of `SystemTime` is never reached, so the call has no deadline.
    Ok(UNIX_EPOCH.checked_add(span(time)?))
}

/// Converts a span of time. Fails if the time is invalid.
pub(crate) fn span(time: timespec) -> Result<Duration, Failure> {
    arguments::span(time).ok_or(Failure::BadTime)
}

/// Returns the end of a wait. As in mq_timedsend(3), a call on a handle with O_NONBLOCK does not wait, and ignores the time.
pub(crate) fn until(deadline: Option<SystemTime>, open: &Open) -> Until {
    match deadline {
        _ if open.nonblocking.get() => Until::Now,
        Some(time) => Until::Time(time),
        None => Until::Forever,
    }
}

/// Converts a time for a status: nanoseconds since 1970, 0 for never.
pub(crate) fn told(time: Option<SystemTime>) -> i64 {
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |since| {
            i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
        })
}

#[cfg(test)]
mod tests {
    use super::{deadline, told};
    use libc::timespec;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    fn of(tv_sec: i64, tv_nsec: i64) -> Result<Option<SystemTime>, i32> {
        // SAFETY: the pointer is the address of a timespec.
        unsafe { deadline(&timespec { tv_sec, tv_nsec }) }.map_err(|failure| failure.errno())
    }

    #[test]
    fn null_is_for_ever() {
        // SAFETY: NULL is allowed.
        assert!(unsafe { deadline(std::ptr::null()) }.is_ok_and(|until| until.is_none()));
    }

    #[test]
    fn what_is_no_time_is_einval() {
        assert_eq!(of(0, -1), Err(libc::EINVAL));
        assert_eq!(of(0, 1_000_000_000), Err(libc::EINVAL));
        assert_eq!(of(-1, 0), Err(libc::EINVAL));
    }

    #[test]
    fn a_time_is_kept_to_the_nanosecond() {
        let time = UNIX_EPOCH + Duration::new(7, 999_999_999);
        assert_eq!(of(7, 999_999_999), Ok(Some(time)));
        assert_eq!(told(Some(time)), 7_999_999_999);
        assert!(of(i64::MAX, 0).is_ok());
    }

    #[test]
    fn never_is_written_as_0() {
        assert_eq!(told(None), 0);
    }

    #[test]
    fn a_small_number_is_efault() {
        // SAFETY: the function refuses this address before it reads from the address.
        let refused = unsafe { deadline(std::ptr::without_provenance(8)) };
        assert_eq!(
            refused.map_err(|failure| failure.errno()),
            Err(libc::EFAULT)
        );
    }
}
