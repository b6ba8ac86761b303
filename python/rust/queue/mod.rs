//! `umsg.Queue`: POSIX message queues.

mod awaited;
mod batch;
mod dead_letters;
mod lease;
mod methods;
mod notify;
mod open;
mod receive;
mod send;
mod status;

use crate::context::{self, Scoped};
use crate::error::{Failure, handle_closed, invalid};
use crate::fast::{Method, add_methods};
use crate::gil::Guarded;
use crate::wait::AfterSignal;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use umsg::posix;

pub use dead_letters::History;
pub use lease::size;
pub use open::{EDGES, WAITING, number, open_options, opened};
pub use status::{Attributes, Peeked, Status};

/// A POSIX message queue: the highest priority comes first, and within a priority the oldest message.
///
/// Opens the queue `name`, or with `create=True` creates the queue if it does not exist. The other options describe a created queue; see the chapters
/// of the guide on queues and on work queues. `existing` says which existing queues are accepted: "any", those that "match-policy", or those that
/// "match" in capacity and message size as well.
///
/// >>> with umsg.Queue("/jobs", create=True, max_messages=10, message_size=64) as jobs:
/// ...     jobs.send(b"resize image 7")
/// ...     jobs.send(b"resize image 8", priority=5, timeout=1.5)
/// ...     [jobs.receive(), jobs.receive_message()]
/// [b'resize image 8', (b'resize image 7', 0)]
#[pyclass(frozen, subclass, weakref, module = "umsg", name = "Queue")]
pub struct Queue {
    /// None after `close`.
    handle: Guarded<Option<Arc<posix::Queue>>>,
    name: OsString,
    namespace: PathBuf,
    /// True if the handle may receive, and true if it may send.
    access: (bool, bool),
    /// The length of the longest message, in bytes.
    message_size: usize,
    /// True if a signal ends a blocked call.
    ends_on_signals: AtomicBool,
}

/// Adds the classes and functions of POSIX queues to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let class = py.get_type::<Queue>();
    let methods: [&[Method]; 2] = [&send::METHODS, &receive::METHODS];
    for methods in methods {
        add_methods(&class, methods)?;
    }
    context::add::<Queue>(module)?;
    module.add_class::<Attributes>()?;
    module.add_class::<Status>()?;
    module.add_class::<Peeked>()?;
    module.add_class::<History>()?;
    module.add_class::<dead_letters::DeadLetter>()?;
    module.add_class::<dead_letters::Redriven>()?;
    module.add_class::<dead_letters::RedriveRefused>()?;
    context::add::<awaited::Awaited>(module)?;
    context::add::<notify::Registration>(module)?;
    module.add_class::<notify::Notified>()?;
    module.add_function(wrap_pyfunction!(open::unlink, module)?)?;
    module.add_function(wrap_pyfunction!(open::reopen_queue, module)?)?;
    module.add_function(wrap_pyfunction!(open::queues, module)?)
}

impl Queue {
    /// Returns the exception of a closed handle.
    #[cold]
    fn closed_error(&self, py: Python<'_>) -> PyErr {
        handle_closed(py, "queue", Some(&self.name))
    }

    /// Returns the handle for a call that may release the interpreter's lock.
    pub fn shared(&self, py: Python<'_>) -> PyResult<Arc<posix::Queue>> {
        self.handle.shared(py).ok_or_else(|| self.closed_error(py))
    }

    /// Makes a call that neither blocks nor runs code of Python. Returns None if the handle is closed.
    #[inline(always)]
    fn at_once<R>(&self, py: Python<'_>, call: impl FnOnce(&posix::Queue) -> R) -> Option<R> {
        // SAFETY: by the contract of this function.
        unsafe { self.handle.with(py, |handle| handle.as_deref().map(call)) }
    }

    fn after_signal(&self) -> AfterSignal {
        // Relaxed: the flag guards no other data.
        match self.ends_on_signals.load(Ordering::Relaxed) {
            true => AfterSignal::Fail,
            false => AfterSignal::Continue,
        }
    }

    pub fn raise<E: Failure>(&self, py: Python<'_>, error: &E) -> PyErr {
        error.raise(py, Some(&self.name))
    }
}

/// Reads a priority. The library checks its upper limit.
pub fn priority_of(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    let py = value.py();
    match value.extract::<u32>() {
        Ok(priority) => Ok(priority),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Err(invalid(
            py,
            &format!("a priority must be from 0 to 32767, not {value}"),
        )),
        Err(_) => Err(PyTypeError::new_err(format!(
            "a priority must be int, not {}",
            value.get_type().name()?
        ))),
    }
}

impl Scoped for Queue {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        self.shared(py).map(drop)
    }

    fn leave(&self, py: Python<'_>, _failed: bool) -> PyResult<()> {
        self.close(py);
        Ok(())
    }
}
