//! Producers: processes that a queue counts as sources of its messages.

use crate::context::{self, Scoped};
use crate::error::{Failure, lease_ended};
use crate::gil::Guarded;
use pyo3::prelude::*;
use std::sync::Arc;
use umsg::{posix, sysv};

/// A producer of a queue of either kind. Dropping the value ends the producer.
enum Held {
    Posix { _producer: posix::Producer<'static> },
    SysV { _producer: sysv::Producer<'static> },
}

/// The registration of this process as a producer of a queue.
///
/// >>> queue = umsg.Queue("/q", create=True, close_with_last_producer=True)
/// >>> with queue.producer():
/// ...     queue.send(b"the only one")
/// >>> list(queue)
/// [b'the only one']
///
/// A queue with `close_with_last_producer` is closed when its last producer ends, even if the producer's process is killed.
#[pyclass(frozen, weakref, module = "umsg")]
pub struct Producer {
    /// None after `close`.
    held: Guarded<Option<Held>>,
}

/// Adds the class to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    context::add::<Producer>(module)
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

impl Scoped for Producer {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        match self.closed(py) {
            true => Err(lease_ended(
                py,
                "the producer has ended: call producer() again",
            )),
            false => Ok(()),
        }
    }

    fn leave(&self, py: Python<'_>, _failed: bool) -> PyResult<()> {
        self.close(py);
        Ok(())
    }
}

#[pymethods]
impl Producer {
    /// True after `close()`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.held.is_none(py)
    }

    /// Ends the producer.
    fn close(&self, py: Python<'_>) {
        let held = self.held.take(py);
        py.detach(|| drop(held));
    }

    fn __repr__(&self, py: Python<'_>) -> &'static str {
        match self.closed(py) {
            true => "<umsg.Producer, ended>",
            false => "<umsg.Producer>",
        }
    }
}
