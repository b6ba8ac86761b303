//! The calls of both engines that the test threads make.

mod posix;
mod sysv;

use super::traffic::LONGEST;
use crate::sys::clock::Deadline;
use std::time::Duration;

/// A time-out that is always long enough.
const PATIENT: Duration = Duration::from_secs(60);
/// A time-out that is too short if the other threads are slow.
const IMPATIENT: Duration = Duration::from_micros(200);

/// Repeats a call until it succeeds. `patience` is the time-out of each of these calls.
fn insist<T, E>(patience: Duration, mut call: impl FnMut(Deadline) -> Result<T, E>) -> T
where
    E: std::fmt::Debug + PartialEq,
    E: TimedOut,
{
    loop {
        match call(Deadline::after(patience)) {
            Ok(done) => return done,
            Err(error) if error == E::TIMED_OUT => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// A type of refusals that has a value for a time-out.
trait TimedOut {
    const TIMED_OUT: Self;
}

impl TimedOut for crate::posix_engine::Refused {
    const TIMED_OUT: Self = Self::TimedOut;
}

impl TimedOut for crate::sysv_engine::Refused {
    const TIMED_OUT: Self = Self::TimedOut;
}

/// Receives the messages of a batch: a buffer for one message, and copies of the messages received so far.
#[derive(Default)]
struct Several {
    room: Vec<u8>,
    received: Vec<Vec<u8>>,
}

impl Several {
    fn room(&mut self) -> &mut [u8] {
        self.room.resize(LONGEST, 0);
        &mut self.room
    }

    fn take(&mut self, len: usize) {
        self.received.push(self.room[..len].to_vec());
    }
}
