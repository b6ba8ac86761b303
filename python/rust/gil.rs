//! State that the global interpreter lock protects.

use pyo3::Python;
use std::cell::UnsafeCell;
use std::sync::Arc;

#[cfg(Py_GIL_DISABLED)]
compile_error!(
    "umsg does not support free-threaded Python yet: build and run it with the default build of Python, which has the global interpreter lock"
);

/// A value that only threads with the global interpreter lock use.
pub struct Guarded<T>(UnsafeCell<T>);

// SAFETY: every access needs a `Python` token, so the thread holds the lock, and there is no other access at the same time. The `compile_error!` of
// this file refuses free-threaded builds of Python, which have no such lock.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub fn new(value: T) -> Guarded<T> {
        Guarded(UnsafeCell::new(value))
    }

    /// Calls `work` with the value.
    ///
    /// # Safety
    /// `work` neither runs code of Python (calls, conversions, the end of an object) nor releases the lock, and makes no nested call of `with` for
    /// the same value.
    #[inline(always)]
    pub unsafe fn with<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the thread holds the lock during `work`, as the token shows, and by the contract no other access begins meanwhile.
        work(unsafe { &mut *self.0.get() })
    }
}

impl<T> Guarded<Option<T>> {
    /// Returns the value, and leaves None in its place.
    pub fn take(&self, py: Python<'_>) -> Option<T> {
        // SAFETY: the work runs no code of Python.
        unsafe { self.with(py, Option::take) }
    }

    pub fn is_none(&self, py: Python<'_>) -> bool {
        // SAFETY: as in `take`.
        unsafe { self.with(py, |value| value.is_none()) }
    }
}

impl<T> Guarded<Option<Arc<T>>> {
    /// Returns a reference to the value, for a call that may release the lock.
    pub fn shared(&self, py: Python<'_>) -> Option<Arc<T>> {
        // SAFETY: as in `take`.
        unsafe { self.with(py, |value| value.clone()) }
    }
}
