//! Options that limit the wait for a message or for room.

use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::Result;
use crate::opened::GLANCE;
use crate::values;

/// The maximum time between two checks during a wait.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Args, Clone, Debug)]
pub struct Patience {
    /// Wait at most this long for each message: seconds, such as 5 or 0.25, or 500ms or 2m; then exit with code 3 [default: for
    /// ever]
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_negative_numbers = true)]
    pub timeout: Option<Duration>,
    /// Do not wait: exit with code 3 if the queue is full (send) or has no matching message (recv)
    #[arg(long, conflicts_with = "timeout")]
    pub nonblocking: bool,
}

impl Patience {
    /// Calls `attempt` repeatedly, with the time that it may wait, until the allowed time is over. With None, `attempt` does not wait. Calls
    /// `between` repeatedly during the wait; its error ends the wait. `Ok(Err(_))` is an error of the library.
    pub fn spend<T, E>(
        &self,
        attempt: impl Fn(Option<Duration>) -> Result<T, E>,
        is_over: impl Fn(&E) -> bool,
        between: impl Fn() -> Result,
    ) -> Result<Result<T, E>> {
        if self.nonblocking {
            return Ok(attempt(None));
        }
        let mut slices = self.slices();
        loop {
            let (slice, last) = slices.next();
            match attempt(Some(slice)) {
                Err(error) if is_over(&error) && !last => between()?,
                other => return Ok(other),
            }
        }
    }

    fn slices(&self) -> Slices {
        Slices {
            // A deadline beyond the range of the clock means to wait for ever.
            end: self
                .timeout
                .and_then(|timeout| Instant::now().checked_add(timeout)),
            next: GLANCE,
        }
    }
}

/// Divides a wait into parts, with a check between them. Each part joins the end of the wait queue, so the parts grow.
struct Slices {
    /// The deadline; None waits for ever.
    end: Option<Instant>,
    next: Duration,
}

impl Slices {
    /// Returns the length of the next part, and whether it is the last.
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
    use std::cell::Cell;

    fn slices(timeout: Option<u64>) -> Slices {
        let patience = Patience {
            timeout: timeout.map(Duration::from_secs),
            nonblocking: false,
        };
        patience.slices()
    }

    #[test]
    fn a_long_wait_is_interrupted_ever_less_often() {
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

    #[test]
    fn a_command_that_must_not_wait_tries_once() {
        let patience = Patience {
            timeout: None,
            nonblocking: true,
        };
        let tried = Cell::new(0);
        let attempt = |time: Option<Duration>| {
            tried.set(tried.get() + 1);
            Err::<(), _>(time)
        };
        let outcome = patience.spend(attempt, |_| true, || unreachable!("there was no wait"));
        assert_eq!((outcome.unwrap(), tried.get()), (Err(None), 1));
    }

    #[test]
    fn what_is_seen_while_waiting_ends_it() {
        let patience = Patience {
            timeout: None,
            nonblocking: false,
        };
        let looked = Cell::new(0);
        let look = || {
            looked.set(looked.get() + 1);
            match looked.get() {
                3 => Err(crate::failure::Failure::ReaderGone),
                _ => Ok(()),
            }
        };
        assert!(
            patience
                .spend(|_| Err::<(), _>(()), |()| true, look)
                .is_err()
        );
        assert_eq!(looked.get(), 3);
    }
}
