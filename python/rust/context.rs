//! The with statement: `__enter__` and `__exit__` of all classes that have them.

use crate::fast::{Arguments, Method, add_methods, enter, none};
use pyo3::PyClass;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;

/// A class whose objects a with statement ends.
pub trait Scoped: PyClass<Frozen = True> + Sync {
    /// Fails if the object has ended.
    fn check_open(&self, py: Python<'_>) -> PyResult<()>;

    /// Ends the object. `failed` says that an exception leaves the with statement.
    fn leave(&self, py: Python<'_>, failed: bool) -> PyResult<()>;
}

/// Adds the class to the module, with the methods of the with statement.
pub fn add<C: Scoped>(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_context::<C>(module.py())?;
    module.add_class::<C>()
}

/// Adds the methods of the with statement to the class.
pub fn add_context<C: Scoped>(py: Python<'_>) -> PyResult<()> {
    let methods = [
        Method(
            c"__enter__",
            enter_scope::<C>,
            c"__enter__($self, /)\n--\n\n",
        ),
        Method(
            c"__exit__",
            exit_scope::<C>,
            c"__exit__($self, /, kind, error, trace)\n--\n\n",
        ),
    ];
    add_methods(&py.get_type::<C>(), &methods)
}

unsafe extern "C" fn enter_scope<C: Scoped>(
    object: *mut PyObject,
    values: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python calls the function as a method of the class, by METH_FASTCALL and METH_KEYWORDS.
    unsafe { enter::<C>(object, values, count, names, entered) }
}

unsafe extern "C" fn exit_scope<C: Scoped>(
    object: *mut PyObject,
    values: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as in `enter_scope`.
    unsafe { enter::<C>(object, values, count, names, left) }
}

fn entered<C: Scoped>(
    object: Borrowed<'_, '_, C>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let [] = arguments.take([], 0)?;
    object.get().check_open(object.py())?;
    Ok(object.to_owned().into_ptr())
}

fn left<C: Scoped>(
    object: Borrowed<'_, '_, C>,
    arguments: Arguments<'_, '_>,
) -> PyResult<*mut PyObject> {
    let [kind, _, _] = arguments.take([c"kind", c"error", c"trace"], 3)?;
    let failed = kind.is_some_and(|kind| !kind.is_none());
    object.get().leave(object.py(), failed)?;
    Ok(none())
}
