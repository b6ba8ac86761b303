//! Notification of a message that comes to the empty queue: mq_notify(3).

use super::Queue;
use pyo3::prelude::*;
use umsg::posix::{
    Notify, has_notifications, withdraw_notification, withdraw_notification_at_close,
};

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
    // The registration outlives this call. It ends with its notification, by a withdrawal, or with the process.
    let registered = py.detach(|| {
        withdraw_notification(queue.identity());
        how.map(|how| queue.register(how)).transpose()
    });
    registered.map(drop).map_err(|error| this.raise(py, &error))
}

/// Calls a function of Python in the thread of a notification.
fn call(function: &Py<PyAny>, argument: Py<PyAny>) {
    // None if the interpreter has ended.
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
