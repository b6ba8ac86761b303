//! Receiving and sending in place.

use super::{Queue, priority_of};
use crate::buffer::Bytes;
use crate::error::invalid;
use crate::lease::{Held, lease};
use crate::reservation::reservation;
use crate::wait::{Wait, blocking};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use umsg::posix::{ReceiveError, Reservation, SendError, Until};

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
    let priority = checked(this, py, priority)?;
    let wait = timeout.map(Wait::of).transpose()?;
    reservation(py, room(this, py, len, wait)?, priority)
}

/// Reads a priority, and checks its upper limit.
fn checked(this: &Queue, py: Python<'_>, priority: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
    match priority.map_or(Ok(0), priority_of)? {
        priority @ ..=32_767 => Ok(priority),
        _ => Err(this.raise(py, &SendError::PriorityTooHigh)),
    }
}

/// Reserves room. `wait` is None for a call that does not wait.
fn room(
    this: &Queue,
    py: Python<'_>,
    len: usize,
    wait: Option<Wait>,
) -> PyResult<Reservation<'static>> {
    let queue = this.shared(py)?;
    let mut reserved = queue.reserve_owned(len, Until::Now);
    if let (Err(SendError::Full), Some(wait)) = (&reserved, wait) {
        reserved = blocking(py, wait, |until| queue.reserve_owned(len, until))?;
    }
    reserved.map_err(|error| this.raise(py, &error))
}

/// Messages above this length, in bytes, are copied without the interpreter's lock.
const LONG: usize = 1 << 16;

/// Sends two objects with the buffer protocol as one message.
pub fn send_joined(
    this: &Queue,
    (head, body): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    (priority, timeout): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
) -> PyResult<()> {
    let py = body.py();
    let priority = checked(this, py, priority)?;
    let wait = Wait::of(timeout)?;
    // SAFETY: the caller's arguments live during the call, and the bytes are dropped with the lock held.
    let (head, body) = unsafe { (Bytes::of(head)?, Bytes::of(body)?) };
    let (head, body) = (head.get(), body.get());
    let len = head.len() + body.len();
    let mut room = room(this, py, len, Some(wait))?;
    let send = move || {
        room.write_at(0, head);
        room.write_at(head.len(), body);
        room.commit(priority)
    };
    let sent = match len > LONG {
        true => py.detach(send),
        false => send(),
    };
    sent.map_err(|error| this.raise(py, &error))
}
