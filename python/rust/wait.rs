//! Time limits, and calls that may block.

use crate::error::{Failure, invalid};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::time::{Duration, Instant, SystemTime};
use umsg::posix::Until;

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Forever,
    For(Duration),
}

/// Durations above this number of seconds count as no limit: 100 years.
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

/// Reads the delays of a retry: the first one, or a pair of the first one and the longest.
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

/// Runs a call that may block, without the global interpreter lock. After an interruption Python's signal handlers run. If they raise no
/// exception, the call is repeated with the rest of its time: PEP 475.
pub fn blocking<T: Send, E: Failure + Send>(
    py: Python<'_>,
    wait: Wait,
    mut call: impl FnMut(Until) -> Result<T, E> + Send,
) -> PyResult<Result<T, E>> {
    let end = match wait {
        Wait::Forever => None,
        Wait::For(time) => Instant::now().checked_add(time),
    };
    loop {
        let until = match end {
            None => Until::Forever,
            Some(end) => Until::After(end.saturating_duration_since(Instant::now())),
        };
        match py.detach(|| call(until)) {
            Err(error) if error.is_interruption() => py.check_signals()?,
            result => return Ok(result),
        }
    }
}
