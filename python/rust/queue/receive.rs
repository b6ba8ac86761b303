//! Receiving a message.

use super::Queue;
use crate::buffer::Bytes;
use crate::fast::{Arguments, Method, raw_methods};
use crate::message::{self, First, Missed, Room, SHORT};
use crate::wait::{Wait, blocking_until_signal};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use umsg::posix::{self, Incoming, ReceiveError, Received, Until};

pub static METHODS: [Method; 5] = [
    Method(
        c"receive",
        receive,
        c"receive($self, /, timeout=None)\n--\n\nReceives the next message: the oldest of the highest priority. Waits for a message: without a limit, or for `timeout` seconds.",
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
    Method(
        c"receive_into",
        receive_into,
        c"receive_into($self, /, buffer, timeout=None)\n--\n\nReceives the next message into a buffer.\n\n>>> queue = umsg.Queue(\"/q\", create=True, message_size=64)\n>>> queue.send(b\"hello\")\n>>> buffer = bytearray(queue.message_size)\n>>> queue.receive_into(buffer)\n5\n\nThe buffer must have room for `message_size` bytes. Returns the length of the message.",
    ),
];

raw_methods! { Queue:
    receive = receive_body;
    try_receive = try_receive_body;
    receive_message = receive_message_body;
    try_receive_message = try_receive_message_body;
    receive_into = receive_into_body;
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

#[inline(always)]
fn receive_into_body(
    queue: Borrowed<'_, '_, Queue>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let (py, this) = (queue.py(), queue.get());
    let [buffer, timeout] = arguments.take([c"buffer", c"timeout"], 1)?;
    let Some(buffer) = buffer else {
        return Err(PyTypeError::new_err("a buffer is missing"));
    };
    let wait = Wait::of(timeout.as_deref())?;
    // SAFETY: the caller's argument lives during the call, and the bytes are dropped with the lock held.
    let mut bytes = unsafe { Bytes::writable(&buffer)? };
    let received = received_into(this, py, Some(wait), bytes.get_mut())?;
    // SAFETY: makes a new object.
    let len = unsafe { ffi::PyLong_FromSize_t(received.len) };
    match len.is_null() {
        true => Err(PyErr::fetch(py)),
        false => Ok(len),
    }
}

/// Receives a message, and returns it as a bytes object with its priority. `wait` is None for a call that does not wait.
#[inline(always)]
fn any(queue: Borrowed<'_, '_, Queue>, wait: Option<Wait>) -> PyResult<(*mut PyObject, u32)> {
    let (py, this) = (queue.py(), queue.get());
    if this.message_size > SHORT {
        return Python::attach(|py| {
            let received = any_length(this, py, wait)?;
            received.map_err(|error| this.raise(py, &error))
        });
    }
    match short(this, py) {
        First::Received(message, priority) if !message.is_null() => Ok((message, priority)),
        other => Python::attach(|py| {
            let received = short_slow(this, py, wait, other)?;
            received.map_err(|error| this.raise(py, &error))
        }),
    }
}

/// Makes a first attempt to receive a message of a queue whose messages are short.
#[inline(always)]
fn short(this: &Queue, py: Python<'_>) -> First<u32, ReceiveError> {
    let attempt = |buffer: &mut [u8]| {
        this.at_once(py, |queue| {
            let received = queue.try_receive(buffer)?;
            Ok((received.len, received.priority))
        })
    };
    message::first(py, this.message_size, attempt)
}

impl Incoming for Room<'_, u32> {
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        Room::place(self, len)
    }

    fn taken(&mut self, len: usize, priority: u32) {
        self.note(len, priority);
    }
}

/// Receives a message that fits in the buffer. Does not wait.
fn one(queue: &posix::Queue, buffer: &mut [u8]) -> Result<(usize, u32), Missed<ReceiveError>> {
    let mut room = Room::new(buffer, 1);
    let result = queue.receive_into(&mut room, 1, Until::Now);
    let received = room.end(result)?;
    received
        .first()
        .copied()
        .ok_or(Missed::Error(ReceiveError::Empty))
}

/// Receives a message of a queue whose messages may be long. Most messages of such a queue are short, too. For a long message, the first attempt
/// learns the length, so that the bytes object is not larger than the message.
pub fn any_length(
    this: &Queue,
    py: Python<'_>,
    wait: Option<Wait>,
) -> PyResult<Result<(*mut PyObject, u32), ReceiveError>> {
    let attempt = |buffer: &mut [u8]| this.at_once(py, |queue| one(queue, buffer));
    let mut missed = match message::first(py, SHORT, attempt) {
        First::Received(message, _) if message.is_null() => return Err(PyErr::fetch(py)),
        First::Received(message, priority) => return Ok(Ok((message, priority))),
        First::HandleClosed => return Err(this.closed_error(py)),
        First::Failed(missed) => missed,
    };
    loop {
        let received = match (missed, wait) {
            (Missed::Exception(error), _) => return Err(error),
            // Another receiver may have taken the long message, and the next message may be longer.
            (Missed::Longer(len), _) => {
                let attempt = |buffer: &mut [u8]| match attempt(buffer) {
                    None => Err(this.closed_error(py).into()),
                    Some(result) => result,
                };
                message::long(py, len, attempt)
            }
            (Missed::Error(ReceiveError::Empty), Some(wait)) => {
                message::long(py, this.message_size, |buffer| {
                    let received = received(this, py, wait, buffer)?;
                    let received = received.map_err(Missed::Error)?;
                    Ok((received.len, received.priority))
                })
            }
            (Missed::Error(error), _) => return Ok(Err(error)),
        };
        match received {
            Ok(received) => return Ok(Ok(received)),
            // Another receiver has taken the long message, so the call waits for the next message.
            Err(Missed::Error(ReceiveError::Empty)) if wait.is_some() => {
                missed = Missed::Error(ReceiveError::Empty);
            }
            Err(Missed::Error(error)) => return Ok(Err(error)),
            Err(other) => missed = other,
        }
    }
}

/// Completes a receive whose first attempt returned no message.
#[cold]
fn short_slow(
    this: &Queue,
    py: Python<'_>,
    wait: Option<Wait>,
    first: First<u32, ReceiveError>,
) -> PyResult<Result<(*mut PyObject, u32), ReceiveError>> {
    match (first, wait) {
        (First::Received(..), _) => Err(PyErr::fetch(py)),
        (First::HandleClosed, _) => Err(this.closed_error(py)),
        (First::Failed(ReceiveError::Empty), Some(wait)) => {
            let mut buffer = vec![0; this.message_size];
            Ok(received(this, py, wait, &mut buffer)?.map(|received| {
                let message = PyBytes::new(py, &buffer[..received.len]);
                (message.into_ptr(), received.priority)
            }))
        }
        (First::Failed(error), _) => Ok(Err(error)),
    }
}

/// Waits for a message.
fn received(
    this: &Queue,
    py: Python<'_>,
    wait: Wait,
    buffer: &mut [u8],
) -> PyResult<Result<Received, ReceiveError>> {
    let queue = this.shared(py)?;
    blocking_until_signal(py, wait, this.after_signal(), |until| match until {
        Until::After(time) => queue.receive_timeout(buffer, time),
        _ => queue.receive(buffer),
    })
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
        (Some(Err(ReceiveError::Empty)), Some(wait)) => {
            let received = received(this, py, wait, buffer)?;
            received.map_err(|error| this.raise(py, &error))
        }
        (Some(Err(error)), _) => Err(this.raise(py, &error)),
    }
}

/// Receives a message for an iterator: None at the end of the stream.
pub fn next<'py>(this: &Queue, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let wait = Some(Wait::Forever);
    let received = match this.message_size > SHORT {
        true => any_length(this, py, wait)?,
        false => match short(this, py) {
            First::Received(message, priority) if !message.is_null() => Ok((message, priority)),
            other => short_slow(this, py, wait, other)?,
        },
    };
    match received {
        // SAFETY: the object is new, and no other code has its reference.
        Ok((message, _)) => Ok(Some(unsafe { Bound::from_owned_ptr(py, message) })),
        Err(ReceiveError::Closed) => Ok(None),
        Err(error) => Err(this.raise(py, &error)),
    }
}
