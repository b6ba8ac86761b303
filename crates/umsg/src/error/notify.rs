//! Errors of notification.

use super::{QueueError, from_fault};

/// The reason why a process was not registered for a notification, or not notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// EBUSY: a process is registered already, possibly this one.
    #[error(
        "a process is already registered for this queue's notification: wait until its registration ends"
    )]
    Busy,
    /// EINVAL: a signal's number is outside 0 to 64.
    #[error("a signal's number must be from 0 to 64, where 0 is no signal")]
    InvalidSignal,
    /// EINVAL: `sigev_notify` of a `struct sigevent` is not SIGEV_NONE, SIGEV_SIGNAL or SIGEV_THREAD.
    #[error("sigev_notify must be SIGEV_NONE, SIGEV_SIGNAL or SIGEV_THREAD")]
    InvalidWay,
    /// EINVAL: a `struct sigevent` asks for a thread, and its `sigev_notify_function` is NULL.
    #[error("sigev_notify_function is NULL: SIGEV_THREAD needs a function to call")]
    NoFunction,
    /// ENOMEM: the thread that waits for the notification can't be started.
    #[error(
        "the thread that waits for the notification can't be started. Raise the limit on processes (ulimit -u, pids.max) or on address space (ulimit -v)."
    )]
    NoThread,
    /// The errno of the call: the kernel or a sandbox refuses a system call that notification by signals needs.
    #[error("{}", super::call_refused(call, &std::io::Error::from_raw_os_error(*.errno)))]
    CallRefused {
        /// The system call.
        call: &'static str,
        /// The errno of the system call.
        errno: i32,
    },
    /// ENOMEM: more than a thousand living processes have not run since this queue notified them.
    #[error(
        "the queue can't take another registration: 1,032 processes have not run since their notification, probably because they are stopped. Continue or end these processes."
    )]
    TooManyUntold,
    /// EAGAIN: a process was stopped inside an operation on the queue.
    #[error("a stopped process holds the queue's lock: continue or end that process")]
    Unavailable,
    /// ETIMEDOUT: no message came before the deadline.
    #[error("timed out waiting for a notification")]
    TimedOut,
    /// EINTR: a signal handler ran while the call waited.
    #[error("a signal handler interrupted the call: repeat the call")]
    Interrupted,
    /// ECANCELED: the registration was removed.
    #[error("the registration for a notification was removed: register again")]
    Gone,
    /// The errors that all kinds of queues share.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl NotifyError {
    /// Returns the error number of mq_notify(3), or the nearest number if mq_notify(3) has no such error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut waiter = queue.notify_waiter()?;
    /// let second = queue.notify_waiter().unwrap_err();
    /// assert_eq!(second.errno(), libc::EBUSY);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            NotifyError::CallRefused { errno, .. } => *errno,
            NotifyError::Busy => libc::EBUSY,
            NotifyError::InvalidSignal | NotifyError::InvalidWay | NotifyError::NoFunction => {
                libc::EINVAL
            }
            NotifyError::NoThread | NotifyError::TooManyUntold => libc::ENOMEM,
            NotifyError::Unavailable => libc::EAGAIN,
            NotifyError::TimedOut => libc::ETIMEDOUT,
            NotifyError::Interrupted => libc::EINTR,
            NotifyError::Gone => libc::ECANCELED,
            NotifyError::Queue(error) => error.errno(),
        }
    }
}

// A registration takes no memory of the namespace.
from_fault!(NotifyError, of_in_place, Unavailable);
