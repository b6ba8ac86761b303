//! `umsg.SysVQueue`: System V message queues.

mod batch;
mod open;
mod receive;
mod send;
mod status;

use crate::context::{self, Scoped};
use crate::error::{Failure, handle_closed};
use crate::fast::{Method, add_methods};
use crate::gil::Guarded;
use crate::names;
use crate::queue::EDGES;
use crate::wait::AfterSignal;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use umsg::sysv::{self, ControlError, OpenError};

pub use status::{SysVPeeked, SysVStatus};

/// A System V message queue: messages have types, and receivers choose by type.
///
/// Opens the queue of a key, or with `create=True` creates the queue if it does not exist. `id` opens a queue by its identifier. Without both, a
/// queue without a key is created.
///
/// >>> queue = umsg.SysVQueue(0x1234, create=True)
/// >>> queue.send(b"one", type=1)
/// >>> queue.send(b"five", type=5)
/// >>> queue.receive(type=5)
/// b'five'
/// >>> queue.receive_message(type=-9)  # of the lowest type up to 9
/// (b'one', 1)
/// >>> queue.remove()
#[pyclass(frozen, subclass, weakref, module = "umsg", name = "SysVQueue")]
pub struct SysVQueue {
    /// None after `close`.
    handle: Guarded<Option<Arc<sysv::Queue>>>,
    id: i32,
    key: i32,
    namespace: PathBuf,
    /// The length of the longest message that this handle receives, in bytes.
    message_size: AtomicUsize,
    /// True if a signal ends a blocked call.
    ends_on_signals: AtomicBool,
}

/// Adds the classes and functions of System V queues to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let class = module.py().get_type::<SysVQueue>();
    let methods: [&[Method]; 2] = [&send::METHODS, &receive::METHODS];
    for methods in methods {
        add_methods(&class, methods)?;
    }
    context::add::<SysVQueue>(module)?;
    module.add_class::<SysVStatus>()?;
    module.add_class::<SysVPeeked>()?;
    module.add_function(wrap_pyfunction!(open::reopen_sysv_queue, module)?)?;
    module.add_function(wrap_pyfunction!(open::_remove_sysv_queue, module)?)?;
    module.add_function(wrap_pyfunction!(open::sysv_queues, module)?)
}

impl SysVQueue {
    /// Returns the exception of a closed handle.
    #[cold]
    fn closed_error(&self, py: Python<'_>) -> PyErr {
        handle_closed(py, "queue", None)
    }

    /// Returns the handle for a call that may release the interpreter's lock.
    pub fn shared(&self, py: Python<'_>) -> PyResult<Arc<sysv::Queue>> {
        self.handle.shared(py).ok_or_else(|| self.closed_error(py))
    }

    /// Makes a call that neither blocks nor runs code of Python. Returns None if the handle is closed.
    #[inline(always)]
    fn at_once<R>(&self, py: Python<'_>, call: impl FnOnce(&sysv::Queue) -> R) -> Option<R> {
        // SAFETY: by the contract of this function.
        unsafe { self.handle.with(py, |handle| handle.as_deref().map(call)) }
    }

    /// Returns the length of the longest message that this handle receives, in bytes.
    #[inline(always)]
    fn longest(&self) -> usize {
        // Relaxed: the number guards no other data.
        self.message_size.load(Ordering::Relaxed)
    }

    fn after_signal(&self) -> AfterSignal {
        // Relaxed: the flag guards no other data.
        match self.ends_on_signals.load(Ordering::Relaxed) {
            true => AfterSignal::Fail,
            false => AfterSignal::Continue,
        }
    }

    fn raise<E: Failure>(&self, py: Python<'_>, error: &E) -> PyErr {
        error.raise(py, None)
    }
}

/// Reads the type of a message.
pub fn type_of(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract::<i64>().map_err(|error| {
        if error.is_instance_of::<PyTypeError>(value.py()) {
            let kind = value.get_type();
            return PyTypeError::new_err(format!("a type of a message must be int, not {kind}"));
        }
        crate::error::invalid(
            value.py(),
            &format!("a type of a message must fit in 64 bits, not {value}"),
        )
    })
}

/// An argument of Python that may be missing.
type Optional<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

impl Scoped for SysVQueue {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        self.shared(py).map(drop)
    }

    fn leave(&self, py: Python<'_>, _failed: bool) -> PyResult<()> {
        self.close(py);
        Ok(())
    }
}

#[pymethods]
impl SysVQueue {
    #[new]
    #[pyo3(signature = (
        key = None,
        *,
        id = None,
        create = false,
        exclusive = false,
        mode = 0o600,
        retry_delay = None,
        close_with_last_producer = None,
        waiting = None,
        namespace = None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments of a class in Python"
    )]
    fn new(
        py: Python<'_>,
        key: Optional<'_, '_>,
        id: Optional<'_, '_>,
        create: bool,
        exclusive: bool,
        mode: u32,
        retry_delay: Optional<'_, '_>,
        close_with_last_producer: Option<bool>,
        waiting: Option<&str>,
        namespace: Optional<'_, '_>,
    ) -> PyResult<SysVQueue> {
        let mut options = sysv::OpenOptions::new();
        options.create(create).exclusive(exclusive).mode(mode);
        if let Some(delays) = retry_delay {
            let (first, most) = crate::wait::retry_delay(delays)?;
            options.retry_delay(first, most);
        }
        if let Some(close) = close_with_last_producer {
            options.close_with_last_producer(close);
        }
        let key = key.map(|key| open::number(key, "key")).transpose()?;
        let id = id.map(|id| open::number(id, "id")).transpose()?;
        let namespace = names::namespace(py, namespace)?;
        let queue = open::open(py, options, (key, id), &namespace)?;
        if let Some(waiting) = waiting {
            queue.set_waiting(py, waiting)?;
        }
        Ok(queue)
    }

    /// The identifier of the queue, as msgget(2) gives it.
    #[getter]
    fn id(&self) -> i32 {
        self.id
    }

    /// The key of the queue; 0 without a key.
    #[getter]
    fn key(&self) -> i32 {
        self.key
    }

    /// The directory of the queue's namespace.
    #[getter]
    fn namespace(&self) -> OsString {
        self.namespace.clone().into_os_string()
    }

    /// The length of the longest message, in bytes.
    #[getter]
    fn message_size(&self) -> usize {
        self.longest()
    }

    /// True after `close()`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.handle.is_none(py)
    }

    /// True if the queue was removed.
    #[getter]
    fn is_removed(&self, py: Python<'_>) -> PyResult<bool> {
        self.at_once(py, |queue| queue.is_removed())
            .ok_or_else(|| self.closed_error(py))
    }

    /// Closes the handle. The queue and its messages stay.
    fn close(&self, py: Python<'_>) {
        let handle = self.handle.take(py);
        py.detach(|| drop(handle));
    }

    /// Removes the queue and its messages. Blocked calls raise `Removed`. The removal of a queue that was removed before also raises `Removed`.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        let (namespace, id) = (&self.namespace, self.id);
        let namespace = py
            .detach(|| umsg::Namespace::at(namespace))
            .map_err(|error| self.raise(py, &error))?;
        let removed = py.detach(|| sysv::remove(&namespace, id));
        removed.map_err(|error| match error {
            // No queue has the identifier: the queue of this handle was removed, and no other queue gets its identifier.
            ControlError::Open(OpenError::NoSuchId) => self.raise(py, &ControlError::Removed),
            error => self.raise(py, &error),
        })
    }

    /// Changes the owner, the group, the permission bits, or the maximum number of queued bytes.
    #[pyo3(signature = (*, uid=None, gid=None, mode=None, qbytes=None))]
    fn set(
        &self,
        py: Python<'_>,
        uid: Option<u32>,
        gid: Option<u32>,
        mode: Option<u32>,
        qbytes: Option<u64>,
    ) -> PyResult<()> {
        let queue = self.shared(py)?;
        let mut change = sysv::Change::default();
        (change.uid, change.gid, change.mode, change.qbytes) = (uid, gid, mode, qbytes);
        py.detach(|| queue.set(&change))
            .map_err(|error| self.raise(py, &error))
    }

    /// Sets how the calls of this handle wait: "adaptive", "blocking" or "spinning".
    fn set_waiting(&self, py: Python<'_>, waiting: &str) -> PyResult<()> {
        let waiting = names::choice(py, waiting, "waiting", &crate::queue::WAITING)?;
        self.at_once(py, |queue| queue.set_waiting(waiting))
            .ok_or_else(|| self.closed_error(py))
    }

    /// Lets a signal end the blocked sends and receives of this handle with EINTR, after its handler. Limits the length of the messages that the
    /// handle receives. Used by `umsg.sysv_ipc`.
    fn _restrict(&self, longest: usize) {
        self.ends_on_signals.store(true, Ordering::Relaxed);
        self.message_size.fetch_min(longest, Ordering::Relaxed);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = match self.closed(py) {
            true => ", closed",
            false => "",
        };
        format!(
            "<umsg.SysVQueue id {}, key {:#x}{closed}>",
            self.id, self.key
        )
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<open::Reduced<'py>> {
        open::reduce(slf)
    }

    fn __iter__<'a, 'py>(slf: &'a Bound<'py, Self>) -> &'a Bound<'py, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        receive::next(self, py)
    }

    /// Receives a message into a buffer. Returns the length of the message and its type. A message that does not fit stays in the queue; with
    /// `truncate=True` it is truncated.
    #[pyo3(signature = (buffer, r#type=None, timeout=None, other=false, *, truncate=false))]
    fn receive_into(
        &self,
        buffer: &Bound<'_, PyAny>,
        r#type: Optional<'_, '_>,
        timeout: Optional<'_, '_>,
        other: bool,
        truncate: bool,
    ) -> PyResult<(usize, i64)> {
        let want = receive::want(r#type, other)?;
        let received = receive::into_buffer(self, buffer, (want, truncate), timeout)?;
        Ok((received.len, received.mtype))
    }

    /// Sends a message that is delivered after `delay` seconds at the earliest.
    #[pyo3(signature = (message, delay, r#type=None, timeout=None))]
    fn send_after(
        &self,
        message: &Bound<'_, PyAny>,
        delay: &Bound<'_, PyAny>,
        r#type: Optional<'_, '_>,
        timeout: Optional<'_, '_>,
    ) -> PyResult<()> {
        let delay = crate::wait::duration(delay, "delay")?;
        send::later(self, message, send::Due::After(delay), (r#type, timeout))
    }

    /// Sends a message that is delivered at `time` at the earliest: seconds since 1970, or a datetime.
    #[pyo3(signature = (message, time, r#type=None, timeout=None))]
    fn send_at(
        &self,
        message: &Bound<'_, PyAny>,
        time: &Bound<'_, PyAny>,
        r#type: Optional<'_, '_>,
        timeout: Optional<'_, '_>,
    ) -> PyResult<()> {
        let time = crate::wait::time(time, "time")?;
        send::later(self, message, send::Due::At(time), (r#type, timeout))
    }

    /// Sends all messages or none, with one type.
    #[pyo3(signature = (messages, r#type=None, timeout=None))]
    fn send_many(
        &self,
        messages: &Bound<'_, PyAny>,
        r#type: Optional<'_, '_>,
        timeout: Optional<'_, '_>,
    ) -> PyResult<()> {
        let mtype = r#type.map_or(Ok(1), type_of)?;
        batch::send(self, messages, Some(mtype), timeout)
    }

    /// Sends all messages or none, each with its own type: an iterable of pairs (message, type).
    #[pyo3(signature = (messages, timeout=None))]
    fn send_messages(
        &self,
        messages: &Bound<'_, PyAny>,
        timeout: Optional<'_, '_>,
    ) -> PyResult<()> {
        batch::send(self, messages, None, timeout)
    }

    /// Receives the matching messages that are in the queue, at most `most`. Waits for the first message. Returns a list of bytes.
    #[pyo3(
        signature = (most=None, r#type=None, timeout=None, other=false),
        text_signature = "($self, most=256, type=0, timeout=None, other=False)"
    )]
    fn receive_many<'py>(
        &self,
        py: Python<'py>,
        most: Optional<'_, '_>,
        r#type: Optional<'_, '_>,
        timeout: Optional<'_, '_>,
        other: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let want = receive::want(r#type, other)?;
        batch::receive(self, py, (want, most, timeout), false)
    }

    /// Receives as `receive_many` does. Returns a list of pairs (message, type).
    #[pyo3(
        signature = (most=None, r#type=None, timeout=None, other=false),
        text_signature = "($self, most=256, type=0, timeout=None, other=False)"
    )]
    fn receive_messages<'py>(
        &self,
        py: Python<'py>,
        most: Optional<'_, '_>,
        r#type: Optional<'_, '_>,
        timeout: Optional<'_, '_>,
        other: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let want = receive::want(r#type, other)?;
        batch::receive(self, py, (want, most, timeout), true)
    }

    /// Receives the next matching message in place.
    #[pyo3(
        signature = (r#type=None, timeout=None, other=false),
        text_signature = "($self, type=0, timeout=None, other=False)"
    )]
    fn receive_lease<'py>(
        &self,
        py: Python<'py>,
        r#type: Optional<'_, '_>,
        timeout: Optional<'_, '_>,
        other: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        receive::lease(self, py, receive::want(r#type, other)?, Some(timeout))
    }

    /// Receives the next matching message in place if there is one at once.
    #[pyo3(signature = (r#type=None, other=false), text_signature = "($self, type=0, other=False)")]
    fn try_receive_lease<'py>(
        &self,
        py: Python<'py>,
        r#type: Optional<'_, '_>,
        other: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        receive::lease(self, py, receive::want(r#type, other)?, None)
    }

    /// Returns the n-th message in order of arrival, counted from 0, and leaves it in the queue. None if there are fewer messages.
    #[pyo3(signature = (n=0))]
    fn peek(&self, py: Python<'_>, n: u32) -> PyResult<Option<SysVPeeked>> {
        status::peek(self, py, n)
    }

    /// Returns up to `most` messages in order of arrival, as they were at one instant, and leaves them in the queue.
    #[pyo3(signature = (most=256))]
    fn peek_many(&self, py: Python<'_>, most: usize) -> PyResult<Vec<SysVPeeked>> {
        status::peek_many(self, py, most)
    }

    /// Returns up to `most` delayed messages in the order of their delivery times. The messages stay in the queue.
    ///
    /// >>> queue = umsg.SysVQueue()
    /// >>> queue.send_after(b"in an hour", delay=3600, type=5)
    /// >>> [(message.data, message.type) for message in queue.delayed_messages()]
    /// [(b'in an hour', 5)]
    #[pyo3(signature = (most=256))]
    fn delayed_messages(&self, py: Python<'_>, most: usize) -> PyResult<Vec<SysVPeeked>> {
        status::delayed_messages(self, py, most)
    }

    /// Returns up to `most` types of queued messages in ascending order, each with the number of its messages.
    ///
    /// >>> queue = umsg.SysVQueue()
    /// >>> queue.send_messages([(b"five", 5), (b"one", 1), (b"five", 5)])
    /// >>> queue.types()
    /// [(1, 1), (5, 2)]
    #[pyo3(signature = (most=256))]
    fn types(&self, py: Python<'_>, most: usize) -> PyResult<Vec<(i64, u32)>> {
        status::types(self, py, most)
    }

    /// Returns the complete status of the queue.
    fn status(&self, py: Python<'_>) -> PyResult<SysVStatus> {
        status::status(self, py)
    }

    /// Closes the queue for sending. Receivers get the remaining messages, and then `EndOfStream`. Returns whether the queue was open for sending.
    fn close_send(&self, py: Python<'_>) -> PyResult<bool> {
        let queue = self.shared(py)?;
        py.detach(|| queue.close_send())
            .map_err(|error| self.raise(py, &error))
    }

    /// Counts this process as a producer of the queue, until the result is closed.
    fn producer(&self, py: Python<'_>) -> PyResult<crate::producer::Producer> {
        crate::producer::of_sysv(py, &self.shared(py)?)
    }

    /// Opens the queue for sending again. Returns whether the queue was closed for sending.
    fn reopen_send(&self, py: Python<'_>) -> PyResult<bool> {
        let queue = self.shared(py)?;
        py.detach(|| queue.reopen_send())
            .map_err(|error| self.raise(py, &error))
    }

    /// True if the queue is closed for sending.
    #[getter]
    fn is_send_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.at_once(py, |queue| queue.is_send_closed())
            .ok_or_else(|| self.closed_error(py))
    }

    /// Takes a snapshot: the attributes of the queue and its messages as they are at one instant. The queue does not change.
    fn snapshot(&self, py: Python<'_>) -> PyResult<crate::snapshot::SysVSnapshot> {
        crate::snapshot::of_sysv(py, &self.shared(py)?)
    }

    /// Returns a descriptor for select, poll, epoll and event loops. The descriptor is readable while there is a message, and writable while there is
    /// room. The queue closes the descriptor.
    ///
    /// `edges` selects the events of a poller with EPOLLET. "changes": an event when the readiness changes. "messages": also an event after each
    /// send, and after each receive that leaves messages. "all": also an event after each send and each receive that leaves room. Each further event
    /// costs the process that sends or receives a system call. The removal of the queue makes the descriptor readable and writable.
    #[pyo3(signature = (edges="changes"))]
    fn fileno(&self, py: Python<'_>, edges: &str) -> PyResult<i32> {
        let edges = names::choice(py, edges, "edges", &EDGES)?;
        status::fileno(self, py, edges)
    }

    /// Returns what a poll without waiting reports: whether there is a message, and whether there is room. Makes no system call.
    ///
    /// >>> queue = umsg.SysVQueue()
    /// >>> queue.readiness()
    /// (False, True)
    fn readiness(&self, py: Python<'_>) -> PyResult<(bool, bool)> {
        self.at_once(py, |queue| queue.readiness())
            .map(|now| (now.readable, now.writable))
            .ok_or_else(|| self.closed_error(py))
    }
}
