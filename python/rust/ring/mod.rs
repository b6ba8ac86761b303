//! `umsg.Ring` and `umsg.RingSender`: messages for one receiver.

mod message;
mod sender;
mod status;

use crate::context::{self, Scoped};
use crate::error::{Failure, Kind, handle_closed};
use crate::exclusive::{Exclusive, Refused};
use crate::names;
use crate::queue::{WAITING, number, size};
use crate::wait::{Wait, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::PathBuf;
use umsg::ring::{self, Options, ReceiveError, Until};

pub use message::RingMessage;
pub use sender::RingSender;
pub use status::RingStatus;

/// A ring: messages for the process that made the ring. This process can wait until the ring has a number of messages.
///
/// >>> ring = umsg.Ring("/completions", entries=64)
/// >>> sender = umsg.RingSender("/completions")
/// >>> sender.send(7, res=-1, payload=b"details")
/// >>> ring.wait(1)
/// 1
/// >>> ring.receive()
/// <umsg.RingMessage user_data 7, res -1, flags 0x0, b'details'>
/// >>> ring.close()
///
/// One thread at a time receives. The ring ends with its handle or with its process.
#[pyclass(frozen, subclass, weakref, module = "umsg", name = "Ring")]
pub struct Ring {
    ring: Exclusive<Box<ring::Ring>>,
    name: Option<OsString>,
    /// The directory of the namespace, if the ring has a name.
    namespace: Option<PathBuf>,
}

/// Adds the classes of rings to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    context::add::<Ring>(module)?;
    context::add::<RingSender>(module)?;
    module.add_class::<RingMessage>()?;
    module.add_class::<RingStatus>()?;
    module.add_function(wrap_pyfunction!(sender::reopen_ring_sender, module)?)
}

impl Ring {
    fn raise<E: Failure>(&self, py: Python<'_>, error: &E) -> PyErr {
        error.raise(py, self.name.as_deref())
    }

    #[cold]
    fn closed_error(&self, py: Python<'_>) -> PyErr {
        handle_closed(py, "ring", self.name.as_deref())
    }

    /// Uses the ring, which only one thread at a time can use. `work` may release the interpreter's lock.
    fn with<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ring::Ring) -> PyResult<R>,
    ) -> PyResult<R> {
        let refused = |why| match why {
            Refused::Closed => self.closed_error(py),
            Refused::InUse => {
                let text = "another thread uses the ring: receive on one thread at a time";
                Kind::Busy.error(py, libc::EBUSY, text, self.name.as_deref())
            }
        };
        self.ring.with(py, refused, |ring| work(ring))
    }

    /// Receives a message. `wait` is None for a call that does not wait.
    fn next(
        &self,
        py: Python<'_>,
        ring: &mut ring::Ring,
        wait: Option<Wait>,
    ) -> PyResult<RingMessage> {
        let first = ring.try_receive_vec();
        let received = match (first, wait) {
            (Err(ReceiveError::Empty), Some(wait)) => blocking(py, wait, |until| {
                ring.receive_until(until).map(ring::OwnedMessage::from)
            })?,
            (other, _) => other,
        };
        let received = received.map_err(|error| self.raise(py, &error))?;
        Ok(RingMessage::of(py, received))
    }
}

impl Scoped for Ring {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        match self.closed(py) {
            true => Err(self.closed_error(py)),
            false => Ok(()),
        }
    }

    fn leave(&self, py: Python<'_>, _failed: bool) -> PyResult<()> {
        self.close(py);
        Ok(())
    }
}

#[pymethods]
impl Ring {
    #[new]
    #[pyo3(signature = (
        name = None,
        *,
        entries = None,
        overflow = None,
        longest = None,
        disabled = false,
        mode = 0o600,
        waiting = None,
        namespace = None,
    ), text_signature = "(name=None, *, entries=1024, overflow=65536, longest=64, disabled=False, mode=0o600, waiting=None, namespace=None)")]
    #[expect(
        clippy::too_many_arguments,
        reason = "the keyword arguments of a class in Python"
    )]
    fn new(
        py: Python<'_>,
        name: Option<&Bound<'_, PyAny>>,
        entries: Option<&Bound<'_, PyAny>>,
        overflow: Option<&Bound<'_, PyAny>>,
        longest: Option<&Bound<'_, PyAny>>,
        disabled: bool,
        mode: u32,
        waiting: Option<&str>,
        namespace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Ring> {
        let mut options = Options::new();
        options.disabled(disabled).mode(mode);
        if let Some(value) = entries {
            options.entries(number(value, "entries")?);
        }
        if let Some(value) = overflow {
            options.overflow(number(value, "overflow")?);
        }
        if let Some(value) = longest {
            options.longest(number(value, "longest")?);
        }
        let name = name
            .map(|name| names::os_string(name, "name"))
            .transpose()?;
        let (made, namespace) = match &name {
            None => (py.detach(|| options.create()), None),
            Some(name) => {
                let namespace = names::namespace(py, namespace)?;
                let made = py.detach(|| options.create_in(&namespace, name));
                (made, Some(namespace.path().to_owned()))
            }
        };
        let ring = made.map_err(|error| error.raise(py, name.as_deref()))?;
        if let Some(waiting) = waiting {
            ring.set_waiting(names::choice(py, waiting, "waiting", &WAITING)?);
        }
        Ok(Ring {
            ring: Exclusive::new(Box::new(ring)),
            name,
            namespace,
        })
    }

    /// The name of the ring, with its slash; None without a name.
    #[getter]
    fn name(&self) -> Option<OsString> {
        self.name.clone()
    }

    /// True after `close()`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.ring.is_closed(py)
    }

    /// Returns a sender of this ring, for this process and for its forked children. The sender of a ring with a name can be pickled.
    fn sender(&self, py: Python<'_>) -> PyResult<RingSender> {
        let origin = self.name.clone().zip(self.namespace.clone());
        self.with(py, |ring| Ok(RingSender::of(ring.sender(), origin)))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a ring belongs to the process that made it: pickle ring.sender()",
        ))
    }

    /// Enables a ring that was made disabled: senders may send from now on.
    fn enable(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |ring| {
            ring.enable();
            Ok(())
        })
    }

    /// Receives the next message. Waits for a message: without a limit, or at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<RingMessage> {
        let wait = Wait::of(timeout)?;
        self.with(py, |ring| self.next(py, ring, Some(wait)))
    }

    /// Receives the next message if there is one at once; otherwise raises `Empty`.
    fn try_receive(&self, py: Python<'_>) -> PyResult<RingMessage> {
        self.with(py, |ring| self.next(py, ring, None))
    }

    /// Receives the messages that are in the ring, at most `most`. Waits for the first message.
    #[pyo3(signature = (most=None, timeout=None), text_signature = "($self, most=256, timeout=None)")]
    fn receive_many(
        &self,
        py: Python<'_>,
        most: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<RingMessage>> {
        let most = most.map_or(Ok(256), |most| size(most, "most"))?;
        let mut wait = Some(Wait::of(timeout)?);
        self.with(py, |ring| {
            let mut messages = Vec::new();
            if most != 0 {
                messages.push(self.next(py, ring, wait.take())?);
            }
            let rest = (most - messages.len()) as u64;
            // An error of this call is dropped: `receive_many` succeeds with the messages that it has already received.
            let _ = ring.drain_some(rest, |message| {
                messages.push(RingMessage::of(py, message.into()));
            });
            Ok(messages)
        })
    }

    /// Waits until the ring has `at_least` messages, with one wake-up. Returns the number of messages.
    #[pyo3(signature = (at_least, timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        at_least: &Bound<'_, PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let count = size(at_least, "at_least")? as u64;
        let wait = Wait::of(timeout)?;
        self.with(py, |ring| {
            let waited = match ring.wait(count, Until::Now) {
                Err(ReceiveError::Empty | ReceiveError::TimedOut) => {
                    blocking(py, wait, |until| ring.wait(count, until))?
                }
                other => other,
            };
            waited.map_err(|error| self.raise(py, &error))
        })
    }

    /// Returns the number of messages in the ring.
    fn available(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |ring| Ok(ring.available()))
    }

    /// Returns the descriptor that a sender has passed with a ticket; None if the descriptor has not arrived. The caller closes the descriptor.
    fn take_fd(&self, py: Python<'_>, ticket: i32) -> PyResult<Option<i32>> {
        self.with(py, |ring| {
            Ok(ring.take_fd(ticket).map(IntoRawFd::into_raw_fd))
        })
    }

    /// Returns a descriptor for select, poll, epoll and event loops. The descriptor is readable while there is a message. The ring closes the
    /// descriptor.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |ring| Ok(ring.pollable().as_raw_fd()))
    }

    /// Sets how the calls of this handle wait: "adaptive", "blocking" or "spinning".
    fn set_waiting(&self, py: Python<'_>, waiting: &str) -> PyResult<()> {
        let waiting = names::choice(py, waiting, "waiting", &WAITING)?;
        self.with(py, |ring| {
            ring.set_waiting(waiting);
            Ok(())
        })
    }

    /// Returns the complete status of the ring.
    fn status(&self, py: Python<'_>) -> PyResult<RingStatus> {
        self.with(py, |ring| Ok(RingStatus::of(&ring.status())))
    }

    /// Closes the ring for sending: senders get `Closed`. Messages that were sent before can still be received.
    fn close_send(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |ring| {
            ring.close();
            Ok(())
        })
    }

    /// Closes and removes the ring: senders get `Closed`. A call that is blocked in another thread continues.
    fn close(&self, py: Python<'_>) {
        self.ring.close(py);
    }

    fn __iter__<'a, 'py>(slf: &'a Bound<'py, Self>) -> &'a Bound<'py, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<RingMessage> {
        self.receive(py, None)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = match self.closed(py) {
            true => ", closed",
            false => "",
        };
        match &self.name {
            Some(name) => format!("<umsg.Ring {:?}{closed}>", name.to_string_lossy()),
            None => format!("<umsg.Ring without a name{closed}>"),
        }
    }
}
