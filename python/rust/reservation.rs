//! Reservations: messages written in place.

use crate::context::{self, Scoped};
use crate::error::{Failure, invalid, lease_ended};
use crate::exported::{self, Exporter, hand_over};
use crate::gil::Guarded;
use crate::lease::{data, in_use, release_data};
use crate::queue::priority_of;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyType, PyWeakrefReference};
use std::cell::Cell;
use umsg::posix;

struct State {
    /// None after the reservation has ended.
    room: Option<posix::Reservation<'static>>,
    /// The number of views that are not released.
    views: usize,
    /// The view of the property `data`.
    data: Option<Py<PyWeakrefReference>>,
    priority: u32,
}

/// The PyO3 base class of `umsg.Reservation`.
#[pyclass(frozen, subclass, weakref, module = "umsg", name = "ReservationBase")]
pub struct Reservation {
    state: Guarded<State>,
    len: usize,
    /// The process to which the reservation belongs.
    owner: u32,
}

thread_local! {
    static PENDING: Cell<Option<Reservation>> = const { Cell::new(None) };
}

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Adds the class to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let class = CLASS.get_or_try_init(py, || {
        exported::class::<Reservation>(
            py,
            c"umsg.Reservation",
            c"Room in a POSIX queue for a message that is written in place.\n\nThe object has the buffer protocol: memoryview(room) and numpy.frombuffer(room) write the message without a copy. As a context manager\nit sends the message at the end, and frees the room on an exception.",
        )
    })?;
    context::add_context::<Reservation>(py)?;
    module.add("Reservation", class)
}

/// Makes the object of a reservation.
pub fn reservation<'py>(
    py: Python<'py>,
    room: posix::Reservation<'static>,
    priority: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(class) = CLASS.get(py) else {
        return Err(exported::not_callable("Reservation", "the module"));
    };
    let contents = Reservation {
        len: room.len(),
        owner: std::process::id(),
        state: Guarded::new(State {
            room: Some(room),
            views: 0,
            data: None,
            priority,
        }),
    };
    hand_over(class.bind(py), &PENDING, contents)
}

fn ended(py: Python<'_>) -> PyErr {
    lease_ended(py, "the reservation has ended: reserve room again")
}

impl Exporter for Reservation {
    fn begin(&self, py: Python<'_>, _writable: bool) -> PyResult<((*mut u8, usize), bool)> {
        if std::process::id() != self.owner {
            let text = "the reservation belongs to the parent process: reserve room again";
            return Err(lease_ended(py, text));
        }
        // SAFETY: the work runs no code of Python.
        let start = unsafe {
            self.state.with(py, |state| {
                let start = state.room.as_mut()?.as_mut_ptr();
                state.views += 1;
                Some(start)
            })
        };
        let start = start.ok_or_else(|| ended(py))?;
        Ok(((start, self.len), false))
    }

    fn end(&self, py: Python<'_>) {
        // SAFETY: the work runs no code of Python.
        unsafe { self.state.with(py, |state| state.views -= 1) };
    }
}

impl Reservation {
    /// Releases the view of the property `data`. If no other view exists, takes the room out of this object.
    fn take(&self, py: Python<'_>) -> PyResult<(posix::Reservation<'static>, u32)> {
        // SAFETY: the work runs no code of Python.
        let data = unsafe { self.state.with(py, |state| state.data.take()) };
        release_data(py, data, "reservation")?;
        // SAFETY: the work runs no code of Python.
        let taken = unsafe {
            self.state.with(py, |state| match state.views {
                0 => Ok(state.room.take().map(|room| (room, state.priority))),
                _ => Err(()),
            })
        };
        match taken {
            Ok(Some(taken)) => Ok(taken),
            Ok(None) => Err(ended(py)),
            Err(()) => Err(in_use("reservation")),
        }
    }
}

impl Scoped for Reservation {
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
            return self.commit(py, None, None);
        }
        // The exception that ends the with statement takes precedence over an error of `cancel`. If views still exist, the room is free when the last
        // view and this object are gone.
        let _ = self.cancel(py);
        Ok(())
    }
}

#[pymethods]
impl Reservation {
    #[new]
    fn new() -> PyResult<Reservation> {
        PENDING
            .take()
            .ok_or_else(|| exported::not_callable("Reservation", "reserve"))
    }

    /// A writable memoryview of the room, which is released when the reservation ends.
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

    /// True until the message is sent, or the room is given back.
    #[getter]
    fn is_open(&self, py: Python<'_>) -> bool {
        // SAFETY: the work runs no code of Python.
        unsafe { self.state.with(py, |state| state.room.is_some()) }
    }

    fn __len__(&self) -> usize {
        self.len
    }

    /// Sends the message: the first `size` bytes, or all. `priority` replaces that of `reserve`.
    #[pyo3(signature = (*, size=None, priority=None))]
    fn commit(
        &self,
        py: Python<'_>,
        size: Option<usize>,
        priority: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let priority = priority.map(priority_of).transpose()?;
        if let Some(size) = size
            && size > self.len
        {
            let text = format!(
                "size must be at most {}, the length of the room, not {size}",
                self.len
            );
            return Err(invalid(py, &text));
        }
        let (mut room, first) = self.take(py)?;
        let sent = py.detach(|| {
            if let Some(size) = size {
                room.truncate(size);
            }
            room.commit(priority.unwrap_or(first))
        });
        sent.map_err(|error| error.raise(py, None))
    }

    /// Gives the room back without sending a message.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let (room, _) = self.take(py)?;
        py.detach(|| drop(room));
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = match self.is_open(py) {
            true => "",
            false => ", ended",
        };
        format!("<umsg.Reservation: {} bytes{state}>", self.len)
    }
}
