//! Time-outs. mq_timedsend and mq_timedreceive take absolute times of CLOCK_REALTIME. ppoll and pselect take durations.

use std::ffi::c_int;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libc::timespec;

use crate::pointer;

/// Returns the deadline of a call. `None` means no limit. A bad address gives EFAULT, and an invalid time EINVAL. A call reports these errors first,
/// even if the call would not block.
///
/// # Safety
/// `timeout` is NULL, or a readable timespec, or an address that a pointer check refuses.
#[inline(always)]
pub(crate) unsafe fn deadline(timeout: *const timespec) -> Result<Option<SystemTime>, c_int> {
    // SAFETY: by this function's contract.
    let since_epoch = unsafe { duration_of(timeout)? };
    // A time beyond the range of `SystemTime` is treated as no deadline.
    Ok(since_epoch.and_then(|time| UNIX_EPOCH.checked_add(time)))
}

/// Returns the duration of a time-out. `None` means no limit.
///
/// # Safety
/// The conditions of [`deadline`].
#[inline(always)]
pub(crate) unsafe fn duration_of(timeout: *const timespec) -> Result<Option<Duration>, c_int> {
    if timeout.is_null() {
        return Ok(None);
    }
    if pointer::is_bad(timeout) {
        return Err(libc::EFAULT);
    }
    // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
    let time = unsafe { timeout.read_unaligned() };
    pointer::span(time).map(Some).ok_or(libc::EINVAL)
}

/// Returns whether a deadline has passed. A call whose first attempt failed checks the deadline before it lets the library wait. Otherwise the
/// library would make another attempt, which returns late if a process with the queue's lock is stopped.
pub(crate) fn has_passed(deadline: SystemTime) -> bool {
    deadline <= SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::deadline;
    use libc::timespec;
    use std::time::{Duration, UNIX_EPOCH};

    fn of(tv_sec: i64, tv_nsec: i64) -> Result<Option<std::time::SystemTime>, i32> {
        // SAFETY: the pointer points to a timespec.
        unsafe { deadline(&timespec { tv_sec, tv_nsec }) }
    }

    #[test]
    fn null_is_for_ever() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { deadline(std::ptr::null()) }, Ok(None));
    }

    #[test]
    fn what_is_no_time_is_einval() {
        assert_eq!(of(0, -1), Err(libc::EINVAL));
        assert_eq!(of(0, 1_000_000_000), Err(libc::EINVAL));
        assert_eq!(of(-1, 0), Err(libc::EINVAL));
    }

    #[test]
    fn a_time_is_kept_to_the_nanosecond() {
        assert_eq!(
            of(7, 999_999_999),
            Ok(Some(UNIX_EPOCH + Duration::new(7, 999_999_999)))
        );
        assert!(of(i64::MAX, 0).is_ok());
    }

    #[test]
    fn a_small_number_is_efault() {
        // SAFETY: the function refuses this address without reading it.
        let refused = unsafe { deadline(std::ptr::without_provenance(8)) };
        assert_eq!(refused, Err(libc::EFAULT));
    }
}
