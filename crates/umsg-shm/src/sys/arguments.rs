//! Arguments that a C program passes: addresses and times.
//!
//! The kernel answers a bad address with EFAULT. A library can't ask the kernel about each address without a system call, but it recognises three
//! usual mistakes: NULL, a small number in place of an address, and an address of the kernel's half. Other bad addresses end in SIGSEGV, as they do
//! in all of libc.

use std::time::Duration;

/// No memory is mapped below this address: vm.mmap_min_addr is at least a page wherever it matters.
const LOWEST: isize = 4096;

/// Returns whether an address can't be an address of user space.
#[inline(always)]
pub fn is_bad<T: ?Sized>(pointer: *const T) -> bool {
    // Addresses of the kernel's half are negative.
    (pointer.cast::<u8>().addr() as isize) < LOWEST
}

/// Converts a timespec that contains a length of time. Returns `None` for negative seconds, and for nanoseconds that are not from 0 to 999,999,999.
#[inline(always)]
pub fn span(time: libc::timespec) -> Option<Duration> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u32::try_from(time.tv_nsec).ok();
    let nanoseconds = nanoseconds.filter(|&n| n < 1_000_000_000)?;
    Some(Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::{is_bad, span};
    use std::time::Duration;

    #[test]
    fn null_small_numbers_and_kernel_addresses_are_bad() {
        assert!(is_bad(std::ptr::null::<u8>()));
        assert!(is_bad(std::ptr::without_provenance::<u8>(8)));
        assert!(is_bad(std::ptr::without_provenance::<u8>(usize::MAX)));
        assert!(!is_bad(&raw const LOCAL));
    }

    static LOCAL: u8 = 0;

    #[test]
    fn a_span_has_no_negative_seconds_and_less_than_a_second_of_nanoseconds() {
        let of = |tv_sec, tv_nsec| span(libc::timespec { tv_sec, tv_nsec });
        assert_eq!(of(7, 999_999_999), Some(Duration::new(7, 999_999_999)));
        for wrong in [of(0, -1), of(0, 1_000_000_000), of(-1, 0)] {
            assert_eq!(wrong, None);
        }
    }
}
