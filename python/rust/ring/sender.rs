//! Senders of a ring.

use super::RingStatus;
use crate::buffer::Bytes;
use crate::context::Scoped;
use crate::error::{Failure, handle_closed};
use crate::gil::Guarded;
use crate::names::{self, os_string};
use crate::wait::{Wait, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use umsg::ring::{INLINE, Post, SendError, Sender, Until};

/// A sender of a ring, opened by the ring's name. `Ring.sender()` makes a sender within a process.
#[pyclass(frozen, subclass, weakref, module = "umsg", name = "RingSender")]
pub struct RingSender {
    /// None after `close`.
    handle: Guarded<Option<Arc<Sender>>>,
    /// The ring's name and namespace, if the ring has a name.
    origin: Option<(OsString, PathBuf)>,
}

impl RingSender {
    pub fn of(sender: Sender, origin: Option<(OsString, PathBuf)>) -> RingSender {
        RingSender {
            handle: Guarded::new(Some(Arc::new(sender))),
            origin,
        }
    }

    fn raise<E: Failure>(&self, py: Python<'_>, error: &E) -> PyErr {
        error.raise(py, self.origin.as_ref().map(|(name, _)| name.as_os_str()))
    }

    fn shared(&self, py: Python<'_>) -> PyResult<Arc<Sender>> {
        self.handle.shared(py).ok_or_else(|| {
            let name = self.origin.as_ref().map(|(name, _)| name.as_os_str());
            handle_closed(py, "ring", name)
        })
    }

    /// Reads a message of a batch.
    fn post_of(&self, message: &Bound<'_, PyAny>) -> PyResult<Post> {
        let Ok(fields) = message.cast::<PyTuple>() else {
            return Ok(Post::new(message.extract()?));
        };
        if !(1..=4).contains(&fields.len()) {
            return Err(PyTypeError::new_err(
                "a message is user_data, or a tuple of user_data, res, flags and payload",
            ));
        }
        let mut post = Post::new(fields.get_item(0)?.extract()?);
        if let Ok(res) = fields.get_item(1) {
            post = post.res(res.extract()?);
        }
        if let Ok(flags) = fields.get_item(2) {
            post = post.flags(flags.extract()?);
        }
        if let Ok(payload) = fields.get_item(3)
            && !payload.is_none()
        {
            // SAFETY: the tuple keeps the object alive, and the bytes are dropped with the lock held.
            let bytes = unsafe { Bytes::of(&payload)? };
            let (len, max) = (bytes.get().len(), INLINE);
            if len > max {
                return Err(self.raise(message.py(), &SendError::TooLong { len, max }));
            }
            post = post.payload(bytes.get());
        }
        Ok(post)
    }

    fn post(
        &self,
        py: Python<'_>,
        message: (Post, Option<&Bound<'_, PyAny>>),
        wait: Option<Wait>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> PyResult<()> {
        self.outcome(py, message, wait, descriptor)?
            .map_err(|error| self.raise(py, &error))
    }

    /// Sends a message, and returns the result of the library. `wait` is None for a call that does not wait.
    fn outcome(
        &self,
        py: Python<'_>,
        (post, payload): (Post, Option<&Bound<'_, PyAny>>),
        wait: Option<Wait>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> PyResult<Result<(), SendError>> {
        let sender = self.shared(py)?;
        // SAFETY: the caller's argument lives during the call, and the bytes are dropped with the lock held.
        let bytes = payload
            .map(|payload| unsafe { Bytes::of(payload) })
            .transpose()?;
        let payload = bytes.as_ref().map_or(&[][..], Bytes::get);
        if descriptor.is_some() && payload.len() > INLINE {
            let (len, max) = (payload.len(), INLINE);
            return Ok(Err(SendError::TooLong { len, max }));
        }
        let send = |until: Until| match descriptor {
            Some(descriptor) => sender.send_fd(&post.payload(payload), descriptor, until),
            None if payload.len() <= INLINE => sender.send_until(&post.payload(payload), until),
            None => sender.send_long(&post, payload, until),
        };
        match (send(Until::Now), wait) {
            (Err(SendError::Full), Some(wait)) => blocking(py, wait, send),
            (other, _) => Ok(other),
        }
    }
}

impl Scoped for RingSender {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        self.shared(py).map(drop)
    }

    fn leave(&self, py: Python<'_>, _failed: bool) -> PyResult<()> {
        self.close(py);
        Ok(())
    }
}

#[pymethods]
impl RingSender {
    #[new]
    #[pyo3(signature = (name, *, namespace=None))]
    fn new(name: &Bound<'_, PyAny>, namespace: Option<&Bound<'_, PyAny>>) -> PyResult<RingSender> {
        let py = name.py();
        let name = os_string(name, "name")?;
        let namespace = names::namespace(py, namespace)?;
        let opened = py.detach(|| Sender::open_in(&namespace, &name));
        let sender = opened.map_err(|error| error.raise(py, Some(&name)))?;
        Ok(RingSender::of(
            sender,
            Some((name, namespace.path().to_owned())),
        ))
    }

    /// The name of the ring, with its slash; None without a name.
    #[getter]
    fn name(&self) -> Option<OsString> {
        self.origin.as_ref().map(|(name, _)| name.clone())
    }

    /// The length of the longest payload, in bytes.
    #[getter]
    fn longest(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared(py)?.longest())
    }

    /// The index of this sender, unique among the senders of the ring.
    #[getter]
    fn index(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.shared(py)?.tag().index)
    }

    /// True after `close()`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.handle.is_none(py)
    }

    /// Sends a message. Waits for room: without a limit, or at most `timeout` seconds.
    #[pyo3(signature = (user_data, res=0, flags=0, payload=None, timeout=None))]
    fn send(
        &self,
        py: Python<'_>,
        user_data: u64,
        res: i32,
        flags: u32,
        payload: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let post = Post::new(user_data).res(res).flags(flags);
        let wait = Wait::of(timeout)?;
        self.post(py, (post, payload), Some(wait), None)
    }

    /// Sends a message if there is room at once; otherwise raises `Full`.
    #[pyo3(signature = (user_data, res=0, flags=0, payload=None))]
    fn try_send(
        &self,
        py: Python<'_>,
        user_data: u64,
        res: i32,
        flags: u32,
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let post = Post::new(user_data).res(res).flags(flags);
        self.post(py, (post, payload), None, None)
    }

    /// Sends several messages as one: the receiver finds all of them or none, and wakes up once. Waits for room: without a limit, or at most
    /// `timeout` seconds.
    ///
    /// >>> ring = umsg.Ring()
    /// >>> sender = ring.sender()
    /// >>> sender.send_many([1, (2, -5), (3, 0, 0, b"details")])
    /// >>> [message.user_data for message in ring.receive_many()]
    /// [1, 2, 3]
    ///
    /// A message is its `user_data`, or a tuple of `user_data`, `res`, `flags` and a payload of up to 64 bytes. The last members of the tuple may be
    /// left out.
    #[pyo3(signature = (messages, timeout=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let sender = self.shared(py)?;
        let wait = Wait::of(timeout)?;
        let posts = messages.try_iter()?;
        let posts = posts.map(|message| self.post_of(&message?));
        let posts = posts.collect::<PyResult<Vec<Post>>>()?;
        let mut sent = sender.send_batch_until(&posts, Until::Now);
        if matches!(sent, Err(SendError::Full)) {
            sent = blocking(py, wait, |until| sender.send_batch_until(&posts, until))?;
        }
        sent.map_err(|error| self.raise(py, &error))
    }

    /// Sends a message if there is room at once; otherwise drops it and counts it in `RingStatus.dropped`. Returns whether the message was sent.
    ///
    /// >>> ring = umsg.Ring(entries=1, overflow=0)
    /// >>> sender = ring.sender()
    /// >>> [sender.send_or_drop(number) for number in range(3)], ring.status().dropped
    /// ([True, False, False], 2)
    #[pyo3(signature = (user_data, res=0, flags=0, payload=None))]
    fn send_or_drop(
        &self,
        py: Python<'_>,
        user_data: u64,
        res: i32,
        flags: u32,
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let sender = self.shared(py)?;
        // SAFETY: the caller's argument lives during the call, and the bytes are dropped with the lock held.
        let bytes = payload
            .map(|payload| unsafe { Bytes::of(payload) })
            .transpose()?;
        let payload = bytes.as_ref().map_or(&[][..], Bytes::get);
        let post = Post::new(user_data).res(res).flags(flags);
        let sent = match payload.len() <= INLINE {
            true => sender.send_or_drop(&post.payload(payload)),
            false => sender.send_long_or_drop(&post, payload),
        };
        sent.map_err(|error| self.raise(py, &error))
    }

    /// Sends a message as `send` does, and then sends the outcome to another ring, usually the sender's own ring. The outcome is the message
    /// `completion`, with a `res` of 0 or of the negative error number.
    ///
    /// >>> ring, mine = umsg.Ring(), umsg.Ring()
    /// >>> ring.sender().send_completing(7, payload=b"job", to=mine.sender(), completion=8)
    /// >>> mine.receive()
    /// <umsg.RingMessage user_data 8, res 0, flags 0x0, b''>
    ///
    /// `completion` is a message as for `send_many`. The call never waits for room in the other ring, and raises only exceptions of the send of the
    /// completion.
    #[pyo3(signature = (user_data, res=0, flags=0, payload=None, timeout=None, *, to, completion))]
    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    fn send_completing(
        &self,
        py: Python<'_>,
        user_data: u64,
        res: i32,
        flags: u32,
        payload: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
        to: &RingSender,
        completion: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let wait = Wait::of(timeout)?;
        let completion = to.post_of(completion)?;
        let own = to.shared(py)?;
        let post = Post::new(user_data).res(res).flags(flags);
        let sent = self.outcome(py, (post, payload), Some(wait), None)?;
        let res = sent.map_or_else(|error| -error.errno(), |()| 0);
        own.try_send(&completion.res(res))
            .map_err(|error| to.raise(py, &error))
    }

    /// Passes a descriptor without a message. Returns a ticket, by which the receiver gets its own copy with `Ring.take_fd`.
    ///
    /// >>> ring = umsg.Ring()
    /// >>> with open("/dev/null") as file:
    /// ...     ticket = ring.sender().pass_fd(file.fileno())
    /// >>> os.close(ring.take_fd(ticket))
    fn pass_fd(&self, py: Python<'_>, descriptor: i32) -> PyResult<i32> {
        let sender = self.shared(py)?;
        let descriptor = borrowed(py, descriptor)?;
        py.detach(|| sender.pass_fd(descriptor))
            .map_err(|error| self.raise(py, &error))
    }

    /// Sends a message with a descriptor. The receiver gets its own copy of the descriptor.
    #[pyo3(signature = (descriptor, user_data, res=0, flags=0, payload=None, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    fn send_fd(
        &self,
        py: Python<'_>,
        descriptor: i32,
        user_data: u64,
        res: i32,
        flags: u32,
        payload: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let descriptor = borrowed(py, descriptor)?;
        let post = Post::new(user_data).res(res).flags(flags);
        let wait = Wait::of(timeout)?;
        self.post(py, (post, payload), Some(wait), Some(descriptor))
    }

    /// Returns the complete status of the ring.
    fn status(&self, py: Python<'_>) -> PyResult<RingStatus> {
        Ok(RingStatus::of(&self.shared(py)?.status()))
    }

    /// Closes the handle.
    fn close(&self, py: Python<'_>) {
        let handle = self.handle.take(py);
        py.detach(|| drop(handle));
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let (py, this) = (slf.py(), slf.get());
        this.shared(py)?;
        let Some((name, namespace)) = this.origin.clone() else {
            return Err(PyTypeError::new_err(
                "the ring has no name by which another process could open it",
            ));
        };
        let reopen = py.import("umsg._umsg")?.getattr("_reopen_ring_sender")?;
        Ok((reopen, (slf.get_type(), name, namespace.into_os_string())))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = match self.closed(py) {
            true => ", closed",
            false => "",
        };
        match &self.origin {
            Some((name, _)) => format!("<umsg.RingSender {:?}{closed}>", name.to_string_lossy()),
            None => format!("<umsg.RingSender of a ring without a name{closed}>"),
        }
    }
}

/// Reads the number of a descriptor.
fn borrowed(py: Python<'_>, descriptor: i32) -> PyResult<BorrowedFd<'_>> {
    match descriptor >= 0 {
        // SAFETY: the number is not -1, and the kernel refuses a number that is no open descriptor.
        true => Ok(unsafe { BorrowedFd::borrow_raw(descriptor) }),
        false => Err(crate::error::invalid(py, "a descriptor must be at least 0")),
    }
}

/// The result of `__reduce__`.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyType>, OsString, OsString));

/// Opens a sender that was pickled.
#[pyfunction]
#[pyo3(name = "_reopen_ring_sender")]
pub fn reopen_ring_sender<'py>(
    class: &Bound<'py, PyType>,
    name: &Bound<'py, PyAny>,
    namespace: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(class.py());
    options.set_item("namespace", namespace)?;
    class.call((name,), Some(&options))
}
