//! Classes whose objects export their bytes.
//!
//! PyO3 has the buffer protocol for Python 3.11 and later only. So a class of PyO3 has all methods, and a subclass, made with the C interface, adds
//! the buffer protocol. An object of the subclass is made by calling the subclass, and takes its contents from [`hand_over`].

use crate::buffer::View;
use pyo3::PyClass;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::ffi::{CStr, c_int, c_void};

const BF_GETBUFFER: c_int = 1;
const BF_RELEASEBUFFER: c_int = 2;

/// A class whose objects export their bytes.
pub trait Exporter: PyClass + Sync {
    /// Begins a view. Returns an error, or the bytes and whether they are read-only.
    fn begin(&self, py: Python<'_>, writable: bool) -> PyResult<((*mut u8, usize), bool)>;
    /// Ends a view.
    fn end(&self, py: Python<'_>);
}

unsafe extern "C" fn get<C: Exporter<Frozen = pyo3::pyclass::boolean_struct::True>>(
    object: *mut PyObject,
    view: *mut View,
    flags: c_int,
) -> c_int {
    Python::attach(|py| {
        // SAFETY: Python calls the slot with an object of the class, which lives during the call.
        let class = unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<C>() };
        let begun = class.get().begin(py, flags & crate::buffer::WRITABLE != 0);
        let filled = begun.and_then(|(bytes, readonly)| {
            // SAFETY: the arguments are those of this call. The bytes stay until `end`.
            match unsafe { crate::buffer::fill(view, object, bytes, readonly, flags) } {
                0 => Ok(()),
                _ => {
                    class.get().end(py);
                    Err(PyErr::fetch(py))
                }
            }
        });
        match filled {
            Ok(()) => 0,
            Err(error) => {
                // SAFETY: the view is an argument of this call.
                unsafe { crate::buffer::refuse(view) };
                error.restore(py);
                -1
            }
        }
    })
}

unsafe extern "C" fn release<C: Exporter<Frozen = pyo3::pyclass::boolean_struct::True>>(
    object: *mut PyObject,
    _view: *mut View,
) {
    Python::attach(|py| {
        // SAFETY: as in `get`.
        let class = unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<C>() };
        class.get().end(py);
    });
}

/// Makes the subclass of `C` with the buffer protocol. `name` is the name of the subclass with its module.
pub fn class<C: Exporter<Frozen = pyo3::pyclass::boolean_struct::True>>(
    py: Python<'_>,
    name: &'static CStr,
    doc: &'static CStr,
) -> PyResult<Py<PyType>> {
    let mut slots = [
        ffi::PyType_Slot {
            slot: BF_GETBUFFER,
            pfunc: get::<C> as *mut c_void,
        },
        ffi::PyType_Slot {
            slot: BF_RELEASEBUFFER,
            pfunc: release::<C> as *mut c_void,
        },
        ffi::PyType_Slot {
            slot: ffi::Py_tp_doc,
            pfunc: doc.as_ptr().cast_mut().cast(),
        },
        ffi::PyType_Slot {
            slot: 0,
            pfunc: std::ptr::null_mut(),
        },
    ];
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: ffi::Py_TPFLAGS_DEFAULT as u32,
        slots: slots.as_mut_ptr(),
    };
    // Python 3.9 takes the base in a tuple only.
    let bases = PyTuple::new(py, [py.get_type::<C>()])?;
    // SAFETY: the specification is complete, and its strings live for ever. The subclass gets its size and all other properties from the base.
    let class = unsafe {
        let class = ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr());
        Bound::from_owned_ptr_or_err(py, class)?
    };
    Ok(class.cast_into::<PyType>()?.unbind())
}

/// Makes an object of a class with the buffer protocol. The class's `__new__` takes the contents from `pending`.
pub fn hand_over<'py, C>(
    class: &Bound<'py, PyType>,
    pending: &'static std::thread::LocalKey<std::cell::Cell<Option<C>>>,
    contents: C,
) -> PyResult<Bound<'py, PyAny>> {
    pending.set(Some(contents));
    let made = class.call0();
    pending.set(None);
    made
}

/// Makes the exception for a program that calls the class itself.
pub fn not_callable(name: &str, method: &str) -> PyErr {
    PyTypeError::new_err(format!("{name} objects are made by {method}"))
}
