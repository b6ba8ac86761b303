//! The exceptions of the package, and the choice of an exception for each error of the library.
//!
//! `umsg/_errors.py` defines the classes. The text of an exception comes from the library.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use std::ffi::OsStr;
use std::fmt::Display;
use umsg::posix::LeaseError;
use umsg::{NamespaceError, posix, ring, sysv};

/// The side of a queue that a call works on. The side decides between exceptions that share an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Send,
    Receive,
    Other,
}

/// A class of `umsg/_errors.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Error,
    Full,
    Empty,
    TimedOut,
    Invalid,
    TooLong,
    Removed,
    Closed,
    EndOfStream,
    HandleClosed,
    LeaseEnded,
    NotFound,
    Exists,
    NoPermission,
    OutOfMemory,
    Corrupted,
    Busy,
}

/// The names of the classes, in the order of [`Kind`].
const NAMES: [&str; 17] = [
    "Error",
    "Full",
    "Empty",
    "TimedOut",
    "Invalid",
    "TooLong",
    "Removed",
    "Closed",
    "EndOfStream",
    "HandleClosed",
    "LeaseEnded",
    "NotFound",
    "Exists",
    "NoPermission",
    "OutOfMemory",
    "Corrupted",
    "Busy",
];

static CLASSES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();

/// Finds the classes, when the module is imported.
pub fn find_classes(py: Python<'_>) -> PyResult<()> {
    CLASSES.get_or_try_init(py, || {
        let errors = py.import("umsg._errors")?;
        NAMES
            .iter()
            .map(|name| Ok(errors.getattr(*name)?.cast_into::<PyType>()?.unbind()))
            .collect::<PyResult<Vec<_>>>()
    })?;
    Ok(())
}

impl Kind {
    /// Chooses the class for an error number.
    fn of(errno: i32, side: Side) -> Kind {
        match (errno, side) {
            (libc::EAGAIN, Side::Send) => Kind::Full,
            (libc::EAGAIN, Side::Receive) | (libc::ENOMSG, _) => Kind::Empty,
            (libc::EAGAIN, Side::Other) | (libc::EBUSY | libc::EDEADLK, _) => Kind::Busy,
            (libc::ETIMEDOUT, _) => Kind::TimedOut,
            (libc::EINVAL | libc::ENAMETOOLONG, _) => Kind::Invalid,
            (libc::EMSGSIZE | libc::E2BIG, _) => Kind::TooLong,
            (libc::EIDRM, _) => Kind::Removed,
            (libc::EPIPE, Side::Receive) => Kind::EndOfStream,
            (libc::EPIPE | libc::EOWNERDEAD, _) => Kind::Closed,
            (libc::ESTALE, _) => Kind::LeaseEnded,
            (libc::ENOENT, _) => Kind::NotFound,
            (libc::EEXIST, _) => Kind::Exists,
            (libc::EACCES | libc::EPERM, _) => Kind::NoPermission,
            (libc::ENOMEM | libc::ENOSPC, _) => Kind::OutOfMemory,
            (libc::EBADMSG, _) => Kind::Corrupted,
            _ => Kind::Error,
        }
    }

    /// Chooses the class for an error number of a send.
    pub fn to_send(errno: i32) -> Kind {
        Kind::of(errno, Side::Send)
    }

    /// Makes an exception of this class. `name` is the queue's name, which OSError shows after the text.
    pub fn error(self, py: Python<'_>, errno: i32, text: &str, name: Option<&OsStr>) -> PyErr {
        if let Err(error) = find_classes(py) {
            return error;
        }
        let Some(class) = CLASSES.get(py).and_then(|all| all.get(self as usize)) else {
            return pyo3::exceptions::PyOSError::new_err((errno, text.to_owned()));
        };
        let class = class.bind(py);
        let made = match name {
            Some(name) => class.call1((errno, PyString::new(py, text), name)),
            None => class.call1((errno, PyString::new(py, text))),
        };
        made.map_or_else(|error| error, PyErr::from_value)
    }
}

/// Makes an exception of the class for `errno`.
#[cold]
fn error(
    py: Python<'_>,
    (errno, side): (i32, Side),
    text: &impl Display,
    name: Option<&OsStr>,
) -> PyErr {
    Kind::of(errno, side).error(py, errno, &text.to_string(), name)
}

/// Makes the exception for an error of a system call.
#[cold]
pub fn of_system(py: Python<'_>, failed: &std::io::Error, name: Option<&OsStr>) -> PyErr {
    let errno = failed.raw_os_error().unwrap_or(libc::EIO);
    error(py, (errno, Side::Other), failed, name)
}

/// Makes the exception for an argument that no call accepts.
#[cold]
pub fn invalid(py: Python<'_>, text: &str) -> PyErr {
    Kind::Invalid.error(py, libc::EINVAL, text, None)
}

/// Makes the exception for a handle that was closed.
#[cold]
pub fn handle_closed(py: Python<'_>, what: &str, name: Option<&OsStr>) -> PyErr {
    let text = format!("the handle was closed: open the {what} again");
    Kind::HandleClosed.error(py, libc::EBADF, &text, name)
}

/// Makes the exception for a lease or reservation that has ended.
#[cold]
pub fn lease_ended(py: Python<'_>, text: &str) -> PyErr {
    Kind::LeaseEnded.error(py, libc::ESTALE, text, None)
}

/// An error of the library.
pub trait Failure {
    /// Returns whether a signal handler has interrupted the call.
    fn is_interruption(&self) -> bool;
    /// Returns whether the time limit of the call has passed.
    fn is_time_out(&self) -> bool;
    /// Makes the exception.
    fn raise(&self, py: Python<'_>, name: Option<&OsStr>) -> PyErr;
}

macro_rules! failures {
    ($($error:ty, $side:ident;)*) => {
        $(impl Failure for $error {
            fn is_interruption(&self) -> bool {
                self.errno() == libc::EINTR
            }

            fn is_time_out(&self) -> bool {
                self.errno() == libc::ETIMEDOUT
            }

            fn raise(&self, py: Python<'_>, name: Option<&OsStr>) -> PyErr {
                error(py, (self.errno(), Side::$side), self, name)
            }
        })*
    };
}

failures! {
    posix::SendError, Send;
    posix::ReceiveError, Receive;
    posix::OpenError, Other;
    posix::UnlinkError, Other;
    posix::NotifyError, Other;
    sysv::SendError, Send;
    sysv::ReceiveError, Receive;
    sysv::OpenError, Other;
    sysv::ControlError, Other;
    ring::SendError, Send;
    ring::ReceiveError, Receive;
    ring::RingError, Other;
    LeaseError, Other;
    posix::SnapshotError, Other;
    posix::RestoreError, Send;
    NamespaceError, Other;
}
