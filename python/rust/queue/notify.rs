//! Notification of a message that comes to the empty queue: mq_notify(3).

use super::Queue;
use crate::context::Scoped;
use crate::error::{invalid, lease_ended};
use crate::gil::Guarded;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use umsg::posix::{
    self, Notify, has_notifications, withdraw_notification, withdraw_notification_at_close,
};

/// The sender of a message of which a process was notified.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct Notified {
    /// The process id of the sender.
    pid: u32,
    /// The real user id of the sender.
    uid: u32,
}

#[pymethods]
impl Notified {
    fn __repr__(&self) -> String {
        format!("<umsg.Notified by process {}, user {}>", self.pid, self.uid)
    }
}

impl From<posix::Notified> for Notified {
    fn from(from: posix::Notified) -> Notified {
        let (pid, uid) = (from.pid, from.uid);
        Notified { pid, uid }
    }
}

/// A registration for one notification. `Queue.notify` makes it.
#[pyclass(frozen, weakref, module = "umsg")]
pub struct Registration {
    /// None after `close`.
    held: Guarded<Option<posix::Registration<'static>>>,
}

impl Scoped for Registration {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        match self.held.is_none(py) {
            true => Err(lease_ended(
                py,
                "the registration was closed: call notify() again",
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
impl Registration {
    /// True while the registration waits for a message. False in a forked child, because the registration belongs to the parent.
    #[getter]
    fn is_armed(&self, py: Python<'_>) -> bool {
        // SAFETY: the work runs no code of Python.
        unsafe {
            self.held.with(py, |held| {
                held.as_ref().is_some_and(posix::Registration::is_armed)
            })
        }
    }

    /// Withdraws the registration, if it still waits for a message.
    fn close(&self, py: Python<'_>) {
        let held = self.held.take(py);
        py.detach(|| drop(held));
    }

    fn __repr__(&self, py: Python<'_>) -> &'static str {
        match self.is_armed(py) {
            true => "<umsg.Registration>",
            false => "<umsg.Registration, ended>",
        }
    }
}

/// Registers the process for a call of a function, or for a signal.
pub fn register(
    this: &Queue,
    py: Python<'_>,
    function: Option<Py<PyAny>>,
    signal: Option<i32>,
) -> PyResult<Registration> {
    let how = match (function, signal) {
        (Some(function), None) if function.bind(py).is_callable() => {
            Notify::call(move |by| tell(&function, by))
        }
        (Some(function), None) => {
            let kind = function.bind(py).get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "function must be callable, not {kind}"
            )));
        }
        (None, Some(signal)) => Notify::signal(signal),
        _ => return Err(invalid(py, "give either a function or a signal")),
    };
    let queue = this.shared(py)?;
    let registered = py.detach(|| queue.notify_owned(how));
    let held = registered.map_err(|error| this.raise(py, &error))?;
    Ok(Registration {
        held: Guarded::new(Some(held)),
    })
}

/// Calls a function of Python with the sender, in the thread of a notification.
fn tell(function: &Py<PyAny>, by: posix::Notified) {
    // `try_attach` returns None if the interpreter has ended.
    Python::try_attach(|py| {
        if let Err(error) = function.call1(py, (Notified::from(by),)) {
            error.write_unraisable(py, Some(function.bind(py)));
        }
    });
}

/// Replaces the registration of the process. See `umsg.posix_ipc.MessageQueue.request_notification`.
pub fn notify(
    this: &Queue,
    py: Python<'_>,
    notification: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let how = match notification {
        None => None,
        Some(given) => Some(match given.extract::<i32>() {
            Ok(signal) => Notify::signal(signal),
            Err(_) => {
                let (function, argument) = given.extract::<(Py<PyAny>, Py<PyAny>)>()?;
                Notify::call(move |_| call(&function, argument))
            }
        }),
    };
    let queue = this.shared(py)?;
    // The registration outlives this call. The registration ends with its notification, by a withdrawal, or with the process.
    let registered = py.detach(|| {
        withdraw_notification(queue.identity());
        how.map(|how| queue.register(how)).transpose()
    });
    registered.map(drop).map_err(|error| this.raise(py, &error))
}

/// Calls a function of Python in the thread of a notification.
fn call(function: &Py<PyAny>, argument: Py<PyAny>) {
    // `try_attach` returns None if the interpreter has ended.
    Python::try_attach(|py| {
        if let Err(error) = function.call1(py, (argument,)) {
            error.write_unraisable(py, Some(function.bind(py)));
        }
    });
}

/// Withdraws the registration of the process before a descriptor of the queue is closed.
pub fn withdraw_at_close(this: &Queue, py: Python<'_>) -> PyResult<()> {
    let queue = this.shared(py)?;
    if has_notifications() {
        py.detach(|| withdraw_notification_at_close(queue.identity()));
    }
    Ok(())
}
