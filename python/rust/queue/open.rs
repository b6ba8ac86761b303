//! Opening, listing and removing queues.

use super::Queue;
use crate::error::{Failure, invalid};
use crate::gil::Guarded;
use crate::names::{self, os_string};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use umsg::posix::{Existing, OnFull, OpenOptions, Waiting};
use umsg::{Edges, Namespace, NamespaceError, posix};

pub const EXISTING: [(&str, Existing); 3] = [
    ("any", Existing::Any),
    ("match-policy", Existing::MatchPolicy),
    ("match", Existing::Match),
];
pub const ON_FULL: [(&str, OnFull); 3] = [
    ("block", OnFull::Block),
    ("fail", OnFull::Fail),
    ("drop-oldest", OnFull::DropOldest),
];
pub const EDGES: [(&str, Edges); 3] = [
    ("changes", Edges::Changes),
    ("messages", Edges::Messages),
    ("all", Edges::All),
];
pub const WAITING: [(&str, Waiting); 3] = [
    ("adaptive", Waiting::Adaptive),
    ("blocking", Waiting::Blocking),
    ("spinning", Waiting::Spinning),
];

/// Reads a number that is not negative.
pub fn number(value: &Bound<'_, PyAny>, what: &str) -> PyResult<u32> {
    match value.extract::<u32>() {
        Ok(number) => Ok(number),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            let text = format!("{what} must be from 0 to {}, not {value}", u32::MAX);
            Err(invalid(value.py(), &text))
        }
        Err(_) => Err(PyTypeError::new_err(format!(
            "{what} must be int, not {}",
            value.get_type().name()?
        ))),
    }
}

pub fn open(
    py: Python<'_>,
    mut options: OpenOptions,
    name: OsString,
    namespace: &Namespace,
    access: (bool, bool),
) -> PyResult<Queue> {
    options.namespace(namespace);
    let queue = py.detach(|| options.open(&name));
    let queue = queue.map_err(|error| error.raise(py, Some(&name)))?;
    Ok(opened(queue, name, namespace, access))
}

/// Makes the Python handle of a queue that the library has opened.
pub fn opened(
    queue: posix::Queue,
    name: OsString,
    namespace: &Namespace,
    access: (bool, bool),
) -> Queue {
    Queue {
        message_size: queue.attributes().message_size,
        ends_on_signals: AtomicBool::new(false),
        handle: Guarded::new(Some(Arc::new(queue))),
        name,
        namespace: namespace.path().to_owned(),
        access,
    }
}

/// Returns options with an access and a namespace, and no other options.
pub fn open_options((read, write): (bool, bool), namespace: &Namespace) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(read).write(write).namespace(namespace);
    options
}

/// The result of `__reduce__`.
pub type Reduced<'py> = (
    Bound<'py, PyAny>,
    (Bound<'py, PyType>, OsString, OsString, bool, bool),
);

pub fn reduce<'py>(slf: &Bound<'py, Queue>) -> PyResult<Reduced<'py>> {
    let (py, queue) = (slf.py(), slf.get());
    queue.shared(py)?;
    let reopen = py.import("umsg._umsg")?.getattr("_reopen_queue")?;
    let namespace = queue.namespace.clone().into_os_string();
    let (read, write) = queue.access;
    Ok((
        reopen,
        (slf.get_type(), queue.name.clone(), namespace, read, write),
    ))
}

/// Opens a queue whose handle was pickled.
#[pyfunction]
#[pyo3(name = "_reopen_queue")]
pub fn reopen_queue<'py>(
    class: &Bound<'py, PyType>,
    name: &Bound<'py, PyAny>,
    namespace: &Bound<'py, PyAny>,
    read: bool,
    write: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let options = pyo3::types::PyDict::new(class.py());
    options.set_item("namespace", namespace)?;
    options.set_item("read", read)?;
    options.set_item("write", write)?;
    class.call((name,), Some(&options))
}

pub fn unlink_by_name(
    py: Python<'_>,
    name: &OsStr,
    namespace: impl FnOnce() -> Result<Namespace, NamespaceError> + Send,
) -> PyResult<()> {
    let namespace = py
        .detach(namespace)
        .map_err(|error| error.raise(py, Some(name)))?;
    py.detach(|| posix::unlink_in(&namespace, name))
        .map_err(|error| error.raise(py, Some(name)))
}

/// Removes the name of a POSIX queue. Processes that have the queue open continue to use it.
#[pyfunction]
#[pyo3(signature = (name, *, namespace=None))]
pub fn unlink(name: &Bound<'_, PyAny>, namespace: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let py = name.py();
    let name = os_string(name, "name")?;
    let namespace = names::namespace(py, namespace)?;
    unlink_by_name(py, &name, || Ok(namespace))
}

/// Returns the names of the POSIX queues of a namespace.
#[pyfunction]
#[pyo3(signature = (*, namespace=None))]
pub fn queues(py: Python<'_>, namespace: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<OsString>> {
    let namespace = names::namespace(py, namespace)?;
    let listed = py
        .detach(|| posix::list(&namespace))
        .map_err(|error| error.raise(py, None))?;
    Ok(listed.into_iter().map(|queue| queue.name).collect())
}
