//! Batches: several messages in one call.

use super::lease::size;
use super::receive::any_length;
use super::{Queue, priority_of};
use crate::buffer::Bytes;
use crate::message::{self, Missed, Room, SHORT};
use crate::wait::{Wait, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use umsg::posix::{self, ReceiveError, SendError, Until};

/// Messages in Python objects. This value keeps the objects alive.
struct Messages<'py> {
    bytes: Vec<(Bytes, u32)>,
    _objects: Vec<Bound<'py, PyAny>>,
}

impl<'py> Messages<'py> {
    /// Collects messages. `split` returns a message and its priority.
    fn of(
        iterable: &Bound<'py, PyAny>,
        mut split: impl FnMut(Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, u32)>,
    ) -> PyResult<Messages<'py>> {
        let (mut bytes, mut objects) = (Vec::new(), Vec::new());
        for item in iterable.try_iter()? {
            let (object, priority) = split(item?)?;
            // SAFETY: `objects` keeps the object alive. Fields are dropped in their order, with the interpreter's lock held.
            bytes.push((unsafe { Bytes::of(&object)? }, priority));
            objects.push(object);
        }
        Ok(Messages {
            bytes,
            _objects: objects,
        })
    }

    fn slices(&self) -> Vec<(&[u8], u32)> {
        let slices = self.bytes.iter();
        slices
            .map(|(bytes, priority)| (bytes.get(), *priority))
            .collect()
    }
}

fn alike<'py>(
    messages: &Bound<'py, PyAny>,
    priority: Option<&Bound<'_, PyAny>>,
) -> PyResult<Messages<'py>> {
    let priority = priority.map_or(Ok(0), priority_of)?;
    // A bytes object is iterable, but its numbers are never meant as messages.
    if messages.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(
            "messages must be an iterable of bytes-like objects, not bytes",
        ));
    }
    Messages::of(messages, |object| Ok((object, priority)))
}

pub fn send_all(
    this: &Queue,
    messages: &Bound<'_, PyAny>,
    priority: Option<&Bound<'_, PyAny>>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let messages = alike(messages, priority)?;
    send(this, messages, timeout, |queue, slices, until| {
        queue.send_all_of(slices, until)
    })
}

pub fn send_some(
    this: &Queue,
    messages: &Bound<'_, PyAny>,
    priority: Option<&Bound<'_, PyAny>>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<usize> {
    let messages = alike(messages, priority)?;
    send(this, messages, timeout, |queue, slices, until| {
        queue.send_some_of(slices, until)
    })
}

pub fn send_pairs(
    this: &Queue,
    messages: &Bound<'_, PyAny>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let messages = Messages::of(messages, |pair| {
        let (message, priority): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let priority = priority_of(&priority)?;
        Ok((message, priority))
    })?;
    send(this, messages, timeout, |queue, slices, until| {
        queue.send_all_of(slices, until)
    })
}

fn send<T: Send>(
    this: &Queue,
    messages: Messages<'_>,
    timeout: Option<&Bound<'_, PyAny>>,
    call: impl Fn(&posix::Queue, &[(&[u8], u32)], Until) -> Result<T, SendError> + Sync,
) -> PyResult<T> {
    let Some(py) = messages
        ._objects
        .first()
        .map(Bound::py)
        .or_else(|| timeout.map(Bound::py))
    else {
        // An empty batch has no object with a Python token, so `attach` gets one.
        return Python::attach(|py| {
            let queue = this.shared(py)?;
            call(&queue, &[], Until::Now).map_err(|error| this.raise(py, &error))
        });
    };
    let wait = Wait::of(timeout)?;
    let queue = this.shared(py)?;
    let slices = messages.slices();
    let mut sent = call(&queue, &slices, Until::Now);
    if matches!(sent, Err(SendError::Full)) {
        sent = blocking(py, wait, |until| call(&queue, &slices, until))?;
    }
    sent.map_err(|error| this.raise(py, &error))
}

/// The maximum number of messages that one call of the library receives.
const PIECE: usize = 256;

/// Receives up to `most` messages into a list.
pub fn receive<'py>(
    this: &Queue,
    py: Python<'py>,
    (most, timeout): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    with_priorities: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let most = most.map_or(Ok(PIECE), |most| size(most, "most"))?;
    let mut wait = Some(Wait::of(timeout)?);
    let queue = this.shared(py)?;
    let list = PyList::empty(py);
    // A message that is longer than the buffer is received alone, as by `receive`.
    let len = this.message_size.saturating_mul(most).clamp(1, SHORT);
    let mut buffer = vec![0; len];
    while list.len() < most {
        let piece = PIECE.min(most - list.len());
        let mut room = Room::new(&mut buffer, piece);
        let result = queue.receive_into(&mut room, piece, Until::Now);
        match room.end(result) {
            Ok(received) => {
                let received = received.iter().map(|&(len, key)| (len, i64::from(key)));
                let received: Vec<(usize, i64)> = received.collect();
                message::append(&list, (&buffer, &received), with_priorities)?;
                wait = None;
                continue;
            }
            Err(Missed::Exception(error)) => return Err(error),
            Err(Missed::Longer(_)) => {}
            Err(Missed::Error(ReceiveError::Empty)) if wait.is_some() => {}
            // The call succeeds with the messages that it has already received.
            Err(Missed::Error(_)) if !list.is_empty() => break,
            Err(Missed::Error(error)) => return Err(this.raise(py, &error)),
        }
        match any_length(this, py, wait.take())? {
            Ok((message, key)) => {
                message::append_one(&list, (message, key.into()), with_priorities)?
            }
            Err(_) if !list.is_empty() => break,
            Err(error) => return Err(this.raise(py, &error)),
        }
    }
    Ok(list.into_any())
}
