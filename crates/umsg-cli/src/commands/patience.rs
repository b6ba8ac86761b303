//! How long a command waits for a message or for room.

use std::time::{Duration, Instant};

use clap::Args;
use umsg::posix::{ReceiveError, Received, SendError};

use crate::failure::{Failure, Result};
use crate::opened::{GLANCE, Opened};
use crate::values;

#[derive(Args, Clone, Debug)]
pub struct Patience {
    /// Wait at most so many seconds for each message, such as 5 or 0.25, then exit with 3 [default: for ever]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, allow_negative_numbers = true)]
    pub timeout: Option<Duration>,
    /// Do not wait: exit with 3 if the queue is not ready
    #[arg(long, conflicts_with = "timeout")]
    pub nonblocking: bool,
}

impl Patience {
    /// `Ok(Err(_))` is the library's refusal.
    pub fn send(
        &self,
        to: &mut Opened<'_>,
        message: &[u8],
        priority: u32,
    ) -> Result<Result<(), SendError>> {
        if self.nonblocking {
            return Ok(to.queue.try_send(message, priority));
        }
        let end = self.end();
        loop {
            let (slice, last) = slice(end);
            match to.queue.send_timeout(message, priority, slice) {
                Err(SendError::TimedOut) if !last => to.check_name()?,
                other => return Ok(other),
            }
        }
    }

    /// A message, in the buffer. `meanwhile` is asked before and every second of waiting, and ends it with an error.
    pub fn receive(
        &self,
        from: &mut Opened<'_>,
        buffer: &mut [u8],
        meanwhile: impl Fn() -> Result,
    ) -> Result<Received> {
        if let Err(removed) = from.check_name() {
            // What it holds is still to be had.
            return from.queue.try_receive(buffer).map_err(|_| removed);
        }
        let end = self.end();
        loop {
            meanwhile()?;
            let (slice, last) = slice(end);
            let received = match self.nonblocking {
                true => from.queue.try_receive(buffer),
                false => from.queue.receive_timeout(buffer, slice),
            };
            match received {
                Err(ReceiveError::TimedOut) if !last => from.check_name()?,
                other => return other.map_err(|error| Failure::of(from.name, error)),
            }
        }
    }

    /// When it ends. None is never, as is a time that no clock will show.
    fn end(&self) -> Option<Instant> {
        Instant::now().checked_add(self.timeout?)
    }
}

/// How long to wait before looking around, and whether that is the end of it.
fn slice(end: Option<Instant>) -> (Duration, bool) {
    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
    match left {
        Some(left) if left <= GLANCE => (left, true),
        _ => (GLANCE, false),
    }
}
