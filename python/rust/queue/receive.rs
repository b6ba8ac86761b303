//! Receiving a message.

use super::Queue;
use crate::buffer::Bytes;
use crate::fast::{Arguments, Method, raw_methods};
use crate::message::{self, First, SHORT};
use crate::wait::{Wait, blocking, blocking_until_signal};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use umsg::posix::{ReceiveError, Received, Until};

pub static METHODS: [Method; 4] = [
    Method(
        c"receive",
        receive,
        c"receive($self, /, timeout=None)\n--\n\nReceives the next message: the oldest of the highest priority. Waits for one without a limit, or `timeout` seconds.",
    ),
    Method(
        c"try_receive",
        try_receive,
        c"try_receive($self, /)\n--\n\nReceives the next message if there is one at once; otherwise raises `Empty`.",
    ),
    Method(
        c"receive_message",
        receive_message,
        c"receive_message($self, /, timeout=None)\n--\n\nReceives as `receive` does. Returns the message and its priority.",
    ),
    Method(
        c"try_receive_message",
        try_receive_message,
        c"try_receive_message($self, /)\n--\n\nReceives as `try_receive` does. Returns the message and its priority.",
    ),
];

raw_methods! { Queue:
    receive = receive_body;
    try_receive = try_receive_body;
    receive_message = receive_message_body;
    try_receive_message = try_receive_message_body;
}

#[inline(always)]
fn receive_body(
    queue: Borrowed<'_, '_, Queue>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let [timeout] = arguments.take([c"timeout"], 0)?;
    Ok(any(queue, Some(Wait::of(timeout.as_deref())?))?.0)
}

#[inline(always)]
fn try_receive_body(
    queue: Borrowed<'_, '_, Queue>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let [] = arguments.take([], 0)?;
    Ok(any(queue, None)?.0)
}

#[inline(always)]
fn receive_message_body(
    queue: Borrowed<'_, '_, Queue>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let [timeout] = arguments.take([c"timeout"], 0)?;
    let message = any(queue, Some(Wait::of(timeout.as_deref())?))?;
    message::pair(queue.py(), message.0, message.1.into())
}

#[inline(always)]
fn try_receive_message_body(
    queue: Borrowed<'_, '_, Queue>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let [] = arguments.take([], 0)?;
    let message = any(queue, None)?;
    message::pair(queue.py(), message.0, message.1.into())
}

/// Receives a message, and returns it as a bytes object with its priority. `wait` is None for a call that does not wait.
#[inline(always)]
fn any(queue: Borrowed<'_, '_, Queue>, wait: Option<Wait>) -> PyResult<(*mut PyObject, u32)> {
    let (py, this) = (queue.py(), queue.get());
    if this.message_size > SHORT {
        return Python::attach(|py| {
            message::long(py, this.message_size, |buffer| {
                let received = received_into(this, py, wait, buffer)?;
                Ok((received.len, received.priority))
            })
        });
    }
    let attempt = |buffer: &mut [u8]| {
        this.at_once(py, |queue| {
            let received = queue.try_receive(buffer)?;
            Ok((received.len, received.priority))
        })
    };
    match message::first(py, this.message_size, attempt) {
        First::Received(message, priority) if !message.is_null() => Ok((message, priority)),
        other => Python::attach(|py| any_slow(this, py, wait, other)),
    }
}

#[cold]
fn any_slow(
    this: &Queue,
    py: Python<'_>,
    wait: Option<Wait>,
    first: First<u32, ReceiveError>,
) -> PyResult<(*mut PyObject, u32)> {
    match (first, wait) {
        (First::Received(..), _) => Err(PyErr::fetch(py)),
        (First::HandleClosed, _) => Err(this.closed_error(py)),
        (First::Failed(ReceiveError::Empty), Some(wait)) => {
            let mut buffer = vec![0; this.message_size];
            let received = received(this, py, wait, &mut buffer)?;
            let message = PyBytes::new(py, &buffer[..received.len]);
            Ok((message.into_ptr(), received.priority))
        }
        (First::Failed(error), _) => Err(this.raise(py, &error)),
    }
}

/// Waits for a message.
fn received(this: &Queue, py: Python<'_>, wait: Wait, buffer: &mut [u8]) -> PyResult<Received> {
    let queue = this.shared(py)?;
    let received = blocking_until_signal(py, wait, this.after_signal(), |until| match until {
        Until::After(time) => queue.receive_timeout(buffer, time),
        _ => queue.receive(buffer),
    })?;
    received.map_err(|error| this.raise(py, &error))
}

/// Receives into the caller's buffer: at once, or after a wait.
fn received_into(
    this: &Queue,
    py: Python<'_>,
    wait: Option<Wait>,
    buffer: &mut [u8],
) -> PyResult<Received> {
    match (this.at_once(py, |queue| queue.try_receive(buffer)), wait) {
        (None, _) => Err(this.closed_error(py)),
        (Some(Ok(done)), _) => Ok(done),
        (Some(Err(ReceiveError::Empty)), Some(wait)) => received(this, py, wait, buffer),
        (Some(Err(error)), _) => Err(this.raise(py, &error)),
    }
}

/// Receives a message for an iterator: None at the end of the stream.
pub fn next<'py>(this: &Queue, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut buffer = vec![0; this.message_size];
    let result = match this.at_once(py, |queue| queue.try_receive(&mut buffer)) {
        None => return Err(this.closed_error(py)),
        Some(Err(ReceiveError::Empty)) => {
            let queue = this.shared(py)?;
            blocking(py, Wait::Forever, |until| match until {
                Until::After(time) => queue.receive_timeout(&mut buffer, time),
                _ => queue.receive(&mut buffer),
            })?
        }
        Some(other) => other,
    };
    match result {
        Ok(received) => Ok(Some(PyBytes::new(py, &buffer[..received.len]).into_any())),
        Err(ReceiveError::Closed) => Ok(None),
        Err(error) => Err(this.raise(py, &error)),
    }
}

/// Receives into an object with the buffer protocol.
pub fn into_buffer(
    this: &Queue,
    buffer: &Bound<'_, PyAny>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<Received> {
    let wait = Wait::of(timeout)?;
    // SAFETY: the caller's argument lives during the call, and the bytes are dropped with the lock held.
    let mut bytes = unsafe { Bytes::writable(buffer)? };
    received_into(this, buffer.py(), Some(wait), bytes.get_mut())
}
