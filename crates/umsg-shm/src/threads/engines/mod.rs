//! The calls of both engines, as the traffic needs them.

mod posix;
mod sysv;

use super::traffic::LONGEST;
use crate::sys::clock::Deadline;
use std::time::Duration;

/// Long enough for any process, and too short while the others are slow.
const PATIENT: Duration = Duration::from_secs(60);
const IMPATIENT: Duration = Duration::from_micros(200);

/// Calls until the call was not in vain, with so much patience each time.
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

/// An engine's answers.
trait TimedOut {
    const TIMED_OUT: Self;
}

impl TimedOut for crate::posix_engine::Refused {
    const TIMED_OUT: Self = Self::TimedOut;
}

impl TimedOut for crate::sysv_engine::Refused {
    const TIMED_OUT: Self = Self::TimedOut;
}

/// Messages that are sent together, and those that are received together.
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
