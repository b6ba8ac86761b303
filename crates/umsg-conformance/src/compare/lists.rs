//! Lists of numbers in the memory that the workers of a side share. A list consists of its length, and then the numbers. Only one worker of a side
//! acts at a time.

use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the position of a number in a list, counted from 1. If the number occurs several times, the last position is returned.
pub fn find(list: &[AtomicU32], number: u32) -> Option<usize> {
    let count = list[0].load(Ordering::Acquire) as usize;
    (1..=count)
        .rev()
        .find(|&at| list[at].load(Ordering::Relaxed) == number)
}

/// Adds a number to the end of a list, and returns its position.
pub fn add(list: &[AtomicU32], number: u32) -> usize {
    let at = list[0].load(Ordering::Acquire) as usize + 1;
    list[at].store(number, Ordering::Relaxed);
    list[0].store(at as u32, Ordering::Release);
    at
}
