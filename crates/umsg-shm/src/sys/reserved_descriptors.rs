//! Descriptors that the library opened for itself: doorbells, on high numbers. The drop-in hides them: the program can neither close nor duplicate
//! them, so a program that closes all unknown descriptors does no harm. If the program places a file at such a number, the program gets the number,
//! and the library opens another descriptor. The exception is a [pinned](pin) number.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The number of descriptor numbers that can be reserved: higher numbers belong to the program. The value is the default of fs.nr_open.
const MOST: usize = 1 << 20;

type Numbers = [AtomicU64; MOST / 64];

static MARKS: Numbers = [const { AtomicU64::new(0) }; MOST / 64];
static PINNED: Numbers = [const { AtomicU64::new(0) }; MOST / 64];

/// The lowest number that was ever marked.
static LOWEST: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// The number of times that the program opened a file at a descriptor number that the library reserves.
static GIVEN: AtomicU32 = AtomicU32::new(0);

fn place(numbers: &'static Numbers, number: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(number).ok()?;
    Some((numbers.get(number / 64)?, 1 << (number % 64)))
}

/// Marks a number as reserved.
pub fn mark(number: RawFd) {
    if let Some((marks, bit)) = place(&MARKS, number) {
        marks.fetch_or(bit, Ordering::Relaxed);
        LOWEST.fetch_min(number, Ordering::Relaxed);
    }
}

/// Removes the mark of a number, before the library closes it.
pub fn unmark(number: RawFd) {
    for numbers in [&MARKS, &PINNED] {
        if let Some((marks, bit)) = place(numbers, number) {
            marks.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Pins a reserved number: the program can't get the number until the library closes the descriptor. epoll identifies a registration by this number.
pub fn pin(number: RawFd) {
    if let Some((pinned, bit)) = place(&PINNED, number) {
        pinned.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Gives a reserved number to the program: `replace` places the program's file at this number. If the number is pinned, the function changes nothing
/// and returns false.
#[cold]
pub fn give(number: RawFd, replace: impl FnOnce() -> bool) -> bool {
    if place(&PINNED, number).is_some_and(|(pinned, bit)| pinned.load(Ordering::Relaxed) & bit != 0)
    {
        return false;
    }
    unmark(number);
    if !replace() {
        mark(number);
    }
    // Release: a thread that sees the new count finds the program's file at the number.
    GIVEN.fetch_add(1, Ordering::Release);
    true
}

/// Returns a count that changes when the program gets a reserved number. A module that keeps a number then checks whether the number is
/// still reserved.
#[inline(always)]
pub(crate) fn given() -> u32 {
    GIVEN.load(Ordering::Acquire)
}

/// Returns whether a number is reserved.
#[inline(always)]
pub fn is(number: RawFd) -> bool {
    // Relaxed, like all accesses in this module: another thread of the program can't have learned a number that is just being marked.
    number >= LOWEST.load(Ordering::Relaxed) && is_marked(number)
}

#[cold]
fn is_marked(number: RawFd) -> bool {
    place(&MARKS, number).is_some_and(|(marks, bit)| marks.load(Ordering::Relaxed) & bit != 0)
}

/// Returns the lowest reserved number from `first` to `last`.
pub fn first_between(first: u32, last: u32) -> Option<u32> {
    let lowest = LOWEST.load(Ordering::Relaxed).cast_unsigned();
    let first = first.max(lowest) as usize;
    let last = (last as usize).min(MOST - 1);
    let mut at = first;
    while at <= last {
        let marks = MARKS[at / 64].load(Ordering::Relaxed) >> (at % 64);
        if marks != 0 {
            let found = at + marks.trailing_zeros() as usize;
            return u32::try_from(found).ok().filter(|_| found <= last);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Keeps other tests from giving numbers away until the returned value is dropped. The count of these numbers belongs to the process.
    pub(in crate::sys) fn count_alone() -> MutexGuard<'static, ()> {
        static COUNT: Mutex<()> = Mutex::new(());
        COUNT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // No descriptor has these numbers. One test makes all these checks, because all tests share the marks; other tests use lower numbers.
    #[test]
    fn marked_numbers_are_found_until_they_are_unmarked() {
        assert!(!is(900_000) && first_between(899_999, u32::MAX).is_none());
        for number in [900_000, 900_001, 900_200, MOST as RawFd - 1] {
            mark(number);
        }
        assert!(is(900_000) && is(900_001) && !is(900_002) && is(MOST as RawFd - 1));
        assert_eq!(first_between(899_999, u32::MAX), Some(900_000));
        assert_eq!(first_between(900_001, 900_001), Some(900_001));
        assert_eq!(first_between(900_002, 900_300), Some(900_200));
        assert_eq!(first_between(900_002, 900_199), None);
        assert_eq!(first_between(900_201, u32::MAX), Some(MOST as u32 - 1));
        for number in [900_000, 900_001, 900_200, MOST as RawFd - 1] {
            unmark(number);
        }
        assert!(!is(900_000) && first_between(899_999, u32::MAX).is_none());
    }

    #[test]
    fn a_number_is_given_away_unless_it_is_pinned_or_can_not_be_used() {
        let _alone = count_alone();
        let before = given();
        mark(899_000);
        assert!(give(899_000, || false) && is(899_000));
        assert!(give(899_000, || true) && !is(899_000));
        assert_eq!(given(), before + 2);
        mark(899_000);
        pin(899_000);
        assert!(!give(899_000, || panic!("it is pinned")) && is(899_000));
        unmark(899_000);
        mark(899_000);
        assert!(give(899_000, || true), "pinned as long as it is marked");
    }

    #[test]
    fn numbers_beyond_the_table_are_the_programs() {
        for number in [-1, RawFd::MIN, MOST as RawFd, RawFd::MAX] {
            mark(number);
            assert!(!is(number));
        }
    }
}
