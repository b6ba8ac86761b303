//! Objects of the library that one thread at a time can use.

use crate::gil::Guarded;
use pyo3::prelude::*;

/// The use of an object, and the object while no thread uses it.
enum State<T> {
    Open(T),
    /// A thread uses the object. True if the object is closed after this use.
    InUse(bool),
    Closed,
}

/// The reason why an object can't be used.
pub enum Refused {
    Closed,
    /// Another thread uses the object.
    InUse,
}

/// An object that a thread uses without the interpreter's lock, and that another thread may close meanwhile.
pub struct Exclusive<T>(Guarded<State<T>>);

impl<T: Send> Exclusive<T> {
    pub fn new(object: T) -> Exclusive<T> {
        Exclusive(Guarded::new(State::Open(object)))
    }

    /// Uses the object. `work` may release the interpreter's lock. `refused` makes the exception of an object that can't be used.
    pub fn with<R>(
        &self,
        py: Python<'_>,
        refused: impl FnOnce(Refused) -> PyErr,
        work: impl FnOnce(&mut T) -> PyResult<R>,
    ) -> PyResult<R> {
        let take = |state: &mut State<T>| match std::mem::replace(state, State::InUse(false)) {
            State::Open(object) => Ok(object),
            State::Closed => {
                *state = State::Closed;
                Err(Refused::Closed)
            }
            State::InUse(closes) => {
                *state = State::InUse(closes);
                Err(Refused::InUse)
            }
        };
        // SAFETY: the work runs no code of Python.
        let mut taken = unsafe { self.0.with(py, take) }.map_err(refused)?;
        let result = work(&mut taken);
        // SAFETY: the work runs no code of Python. An object that was closed meanwhile is dropped after the work.
        let rest = unsafe {
            self.0.with(py, |state| match state {
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

    /// True after `close`.
    pub fn is_closed(&self, py: Python<'_>) -> bool {
        // SAFETY: the work runs no code of Python.
        unsafe {
            self.0.with(py, |state| {
                matches!(state, State::Closed | State::InUse(true))
            })
        }
    }

    /// Closes the object. If a call uses the object, the object is closed at the end of that call.
    pub fn close(&self, py: Python<'_>) {
        // SAFETY: the work runs no code of Python. The object is dropped after the work.
        let state = unsafe {
            self.0.with(py, |state| match state {
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
}
