//! Batches: several messages in one call.

use super::receive::{any_length, some};
use super::{SysVQueue, type_of};
use crate::buffer::Bytes;
use crate::message::{self, Missed, SHORT};
use crate::queue::size;
use crate::wait::{Wait, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use umsg::sysv::{ReceiveError, SendError, Until, Want};

/// Sends messages of one type, or pairs of a message and its type.
pub fn send(
    this: &SysVQueue,
    messages: &Bound<'_, PyAny>,
    mtype: Option<i64>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = messages.py();
    // A bytes object is iterable, but its numbers are never meant as messages.
    if messages.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(
            "messages must be an iterable of bytes-like objects, not bytes",
        ));
    }
    let wait = Wait::of(timeout)?;
    // Locals are dropped in reverse order, so the bytes are dropped before the objects that keep them alive.
    let mut objects = Vec::new();
    let mut all: Vec<(i64, Bytes)> = Vec::new();
    for item in messages.try_iter()? {
        let (object, mtype) = match mtype {
            Some(mtype) => (item?, mtype),
            None => {
                let (object, mtype): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
                (object, type_of(&mtype)?)
            }
        };
        // SAFETY: `objects` keeps the object alive, and the bytes are dropped with the interpreter's lock held.
        all.push((mtype, unsafe { Bytes::of(&object)? }));
        objects.push(object);
    }
    let slices: Vec<(i64, &[u8])> = all
        .iter()
        .map(|(mtype, bytes)| (*mtype, bytes.get()))
        .collect();
    let queue = this.shared(py)?;
    let mut sent = queue.send_batch_until(&slices, Until::Now);
    if matches!(sent, Err(SendError::Full)) {
        sent = blocking(py, wait, |until| queue.send_batch_until(&slices, until))?;
    }
    sent.map_err(|error| this.raise(py, &error))
}

/// The maximum number of messages that one call of the library receives.
const PIECE: usize = 256;

/// Receives up to `most` messages into a list.
pub fn receive<'py>(
    this: &SysVQueue,
    py: Python<'py>,
    (want, most, timeout): (Want, Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    with_types: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let most = most.map_or(Ok(PIECE), |most| size(most, "most"))?;
    let mut wait = Some(Wait::of(timeout)?);
    let queue = this.shared(py)?;
    let list = PyList::empty(py);
    // A message that is longer than the buffer is received alone, as by `receive`.
    let len = this.longest().saturating_mul(most).clamp(1, SHORT);
    let mut buffer = vec![0; len];
    while list.len() < most {
        let piece = PIECE.min(most - list.len());
        match some(&queue, want, &mut buffer, piece) {
            Ok(received) => {
                message::append(&list, (&buffer, &received), with_types)?;
                wait = None;
                continue;
            }
            Err(Missed::Exception(error)) => return Err(error),
            Err(Missed::Longer(_)) => {}
            Err(Missed::Error(ReceiveError::NoMessage)) if wait.is_some() => {}
            // The call succeeds with the messages that it has already received.
            Err(Missed::Error(_)) if !list.is_empty() => break,
            Err(Missed::Error(error)) => return Err(this.raise(py, &error)),
        }
        match any_length(this, py, want, wait.take())? {
            Ok(message) => message::append_one(&list, message, with_types)?,
            Err(_) if !list.is_empty() => break,
            Err(error) => return Err(this.raise(py, &error)),
        }
    }
    Ok(list.into_any())
}
