//! Batches: several messages in one call.

use super::lease::size;
use super::{Queue, priority_of};
use crate::buffer::Bytes;
use crate::message;
use crate::wait::{Wait, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use umsg::posix::{self, ReceiveError, Received, SendError, Until};

/// Messages of Python objects, which stay alive meanwhile.
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
    // A bytes object is iterable, and a batch of its numbers is never meant.
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
        // An empty batch.
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

/// The most messages, and the bytes, that one call of the library receives.
const PIECE: (usize, usize) = (256, 1 << 16);

/// Receives up to `most` messages into a list.
pub fn receive<'py>(
    this: &Queue,
    py: Python<'py>,
    (most, timeout): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    with_priorities: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let most = most.map_or(Ok(PIECE.0), |most| size(most, "most"))?;
    let wait = Wait::of(timeout)?;
    let queue = this.shared(py)?;
    let list = PyList::empty(py);
    let (messages, bytes) = (PIECE.0.min(most), PIECE.1.max(this.message_size));
    let mut buffer = vec![0; bytes.min(this.message_size.saturating_mul(messages)).max(1)];
    let mut received = vec![Received::default(); messages];
    while list.len() < most {
        let piece = messages.min(most - list.len());
        let got = receive_piece(
            &queue,
            py,
            (&mut buffer, &mut received[..piece]),
            match list.is_empty() {
                true => Some(wait),
                false => None,
            },
        )?;
        let count = match got {
            Ok(count) => count,
            // The messages that are there already count.
            Err(_) if !list.is_empty() => break,
            Err(error) => return Err(this.raise(py, &error)),
        };
        append(&list, (&buffer, &received[..count]), with_priorities)?;
    }
    Ok(list.into_any())
}

fn receive_piece(
    queue: &posix::Queue,
    py: Python<'_>,
    (buffer, received): (&mut [u8], &mut [Received]),
    wait: Option<Wait>,
) -> PyResult<Result<usize, ReceiveError>> {
    match (queue.try_receive_batch(buffer, received), wait) {
        (Err(ReceiveError::Empty), Some(wait)) => blocking(py, wait, |until| match until {
            Until::After(time) => queue.receive_batch_timeout(buffer, received, time),
            _ => queue.receive_batch(buffer, received),
        }),
        (other, _) => Ok(other),
    }
}

fn append(
    list: &Bound<'_, PyList>,
    (buffer, received): (&[u8], &[Received]),
    with_priorities: bool,
) -> PyResult<()> {
    let (py, mut rest) = (list.py(), buffer);
    for one in received {
        let (bytes, behind) = rest.split_at(one.len);
        rest = behind;
        let bytes = PyBytes::new(py, bytes);
        match with_priorities {
            false => list.append(bytes)?,
            true => {
                let pair = message::pair(py, bytes.into_ptr(), one.priority.into())?;
                // SAFETY: a new tuple.
                list.append(unsafe { Bound::from_owned_ptr(py, pair) })?;
            }
        }
    }
    Ok(())
}
