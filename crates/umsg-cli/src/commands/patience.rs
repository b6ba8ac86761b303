//! How long a command waits for a message or for room.

use std::time::{Duration, Instant};

use clap::Args;
use umsg::posix::{Lease, ReceiveError, SendError};

use crate::failure::Result;
use crate::opened::{GLANCE, Opened};
use crate::values;

/// The longest that a command waits without looking around.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Args, Clone, Debug)]
pub struct Patience {
    /// Wait at most so long for each message, in seconds such as 5 or 0.25, or as 500ms or 2m; then exit with 3 [default: for
    /// ever]
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_negative_numbers = true)]
    pub timeout: Option<Duration>,
    /// Do not wait: exit with 3 if the queue is not ready
    #[arg(long, conflicts_with = "timeout")]
    pub nonblocking: bool,
}

impl Patience {
    /// `Ok(Err(_))` is the library's refusal.
    pub fn send(
        &self,
        to: &Opened<'_>,
        message: &[u8],
        priority: u32,
    ) -> Result<Result<(), SendError>> {
        if self.nonblocking {
            return Ok(to.queue.try_send(message, priority));
        }
        let mut slices = self.slices();
        loop {
            let (slice, last) = slices.next();
            match to.queue.send_timeout(message, priority, slice) {
                Err(SendError::TimedOut) if !last => to.check_name()?,
                other => return Ok(other),
            }
        }
    }

    /// A message, which stays the queue's until it is acknowledged. `meanwhile` is asked before waiting and now and then
    /// from then on, and ends it with an error.
    pub fn receive<'a>(
        &self,
        from: &'a Opened<'_>,
        meanwhile: impl Fn() -> Result,
    ) -> Result<Lease<'a>> {
        if let Err(removed) = from.check_name() {
            // What it holds is still to be had.
            return from.queue.try_receive_lease().map_err(|_| removed);
        }
        let mut slices = self.slices();
        loop {
            meanwhile()?;
            let (slice, last) = slices.next();
            let received = match self.nonblocking {
                true => from.queue.try_receive_lease(),
                false => from.queue.receive_lease_timeout(slice),
            };
            match received {
                Err(ReceiveError::TimedOut) if !last => from.check_name()?,
                other => return other.map_err(|error| from.not_received(&error)),
            }
        }
    }

    fn slices(&self) -> Slices {
        Slices {
            // A time that no clock will show is never.
            end: self
                .timeout
                .and_then(|timeout| Instant::now().checked_add(timeout)),
            next: GLANCE,
        }
    }
}

/// Waiting in parts, to look around between them. Who waits anew stands behind all others that wait, so the parts become longer.
struct Slices {
    /// When it ends; None is never.
    end: Option<Instant>,
    next: Duration,
}

impl Slices {
    /// How long to wait before looking around, and whether that is the end of it.
    fn next(&mut self) -> (Duration, bool) {
        let slice = self.next;
        self.next = LONGEST.min(2 * slice);
        let left = self
            .end
            .map(|end| end.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if left <= slice => (left, true),
            _ => (slice, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(timeout: Option<u64>) -> Slices {
        let patience = Patience {
            timeout: timeout.map(Duration::from_secs),
            nonblocking: false,
        };
        patience.slices()
    }

    #[test]
    fn who_waits_long_looks_around_ever_less_often() {
        let mut slices = slices(None);
        let mut next = || {
            let (slice, last) = slices.next();
            assert!(!last);
            slice.as_secs()
        };
        assert_eq!(std::array::from_fn(|_| next()), [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn the_last_slice_ends_with_the_time_allowed() {
        let mut slices = slices(Some(2));
        assert_eq!(slices.next(), (GLANCE, false));
        let (slice, last) = slices.next();
        assert!(last && slice <= Duration::from_secs(2));
    }
}
