//! Opening and listing queues.

use super::SysVQueue;
use crate::error::{Failure, invalid};
use crate::gil::Guarded;
use crate::names;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use umsg::Namespace;
use umsg::sysv::{self, OpenOptions};

/// Reads a key or an identifier.
pub fn number(value: &Bound<'_, PyAny>, what: &str) -> PyResult<i32> {
    let py = value.py();
    // A key is the 32 bits of a key_t: 0xffff_0000 and the negative number with the same bits are one key.
    match value.extract::<i64>() {
        Ok(number) => i32::try_from(number)
            .or_else(|_| u32::try_from(number).map(u32::cast_signed))
            .map_err(|_| invalid(py, &format!("{what} must fit in 32 bits, not {number}"))),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Err(invalid(
            py,
            &format!("{what} must fit in 32 bits, not {value}"),
        )),
        Err(_) => Err(PyTypeError::new_err(format!(
            "{what} must be int, not {}",
            value.get_type().name()?
        ))),
    }
}

pub fn open(
    py: Python<'_>,
    mut options: OpenOptions,
    (key, id): (Option<i32>, Option<i32>),
    namespace: &Namespace,
) -> PyResult<SysVQueue> {
    options.namespace(namespace);
    let opened = match (key, id) {
        (Some(_), Some(_)) => {
            return Err(PyTypeError::new_err(
                "a queue is opened by its key or by its id, not by both",
            ));
        }
        (None, Some(id)) => py.detach(|| options.open_id(id)),
        (key, None) => py.detach(|| options.open(key.unwrap_or(sysv::PRIVATE))),
    };
    let queue = opened.map_err(|error| error.raise(py, None))?;
    Ok(SysVQueue {
        id: queue.id(),
        key: queue.key(),
        message_size: AtomicUsize::new(queue.msgmax()),
        namespace: namespace.path().to_owned(),
        ends_on_signals: AtomicBool::new(false),
        handle: Guarded::new(Some(Arc::new(queue))),
    })
}

/// The result of `__reduce__`.
pub type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyType>, i32, OsString));

pub fn reduce<'py>(slf: &Bound<'py, SysVQueue>) -> PyResult<Reduced<'py>> {
    let (py, queue) = (slf.py(), slf.get());
    queue.shared(py)?;
    let reopen = py.import("umsg._umsg")?.getattr("_reopen_sysv_queue")?;
    let namespace = queue.namespace.clone().into_os_string();
    Ok((reopen, (slf.get_type(), queue.id, namespace)))
}

/// Opens a queue whose handle was pickled.
#[pyfunction]
#[pyo3(name = "_reopen_sysv_queue")]
pub fn reopen_sysv_queue<'py>(
    class: &Bound<'py, PyType>,
    id: i32,
    namespace: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(class.py());
    options.set_item("id", id)?;
    options.set_item("namespace", namespace)?;
    class.call((), Some(&options))
}

/// Removes a System V queue, which need not be open.
#[pyfunction]
pub fn _remove_sysv_queue(py: Python<'_>, id: i32) -> PyResult<()> {
    let namespace = names::namespace(py, None)?;
    py.detach(|| sysv::remove(&namespace, id))
        .map_err(|error| error.raise(py, None))
}

/// Returns the identifiers of the System V queues of a namespace.
#[pyfunction]
#[pyo3(signature = (*, namespace=None))]
pub fn sysv_queues(py: Python<'_>, namespace: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<i32>> {
    let namespace = names::namespace(py, namespace)?;
    let listed = py
        .detach(|| sysv::list(&namespace))
        .map_err(|error| error.raise(py, None))?;
    Ok(listed.into_iter().map(|queue| queue.id).collect())
}
