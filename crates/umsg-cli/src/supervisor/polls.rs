//! Prepares calls that wait for descriptors, such as poll(2).
//!
//! A program has the descriptor of a queue's file, and poll(2) reports such a file as always ready. Before the first call that waits for this
//! descriptor, the supervisor replaces the descriptor by that of the queue's FIFO. Then the kernel performs the call.

use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use super::listener::Call;
use super::memory;
use super::serve::Server;

/// The maximum number of descriptors that are read from the arguments of a call.
const MOST: u64 = 65_536;

impl Server {
    /// Prepares the descriptors for which a call waits. Afterwards, the kernel performs the call.
    pub fn prepare_poll(&self, call: &Call) {
        // If the arguments can't be read, the kernel performs the call, which fails.
        let Ok(numbers) = numbers(call) else { return };
        if !self.descriptors.may_know(&numbers) {
            return;
        }
        for number in numbers {
            self.make_pollable(call, number);
        }
    }

    fn make_pollable(&self, call: &Call, number: RawFd) {
        let find = || self.descriptors.find(call.thread, number);
        if !matches!(find(), Ok(Some(opened)) if !opened.is_pollable) {
            return;
        }
        // Only one thread at a time replaces descriptors: another thread of the program may wait for the same descriptor.
        let _one = self.descriptors.replacing();
        let Ok(Some(opened)) = find() else { return };
        if opened.is_pollable {
            return;
        }
        let closes = memory::closes_at_exec(call.thread, number);
        let made = opened.pollable().and_then(|pollable| {
            let pollable = Arc::new(pollable);
            self.descriptors.expect_pollable(number, &pollable);
            self.listener
                .replace(call, number, pollable.file.as_fd(), closes)?;
            Ok(pollable)
        });
        match made {
            Ok(pollable) => self
                .descriptors
                .note_pollable(call.thread, number, &pollable),
            Err(error) => self.explain("poll", &error),
        }
    }
}

/// Returns the numbers of the descriptors for which a call waits.
fn numbers(call: &Call) -> Result<Vec<RawFd>, i32> {
    let [first, second, third, fourth, ..] = call.arguments;
    match call.number {
        libc::SYS_epoll_ctl if second as i32 != libc::EPOLL_CTL_DEL => Ok(vec![third as RawFd]),
        libc::SYS_epoll_ctl => Ok(vec![]),
        libc::SYS_ppoll => of_array(call, first, second),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => of_array(call, first, second),
        _ => of_sets(call, first, [second, third, fourth]),
    }
}

/// Returns the descriptors in an array of `struct pollfd`.
fn of_array(call: &Call, address: u64, count: u64) -> Result<Vec<RawFd>, i32> {
    const LEN: usize = size_of::<libc::pollfd>();
    let mut array = vec![0; count.min(MOST) as usize * LEN];
    memory::read_bytes(call.thread, address, &mut array)?;
    let number = |entry: &[u8]| RawFd::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
    Ok(array.chunks_exact(LEN).map(number).collect())
}

/// Returns the descriptors in the bit sets of select(2). The kernel reads whole words of these sets.
fn of_sets(call: &Call, count: u64, sets: [u64; 3]) -> Result<Vec<RawFd>, i32> {
    let count = u64::from(call_count(count)).min(MOST) as usize;
    let mut numbers = vec![];
    for address in sets.into_iter().filter(|address| *address != 0) {
        let mut set = vec![0; count.div_ceil(64) * 8];
        memory::read_bytes(call.thread, address, &mut set)?;
        let is_in = |number: &usize| set[number / 8] & 1 << (number % 8) != 0;
        numbers.extend((0..count).filter(is_in).map(|number| number as RawFd));
    }
    Ok(numbers)
}

/// Returns the number of events. The argument is an int; a negative value is an error, so it gives 0.
fn call_count(argument: u64) -> u32 {
    u32::try_from(argument as i32).unwrap_or(0)
}
