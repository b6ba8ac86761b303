//! A registration for a notification that its owner waits for.

use super::Queue;
use super::notify::Notified;
use crate::error::{Failure, Kind, lease_ended};
use crate::gil::Guarded;
use crate::wait::{Wait, blocking};
use pyo3::prelude::*;
use std::ffi::OsString;
use umsg::posix::{self, NotifyError};

/// The registration of the library.
enum State {
    Open(posix::Awaited<'static>),
    /// A thread waits. True if the registration is to be closed afterwards.
    InUse(bool),
    Closed,
}

/// A registration for one notification, which the program waits for. `Queue.notify_waiter` makes it.
#[pyclass(frozen, weakref, module = "umsg")]
pub struct Awaited {
    state: Guarded<State>,
    name: OsString,
}

impl Awaited {
    /// Uses the registration, which one thread at a time can use. `work` may release the interpreter's lock.
    fn with<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut posix::Awaited<'static>) -> PyResult<R>,
    ) -> PyResult<R> {
        let take = |state: &mut State| match state {
            State::Open(_) => std::mem::replace(state, State::InUse(false)),
            State::InUse(_) => State::InUse(false),
            State::Closed => State::Closed,
        };
        // SAFETY: the work runs no code of Python.
        let mut taken = match unsafe { self.state.with(py, take) } {
            State::Open(awaited) => awaited,
            State::Closed => return Err(closed_error(py)),
            State::InUse(_) => {
                let text =
                    "another thread waits for this notification: wait on one thread at a time";
                return Err(Kind::Busy.error(py, libc::EBUSY, text, Some(&self.name)));
            }
        };
        let result = work(&mut taken);
        // SAFETY: as above. A registration that is to be closed is dropped outside.
        let rest = unsafe {
            self.state.with(py, |state| match state {
                State::InUse(false) => {
                    *state = State::Open(taken);
                    None
                }
                _ => {
                    *state = State::Closed;
                    Some(taken)
                }
            })
        };
        py.detach(|| drop(rest));
        result
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

#[pymethods]
impl Awaited {
    /// Waits for the notification without a limit, or `timeout` seconds. After the notification each call returns it at once.
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
        // SAFETY: the work runs no code of Python.
        unsafe {
            self.state.with(py, |state| {
                matches!(state, State::Closed | State::InUse(true))
            })
        }
    }

    /// Withdraws the registration, if it still waits for a message. A call that waits in another thread continues, and the registration ends
    /// with it.
    fn close(&self, py: Python<'_>) {
        // SAFETY: the work runs no code of Python. The registration is dropped outside.
        let state = unsafe {
            self.state.with(py, |state| match state {
                State::Open(_) => std::mem::replace(state, State::Closed),
                State::InUse(closes) => {
                    *closes = true;
                    State::Closed
                }
                State::Closed => State::Closed,
            })
        };
        py.detach(|| drop(state));
    }

    fn __enter__<'a, 'py>(slf: &'a Bound<'py, Self>) -> PyResult<&'a Bound<'py, Self>> {
        match slf.get().closed(slf.py()) {
            true => Err(closed_error(slf.py())),
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
            true => "<umsg.Awaited, closed>",
            false => "<umsg.Awaited>",
        }
    }
}

/// Registers the process for a notification that it waits for.
pub fn register(this: &Queue, py: Python<'_>) -> PyResult<Awaited> {
    let queue = this.shared(py)?;
    let registered = py.detach(|| queue.notify_waiter_owned());
    let awaited = registered.map_err(|error| this.raise(py, &error))?;
    Ok(Awaited {
        state: Guarded::new(State::Open(awaited)),
        name: this.name.clone(),
    })
}
