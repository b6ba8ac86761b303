//! Options that limit the wait for a message or for room.

use std::time::{Duration, Instant};

use clap::Args;
use umsg::{posix, sysv};

use crate::failure::Result;
use crate::lookout::Lookout;
use crate::values;

/// The maximum time of one call, if the lookout thread does not watch the wait. After each such call, the command itself checks whether the wait
/// still makes sense.
const LONGEST: Duration = Duration::from_secs(10);

/// An error of a call that can wait.
pub trait EndOfWait {
    /// Returns whether the call failed because it had to wait: no message, or no room.
    fn is_not_now(&self) -> bool;
    fn is_time_out(&self) -> bool;
    fn is_interruption(&self) -> bool;
}

macro_rules! end_of_wait {
    ($($error:ty: $not_now:ident;)*) => {
        $(impl EndOfWait for $error {
            fn is_not_now(&self) -> bool {
                matches!(self, Self::$not_now)
            }

            fn is_time_out(&self) -> bool {
                matches!(self, Self::TimedOut)
            }

            fn is_interruption(&self) -> bool {
                matches!(self, Self::Interrupted)
            }
        })*
    };
}

end_of_wait! {
    posix::ReceiveError: Empty;
    posix::SendError: Full;
    sysv::ReceiveError: NoMessage;
    sysv::SendError: Full;
}

#[derive(Args, Clone, Debug)]
pub struct Patience {
    /// Wait at most this long for each message, then exit with code 3. The time is in seconds, such as 5 or 0.25, or has a unit: 500ms, 2m [default:
    /// for ever]
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    /// Do not wait
    // Commands replace this help text by one that names the situation, such as a full queue.
    #[arg(long, conflicts_with = "timeout")]
    pub nonblocking: bool,
}

impl Patience {
    /// Calls `attempt` first without a wait, and then with the remaining time. After each interruption by `lookout`, calls `between`; an error of
    /// `between` ends the wait. `Ok(Err(_))` is an error of the library.
    pub fn spend<T, E: EndOfWait>(
        &self,
        lookout: &Lookout,
        attempt: impl Fn(Option<Duration>) -> Result<T, E>,
        between: impl Fn() -> Result,
    ) -> Result<Result<T, E>> {
        match attempt(None) {
            Err(error) if error.is_not_now() && !self.nonblocking => {}
            other => return Ok(other),
        }
        // If the deadline exceeds the range of the clock, the wait has no limit.
        let end = self
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let waiting = lookout.begin();
            let left = end.map_or(Duration::MAX, |end| {
                end.saturating_duration_since(Instant::now())
            });
            let time = match waiting.is_watched {
                true => left,
                false => left.min(LONGEST),
            };
            let outcome = attempt(Some(time));
            drop(waiting);
            match outcome {
                Err(error) if error.is_interruption() => between()?,
                Err(error) if error.is_time_out() && time < left => between()?,
                other => return Ok(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use umsg::posix::ReceiveError;

    fn patience(timeout: Option<Duration>, nonblocking: bool) -> Patience {
        Patience {
            timeout,
            nonblocking,
        }
    }

    #[test]
    fn a_command_that_must_not_wait_tries_once() {
        let tried = Cell::new(0);
        let attempt = |time: Option<Duration>| {
            assert_eq!(time, None);
            tried.set(tried.get() + 1);
            Err::<(), _>(ReceiveError::Empty)
        };
        let outcome = patience(None, true).spend(&Lookout::default(), attempt, || {
            unreachable!("there was no wait")
        });
        assert!(matches!(outcome, Ok(Err(ReceiveError::Empty))));
        assert_eq!(tried.get(), 1);
    }

    #[test]
    fn a_wait_is_one_call_with_the_time_allowed() {
        let times = Cell::new(Vec::new());
        let attempt = |time: Option<Duration>| {
            let mut all = times.take();
            all.push(time);
            times.set(all);
            Err::<(), _>(match time {
                None => ReceiveError::Empty,
                Some(_) => ReceiveError::TimedOut,
            })
        };
        let hour = Duration::from_secs(3600);
        let outcome = patience(Some(hour), false).spend(&Lookout::default(), attempt, || Ok(()));
        assert!(matches!(outcome, Ok(Err(ReceiveError::TimedOut))));
        match times.take()[..] {
            [None, Some(waited)] => assert!(waited <= hour && 2 * waited > hour),
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wait_that_became_pointless_is_interrupted_and_ends() {
        let lookout = Lookout::default();
        let removed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&removed);
        lookout.interrupt_if(move || seen.load(Ordering::Relaxed));
        let attempt = |time: Option<Duration>| {
            if time.is_none() {
                return Err::<(), _>(ReceiveError::Empty);
            }
            removed.store(true, Ordering::Relaxed);
            let forever = rustix::event::poll(&mut [], None);
            assert_eq!(forever, Err(rustix::io::Errno::INTR));
            Err(ReceiveError::Interrupted)
        };
        let outcome = patience(None, false).spend(&lookout, attempt, || Err(Failure::ReaderGone));
        assert!(matches!(outcome, Err(Failure::ReaderGone)));
    }
}
