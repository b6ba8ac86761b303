//! Snapshots of queues.

use crate::buffer::Bytes;
use crate::error::Failure;
use crate::names::{self, os_string};
use crate::queue::{History, Queue, open_options, opened};
use crate::sysv::SysVQueue;
use crate::wait::stamp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use umsg::{posix, sysv};

/// Adds the classes to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Snapshot>()?;
    module.add_class::<SavedMessage>()?;
    module.add_class::<SysVSnapshot>()?;
    module.add_class::<SavedSysVMessage>()
}

/// The attributes of a POSIX queue and its messages, as they were at one instant. `Queue.snapshot` makes a snapshot.
///
/// `to_bytes` gives the contents of a file that `umsg load` and `from_bytes` read. Checksums cover the whole contents. A snapshot can be pickled.
#[pyclass(frozen, module = "umsg")]
pub struct Snapshot(posix::Snapshot);

/// A message in a snapshot.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct SavedMessage {
    /// The bytes of the message.
    data: Py<PyBytes>,
    /// Priority, 0 to 32,767.
    priority: u32,
    /// Process id of the sender.
    pid: u32,
    /// The time of the send in seconds since 1970.
    sent: f64,
    /// Number of leases after which the message came back.
    returns: u32,
    /// The seconds from the snapshot until the delivery time of a delayed message; None for a queued message.
    delay: Option<f64>,
    /// The history of a dead letter, or of a message that was a dead letter.
    history: Option<Py<History>>,
}

pub fn of_posix(py: Python<'_>, queue: &Arc<posix::Queue>, name: &OsStr) -> PyResult<Snapshot> {
    let taken = py.detach(|| posix::Snapshot::of(queue));
    let taken = taken.map_err(|error| error.raise(py, Some(name)))?;
    Ok(Snapshot(taken.named(name)))
}

#[pymethods]
impl Snapshot {
    /// Reads the contents of a file that `to_bytes`, or `umsg dump`, has made.
    #[classmethod]
    fn from_bytes(_: &Bound<'_, PyType>, data: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
        let py = data.py();
        // SAFETY: the caller's argument lives during the call, and the bytes are dropped with the lock held.
        let bytes = unsafe { Bytes::of(data)? };
        let read = py.detach(|| posix::Snapshot::read(bytes.get()));
        Ok(Snapshot(read.map_err(|error| error.raise(py, None))?))
    }

    /// Returns the contents of a file that `umsg load` and `from_bytes` read.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut file = Vec::new();
        let written = py.detach(|| self.0.write(&mut file));
        written.map_err(|error| error.raise(py, None))?;
        Ok(PyBytes::new(py, &file))
    }

    /// Creates the queue `name` with the attributes, the policies and the messages of the snapshot, and returns the queue.
    #[pyo3(signature = (name, *, read=true, write=true, namespace=None))]
    fn restore(
        &self,
        name: &Bound<'_, PyAny>,
        read: bool,
        write: bool,
        namespace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Queue> {
        let py = name.py();
        let name = os_string(name, "name")?;
        let namespace = names::namespace(py, namespace)?;
        let options = open_options((read, write), &namespace);
        let restored = py.detach(|| self.0.restore(&name, &options));
        let queue = restored.map_err(|error| error.raise(py, Some(&name)))?;
        Ok(opened(queue, name, &namespace, (read, write)))
    }

    /// Sends all messages to a queue, after the messages that the queue has. After an error nothing was sent. Never waits for room.
    fn send_all(&self, py: Python<'_>, queue: &Bound<'_, Queue>) -> PyResult<()> {
        let (this, queue) = (queue.get(), queue.get().shared(py)?);
        let sent = py.detach(|| self.0.send_all(&queue));
        sent.map_err(|error| this.raise(py, &error))
    }

    /// Returns the messages in order of delivery, followed by the delayed messages.
    fn messages(&self, py: Python<'_>) -> PyResult<Vec<SavedMessage>> {
        let saved = self.0.messages().map(|message| {
            let history = message.history();
            let history = history.map(|history| Py::new(py, History::from(history)));
            Ok(SavedMessage {
                data: PyBytes::new(py, message.data).unbind(),
                priority: message.priority,
                pid: message.pid,
                sent: stamp(message.sent),
                returns: message.returns,
                delay: message.delay.map(|delay| delay.as_secs_f64()),
                history: history.transpose()?,
            })
        });
        saved.collect()
    }

    /// The name of the queue; None if the snapshot has none.
    #[getter]
    fn name(&self) -> Option<OsString> {
        self.0.info().name
    }

    /// The time of the snapshot in seconds since 1970.
    #[getter]
    fn taken(&self) -> f64 {
        stamp(self.0.info().taken)
    }

    /// Capacity of the queue, in messages.
    #[getter]
    fn max_messages(&self) -> usize {
        self.0.info().max_messages
    }

    /// Length of the longest message, in bytes.
    #[getter]
    fn message_size(&self) -> usize {
        self.0.info().message_size
    }

    /// True if the queue was closed for sending.
    #[getter]
    fn send_closed(&self) -> bool {
        self.0.info().send_closed
    }

    fn __len__(&self) -> usize {
        self.0.info().messages
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let from = slf.get_type().getattr("from_bytes")?;
        Ok((from, (slf.get().to_bytes(slf.py())?,)))
    }

    fn __repr__(&self) -> String {
        let info = self.0.info();
        let name = info.name.unwrap_or_default();
        format!(
            "<umsg.Snapshot of {:?}: {} messages, {} bytes>",
            name.to_string_lossy(),
            info.messages,
            info.bytes
        )
    }
}

/// The result of `__reduce__`.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>,));

/// The attributes of a System V queue and its messages, as they were at one instant. `SysVQueue.snapshot` makes a snapshot.
///
/// >>> queue = umsg.SysVQueue()
/// >>> queue.send(b"an order", type=3)
/// >>> snapshot = umsg.SysVSnapshot.from_bytes(queue.snapshot().to_bytes())
/// >>> snapshot.send_all(queue)
/// >>> queue.receive_messages()
/// [(b'an order', 3), (b'an order', 3)]
/// >>> queue.remove()
#[pyclass(frozen, module = "umsg")]
pub struct SysVSnapshot(sysv::Snapshot);

/// A message in a snapshot of a System V queue.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct SavedSysVMessage {
    /// The bytes of the message.
    data: Py<PyBytes>,
    /// The type, 1 or more.
    r#type: i64,
    /// Process id of the sender.
    pid: u32,
    /// The time of the send in seconds since 1970.
    sent: f64,
    /// Number of leases after which the message came back.
    returns: u32,
}

pub fn of_sysv(py: Python<'_>, queue: &Arc<sysv::Queue>) -> PyResult<SysVSnapshot> {
    let taken = py.detach(|| sysv::Snapshot::of(queue));
    taken
        .map(SysVSnapshot)
        .map_err(|error| error.raise(py, None))
}

#[pymethods]
impl SysVSnapshot {
    /// Reads the contents of a file that `to_bytes`, or `umsg dump`, has made.
    #[classmethod]
    fn from_bytes(_: &Bound<'_, PyType>, data: &Bound<'_, PyAny>) -> PyResult<SysVSnapshot> {
        let py = data.py();
        // SAFETY: the caller's argument lives during the call, and the bytes are dropped with the lock held.
        let bytes = unsafe { Bytes::of(data)? };
        let read = py.detach(|| sysv::Snapshot::read(bytes.get()));
        Ok(SysVSnapshot(read.map_err(|error| error.raise(py, None))?))
    }

    /// Returns the contents of a file that `umsg load` and `from_bytes` read.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut file = Vec::new();
        let written = py.detach(|| self.0.write(&mut file));
        written.map_err(|error| error.raise(py, None))?;
        Ok(PyBytes::new(py, &file))
    }

    /// Sends all messages to a queue, after the messages that the queue has. After an error nothing was sent. Never waits for room.
    fn send_all(&self, py: Python<'_>, queue: &Bound<'_, SysVQueue>) -> PyResult<()> {
        let queue = queue.get().shared(py)?;
        let sent = py.detach(|| self.0.send_all(&queue));
        sent.map_err(|error| error.raise(py, None))
    }

    /// Returns the messages in order of arrival.
    fn messages(&self, py: Python<'_>) -> Vec<SavedSysVMessage> {
        let saved = self.0.messages().map(|message| SavedSysVMessage {
            data: PyBytes::new(py, message.data).unbind(),
            r#type: message.mtype,
            pid: message.pid,
            sent: stamp(message.sent),
            returns: message.returns,
        });
        saved.collect()
    }

    /// The key of the queue; 0 without a key.
    #[getter]
    fn key(&self) -> i32 {
        self.0.info().key
    }

    /// The maximum number of bytes that could be queued.
    #[getter]
    fn qbytes(&self) -> u64 {
        self.0.info().qbytes
    }

    /// The time of the snapshot in seconds since 1970.
    #[getter]
    fn taken(&self) -> f64 {
        stamp(self.0.info().taken)
    }

    /// True if the queue was closed for sending.
    #[getter]
    fn send_closed(&self) -> bool {
        self.0.info().send_closed
    }

    fn __len__(&self) -> usize {
        self.0.info().messages as usize
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let from = slf.get_type().getattr("from_bytes")?;
        Ok((from, (slf.get().to_bytes(slf.py())?,)))
    }

    fn __repr__(&self) -> String {
        let info = self.0.info();
        format!(
            "<umsg.SysVSnapshot of key {:#x}: {} messages, {} bytes>",
            info.key, info.messages, info.bytes
        )
    }
}
