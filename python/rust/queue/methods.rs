//! The methods and properties of `umsg.Queue`, with their documentation. Each method calls the module of its subject. The fast sends and receives are
//! in `send` and `receive`.

use super::dead_letters::{self, DeadLetter, History, Redriven, Which};
use super::open::{self, EDGES};
use super::status::{self, Attributes, Peeked, Status};
use super::{Queue, awaited, batch, lease, notify, receive, send};
use crate::names;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::sync::atomic::Ordering;
use umsg::posix;

#[pymethods]
impl Queue {
    /// The name of the queue, with its slash.
    #[getter]
    fn name(&self) -> OsString {
        self.name.clone()
    }

    /// The directory of the queue's namespace.
    #[getter]
    fn namespace(&self) -> OsString {
        self.namespace.clone().into_os_string()
    }

    /// The length of the longest message, in bytes.
    #[getter]
    fn message_size(&self) -> usize {
        self.message_size
    }

    /// True after `close()`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.handle.is_none(py)
    }

    /// Closes the handle. The messages stay in the queue. A call that is blocked in another thread continues, and open leases stay open.
    pub fn close(&self, py: Python<'_>) {
        let handle = self.handle.take(py);
        py.detach(|| drop(handle));
    }

    /// Removes the name of the queue. Processes that have the queue open continue to use it.
    fn unlink(&self, py: Python<'_>) -> PyResult<()> {
        let (name, namespace) = (&self.name, &self.namespace);
        open::unlink_by_name(py, name, || umsg::Namespace::at(namespace))
    }

    /// Lets a signal end the blocked sends and receives of this handle with EINTR, after its handler. Used by `umsg.posix_ipc`.
    fn _end_on_signals(&self) {
        self.ends_on_signals.store(true, Ordering::Relaxed);
    }

    /// Registers the process for one notification of a message that comes to the empty queue. Replaces an earlier registration of the process.
    ///
    /// None withdraws the registration, an int is a signal, and a pair of a function and its argument is a call in a new thread.
    #[pyo3(signature = (notification=None, /))]
    fn _notify(&self, py: Python<'_>, notification: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        notify::notify(self, py, notification)
    }

    /// Sends two objects with the buffer protocol as one message. Used by `umsg.numpy`.
    #[pyo3(signature = (head, body, priority=None, timeout=None, /))]
    fn _send_joined(
        &self,
        head: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
        priority: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        lease::send_joined(self, (head, body), (priority, timeout))
    }

    /// Withdraws the registration of the process, and closes the handle, as mq_close(3) does.
    fn _close_descriptor(&self, py: Python<'_>) -> PyResult<()> {
        notify::withdraw_at_close(self, py)?;
        self.close(py);
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let name = self.name.to_string_lossy();
        let counts = self.at_once(py, |queue| queue.attributes());
        match counts {
            Some(now) => format!(
                "<umsg.Queue {name:?}: {} of {} messages, {} bytes at most>",
                now.messages, now.max_messages, now.message_size
            ),
            None => format!("<umsg.Queue {name:?}, closed>"),
        }
    }

    #[new]
    #[pyo3(signature = (
        name,
        *,
        read = true,
        write = true,
        create = false,
        exclusive = false,
        existing = "match-policy",
        mode = 0o600,
        max_messages = None,
        message_size = None,
        on_full = None,
        time_to_live = None,
        max_deliveries = None,
        retry_delay = None,
        dead_letter = None,
        remove_on_last_close = None,
        close_with_last_producer = None,
        fair_priorities = None,
        trace_messages = None,
        waiting = None,
        namespace = None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments of a class in Python"
    )]
    fn new(
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        read: bool,
        write: bool,
        create: bool,
        exclusive: bool,
        existing: &str,
        mode: u32,
        max_messages: Option<&Bound<'_, PyAny>>,
        message_size: Option<&Bound<'_, PyAny>>,
        on_full: Option<&str>,
        time_to_live: Option<&Bound<'_, PyAny>>,
        max_deliveries: Option<&Bound<'_, PyAny>>,
        retry_delay: Option<&Bound<'_, PyAny>>,
        dead_letter: Option<&Bound<'_, PyAny>>,
        remove_on_last_close: Option<bool>,
        close_with_last_producer: Option<bool>,
        fair_priorities: Option<&Bound<'_, PyAny>>,
        trace_messages: Option<bool>,
        waiting: Option<&str>,
        namespace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Queue> {
        let mut options = posix::OpenOptions::new();
        options.read(read).write(write).create(create);
        options.exclusive(exclusive).mode(mode);
        options.existing(names::choice(py, existing, "existing", &open::EXISTING)?);
        if let Some(number) = max_messages {
            options.max_messages(open::number(number, "max_messages")?);
        }
        if let Some(number) = message_size {
            options.message_size(open::number(number, "message_size")?);
        }
        if let Some(word) = on_full {
            options.on_full(names::choice(py, word, "on_full", &open::ON_FULL)?);
        }
        if let Some(time) = time_to_live {
            options.time_to_live(crate::wait::duration(time, "time_to_live")?);
        }
        if let Some(number) = max_deliveries {
            options.max_deliveries(open::number(number, "max_deliveries")?);
        }
        if let Some(delays) = retry_delay {
            let (first, most) = crate::wait::retry_delay(delays)?;
            options.retry_delay(first, most);
        }
        if let Some(name) = dead_letter {
            options.dead_letter(names::os_string(name, "dead_letter")?);
        }
        if let Some(remove) = remove_on_last_close {
            options.remove_on_last_close(remove);
        }
        if let Some(close) = close_with_last_producer {
            options.close_with_last_producer(close);
        }
        if let Some(number) = fair_priorities {
            options.fair_priorities(open::number(number, "fair_priorities")?);
        }
        if let Some(trace) = trace_messages {
            options.trace_messages(trace);
        }
        let name = names::os_string(name, "name")?;
        let namespace = names::namespace(py, namespace)?;
        let queue = open::open(py, options, name, &namespace, (read, write))?;
        if let Some(waiting) = waiting {
            queue.set_waiting(py, waiting)?;
        }
        Ok(queue)
    }

    /// Sets how the calls of this handle wait: "adaptive", "blocking" or "spinning".
    fn set_waiting(&self, py: Python<'_>, waiting: &str) -> PyResult<()> {
        let waiting = names::choice(py, waiting, "waiting", &open::WAITING)?;
        self.at_once(py, |queue| queue.set_waiting(waiting))
            .ok_or_else(|| self.closed_error(py))
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

    /// Sends a message that is delivered after `delay` seconds at the earliest.
    #[pyo3(signature = (message, delay, priority=None, timeout=None))]
    fn send_after(
        &self,
        message: &Bound<'_, PyAny>,
        delay: &Bound<'_, PyAny>,
        priority: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let delay = crate::wait::duration(delay, "delay")?;
        send::later(self, message, send::Due::After(delay), (priority, timeout))
    }

    /// Sends a message that is delivered at `time` at the earliest: seconds since 1970, or a datetime.
    #[pyo3(signature = (message, time, priority=None, timeout=None))]
    fn send_at(
        &self,
        message: &Bound<'_, PyAny>,
        time: &Bound<'_, PyAny>,
        priority: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let time = crate::wait::time(time, "time")?;
        send::later(self, message, send::Due::At(time), (priority, timeout))
    }

    /// Sends all messages or none, with one priority.
    ///
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> queue.send_many([b"one", b"two"], priority=3)
    /// >>> queue.receive_messages()
    /// [(b'one', 3), (b'two', 3)]
    #[pyo3(signature = (messages, priority=None, timeout=None))]
    fn send_many(
        &self,
        messages: &Bound<'_, PyAny>,
        priority: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        batch::send_all(self, messages, priority, timeout)
    }

    /// Sends as many of the messages as there is room for, at least one. Returns the number of messages sent.
    #[pyo3(signature = (messages, priority=None, timeout=None))]
    fn send_some(
        &self,
        messages: &Bound<'_, PyAny>,
        priority: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        batch::send_some(self, messages, priority, timeout)
    }

    /// Sends all messages or none, each with its own priority: an iterable of pairs (message, priority).
    #[pyo3(signature = (messages, timeout=None))]
    fn send_messages(
        &self,
        messages: &Bound<'_, PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        batch::send_pairs(self, messages, timeout)
    }

    /// Receives the messages that are in the queue, at most `most`. Waits for the first message. Returns a list of bytes.
    #[pyo3(signature = (most=None, timeout=None), text_signature = "($self, most=256, timeout=None)")]
    fn receive_many<'py>(
        &self,
        py: Python<'py>,
        most: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        batch::receive(self, py, (most, timeout), false)
    }

    /// Receives as `receive_many` does. Returns a list of pairs (message, priority).
    #[pyo3(signature = (most=None, timeout=None), text_signature = "($self, most=256, timeout=None)")]
    fn receive_messages<'py>(
        &self,
        py: Python<'py>,
        most: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        batch::receive(self, py, (most, timeout), true)
    }

    /// Receives the next message in place, without a copy.
    ///
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> queue.send(b"job")
    /// >>> with queue.receive_lease() as job:
    /// ...     job.data[0], bytes(job), job.deliveries
    /// (106, b'job', 1)
    ///
    /// At the end of the with statement the message is acknowledged: it leaves the queue. An exception, or the death of the process, returns the
    /// message to its place.
    #[pyo3(signature = (timeout=None))]
    fn receive_lease<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        lease::receive(self, py, Some(timeout))
    }

    /// Receives the next message in place if there is one at once.
    fn try_receive_lease<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        lease::receive(self, py, None)
    }

    /// Reserves room for a message of `size` bytes, to be written in place.
    ///
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> with queue.reserve(5, priority=1) as room:
    /// ...     room.data[:] = b"hello"
    /// >>> queue.receive()
    /// b'hello'
    ///
    /// At the end of the with statement the message is sent. An exception frees the room. The first contents of the room are arbitrary.
    #[pyo3(signature = (size, priority=None, timeout=None))]
    fn reserve<'py>(
        &self,
        py: Python<'py>,
        size: &Bound<'_, PyAny>,
        priority: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        lease::reserve(self, py, size, (priority, Some(timeout)))
    }

    /// Reserves room for a message of `size` bytes if there is room at once.
    #[pyo3(signature = (size, priority=None))]
    fn try_reserve<'py>(
        &self,
        py: Python<'py>,
        size: &Bound<'_, PyAny>,
        priority: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        lease::reserve(self, py, size, (priority, None))
    }

    /// Returns the n-th message in order of delivery, counted from 0, and leaves it in the queue. None if there are fewer messages.
    #[pyo3(signature = (n=0))]
    fn peek(&self, py: Python<'_>, n: usize) -> PyResult<Option<Peeked>> {
        status::peek(self, py, n)
    }

    /// Returns up to `most` messages in order of delivery, as they were at one instant, and leaves them in the queue.
    #[pyo3(signature = (most=256))]
    fn peek_many(&self, py: Python<'_>, most: usize) -> PyResult<Vec<Peeked>> {
        status::peek_many(self, py, most)
    }

    /// Returns up to `most` delayed messages in the order of their delivery times. The messages stay in the queue.
    ///
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> queue.send_after(b"in an hour", delay=3600)
    /// >>> [message.data for message in queue.delayed_messages()]
    /// [b'in an hour']
    #[pyo3(signature = (most=256))]
    fn delayed_messages(&self, py: Python<'_>, most: usize) -> PyResult<Vec<Peeked>> {
        status::delayed_messages(self, py, most)
    }

    /// Returns the histories of the dead letters in this queue, in order of delivery: all, or those that the arguments select.
    ///
    /// >>> jobs = umsg.Queue("/jobs", create=True, max_deliveries=1, dead_letter="/jobs.failed")
    /// >>> jobs.send(b"resize image 7")
    /// >>> jobs.receive_lease().give_back()
    /// >>> failed = umsg.Queue("/jobs.failed")
    /// >>> failed.dead_letters(reason="undelivered")
    /// [<umsg.History of "/jobs": undelivered, 1 deliveries, 0 redrives>]
    #[pyo3(signature = (*, id=None, reason=None, source=None, most=None))]
    fn dead_letters(
        &self,
        py: Python<'_>,
        id: Option<u64>,
        reason: Option<&str>,
        source: Option<&Bound<'_, PyAny>>,
        most: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<History>> {
        let which = Which {
            id,
            reason,
            source,
            most,
        };
        dead_letters::histories(self, py, &which)
    }

    /// Returns the dead letters as `dead_letters` does, with up to `size` bytes of each message. The messages stay in the queue.
    #[pyo3(signature = (size=None, *, id=None, reason=None, source=None, most=None))]
    fn peek_dead_letters(
        &self,
        py: Python<'_>,
        size: Option<&Bound<'_, PyAny>>,
        id: Option<u64>,
        reason: Option<&str>,
        source: Option<&Bound<'_, PyAny>>,
        most: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<DeadLetter>> {
        let which = Which {
            id,
            reason,
            source,
            most,
        };
        dead_letters::peek(self, py, &which, size)
    }

    /// Sends dead letters back to the queues that they come from, or all to the queue `to`. The messages keep their bytes, priority and history, and
    /// their deliveries are counted from 0 again.
    ///
    /// >>> jobs = umsg.Queue("/jobs", create=True, max_deliveries=1, dead_letter="/jobs.failed")
    /// >>> jobs.send(b"resize image 7")
    /// >>> jobs.receive_lease().give_back()
    /// >>> failed = umsg.Queue("/jobs.failed")
    /// >>> failed.redrive()
    /// <umsg.Redriven: 1 messages, 0 refused>
    /// >>> with jobs.receive_lease() as job:
    /// ...     bytes(job), job.history().redrives
    /// (b'resize image 7', 1)
    ///
    /// Never waits for room: a message that its queue does not take keeps its place, and the result says why.
    #[pyo3(signature = (*, to=None, id=None, reason=None, source=None, most=None))]
    fn redrive(
        &self,
        py: Python<'_>,
        to: Option<&Bound<'_, PyAny>>,
        id: Option<u64>,
        reason: Option<&str>,
        source: Option<&Bound<'_, PyAny>>,
        most: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Redriven> {
        let which = Which {
            id,
            reason,
            source,
            most,
        };
        dead_letters::redrive(self, py, &which, to)
    }

    /// Registers the process for one notification of a message that comes to the empty queue and that no blocked receiver takes: a call of
    /// `function` in a new thread, or a signal. See mq_notify(3).
    ///
    /// >>> import threading
    /// >>> news = threading.Event()
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> with queue.notify(lambda notified: news.set()) as registration:
    /// ...     queue.send(b"news")
    /// ...     news.wait(timeout=60), registration.is_armed
    /// (True, False)
    ///
    /// `function` gets the sender's process and user as an object `Notified`. The registration ends with the notification, with its with statement or
    /// `close()`, and with the process. A queue has at most one registration; a second registration raises `Busy`.
    #[pyo3(signature = (function=None, *, signal=None))]
    fn notify(
        &self,
        py: Python<'_>,
        function: Option<Py<PyAny>>,
        signal: Option<i32>,
    ) -> PyResult<notify::Registration> {
        notify::register(self, py, function, signal)
    }

    /// Registers the process as `notify` does. The program waits for the notification.
    ///
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> with queue.notify_waiter() as news:
    /// ...     queue.send(b"news")
    /// ...     news.wait(timeout=60)
    /// <umsg.Notified by process ...>
    ///
    /// The registration ends with the notification, with its with statement or `close()`, and with the process.
    fn notify_waiter(&self, py: Python<'_>) -> PyResult<awaited::Awaited> {
        awaited::register(self, py)
    }

    /// Takes a snapshot: the attributes of the queue and its messages as they are at one instant. The queue does not change.
    ///
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> queue.send(b"an order", priority=3)
    /// >>> saved = queue.snapshot().to_bytes()
    /// >>> copy = umsg.Snapshot.from_bytes(saved).restore("/copy")
    /// >>> copy.receive_message()
    /// (b'an order', 3)
    fn snapshot(&self, py: Python<'_>) -> PyResult<crate::snapshot::Snapshot> {
        let queue = self.shared(py)?;
        crate::snapshot::of_posix(py, &queue, &self.name)
    }

    /// Returns the attributes of the queue and the numbers of its messages.
    fn attributes(&self, py: Python<'_>) -> PyResult<Attributes> {
        status::attributes(self, py)
    }

    /// Returns the complete status of the queue.
    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        status::status(self, py)
    }

    /// Closes the queue for sending.
    ///
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> queue.send(b"the last one")
    /// >>> queue.close_send()
    /// True
    /// >>> list(queue)
    /// [b'the last one']
    ///
    /// Receivers get the remaining messages, and then `EndOfStream`. Returns whether the queue was open for sending.
    fn close_send(&self, py: Python<'_>) -> PyResult<bool> {
        let queue = self.shared(py)?;
        py.detach(|| queue.close_send())
            .map_err(|error| self.raise(py, &error))
    }

    /// Counts this process as a producer of the queue, until the result is closed.
    fn producer(&self, py: Python<'_>) -> PyResult<crate::producer::Producer> {
        crate::producer::of_posix(py, &self.shared(py)?)
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

    /// Returns a descriptor for select, poll, epoll and event loops. The descriptor is readable while there is a message, and writable while there is
    /// room. The queue closes the descriptor.
    ///
    /// `edges` selects the events of a poller with EPOLLET. "changes": an event when the readiness changes. "messages": also an event after each
    /// send, and after each receive that leaves messages. "all": also an event after each send and each receive that leaves room. Each further event
    /// costs the process that sends or receives a system call.
    #[pyo3(signature = (edges="changes"))]
    fn fileno(&self, py: Python<'_>, edges: &str) -> PyResult<i32> {
        let edges = names::choice(py, edges, "edges", &EDGES)?;
        status::fileno(self, py, edges)
    }

    /// Spins for a message for some microseconds, if recent spins were successful. Returns whether there is a message.
    fn _look(&self, py: Python<'_>) -> PyResult<bool> {
        let queue = self.shared(py)?;
        Ok(py.detach(|| queue.look_for_message()))
    }

    /// Returns what a poll without waiting reports: whether there is a message, and whether there is room. Makes no system call.
    ///
    /// >>> queue = umsg.Queue("/q", create=True)
    /// >>> queue.readiness()
    /// (False, True)
    fn readiness(&self, py: Python<'_>) -> PyResult<(bool, bool)> {
        self.at_once(py, |queue| queue.readiness())
            .map(|now| (now.readable, now.writable))
            .ok_or_else(|| self.closed_error(py))
    }
}
