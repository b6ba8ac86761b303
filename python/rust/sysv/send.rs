//! Sending a message.

use super::{SysVQueue, type_of};
use crate::buffer::Bytes;
use crate::fast::{Arguments, Method, none, raw_methods};
use crate::wait::{Wait, blocking, blocking_until_signal};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use std::time::{Duration, SystemTime};
use umsg::sysv::{SendError, Until};

pub static METHODS: [Method; 2] = [
    Method(
        c"send",
        send,
        c"send($self, /, message, type=1, timeout=None)\n--\n\nSends a message. Waits for room: without a limit, or for `timeout` seconds.",
    ),
    Method(
        c"try_send",
        try_send,
        c"try_send($self, /, message, type=1)\n--\n\nSends a message if there is room at once; otherwise raises `Full`.",
    ),
];

raw_methods! { SysVQueue:
    send = send_body;
    try_send = try_send_body;
}

#[inline(always)]
fn send_body(
    queue: Borrowed<'_, '_, SysVQueue>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let [message, mtype, timeout] = arguments.take([c"message", c"type", c"timeout"], 1)?;
    let wait = Wait::of(timeout.as_deref())?;
    send_message(queue, message.as_deref(), mtype.as_deref(), Some(wait))
}

#[inline(always)]
fn try_send_body(
    queue: Borrowed<'_, '_, SysVQueue>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let [message, mtype] = arguments.take([c"message", c"type"], 1)?;
    send_message(queue, message.as_deref(), mtype.as_deref(), None)
}

/// Sends a message. `wait` is None for a call that does not wait.
#[inline(always)]
fn send_message(
    queue: Borrowed<'_, '_, SysVQueue>,
    message: Option<&Bound<'_, PyAny>>,
    mtype: Option<&Bound<'_, PyAny>>,
    wait: Option<Wait>,
) -> PyResult<*mut PyObject> {
    let py = queue.py();
    let Some(message) = message else {
        return Err(PyTypeError::new_err("a message is missing"));
    };
    let mtype = mtype.map_or(Ok(1), type_of)?;
    // SAFETY: the caller's argument lives during the call, and the bytes are dropped with the lock held.
    let bytes = unsafe { Bytes::of(message)? };
    let this = queue.get();
    match this.at_once(py, |queue| queue.try_send(mtype, bytes.get())) {
        Some(Ok(())) => Ok(none()),
        other => Python::attach(|py| send_slow(this, py, (&bytes, mtype), wait, other)),
    }
}

#[cold]
fn send_slow(
    this: &SysVQueue,
    py: Python<'_>,
    (bytes, mtype): (&Bytes, i64),
    wait: Option<Wait>,
    first: Option<Result<(), SendError>>,
) -> PyResult<*mut PyObject> {
    let error = match (first, wait) {
        (None, _) => return Err(this.closed_error(py)),
        (Some(Ok(())), _) => return Ok(none()),
        (Some(Err(SendError::Full)), Some(wait)) => {
            let queue = this.shared(py)?;
            match blocking_until_signal(py, wait, this.after_signal(), |until| {
                queue.send_until(mtype, bytes.get(), until)
            })? {
                Ok(()) => return Ok(none()),
                Err(error) => error,
            }
        }
        (Some(Err(error)), _) => error,
    };
    Err(this.raise(py, &error))
}

/// The delivery time of a delayed message.
#[derive(Clone, Copy)]
pub enum Due {
    After(Duration),
    At(SystemTime),
}

/// Sends a delayed message.
pub fn later(
    this: &SysVQueue,
    message: &Bound<'_, PyAny>,
    due: Due,
    (mtype, timeout): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
) -> PyResult<()> {
    let py = message.py();
    let mtype = mtype.map_or(Ok(1), type_of)?;
    let wait = Wait::of(timeout)?;
    // SAFETY: as in `send_message`.
    let bytes = unsafe { Bytes::of(message)? };
    let queue = this.shared(py)?;
    let sent = blocking(py, wait, |until| {
        let bytes = bytes.get();
        match (due, until) {
            (Due::After(delay), Until::After(time)) => {
                queue.send_after_timeout(mtype, bytes, delay, time)
            }
            (Due::After(delay), _) => queue.send_after(mtype, bytes, delay),
            (Due::At(at), Until::After(time)) => queue.send_at_timeout(mtype, bytes, at, time),
            (Due::At(at), _) => queue.send_at(mtype, bytes, at),
        }
    })?;
    sent.map_err(|error| this.raise(py, &error))
}
