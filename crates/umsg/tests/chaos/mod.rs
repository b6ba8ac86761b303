//! Processes that are killed at named points and at random while they use queues, and the journal of every message, by which the result is judged.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub mod actor;
pub mod clerk;
pub mod hands;
pub mod harass;
pub mod journal;
#[cfg(feature = "crash-points")]
pub mod killing;
pub mod points;
#[cfg(feature = "crash-points")]
pub mod stage;
pub mod turns;

use journal::How;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

/// Polls until the descriptor is readable, for at most the time of `how`. Returns whether it is readable.
pub fn poll_readable(descriptor: BorrowedFd<'_>, how: How) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let time = match how {
        How::Try => Some(Duration::ZERO),
        How::Block => None,
        How::Within(time) => Some(time),
        How::At(time) => Some(time.duration_since(SystemTime::now()).unwrap_or_default()),
    };
    let time = time.map(|time| Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    // The only possible error is EINTR.
    poll(&mut polled, time.as_ref()).is_ok_and(|count| count == 1)
}
