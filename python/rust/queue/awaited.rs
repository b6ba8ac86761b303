//! A registration for a notification for which the program waits.

use super::Queue;
use super::notify::Notified;
use crate::context::Scoped;
use crate::error::{Failure, Kind, lease_ended};
use crate::exclusive::{Exclusive, Refused};
use crate::wait::{Wait, blocking};
use pyo3::prelude::*;
use std::ffi::OsString;
use umsg::posix::{self, NotifyError};

/// A registration for one notification, which the program waits for. `Queue.notify_waiter` makes it.
#[pyclass(frozen, weakref, module = "umsg")]
pub struct Awaited {
    registration: Exclusive<posix::Awaited<'static>>,
    name: OsString,
}

impl Awaited {
    /// Uses the registration, which one thread at a time can use. `work` may release the interpreter's lock.
    fn with<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut posix::Awaited<'static>) -> PyResult<R>,
    ) -> PyResult<R> {
        let refused = |why| match why {
            Refused::Closed => closed_error(py),
            Refused::InUse => {
                let text =
                    "another thread waits for this notification: wait on one thread at a time";
                Kind::Busy.error(py, libc::EBUSY, text, Some(&self.name))
            }
        };
        self.registration.with(py, refused, work)
    }

    /// Waits for the notification. `wait` is None for a call that does not wait.
    fn heard(&self, py: Python<'_>, wait: Option<Wait>) -> PyResult<Notified> {
        let heard = self.with(py, |awaited| {
            let first = awaited.try_wait();
            let heard = match (first, wait) {
                (Err(NotifyError::TimedOut), Some(wait)) => {
                    blocking(py, wait, |until| match until {
                        posix::Until::After(time) => awaited.wait_timeout(time),
                        _ => awaited.wait(),
                    })?
                }
                (other, _) => other,
            };
            heard.map_err(|error| error.raise(py, Some(&self.name)))
        })?;
        Ok(Notified::from(heard))
    }
}

#[cold]
fn closed_error(py: Python<'_>) -> PyErr {
    let text = "the registration was closed: call notify_waiter() again";
    lease_ended(py, text)
}

impl Scoped for Awaited {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        match self.closed(py) {
            true => Err(closed_error(py)),
            false => Ok(()),
        }
    }

    fn leave(&self, py: Python<'_>, _failed: bool) -> PyResult<()> {
        self.close(py);
        Ok(())
    }
}

#[pymethods]
impl Awaited {
    /// Waits for the notification: without a limit, or at most `timeout` seconds. After the notification, each call returns the same notification at
    /// once.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Notified> {
        let wait = Wait::of(timeout)?;
        self.heard(py, Some(wait))
    }

    /// Returns the notification if it has happened; otherwise raises `TimedOut`.
    fn try_wait(&self, py: Python<'_>) -> PyResult<Notified> {
        self.heard(py, None)
    }

    /// True after `close()`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.registration.is_closed(py)
    }

    /// Withdraws the registration, if it still waits for a message. A call that waits in another thread continues, and the registration ends with
    /// that call.
    fn close(&self, py: Python<'_>) {
        self.registration.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> &'static str {
        match self.closed(py) {
            true => "<umsg.Awaited, closed>",
            false => "<umsg.Awaited>",
        }
    }
}

/// Registers the process for a notification that the program waits for.
pub fn register(this: &Queue, py: Python<'_>) -> PyResult<Awaited> {
    let queue = this.shared(py)?;
    let registered = py.detach(|| queue.notify_waiter_owned());
    let awaited = registered.map_err(|error| this.raise(py, &error))?;
    Ok(Awaited {
        registration: Exclusive::new(awaited),
        name: this.name.clone(),
    })
}
