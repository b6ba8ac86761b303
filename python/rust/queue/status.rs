//! The contents and the settings of a queue.

use super::{History, Queue};
use crate::error::of_system;
use crate::wait::stamp;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use umsg::Edges;
use umsg::posix::{self, OnFull};

/// The attributes of a queue and the numbers of its messages.
#[pyclass(frozen, get_all, eq, module = "umsg")]
#[derive(PartialEq, Clone)]
pub struct Attributes {
    /// Capacity of the queue, in messages.
    max_messages: usize,
    /// Length of the longest message, in bytes.
    message_size: usize,
    /// Number of queued messages.
    messages: usize,
    /// Number of queued bytes.
    bytes: u64,
    /// Number of reserved messages, which count for the capacity.
    reserved: usize,
    /// Number of leased messages, which count for the capacity.
    leased: usize,
    /// Number of messages that wait for a later delivery, which count for the capacity.
    delayed: usize,
}

#[pymethods]
impl Attributes {
    fn __repr__(&self) -> String {
        format!(
            "umsg.Attributes(max_messages={}, message_size={}, messages={}, bytes={}, reserved={}, leased={}, delayed={})",
            self.max_messages,
            self.message_size,
            self.messages,
            self.bytes,
            self.reserved,
            self.leased,
            self.delayed
        )
    }
}

impl From<posix::Attributes> for Attributes {
    fn from(from: posix::Attributes) -> Attributes {
        Attributes {
            max_messages: from.max_messages,
            message_size: from.message_size,
            messages: from.messages,
            bytes: from.bytes,
            reserved: from.reserved,
            leased: from.leased,
            delayed: from.delayed,
        }
    }
}

/// The complete status of a queue.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct Status {
    /// The attributes of the queue.
    attributes: Attributes,
    /// Permission bits.
    mode: u32,
    /// The owner's user id.
    uid: u32,
    /// The owner's group id.
    gid: u32,
    /// Process id of the creator, 0 if it was of another PID namespace.
    creator: u32,
    /// Time of the creation in seconds since 1970.
    created: f64,
    /// Number of threads that wait for room.
    blocked_senders: usize,
    /// Number of threads that wait for a message.
    blocked_receivers: usize,
    /// Time of the last send; None if there was none.
    last_send: Option<f64>,
    /// Time of the last receive; None if there was none.
    last_receive: Option<f64>,
    /// Bytes of memory in use.
    memory: u64,
    /// The overflow policy: "block", "fail" or "drop-oldest".
    on_full: &'static str,
    /// The maximum age of a message in seconds; None for no limit.
    time_to_live: Option<f64>,
    /// The maximum number of leases of a message; None for no limit.
    max_deliveries: Option<u32>,
    /// The name of the dead-letter queue.
    dead_letter: Option<OsString>,
    /// True if the queue is removed when no process has it open any more.
    remove_on_last_close: bool,
    /// True if the end of the last producer closes the queue for sending.
    close_with_last_producer: bool,
    /// The first and the longest delay, in seconds, before a returned message is delivered again. None for no delay.
    retry_delay: Option<(f64, f64)>,
    /// The number of deliveries of higher priorities after which a lower priority has its turn; None for strict order.
    fair_priorities: Option<u32>,
    /// True if the queue notes the events of its messages.
    trace_messages: bool,
    /// True if the queue is closed for sending.
    send_closed: bool,
    /// Number of living processes that are producers of the queue.
    producers: usize,
    /// Number of messages set aside for the dead-letter queue.
    set_aside: usize,
    /// True if the memory of the queue had values that no operation writes.
    damaged: bool,
}

#[pymethods]
impl Status {
    fn __repr__(&self) -> String {
        format!(
            "<umsg.Status: {}, mode 0o{:o}, {} blocked senders, {} blocked receivers>",
            self.attributes.__repr__(),
            self.mode,
            self.blocked_senders,
            self.blocked_receivers
        )
    }
}

/// A message that was peeked at and stays in the queue.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct Peeked {
    /// The identifier of the message, unique among the messages of the queue. A message has an identifier from its first lease on, or from the time
    /// when the queue has sorted the message; None before.
    id: Option<u64>,
    /// The bytes of the message.
    data: Py<pyo3::types::PyBytes>,
    /// Priority, 0 to 32,767.
    priority: u32,
    /// Process id of the sender.
    pid: u32,
    /// The time of the send in seconds since 1970.
    sent: f64,
    /// Number of leases after which the message came back.
    returns: u32,
    /// The earliest time of the delivery of a delayed message, in seconds since 1970. A queued message that was delayed keeps this time.
    due: Option<f64>,
    /// The history of a dead letter, or of a message that was a dead letter.
    history: Option<Py<History>>,
}

#[pymethods]
impl Peeked {
    fn __repr__(&self, py: Python<'_>) -> String {
        let data = self.data.bind(py);
        format!("<umsg.Peeked {data}, priority {}>", self.priority)
    }
}

impl Peeked {
    fn of(py: Python<'_>, from: posix::Peeked) -> PyResult<Peeked> {
        let history = from
            .history
            .map(|history| Py::new(py, History::from(history)));
        Ok(Peeked {
            id: from.id,
            due: from.due.map(stamp),
            history: history.transpose()?,
            data: pyo3::types::PyBytes::new(py, &from.data).unbind(),
            priority: from.priority,
            pid: from.pid,
            sent: stamp(from.sent),
            returns: from.returns,
        })
    }
}

pub fn peek(this: &Queue, py: Python<'_>, n: usize) -> PyResult<Option<Peeked>> {
    let queue = this.shared(py)?;
    let peeked = py
        .detach(|| queue.peek(n))
        .map_err(|error| this.raise(py, &error))?;
    peeked.map(|message| Peeked::of(py, message)).transpose()
}

pub fn peek_many(this: &Queue, py: Python<'_>, most: usize) -> PyResult<Vec<Peeked>> {
    let queue = this.shared(py)?;
    let peeked = py
        .detach(|| queue.messages(most))
        .map_err(|error| this.raise(py, &error))?;
    let messages = peeked.into_iter();
    messages.map(|message| Peeked::of(py, message)).collect()
}

pub fn delayed_messages(this: &Queue, py: Python<'_>, most: usize) -> PyResult<Vec<Peeked>> {
    let queue = this.shared(py)?;
    let peeked = py
        .detach(|| queue.delayed_messages(most))
        .map_err(|error| this.raise(py, &error))?;
    let messages = peeked.into_iter();
    messages.map(|message| Peeked::of(py, message)).collect()
}

pub fn attributes(this: &Queue, py: Python<'_>) -> PyResult<Attributes> {
    let attributes = this.at_once(py, |queue| queue.attributes());
    attributes
        .map(Attributes::from)
        .ok_or_else(|| this.closed_error(py))
}

/// Returns the word for an overflow policy.
fn word(on_full: OnFull) -> &'static str {
    let known = super::open::ON_FULL
        .iter()
        .find(|(_, policy)| *policy == on_full);
    known.map_or("unknown", |(word, _)| word)
}

pub fn status(this: &Queue, py: Python<'_>) -> PyResult<Status> {
    let queue = this.shared(py)?;
    let from = py.detach(|| queue.status());
    Ok(Status {
        attributes: from.attributes.into(),
        mode: from.mode,
        uid: from.uid,
        gid: from.gid,
        creator: from.creator,
        created: stamp(from.created),
        blocked_senders: from.blocked_senders,
        blocked_receivers: from.blocked_receivers,
        last_send: from.last_send.map(stamp),
        last_receive: from.last_receive.map(stamp),
        memory: from.memory,
        on_full: word(from.on_full),
        time_to_live: from.time_to_live.map(|time| time.as_secs_f64()),
        max_deliveries: from.max_deliveries,
        dead_letter: from.dead_letter,
        remove_on_last_close: from.remove_on_last_close,
        close_with_last_producer: from.close_with_last_producer,
        retry_delay: from
            .retry_delay
            .map(|(first, most)| (first.as_secs_f64(), most.as_secs_f64())),
        fair_priorities: from.fair_priorities,
        trace_messages: from.trace_messages,
        send_closed: from.send_closed,
        producers: from.producers,
        set_aside: from.set_aside,
        damaged: from.damaged,
    })
}

pub fn fileno(this: &Queue, py: Python<'_>, edges: Edges) -> PyResult<i32> {
    let queue = this.shared(py)?;
    let descriptor = py.detach(|| queue.pollable_with(edges).map(|it| it.as_raw_fd()));
    descriptor.map_err(|error| of_system(py, &error, Some(&this.name)))
}
