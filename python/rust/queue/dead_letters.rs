//! Dead letters: their histories, and sending them back.

use super::Queue;
use super::lease::size;
use crate::error::Kind;
use crate::names::{self, os_string};
use crate::wait::stamp;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use umsg::posix::{self, DeadReason, Redrive};

const REASONS: [(&str, DeadReason); 4] = [
    ("expired", DeadReason::Expired),
    ("undelivered", DeadReason::Undelivered),
    ("dropped", DeadReason::Dropped),
    ("unknown", DeadReason::Unknown),
];

/// The history of a dead letter: its source queue, its deliveries, and the reason why it is in a dead-letter queue.
///
/// Every process that may use the queue can forge a history.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct History {
    /// An identifier that no other message of the queue has.
    id: u64,
    /// The reason why the message left its source queue: "expired", "undelivered", "dropped" or "unknown".
    reason: &'static str,
    /// The name of the queue that the message comes from, with its slash. None if unknown.
    source: Option<OsString>,
    /// The process id of the first sender.
    pid: u32,
    /// The real user id of the first sender. None if unknown.
    uid: Option<u32>,
    /// The time of the first send. All times of a history are in seconds since 1970, accurate to a few milliseconds.
    sent: f64,
    /// The time of the first delivery on a lease. None if there was none.
    first_delivery: Option<f64>,
    /// The time of the last delivery on a lease. None if there was none.
    last_delivery: Option<f64>,
    /// The number of deliveries on a lease, summed over all stays of the message in a source queue.
    deliveries: u32,
    /// The number of times that the message was sent back from a dead-letter queue.
    redrives: u32,
    /// The time at which the message last left its source queue.
    dead: f64,
}

impl From<posix::History> for History {
    fn from(from: posix::History) -> History {
        let known = REASONS.iter().find(|(_, reason)| *reason == from.reason);
        History {
            id: from.id,
            reason: known.map_or("unknown", |(word, _)| word),
            source: from.source,
            pid: from.pid,
            uid: from.uid,
            sent: stamp(from.sent),
            first_delivery: from.first_delivery.map(stamp),
            last_delivery: from.last_delivery.map(stamp),
            deliveries: from.deliveries,
            redrives: from.redrives,
            dead: stamp(from.dead),
        }
    }
}

#[pymethods]
impl History {
    fn __repr__(&self) -> String {
        let source = self.source.as_ref().map(|name| name.to_string_lossy());
        let source = source.map_or("an unknown queue".into(), |name| format!("{name:?}"));
        format!(
            "<umsg.History of {source}: {}, {} deliveries, {} redrives>",
            self.reason, self.deliveries, self.redrives
        )
    }
}

/// A dead letter that was peeked at and stays in the queue.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct DeadLetter {
    /// The history of the dead letter.
    history: Py<History>,
    /// The bytes of the message, or its first bytes.
    data: Py<PyBytes>,
    /// The length of the whole message, in bytes.
    size: usize,
}

#[pymethods]
impl DeadLetter {
    fn __repr__(&self, py: Python<'_>) -> String {
        let (data, history) = (self.data.bind(py), self.history.get());
        format!("<umsg.DeadLetter {data}, {}>", history.__repr__())
    }
}

/// The result of `Queue.redrive`.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct Redriven {
    /// The number of messages that were sent back.
    messages: usize,
    /// The messages that stay in the dead-letter queue: an entry for each queue that did not take them.
    refused: Vec<Py<RedriveRefused>>,
}

#[pymethods]
impl Redriven {
    fn __repr__(&self) -> String {
        let refused: usize = self.refused.iter().map(|one| one.get().messages).sum();
        format!(
            "<umsg.Redriven: {} messages, {refused} refused>",
            self.messages
        )
    }
}

/// Messages that `Queue.redrive` could not send back.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct RedriveRefused {
    /// The queue that did not take the messages. None if the history of the messages names no queue.
    queue: Option<OsString>,
    /// The number of messages that the queue did not take.
    messages: usize,
    /// The exception for the first of the messages that the queue did not take.
    error: Py<PyAny>,
}

#[pymethods]
impl RedriveRefused {
    fn __repr__(&self, py: Python<'_>) -> String {
        let queue = self.queue.as_ref().map(|name| name.to_string_lossy());
        let (messages, error) = (self.messages, self.error.bind(py));
        format!("<umsg.RedriveRefused: {messages} messages for {queue:?}, {error}>")
    }
}

/// The selection of dead letters, as arguments of Python.
pub struct Which<'a, 'py> {
    pub id: Option<u64>,
    pub reason: Option<&'a str>,
    pub source: Option<&'a Bound<'py, PyAny>>,
    pub most: Option<&'a Bound<'py, PyAny>>,
}

impl Which<'_, '_> {
    fn read(&self, py: Python<'_>) -> PyResult<Redrive> {
        let mut which = Redrive::new();
        if let Some(id) = self.id {
            which = which.id(id);
        }
        if let Some(word) = self.reason {
            which = which.reason(names::choice(py, word, "reason", &REASONS)?);
        }
        if let Some(name) = self.source {
            which = which.source(os_string(name, "source")?);
        }
        if let Some(most) = self.most {
            which = which.count(size(most, "most")?);
        }
        Ok(which)
    }
}

pub fn histories(this: &Queue, py: Python<'_>, which: &Which<'_, '_>) -> PyResult<Vec<History>> {
    let (queue, which) = (this.shared(py)?, which.read(py)?);
    let found = py.detach(|| queue.dead_letters(&which));
    let found = found.map_err(|error| this.raise(py, &error))?;
    Ok(found.into_iter().map(History::from).collect())
}

pub fn peek(
    this: &Queue,
    py: Python<'_>,
    which: &Which<'_, '_>,
    bytes: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<DeadLetter>> {
    let (queue, which) = (this.shared(py)?, which.read(py)?);
    let bytes = bytes.map_or(Ok(usize::MAX), |bytes| size(bytes, "size"))?;
    let bytes = bytes.min(this.message_size);
    let found = py.detach(|| queue.peek_dead_letters(&which, bytes));
    let found = found.map_err(|error| this.raise(py, &error))?;
    let letters = found.into_iter();
    letters
        .map(|letter| {
            Ok(DeadLetter {
                history: Py::new(py, History::from(letter.history))?,
                data: PyBytes::new(py, &letter.data).unbind(),
                size: letter.len,
            })
        })
        .collect()
}

pub fn redrive(
    this: &Queue,
    py: Python<'_>,
    which: &Which<'_, '_>,
    to: Option<&Bound<'_, PyAny>>,
) -> PyResult<Redriven> {
    let (queue, mut which) = (this.shared(py)?, which.read(py)?);
    if let Some(name) = to {
        which = which.to(os_string(name, "to")?);
    }
    let redriven = py.detach(|| queue.redrive(&which));
    let redriven = redriven.map_err(|error| this.raise(py, &error))?;
    let refused = redriven.refused.into_iter();
    let refused = refused.map(|refused| {
        let error = Kind::to_send(refused.why.errno()).error(
            py,
            refused.why.errno(),
            &refused.why.to_string(),
            refused.queue.as_deref(),
        );
        Py::new(
            py,
            RedriveRefused {
                queue: refused.queue,
                messages: refused.messages,
                error: error.into_value(py).into_any(),
            },
        )
    });
    Ok(Redriven {
        messages: redriven.messages,
        refused: refused.collect::<PyResult<_>>()?,
    })
}
