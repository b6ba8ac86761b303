//! Receiving a message.

use super::{SysVQueue, type_of};
use crate::buffer::Bytes;
use crate::error::invalid;
use crate::fast::{Arguments, Method, raw_methods};
use crate::lease::Held;
use crate::message::{self, First, Missed, Room, SHORT};
use crate::wait::{Wait, blocking, blocking_until_signal};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use umsg::sysv::{self, Incoming, ReceiveError, Received, Until, Want};

pub static METHODS: [Method; 4] = [
    Method(
        c"receive",
        receive,
        c"receive($self, /, type=0, timeout=None, other=False)\n--\n\nReceives a message. Waits for a message: without a limit, or for `timeout` seconds.\n\nType 0 selects the first message of any type, a type above 0 the first message of this type, and a type below 0 the first message of the\nlowest type up to its absolute value. With `other=True`, a type above 0 selects the first message of any other type.",
    ),
    Method(
        c"try_receive",
        try_receive,
        c"try_receive($self, /, type=0, other=False)\n--\n\nReceives a message as `receive` does if there is one at once; otherwise raises `Empty`.",
    ),
    Method(
        c"receive_message",
        receive_message,
        c"receive_message($self, /, type=0, timeout=None, other=False)\n--\n\nReceives as `receive` does. Returns the message and its type.",
    ),
    Method(
        c"try_receive_message",
        try_receive_message,
        c"try_receive_message($self, /, type=0, other=False)\n--\n\nReceives as `try_receive` does. Returns the message and its type.",
    ),
];

raw_methods! { SysVQueue:
    receive = receive_body;
    try_receive = try_receive_body;
    receive_message = receive_message_body;
    try_receive_message = try_receive_message_body;
}

type Object<'a, 'py> = Borrowed<'a, 'py, SysVQueue>;

#[inline(always)]
fn receive_body(queue: Object<'_, '_>, arguments: Arguments<'_, '_>) -> PyResult<*mut PyObject> {
    Ok(waiting(queue, arguments)?.0)
}

#[inline(always)]
fn try_receive_body(
    queue: Object<'_, '_>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    Ok(at_once(queue, arguments)?.0)
}

#[inline(always)]
fn receive_message_body(
    queue: Object<'_, '_>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let (message, mtype) = waiting(queue, arguments)?;
    message::pair(queue.py(), message, mtype)
}

#[inline(always)]
fn try_receive_message_body(
    queue: Object<'_, '_>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let (message, mtype) = at_once(queue, arguments)?;
    message::pair(queue.py(), message, mtype)
}

#[inline(always)]
fn waiting(queue: Object<'_, '_>, arguments: Arguments<'_, '_>) -> PyResult<(*mut PyObject, i64)> {
    let [mtype, timeout, other] = arguments.take([c"type", c"timeout", c"other"], 0)?;
    let other = other.map_or(Ok(false), |other| other.is_truthy())?;
    any(
        queue,
        want(mtype.as_deref(), other)?,
        Some(Wait::of(timeout.as_deref())?),
    )
}

#[inline(always)]
fn at_once(queue: Object<'_, '_>, arguments: Arguments<'_, '_>) -> PyResult<(*mut PyObject, i64)> {
    let [mtype, other] = arguments.take([c"type", c"other"], 0)?;
    let other = other.map_or(Ok(false), |other| other.is_truthy())?;
    any(queue, want(mtype.as_deref(), other)?, None)
}

/// Converts the arguments `type` and `other` to a selection: `msgtyp` of msgrcv(2), and whether MSG_EXCEPT is set.
#[inline(always)]
pub fn want(mtype: Option<&Bound<'_, PyAny>>, other: bool) -> PyResult<Want> {
    let Some(value) = mtype else {
        return match other {
            false => Ok(Want::Any),
            true => Python::attach(|py| Err(invalid(py, "other=True needs a type above 0"))),
        };
    };
    match (type_of(value)?, other) {
        (1.., true) => Ok(Want::Except(type_of(value)?)),
        (_, true) => Err(invalid(value.py(), "other=True needs a type above 0")),
        (0, false) => Ok(Want::Any),
        (mtype @ 1.., false) => Ok(Want::Exactly(mtype)),
        (mtype, false) => Ok(Want::Lowest(mtype.checked_neg().unwrap_or(i64::MAX))),
    }
}

/// Receives a message, and returns it as a bytes object with its type. `wait` is None for a call that does not wait.
#[inline(always)]
fn any(queue: Object<'_, '_>, want: Want, wait: Option<Wait>) -> PyResult<(*mut PyObject, i64)> {
    let (py, this) = (queue.py(), queue.get());
    let longest = this.longest();
    if longest > SHORT {
        return Python::attach(|py| {
            let received = any_length(this, py, want, wait)?;
            received.map_err(|error| this.raise(py, &error))
        });
    }
    match short(this, py, want, longest) {
        First::Received(message, mtype) if !message.is_null() => Ok((message, mtype)),
        other => Python::attach(|py| {
            let received = short_slow(this, py, (want, wait), other)?;
            received.map_err(|error| this.raise(py, &error))
        }),
    }
}

/// Makes a first attempt to receive a message of at most `longest` bytes, for a handle whose messages are short.
#[inline(always)]
fn short(this: &SysVQueue, py: Python<'_>, want: Want, longest: usize) -> First<i64, ReceiveError> {
    let attempt = |buffer: &mut [u8]| {
        this.at_once(py, |queue| {
            // A longer message stays in the queue.
            let received = queue.try_receive(want, &mut buffer[..longest])?;
            Ok((received.len, received.mtype))
        })
    };
    message::first(py, longest, attempt)
}

impl Incoming for Room<'_, i64> {
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        Room::place(self, len)
    }

    fn taken(&mut self, received: Received) {
        self.note(received.len, received.mtype);
    }
}

/// Receives messages that fit in the buffer. Does not wait.
pub fn some(
    queue: &sysv::Queue,
    want: Want,
    buffer: &mut [u8],
    most: usize,
) -> Result<Vec<(usize, i64)>, Missed<ReceiveError>> {
    let mut room = Room::new(buffer, most);
    let result = queue.receive_into(want, &mut room, most, Until::Now);
    room.end(result)
}

/// Receives a message of a queue whose messages may be long. Most messages of such a queue are short, too. For a long message, the first attempt
/// learns the length, so that the bytes object is not larger than the message.
pub fn any_length(
    this: &SysVQueue,
    py: Python<'_>,
    want: Want,
    wait: Option<Wait>,
) -> PyResult<Result<(*mut PyObject, i64), ReceiveError>> {
    let longest = this.longest();
    let attempt = |buffer: &mut [u8]| {
        this.at_once(py, |queue| {
            let received = some(queue, want, buffer, 1)?;
            received
                .first()
                .copied()
                .ok_or(Missed::Error(ReceiveError::NoMessage))
        })
    };
    let mut missed = match message::first(py, SHORT, attempt) {
        First::Received(message, _) if message.is_null() => return Err(PyErr::fetch(py)),
        First::Received(message, mtype) => return Ok(Ok((message, mtype))),
        First::HandleClosed => return Err(this.closed_error(py)),
        First::Failed(missed) => missed,
    };
    loop {
        let received = match (missed, wait) {
            (Missed::Exception(error), _) => return Err(error),
            // Another receiver may have taken the long message, and the next message may be longer. A message that is too long for this handle stays
            // in the queue.
            (Missed::Longer(len), _) => message::long(py, len.min(longest), |buffer| {
                let room = buffer.len();
                match this.at_once(py, |queue| queue.try_receive(want, buffer)) {
                    None => Err(this.closed_error(py).into()),
                    Some(Ok(received)) => Ok((received.len, received.mtype)),
                    Some(Err(ReceiveError::TooSmall { len })) if room < longest => {
                        Err(Missed::Longer(len))
                    }
                    Some(Err(error)) => Err(Missed::Error(error)),
                }
            }),
            (Missed::Error(ReceiveError::NoMessage), Some(wait)) => waited(this, py, want, wait),
            (Missed::Error(error), _) => return Ok(Err(error)),
        };
        match received {
            Ok(received) => return Ok(Ok(received)),
            Err(Missed::Error(ReceiveError::NoMessage)) if wait.is_some() => {
                missed = Missed::Error(ReceiveError::NoMessage);
            }
            Err(Missed::Error(error)) => return Ok(Err(error)),
            Err(other) => missed = other,
        }
    }
}

/// Waits for a message of at most the length that this handle receives.
fn waited(
    this: &SysVQueue,
    py: Python<'_>,
    want: Want,
    wait: Wait,
) -> Result<(*mut PyObject, i64), Missed<ReceiveError>> {
    message::long(py, this.longest(), |buffer| {
        let received = received(this, py, (want, false), wait, buffer)?;
        let received = received.map_err(Missed::Error)?;
        Ok((received.len, received.mtype))
    })
}

/// Completes a receive whose first attempt returned no message.
#[cold]
fn short_slow(
    this: &SysVQueue,
    py: Python<'_>,
    (want, wait): (Want, Option<Wait>),
    first: First<i64, ReceiveError>,
) -> PyResult<Result<(*mut PyObject, i64), ReceiveError>> {
    match (first, wait) {
        (First::Received(..), _) => Err(PyErr::fetch(py)),
        (First::HandleClosed, _) => Err(this.closed_error(py)),
        (First::Failed(ReceiveError::NoMessage), Some(wait)) => {
            let mut buffer = vec![0; this.longest()];
            let received = received(this, py, (want, false), wait, &mut buffer)?;
            Ok(received.map(|received| {
                let message = PyBytes::new(py, &buffer[..received.len]);
                (message.into_ptr(), received.mtype)
            }))
        }
        (First::Failed(error), _) => Ok(Err(error)),
    }
}

/// Waits for a message.
fn received(
    this: &SysVQueue,
    py: Python<'_>,
    (want, truncate): (Want, bool),
    wait: Wait,
    buffer: &mut [u8],
) -> PyResult<Result<Received, ReceiveError>> {
    let queue = this.shared(py)?;
    blocking_until_signal(py, wait, this.after_signal(), |until| {
        queue.receive_until(want, buffer, truncate, until)
    })
}

/// Receives into the caller's buffer: at once, or after a wait.
fn received_into(
    this: &SysVQueue,
    py: Python<'_>,
    (want, truncate): (Want, bool),
    wait: Option<Wait>,
    buffer: &mut [u8],
) -> PyResult<Received> {
    let attempt = this.at_once(py, |queue| {
        queue.receive_until(want, buffer, truncate, Until::Now)
    });
    match (attempt, wait) {
        (None, _) => Err(this.closed_error(py)),
        (Some(Ok(done)), _) => Ok(done),
        (Some(Err(ReceiveError::NoMessage)), Some(wait)) => {
            let received = received(this, py, (want, truncate), wait, buffer)?;
            received.map_err(|error| this.raise(py, &error))
        }
        (Some(Err(error)), _) => Err(this.raise(py, &error)),
    }
}

/// Receives a message for an iterator: None at the end of the stream.
pub fn next<'py>(this: &SysVQueue, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (longest, wait) = (this.longest(), Some(Wait::Forever));
    let received = match longest > SHORT {
        true => any_length(this, py, Want::Any, wait)?,
        false => match short(this, py, Want::Any, longest) {
            First::Received(message, mtype) if !message.is_null() => Ok((message, mtype)),
            other => short_slow(this, py, (Want::Any, wait), other)?,
        },
    };
    match received {
        // SAFETY: the object is new, and no other code has its reference.
        Ok((message, _)) => Ok(Some(unsafe { Bound::from_owned_ptr(py, message) })),
        Err(ReceiveError::Closed) => Ok(None),
        Err(error) => Err(this.raise(py, &error)),
    }
}

/// Receives into an object with the buffer protocol.
pub fn into_buffer(
    this: &SysVQueue,
    buffer: &Bound<'_, PyAny>,
    want: (Want, bool),
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<Received> {
    let wait = Wait::of(timeout)?;
    // SAFETY: the caller's argument lives during the call, and the bytes are dropped with the lock held.
    let mut bytes = unsafe { Bytes::writable(buffer)? };
    received_into(this, buffer.py(), want, Some(wait), bytes.get_mut())
}

/// Receives a message in place. `timeout` is None for a call that does not wait.
pub fn lease<'py>(
    this: &SysVQueue,
    py: Python<'py>,
    want: Want,
    timeout: Option<Option<&Bound<'_, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let wait = timeout.map(Wait::of).transpose()?;
    let queue = this.shared(py)?;
    let mut leased = queue.receive_lease_owned(want, Until::Now);
    if let (Err(ReceiveError::NoMessage), Some(wait)) = (&leased, wait) {
        leased = blocking(py, wait, |until| queue.receive_lease_owned(want, until))?;
    }
    let leased = leased.map_err(|error| this.raise(py, &error))?;
    crate::lease::lease(py, Held::SysV(leased))
}
