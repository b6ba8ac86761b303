//! Methods of the fast path, which take their arguments as a vector (METH_FASTCALL). The stable interface has this convention since 3.10; Python 3.9
//! has the same convention.

use pyo3::PyClass;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

const METH_KEYWORDS: c_int = 0x0002;
const METH_FASTCALL: c_int = 0x0080;

/// A method as a C function.
pub type Raw = unsafe extern "C" fn(
    *mut PyObject,
    *const *mut PyObject,
    ffi::Py_ssize_t,
    *mut PyObject,
) -> *mut PyObject;

/// The name of a method, its function, and its documentation, which begins with its signature.
pub struct Method(pub &'static CStr, pub Raw, pub &'static CStr);

/// Adds methods to a class.
pub fn add_methods(class: &Bound<'_, PyType>, methods: &[Method]) -> PyResult<()> {
    for &Method(name, function, doc) in methods {
        // SAFETY: both types are pointers to functions. Python calls the function as the flags say.
        let function =
            unsafe { std::mem::transmute::<Raw, ffi::PyCFunctionWithKeywords>(function) };
        // The definition is leaked, because the method uses it for ever.
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunctionWithKeywords: function,
            },
            ml_flags: METH_FASTCALL | METH_KEYWORDS,
            ml_doc: doc.as_ptr(),
        }));
        // SAFETY: the class and the definition are valid.
        let method = unsafe {
            let method = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
            Bound::from_owned_ptr_or_err(class.py(), method)?
        };
        let name = name
            .to_str()
            .map_err(|_| PyTypeError::new_err("a name of a method"))?;
        class.setattr(name, method)?;
    }
    Ok(())
}

/// The arguments of a call.
pub struct Arguments<'a, 'py> {
    py: Python<'py>,
    values: &'a [*mut PyObject],
    /// The number of arguments without names. The names of the other arguments are in `names`, a tuple or null.
    positional: usize,
    names: *mut PyObject,
}

/// An argument, if it was given.
pub type Argument<'a, 'py> = Option<Borrowed<'a, 'py, PyAny>>;

impl<'a, 'py> Arguments<'a, 'py> {
    /// Returns the arguments for the parameters `names`. The first `required` must be given.
    #[inline(always)]
    pub fn take<const N: usize>(
        &self,
        names: [&'static CStr; N],
        required: usize,
    ) -> PyResult<[Argument<'a, 'py>; N]> {
        let mut found = [const { None }; N];
        if self.names.is_null() && self.positional <= N && self.positional >= required {
            for (place, &value) in found.iter_mut().zip(self.values) {
                // SAFETY: the caller of the method keeps its arguments alive during the call.
                *place = Some(unsafe { Borrowed::from_ptr(self.py, value) });
            }
            return Ok(found);
        }
        self.take_named(&names, required, &mut found)?;
        Ok(found)
    }

    #[cold]
    fn take_named(
        &self,
        names: &[&'static CStr],
        required: usize,
        found: &mut [Argument<'a, 'py>],
    ) -> PyResult<()> {
        if self.positional > names.len() {
            return Err(PyTypeError::new_err(format!(
                "at most {} arguments are allowed, not {}",
                names.len(),
                self.positional
            )));
        }
        for (index, &value) in self.values.iter().enumerate() {
            // SAFETY: as in `take`.
            let value = unsafe { Borrowed::from_ptr(self.py, value) };
            let at = match index.checked_sub(self.positional) {
                None => index,
                Some(named) => self.parameter(named, names)?,
            };
            if found[at].replace(value).is_some() {
                return Err(PyTypeError::new_err(format!(
                    "two values for the argument {:?}",
                    names[at]
                )));
            }
        }
        match found.iter().take(required).position(Option::is_none) {
            Some(missing) => Err(PyTypeError::new_err(format!(
                "the argument {:?} is missing",
                names[missing]
            ))),
            None => Ok(()),
        }
    }

    /// Finds the parameter of the n-th named argument.
    fn parameter(&self, named: usize, names: &[&'static CStr]) -> PyResult<usize> {
        // SAFETY: `names` is the tuple of the names, one for each named argument.
        let name = unsafe {
            let name = ffi::PyTuple_GetItem(self.names, named as ffi::Py_ssize_t);
            Borrowed::from_ptr_or_err(self.py, name)?
        };
        // SAFETY: the name of an argument is a string, and the other text ends with a zero byte.
        let is_name = |text: &&CStr| unsafe {
            ffi::PyUnicode_CompareWithASCIIString(name.as_ptr(), text.as_ptr()) == 0
        };
        names
            .iter()
            .position(is_name)
            .ok_or_else(|| PyTypeError::new_err(format!("there is no argument {}", &*name)))
    }
}

/// Calls the body of a method with the method's object and arguments.
///
/// # Safety
/// The arguments are those of a call with METH_FASTCALL and METH_KEYWORDS, of a method of the class `C`.
#[inline(always)]
pub unsafe fn enter<C: PyClass>(
    object: *mut PyObject,
    values: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
    body: impl for<'a, 'py> FnOnce(Borrowed<'a, 'py, C>, Arguments<'a, 'py>) -> PyResult<*mut PyObject>,
) -> *mut PyObject {
    // SAFETY: Python calls methods with its lock held.
    let py = unsafe { Python::assume_attached() };
    let positional = count as usize;
    let named = match names.is_null() {
        true => 0,
        // SAFETY: the object is a tuple.
        false => unsafe { ffi::PyTuple_Size(names) as usize },
    };
    let values = match positional + named {
        0 => &[],
        // SAFETY: the vector has the arguments without names, then those with names.
        all => unsafe { std::slice::from_raw_parts(values, all) },
    };
    let arguments = Arguments {
        py,
        values,
        positional,
        names,
    };
    let run = AssertUnwindSafe(|| {
        // SAFETY: a method descriptor checks the class of its object, which the caller keeps alive.
        let object = unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<C>() };
        body(object, arguments)
    });
    match catch_unwind(run) {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => fail(error),
        Err(_) => fail(PanicException::new_err(
            "umsg panicked, which is a defect of umsg",
        )),
    }
}

#[cold]
fn fail(error: PyErr) -> *mut PyObject {
    Python::attach(|py| error.restore(py));
    ptr::null_mut()
}

/// Returns a new reference to Python's None.
#[inline(always)]
pub fn none() -> *mut PyObject {
    // SAFETY: None lives for ever, and the caller gets its own reference.
    unsafe {
        let none = ffi::Py_None();
        ffi::Py_IncRef(none);
        none
    }
}

/// Defines the functions of methods in the form of C.
macro_rules! raw_methods {
    ($class:ty: $($name:ident = $body:path;)*) => {
        $(unsafe extern "C" fn $name(
            object: *mut pyo3::ffi::PyObject,
            values: *const *mut pyo3::ffi::PyObject,
            count: pyo3::ffi::Py_ssize_t,
            names: *mut pyo3::ffi::PyObject,
        ) -> *mut pyo3::ffi::PyObject {
            // SAFETY: Python calls the function as a method of the class, by METH_FASTCALL and METH_KEYWORDS.
            unsafe { $crate::fast::enter::<$class>(object, values, count, names, $body) }
        })*
    };
}
pub(crate) use raw_methods;
