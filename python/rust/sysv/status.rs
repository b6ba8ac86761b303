//! The contents and the settings of a queue.

use super::SysVQueue;
use crate::error::of_system;
use crate::wait::stamp;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::AsRawFd;
use umsg::Edges;
use umsg::sysv::{self, ReceiveError};

/// The complete status of a System V queue.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct SysVStatus {
    /// Identifier.
    id: i32,
    /// Key; 0 without a key.
    key: i32,
    /// The owner's user id.
    uid: u32,
    /// The owner's group id.
    gid: u32,
    /// The creator's user id.
    cuid: u32,
    /// The creator's group id.
    cgid: u32,
    /// Permission bits.
    mode: u32,
    /// Number of queued messages.
    messages: u64,
    /// Number of queued bytes.
    bytes: u64,
    /// Maximum number of queued bytes.
    qbytes: u64,
    /// Length of the longest message, in bytes.
    message_size: usize,
    /// Process id of the last sender.
    last_sender: u32,
    /// Process id of the last receiver.
    last_receiver: u32,
    /// Time of the last send in seconds since 1970; None if there was none.
    last_send: Option<f64>,
    /// Time of the last receive; None if there was none.
    last_receive: Option<f64>,
    /// Time of the last change of the queue's properties.
    changed: Option<f64>,
    /// Time of the creation.
    created: f64,
    /// Number of leased messages.
    leased: u64,
    /// Number of messages that wait for a later delivery.
    delayed: u64,
    /// Number of threads that wait for room.
    blocked_senders: usize,
    /// Number of threads that wait for a message.
    blocked_receivers: usize,
    /// Bytes of memory in use.
    memory: u64,
    /// True if the queue is closed for sending.
    send_closed: bool,
    /// True if the end of the last producer closes the queue for sending.
    close_with_last_producer: bool,
    /// The first and the longest delay, in seconds, before a returned message is delivered again. None for no delay.
    retry_delay: Option<(f64, f64)>,
    /// Number of living processes that are producers of the queue.
    producers: usize,
    /// True if the memory of the queue had values that no operation writes.
    damaged: bool,
}

#[pymethods]
impl SysVStatus {
    fn __repr__(&self) -> String {
        format!(
            "<umsg.SysVStatus: id {}, key {:#x}, {} messages, {} of {} bytes, mode 0o{:o}>",
            self.id, self.key, self.messages, self.bytes, self.qbytes, self.mode
        )
    }
}

/// A message of a System V queue that was peeked at and stays in the queue.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct SysVPeeked {
    /// The bytes of the message.
    data: Py<PyBytes>,
    /// The type of the message.
    r#type: i64,
    /// Process id of the sender.
    pid: u32,
    /// The time of the send in seconds since 1970.
    sent: f64,
    /// Number of leases after which the message came back.
    returns: u32,
    /// The earliest time of the delivery of a delayed message, in seconds since 1970. None for a queued message.
    due: Option<f64>,
}

#[pymethods]
impl SysVPeeked {
    fn __repr__(&self, py: Python<'_>) -> String {
        let data = self.data.bind(py);
        format!("<umsg.SysVPeeked {data}, type {}>", self.r#type)
    }
}

impl SysVPeeked {
    fn of(py: Python<'_>, from: &sysv::Peeked) -> SysVPeeked {
        SysVPeeked {
            data: PyBytes::new(py, &from.data).unbind(),
            r#type: from.mtype,
            pid: from.pid,
            sent: stamp(from.sent),
            returns: from.returns,
            due: from.due.map(stamp),
        }
    }
}

pub fn peek(this: &SysVQueue, py: Python<'_>, n: u32) -> PyResult<Option<SysVPeeked>> {
    let queue = this.shared(py)?;
    let peeked = py
        .detach(|| queue.peek(n))
        .map_err(|error| this.raise(py, &error))?;
    Ok(peeked.map(|message| SysVPeeked::of(py, &message)))
}

pub fn peek_many(this: &SysVQueue, py: Python<'_>, most: usize) -> PyResult<Vec<SysVPeeked>> {
    let queue = this.shared(py)?;
    let peeked = py
        .detach(|| queue.messages(most))
        .map_err(|error| this.raise(py, &error))?;
    Ok(peeked
        .iter()
        .map(|message| SysVPeeked::of(py, message))
        .collect())
}

pub fn delayed_messages(
    this: &SysVQueue,
    py: Python<'_>,
    most: usize,
) -> PyResult<Vec<SysVPeeked>> {
    let queue = this.shared(py)?;
    let peeked = py
        .detach(|| queue.delayed_messages(most))
        .map_err(|error| this.raise(py, &error))?;
    Ok(peeked
        .iter()
        .map(|message| SysVPeeked::of(py, message))
        .collect())
}

pub fn types(this: &SysVQueue, py: Python<'_>, most: usize) -> PyResult<Vec<(i64, u32)>> {
    let queue = this.shared(py)?;
    py.detach(|| queue.types(most))
        .map_err(|error| this.raise(py, &error))
}

pub fn status(this: &SysVQueue, py: Python<'_>) -> PyResult<SysVStatus> {
    let queue = this.shared(py)?;
    let from = py
        .detach(|| queue.status())
        .map_err(|error| this.raise(py, &error))?;
    let entry = &from.entry;
    Ok(SysVStatus {
        id: entry.id,
        key: entry.key,
        uid: entry.uid,
        gid: entry.gid,
        cuid: entry.cuid,
        cgid: entry.cgid,
        mode: entry.mode,
        messages: entry.messages,
        bytes: entry.bytes,
        qbytes: entry.qbytes,
        message_size: from.msgmax,
        last_sender: entry.last_sender,
        last_receiver: entry.last_receiver,
        last_send: entry.last_send.map(stamp),
        last_receive: entry.last_receive.map(stamp),
        changed: entry.changed.map(stamp),
        created: stamp(from.created),
        leased: from.leased,
        delayed: from.delayed,
        blocked_senders: from.blocked_senders,
        blocked_receivers: from.blocked_receivers,
        memory: from.memory,
        send_closed: from.send_closed,
        close_with_last_producer: from.close_with_last_producer,
        retry_delay: from
            .retry_delay
            .map(|(first, most)| (first.as_secs_f64(), most.as_secs_f64())),
        producers: from.producers,
        damaged: from.damaged,
    })
}

pub fn fileno(this: &SysVQueue, py: Python<'_>, edges: Edges) -> PyResult<i32> {
    let queue = this.shared(py)?;
    let descriptor = py.detach(|| queue.pollable_with(edges).map(|it| it.as_raw_fd()));
    descriptor.map_err(|error| match queue.is_removed() {
        true => this.raise(py, &ReceiveError::Removed),
        false => of_system(py, &error, None),
    })
}
