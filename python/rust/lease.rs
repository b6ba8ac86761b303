//! Leases: messages received in place.

use crate::context::{self, Scoped};
use crate::error::{Failure, lease_ended};
use crate::exported::{self, Exporter, hand_over};
use crate::gil::Guarded;
use crate::queue::History;
use crate::wait::{duration, stamp};
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyMemoryView, PyType, PyWeakrefReference};
use std::cell::Cell;
use std::time::{Duration, SystemTime};
use umsg::posix::LeaseError;
use umsg::{posix, sysv};

/// A lease as the Rust crate `umsg` returns it, from a POSIX or a System V queue.
pub enum Held {
    Posix(posix::Lease<'static>),
    SysV(sysv::Lease<'static>),
}

macro_rules! either {
    ($held:expr, $lease:ident => $work:expr) => {
        match $held {
            Held::Posix($lease) => $work,
            Held::SysV($lease) => $work,
        }
    };
}

impl Held {
    fn len(&self) -> usize {
        either!(self, lease => lease.len())
    }

    fn start(&self) -> *mut u8 {
        either!(self, lease => lease.as_ptr().cast_mut())
    }

    fn deliveries(&self) -> u32 {
        either!(self, lease => lease.deliveries())
    }

    fn pid(&self) -> u32 {
        either!(self, lease => lease.pid())
    }

    fn sent(&self) -> SystemTime {
        either!(self, lease => lease.sent())
    }

    fn to_vec(&self) -> Vec<u8> {
        either!(self, lease => lease.to_vec())
    }

    fn limit(&self, time: Duration) -> Result<(), LeaseError> {
        either!(self, lease => lease.limit(time))
    }

    fn acknowledge(self) -> Result<(), LeaseError> {
        either!(self, lease => lease.acknowledge())
    }

    fn give_back(self) -> Result<(), LeaseError> {
        either!(self, lease => lease.give_back())
    }

    fn return_after(self, delay: Duration) -> Result<(), LeaseError> {
        either!(self, lease => lease.return_after(delay))
    }
}

/// The priority of a message, or its type.
#[derive(Clone, Copy)]
enum Key {
    Priority(u32),
    Type(i64),
}

struct State {
    /// None after the lease has ended.
    held: Option<Held>,
    /// The bytes that views show in place of the message, if the lease has a time limit: the message may leave its place at any moment.
    copy: Option<Vec<u8>>,
    /// The number of views that are not released.
    views: usize,
    /// The view of the property `data`.
    data: Option<Py<PyWeakrefReference>>,
}

/// The PyO3 base class of `umsg.Lease` and `umsg.SysVLease`.
#[pyclass(frozen, subclass, weakref, module = "umsg", name = "LeaseBase")]
pub struct Lease {
    state: Guarded<State>,
    len: usize,
    key: Key,
    deliveries: u32,
    pid: u32,
    sent: SystemTime,
    /// The process to which the lease belongs.
    owner: u32,
}

thread_local! {
    static PENDING: Cell<Option<Lease>> = const { Cell::new(None) };
}

static POSIX: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static SYSV: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Adds the classes to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let posix = POSIX.get_or_try_init(py, || {
        exported::class::<Lease>(py, c"umsg.Lease", c"A message of a POSIX queue, received in place.\n\nThe object has the buffer protocol: memoryview(job), bytes(job) and numpy.frombuffer(job) read the message without a copy. As a context\nmanager it acknowledges the message at the end, and returns it to the queue on an exception.")
    })?;
    let sysv = SYSV.get_or_try_init(py, || {
        exported::class::<Lease>(
            py,
            c"umsg.SysVLease",
            c"A message of a System V queue, received in place. See umsg.Lease.",
        )
    })?;
    context::add::<Lease>(module)?;
    module.add("Lease", posix)?;
    module.add("SysVLease", sysv)
}

/// Makes the object of a lease.
pub fn lease<'py>(py: Python<'py>, held: Held) -> PyResult<Bound<'py, PyAny>> {
    let (class, key) = match &held {
        Held::Posix(lease) => (&POSIX, Key::Priority(lease.priority())),
        Held::SysV(lease) => (&SYSV, Key::Type(lease.mtype())),
    };
    let Some(class) = class.get(py) else {
        return Err(exported::not_callable("Lease", "the module"));
    };
    let contents = Lease {
        len: held.len(),
        key,
        deliveries: held.deliveries(),
        pid: held.pid(),
        sent: held.sent(),
        owner: std::process::id(),
        state: Guarded::new(State {
            held: Some(held),
            copy: None,
            views: 0,
            data: None,
        }),
    };
    hand_over(class.bind(py), &PENDING, contents)
}

fn ended(py: Python<'_>) -> PyErr {
    lease_ended(py, "the lease has ended: receive the message again")
}

/// Makes the exception for a lease or reservation that can't end yet.
pub fn in_use(what: &str) -> PyErr {
    PyBufferError::new_err(format!(
        "a view of the {what} still exists: release each memoryview, and delete each array, before the {what} ends"
    ))
}

/// Returns the view that the property `data` of an object has given out, or a new view.
pub fn data<'py>(
    object: &Bound<'py, PyAny>,
    known: Option<Py<PyWeakrefReference>>,
) -> PyResult<(Bound<'py, PyAny>, Option<Py<PyWeakrefReference>>)> {
    let alive = known.and_then(|known| known.bind(object.py()).upgrade());
    if let Some(view) = alive {
        // A released view can't be given out again.
        if view.getattr("nbytes").is_ok() {
            return Ok((view, None));
        }
    }
    let view = PyMemoryView::from(object)?.into_any();
    let weak = PyWeakrefReference::new(&view)?.unbind();
    Ok((view, Some(weak)))
}

/// Releases the view that the property `data` has given out.
pub fn release_data(
    py: Python<'_>,
    known: Option<Py<PyWeakrefReference>>,
    what: &str,
) -> PyResult<()> {
    if let Some(view) = known.and_then(|known| known.bind(py).upgrade()) {
        view.call_method0("release").map_err(|error| {
            match error.is_instance_of::<PyBufferError>(py) {
                true => in_use(what),
                false => error,
            }
        })?;
    }
    Ok(())
}

impl Exporter for Lease {
    fn begin(&self, py: Python<'_>, writable: bool) -> PyResult<((*mut u8, usize), bool)> {
        if writable {
            return Err(PyBufferError::new_err("a leased message is read-only"));
        }
        if std::process::id() != self.owner {
            return Err(lease_ended(
                py,
                "the lease belongs to the parent process: receive another message",
            ));
        }
        // SAFETY: the work runs no code of Python.
        let start = unsafe {
            self.state.with(py, |state| {
                let start = match (&state.held, &mut state.copy) {
                    (Some(_), Some(copy)) => copy.as_mut_ptr(),
                    (Some(held), None) => held.start(),
                    (None, _) => return None,
                };
                state.views += 1;
                Some(start)
            })
        };
        let start = start.ok_or_else(|| ended(py))?;
        Ok(((start, self.len), true))
    }

    fn end(&self, py: Python<'_>) {
        // SAFETY: the work runs no code of Python.
        unsafe { self.state.with(py, |state| state.views -= 1) };
    }
}

impl Lease {
    /// Releases the view of the property `data`. If no other view exists, takes the lease out of this object.
    fn take(&self, py: Python<'_>) -> PyResult<Held> {
        // SAFETY: the work runs no code of Python.
        let data = unsafe { self.state.with(py, |state| state.data.take()) };
        release_data(py, data, "lease")?;
        // SAFETY: the work runs no code of Python.
        let taken = unsafe {
            self.state.with(py, |state| match state.views {
                0 => Ok(state.held.take()),
                _ => Err(()),
            })
        };
        match taken {
            Ok(Some(held)) => Ok(held),
            Ok(None) => Err(ended(py)),
            Err(()) => Err(in_use("lease")),
        }
    }

    /// Reads data that a POSIX queue keeps about a leased message.
    fn look<T>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&posix::Lease<'static>) -> Result<T, LeaseError>,
    ) -> PyResult<T> {
        // SAFETY: the work runs no code of Python.
        let seen = unsafe {
            self.state.with(py, |state| match &state.held {
                Some(Held::Posix(lease)) => Ok(Some(look(lease))),
                Some(Held::SysV(_)) => Err(()),
                None => Ok(None),
            })
        };
        match seen {
            Ok(Some(seen)) => seen.map_err(|error| error.raise(py, None)),
            Ok(None) => Err(ended(py)),
            Err(()) => Err(PyAttributeError::new_err(
                "a System V queue keeps no message numbers and no history",
            )),
        }
    }

    fn end_by(
        &self,
        py: Python<'_>,
        end: impl FnOnce(Held) -> Result<(), LeaseError> + Send,
    ) -> PyResult<()> {
        let held = self.take(py)?;
        py.detach(|| end(held))
            .map_err(|error| error.raise(py, None))
    }
}

impl Scoped for Lease {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_open(py) {
            true => Ok(()),
            false => Err(ended(py)),
        }
    }

    fn leave(&self, py: Python<'_>, failed: bool) -> PyResult<()> {
        if !self.is_open(py) {
            return Ok(());
        }
        if !failed {
            return self.acknowledge(py);
        }
        // The exception that ends the with statement takes precedence over an error of `give_back`. If views still exist, the message returns when
        // the last view and this object are gone.
        let _ = self.end_by(py, Held::give_back);
        Ok(())
    }
}

#[pymethods]
impl Lease {
    #[new]
    fn new() -> PyResult<Lease> {
        PENDING
            .take()
            .ok_or_else(|| exported::not_callable("Lease", "receive_lease"))
    }

    /// A read-only memoryview of the message in place, which is released when the lease ends.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        // SAFETY: the work runs no code of Python: a new reference only increments a count.
        let known = unsafe {
            this.state.with(py, |state| {
                state.data.as_ref().map(|weak| weak.clone_ref(py))
            })
        };
        let (view, new) = data(slf.as_any(), known)?;
        if new.is_some() {
            // SAFETY: the work runs no code of Python. The old reference is dropped after the work.
            drop(unsafe {
                this.state
                    .with(py, |state| std::mem::replace(&mut state.data, new))
            });
        }
        Ok(view)
    }

    /// The priority of the message, 0 to 32,767.
    #[getter]
    fn priority(&self) -> PyResult<u32> {
        match self.key {
            Key::Priority(priority) => Ok(priority),
            Key::Type(_) => Err(PyAttributeError::new_err(
                "a message of a System V queue has a type, and no priority",
            )),
        }
    }

    /// The type of the message, 1 or more.
    #[getter]
    fn r#type(&self) -> PyResult<i64> {
        match self.key {
            Key::Type(mtype) => Ok(mtype),
            Key::Priority(_) => Err(PyAttributeError::new_err(
                "a message of a POSIX queue has a priority, and no type",
            )),
        }
    }

    /// Returns the identifier of the message, unique among the messages of the queue. The identifier does not change when the message returns to the
    /// queue.
    fn message_id(&self, py: Python<'_>) -> PyResult<u64> {
        self.look(py, |lease| lease.message_id())
    }

    /// Returns the history of a dead letter, or of a message that was a dead letter. None for any other message.
    fn history(&self, py: Python<'_>) -> PyResult<Option<History>> {
        let history = self.look(py, |lease| lease.history())?;
        Ok(history.map(History::from))
    }

    /// The number of leases of the message so far, this lease included: 1 the first time.
    #[getter]
    fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// The process id of the sender.
    #[getter]
    fn pid(&self) -> u32 {
        self.pid
    }

    /// The time of the send in seconds since 1970, accurate to a few milliseconds.
    #[getter]
    fn sent(&self) -> f64 {
        stamp(self.sent)
    }

    /// True until the lease is acknowledged, returned, or ended by its with statement.
    #[getter]
    fn is_open(&self, py: Python<'_>) -> bool {
        // SAFETY: the work runs no code of Python.
        unsafe { self.state.with(py, |state| state.held.is_some()) }
    }

    fn __len__(&self) -> usize {
        self.len
    }

    fn __bytes__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyBytes>> {
        let (py, this) = (slf.py(), slf.get());
        let ((start, len), _) = this.begin(py, false)?;
        // SAFETY: the view that has just begun keeps the bytes at their address. Another process may write the bytes at the same time only if that
        // process breaks the protocol; the bytes are copied once and not interpreted.
        let copy = unsafe {
            let bytes = ffi::PyBytes_FromStringAndSize(start.cast(), len as ffi::Py_ssize_t);
            Bound::from_owned_ptr_or_err(py, bytes)
        };
        this.end(py);
        Ok(copy?.cast_into::<PyBytes>()?)
    }

    /// Sets a time limit, in seconds from now. When the limit passes, the lease ends by itself, and the message goes back to its place in the queue.
    ///
    /// From this call on, the object shows a copy of the message: the message may leave its place at any moment. Release all views first.
    fn limit(&self, py: Python<'_>, time: &Bound<'_, PyAny>) -> PyResult<()> {
        let time = duration(time, "time")?;
        // SAFETY: the work runs no code of Python.
        let limited = unsafe {
            self.state.with(py, |state| {
                let Some(held) = &state.held else {
                    return Err(None);
                };
                if state.copy.is_none() {
                    if state.views != 0 {
                        return Err(Some(in_use("lease")));
                    }
                    state.copy = Some(held.to_vec());
                }
                Ok(held.limit(time))
            })
        };
        match limited {
            Ok(result) => result.map_err(|error| error.raise(py, None)),
            Err(error) => Err(error.unwrap_or_else(|| ended(py))),
        }
    }

    /// Ends the lease and removes the message, which frees its room.
    fn acknowledge(&self, py: Python<'_>) -> PyResult<()> {
        self.end_by(py, Held::acknowledge)
    }

    /// Ends the lease and returns the message to its place in the queue. With `delay`, the message is delivered again after `delay` seconds at the
    /// earliest.
    #[pyo3(signature = (delay=None))]
    fn give_back(&self, py: Python<'_>, delay: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        match delay {
            None => self.end_by(py, Held::give_back),
            Some(delay) => {
                let delay = duration(delay, "delay")?;
                self.end_by(py, |held| held.return_after(delay))
            }
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = match self.is_open(py) {
            true => "",
            false => ", ended",
        };
        let (name, key) = match self.key {
            Key::Priority(priority) => ("Lease", format!("priority {priority}")),
            Key::Type(mtype) => ("SysVLease", format!("type {mtype}")),
        };
        let (len, deliveries) = (self.len, self.deliveries);
        format!("<umsg.{name}: {len} bytes, {key}, delivery {deliveries}{state}>")
    }
}
