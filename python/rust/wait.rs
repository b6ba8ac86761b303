//! Time limits, and calls that may block.

use crate::error::{Failure, invalid};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::time::{Duration, Instant, SystemTime};
use umsg::posix::Until;

/// The maximum time that a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Forever,
    For(Duration),
}

/// Durations above this number of seconds mean no limit: 100 years.
const LONGEST: f64 = 3.2e9;

/// Reads a number of seconds, or a `datetime.timedelta`.
fn seconds(value: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    let py = value.py();
    let number = match value.extract::<f64>() {
        Ok(number) => number,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            match value.call_method0("total_seconds") {
                Ok(total) => total.extract()?,
                Err(_) => {
                    return Err(PyTypeError::new_err(format!(
                        "{what} must be a number of seconds or a datetime.timedelta, not {}",
                        value.get_type().name()?
                    )));
                }
            }
        }
        Err(error) => return Err(error),
    };
    match number >= 0.0 {
        true => Ok(number),
        false => Err(invalid(
            py,
            &format!("{what} must be at least 0, not {number}"),
        )),
    }
}

/// Reads a duration.
pub fn duration(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Duration> {
    Ok(Duration::from_secs_f64(seconds(value, what)?.min(LONGEST)))
}

/// Reads the delays of a retry: the first delay, or a pair of the first and the longest delay.
pub fn retry_delay(value: &Bound<'_, PyAny>) -> PyResult<(Duration, Duration)> {
    match value.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => Ok((
            duration(&pair.get_item(0)?, "retry_delay")?,
            duration(&pair.get_item(1)?, "retry_delay")?,
        )),
        _ => {
            let first = duration(value, "retry_delay")?;
            Ok((first, first))
        }
    }
}

/// Reads a time: seconds since 1970, or a `datetime.datetime`.
pub fn time(value: &Bound<'_, PyAny>, what: &str) -> PyResult<SystemTime> {
    let number = match value.extract::<f64>() {
        Ok(number) => number,
        Err(_) => match value.call_method0("timestamp") {
            Ok(stamp) => stamp.extract()?,
            Err(_) => {
                return Err(PyTypeError::new_err(format!(
                    "{what} must be seconds since 1970 or a datetime.datetime, not {}",
                    value.get_type().name()?
                )));
            }
        },
    };
    if number.is_nan() {
        return Err(invalid(
            value.py(),
            &format!("{what} must be a time, not {number}"),
        ));
    }
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(number.clamp(0.0, 1e11)))
}

/// Returns a time as seconds since 1970.
pub fn stamp(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

impl Wait {
    /// Reads the argument `timeout`. `None` is no limit.
    pub fn of(timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Wait> {
        match timeout {
            Some(timeout) if !timeout.is_none() => match seconds(timeout, "timeout")? {
                seconds if seconds > LONGEST => Ok(Wait::Forever),
                seconds => Ok(Wait::For(Duration::from_secs_f64(seconds))),
            },
            _ => Ok(Wait::Forever),
        }
    }
}

/// The first and the longest wait of the main thread between two checks for signals.
///
/// A signal ends a sleep in the kernel. But a call also spins before it sleeps, and wakes up now and then to check the queue. A signal that arrives
/// in these microseconds does not end the call, and Python runs handlers on the main thread alone. So the main thread waits in pieces and checks for
/// signals after each piece. At the end of a piece, the thread loses its place among the waiters, so the pieces grow, up to a second.
const PIECES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The next step of a call after the handlers of a signal that has interrupted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterSignal {
    /// The call waits for the rest of its time: PEP 475.
    Continue,
    /// The call fails with EINTR, as the kernel's call does.
    Fail,
}

/// Returns whether Python runs the handlers of signals on this thread.
fn is_main_thread() -> bool {
    // SAFETY: two calls without arguments.
    unsafe { libc::gettid() == libc::getpid() }
}

/// Runs a call that may block, without the global interpreter lock. After an interruption Python's signal handlers run. If they raise no
/// exception, the call is repeated with the rest of its time: PEP 475.
pub fn blocking<T: Send, E: Failure + Send>(
    py: Python<'_>,
    wait: Wait,
    call: impl FnMut(Until) -> Result<T, E> + Send,
) -> PyResult<Result<T, E>> {
    blocking_until_signal(py, wait, AfterSignal::Continue, call)
}

/// Runs a call as [`blocking`] does. `after` is the next step after the handlers of a signal.
pub fn blocking_until_signal<T: Send, E: Failure + Send>(
    py: Python<'_>,
    wait: Wait,
    after: AfterSignal,
    mut call: impl FnMut(Until) -> Result<T, E> + Send,
) -> PyResult<Result<T, E>> {
    let end = match wait {
        Wait::Forever => None,
        Wait::For(time) => Instant::now().checked_add(time),
    };
    let mut piece = match is_main_thread() {
        true => PIECES.0,
        false => Duration::MAX,
    };
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let (until, is_last) = match left {
            None if piece == Duration::MAX => (Until::Forever, true),
            Some(left) if left <= piece => (Until::After(left), true),
            _ => (Until::After(piece), false),
        };
        match py.detach(|| call(until)) {
            Err(error) if error.is_interruption() => {
                py.check_signals()?;
                if after == AfterSignal::Fail {
                    return Ok(Err(error));
                }
            }
            Err(error) if error.is_time_out() && !is_last => {
                py.check_signals()?;
                piece = piece.saturating_mul(2).min(PIECES.1);
            }
            result => return Ok(result),
        }
    }
}
