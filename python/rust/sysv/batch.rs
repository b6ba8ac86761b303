//! Batches: several messages in one call.

use super::{SysVQueue, type_of};
use crate::buffer::Bytes;
use crate::message;
use crate::queue::size;
use crate::wait::{Wait, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use umsg::sysv::{self, ReceiveError, Received, SendError, Until, Want};

/// Sends messages of one type, or pairs of a message and its type.
pub fn send(
    this: &SysVQueue,
    messages: &Bound<'_, PyAny>,
    mtype: Option<i64>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = messages.py();
    // A bytes object is iterable, and a batch of its numbers is never meant.
    if messages.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(
            "messages must be an iterable of bytes-like objects, not bytes",
        ));
    }
    let wait = Wait::of(timeout)?;
    // Dropped in the reverse order: the bytes before the objects that keep them.
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

/// The most messages, and the bytes, that one call of the library receives.
const PIECE: (usize, usize) = (256, 1 << 16);

/// Receives up to `most` messages into a list.
pub fn receive<'py>(
    this: &SysVQueue,
    py: Python<'py>,
    (want, most, timeout): (Want, Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    with_types: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let most = most.map_or(Ok(PIECE.0), |most| size(most, "most"))?;
    let wait = Wait::of(timeout)?;
    let queue = this.shared(py)?;
    let list = PyList::empty(py);
    let (messages, bytes) = (PIECE.0.min(most), PIECE.1.max(this.longest()));
    let mut buffer = vec![0; bytes.min(this.longest().saturating_mul(messages)).max(1)];
    let mut received = vec![Received::default(); messages];
    while list.len() < most {
        let piece = messages.min(most - list.len());
        let wait = list.is_empty().then_some(wait);
        let got = receive_piece(
            &queue,
            py,
            want,
            (&mut buffer, &mut received[..piece]),
            wait,
        )?;
        let count = match got {
            Ok(count) => count,
            // The messages that are there already count.
            Err(_) if !list.is_empty() => break,
            Err(error) => return Err(this.raise(py, &error)),
        };
        append(&list, (&buffer, &received[..count]), with_types)?;
    }
    Ok(list.into_any())
}

fn receive_piece(
    queue: &sysv::Queue,
    py: Python<'_>,
    want: Want,
    (buffer, received): (&mut [u8], &mut [Received]),
    wait: Option<Wait>,
) -> PyResult<Result<usize, ReceiveError>> {
    match (
        queue.receive_batch_until(want, buffer, received, Until::Now),
        wait,
    ) {
        (Err(ReceiveError::NoMessage), Some(wait)) => blocking(py, wait, |until| {
            queue.receive_batch_until(want, buffer, received, until)
        }),
        (other, _) => Ok(other),
    }
}

fn append(
    list: &Bound<'_, PyList>,
    (buffer, received): (&[u8], &[Received]),
    with_types: bool,
) -> PyResult<()> {
    let (py, mut rest) = (list.py(), buffer);
    for one in received {
        let (bytes, behind) = rest.split_at(one.len);
        rest = behind;
        let bytes = PyBytes::new(py, bytes);
        match with_types {
            false => list.append(bytes)?,
            true => {
                let pair = message::pair(py, bytes.into_ptr(), one.mtype)?;
                // SAFETY: a new tuple.
                list.append(unsafe { Bound::from_owned_ptr(py, pair) })?;
            }
        }
    }
    Ok(())
}
