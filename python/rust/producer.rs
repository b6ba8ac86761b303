//! Producers: processes that a queue counts as sources of its messages.

use crate::error::{Failure, lease_ended};
use crate::gil::Guarded;
use pyo3::prelude::*;
use std::sync::Arc;
use umsg::{posix, sysv};

/// A producer of the library, of a queue of either kind. Dropping it ends it.
enum Held {
    Posix { _producer: posix::Producer<'static> },
    SysV { _producer: sysv::Producer<'static> },
}

/// The count of this process as a producer of a queue.
///
/// >>> queue = umsg.Queue("/q", create=True, close_with_last_producer=True)
/// >>> with queue.producer():
/// ...     queue.send(b"the only one")
/// >>> list(queue)
/// [b'the only one']
///
/// The end of the last producer closes a queue with `close_with_last_producer`, even if its process is killed.
#[pyclass(frozen, weakref, module = "umsg")]
pub struct Producer {
    /// None after `close`.
    held: Guarded<Option<Held>>,
}

/// Adds the class to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Producer>()
}

fn of<E: Failure>(py: Python<'_>, made: Result<Held, E>) -> PyResult<Producer> {
    let held = made.map_err(|error| error.raise(py, None))?;
    Ok(Producer {
        held: Guarded::new(Some(held)),
    })
}

/// Makes a producer of a POSIX queue.
pub fn of_posix(py: Python<'_>, queue: &Arc<posix::Queue>) -> PyResult<Producer> {
    let made = py.detach(|| queue.producer_owned());
    of(
        py,
        made.map(|producer| Held::Posix {
            _producer: producer,
        }),
    )
}

/// Makes a producer of a System V queue.
pub fn of_sysv(py: Python<'_>, queue: &Arc<sysv::Queue>) -> PyResult<Producer> {
    let made = py.detach(|| queue.producer_owned());
    of(
        py,
        made.map(|producer| Held::SysV {
            _producer: producer,
        }),
    )
}

#[pymethods]
impl Producer {
    /// True after `close()`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        // SAFETY: the work runs no code of Python.
        unsafe { self.held.with(py, |held| held.is_none()) }
    }

    /// Ends the producer.
    fn close(&self, py: Python<'_>) {
        // SAFETY: the work runs no code of Python. The producer is dropped outside.
        let held = unsafe { self.held.with(py, Option::take) };
        py.detach(|| drop(held));
    }

    fn __enter__<'a, 'py>(slf: &'a Bound<'py, Self>) -> PyResult<&'a Bound<'py, Self>> {
        match slf.get().closed(slf.py()) {
            true => Err(lease_ended(
                slf.py(),
                "the producer has ended: call producer() again",
            )),
            false => Ok(slf),
        }
    }

    #[pyo3(signature = (kind, error, trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        trace: &Bound<'_, PyAny>,
    ) {
        let _ = (kind, error, trace);
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> &'static str {
        match self.closed(py) {
            true => "<umsg.Producer, ended>",
            false => "<umsg.Producer>",
        }
    }
}
