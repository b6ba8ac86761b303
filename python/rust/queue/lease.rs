//! Receiving and sending in place.

use super::{Queue, priority_of};
use crate::error::invalid;
use crate::lease::{Held, lease};
use crate::reservation::reservation;
use crate::wait::{Wait, blocking};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use umsg::posix::{ReceiveError, SendError, Until};

/// The argument `timeout`, or None for a call that does not wait.
type Timeout<'a, 'py> = Option<Option<&'a Bound<'py, PyAny>>>;

pub fn receive<'py>(
    this: &Queue,
    py: Python<'py>,
    timeout: Timeout<'_, '_>,
) -> PyResult<Bound<'py, PyAny>> {
    let wait = timeout.map(Wait::of).transpose()?;
    let queue = this.shared(py)?;
    let mut leased = queue.receive_lease_owned(Until::Now);
    if let (Err(ReceiveError::Empty), Some(wait)) = (&leased, wait) {
        leased = blocking(py, wait, |until| queue.receive_lease_owned(until))?;
    }
    let leased = leased.map_err(|error| this.raise(py, &error))?;
    lease(py, Held::Posix(leased))
}

/// Reads a number of bytes or of messages.
pub fn size(value: &Bound<'_, PyAny>, what: &str) -> PyResult<usize> {
    match value.extract::<usize>() {
        Ok(size) => Ok(size),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Err(invalid(
            value.py(),
            &format!("{what} must be at least 0, not {value}"),
        )),
        Err(_) => Err(PyTypeError::new_err(format!(
            "{what} must be int, not {}",
            value.get_type().name()?
        ))),
    }
}

pub fn reserve<'py>(
    this: &Queue,
    py: Python<'py>,
    bytes: &Bound<'_, PyAny>,
    (priority, timeout): (Option<&Bound<'_, PyAny>>, Timeout<'_, '_>),
) -> PyResult<Bound<'py, PyAny>> {
    let len = size(bytes, "size")?;
    let priority = priority.map_or(Ok(0), priority_of)?;
    if priority > 32_767 {
        return Err(this.raise(py, &SendError::PriorityTooHigh));
    }
    let wait = timeout.map(Wait::of).transpose()?;
    let queue = this.shared(py)?;
    let mut reserved = queue.reserve_owned(len, Until::Now);
    if let (Err(SendError::Full), Some(wait)) = (&reserved, wait) {
        reserved = blocking(py, wait, |until| queue.reserve_owned(len, until))?;
    }
    let room = reserved.map_err(|error| this.raise(py, &error))?;
    reservation(py, room, priority)
}
