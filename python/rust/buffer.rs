//! The buffer protocol of Python. The stable interface includes the protocol only since 3.11. The functions, the constants and `Py_buffer` have been
//! the same since 3.0, so this module declares them.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// `Py_buffer` of CPython.
#[repr(C)]
pub struct View {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

pub const WRITABLE: c_int = 1;
const SIMPLE: c_int = 0;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
    fn PyBuffer_FillInfo(
        view: *mut View,
        object: *mut PyObject,
        buffer: *mut c_void,
        len: ffi::Py_ssize_t,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
}

/// Fills in the view of an object on `len` bytes at `start`, and keeps the object alive for the view.
///
/// # Safety
/// `view` and `flags` are the arguments of the object's `bf_getbuffer`. The bytes stay readable, and writable unless `readonly`, until the view
/// is released.
pub unsafe fn fill(
    view: *mut View,
    object: *mut PyObject,
    (start, len): (*mut u8, usize),
    readonly: bool,
    flags: c_int,
) -> c_int {
    let len = len as ffi::Py_ssize_t;
    // SAFETY: the arguments are valid by this function's contract. A view without bytes needs an address, too.
    unsafe {
        PyBuffer_FillInfo(
            view,
            object,
            start.cast(),
            len,
            c_int::from(readonly),
            flags,
        )
    }
}

/// Marks a view as refused.
///
/// # Safety
/// `view` is the argument of `bf_getbuffer`.
pub unsafe fn refuse(view: *mut View) {
    // SAFETY: by this function's contract.
    unsafe { (*view).obj = ptr::null_mut() };
}

/// Bytes of an object with the buffer protocol, kept from being moved or freed.
pub struct Bytes {
    /// The view; None for a `bytes` object, which needs no view. The box keeps the view at its address.
    view: Option<Box<View>>,
    start: *mut u8,
    len: usize,
}

// SAFETY: the bytes may be read by every thread. Only a thread with the global interpreter lock makes and drops the view.
unsafe impl Send for Bytes {}
// SAFETY: the bytes may be read by every thread. Only a thread with the global interpreter lock makes and drops the view.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// Gets the bytes of an object for reading.
    ///
    /// # Safety
    /// The caller keeps `object` alive, and drops the result with the global interpreter lock held.
    #[inline(always)]
    pub unsafe fn of(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            let bytes = bytes.as_bytes();
            let (start, len) = (bytes.as_ptr().cast_mut(), bytes.len());
            return Ok(Bytes {
                view: None,
                start,
                len,
            });
        }
        // SAFETY: by this function's contract.
        unsafe { Bytes::viewed(object, SIMPLE, "a bytes-like object is required") }
    }

    /// Gets the bytes of an object for reading and writing.
    ///
    /// # Safety
    /// The conditions of [`of`](Self::of).
    pub unsafe fn writable(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
        // SAFETY: by this function's contract.
        unsafe { Bytes::viewed(object, WRITABLE, "a writable bytes-like object is required") }
    }

    unsafe fn viewed(object: &Bound<'_, PyAny>, flags: c_int, wanted: &str) -> PyResult<Bytes> {
        let mut view = Box::new(View {
            buf: ptr::null_mut(),
            obj: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: the object is alive, and the view is writable and stays at its address.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } != 0 {
            let error = PyErr::fetch(object.py());
            return Err(match error.is_instance_of::<PyTypeError>(object.py()) {
                true => {
                    PyTypeError::new_err(format!("{wanted}, not {}", object.get_type().name()?))
                }
                false => error,
            });
        }
        let (start, len) = (view.buf.cast(), view.len as usize);
        Ok(Bytes {
            view: Some(view),
            start,
            len,
        })
    }

    #[inline(always)]
    pub fn get(&self) -> &[u8] {
        match self.len {
            0 => &[],
            // SAFETY: the object has exported `len` readable bytes at `start`, until `self` is dropped.
            len => unsafe { std::slice::from_raw_parts(self.start, len) },
        }
    }

    pub fn get_mut(&mut self) -> &mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: `writable` has requested `len` writable bytes at `start`, until `self` is dropped.
            len => unsafe { std::slice::from_raw_parts_mut(self.start, len) },
        }
    }
}

impl Drop for Bytes {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(view) = &mut self.view {
            // SAFETY: PyObject_GetBuffer has filled in the view, and the thread holds the lock by the contract of `of`.
            unsafe { PyBuffer_Release(&raw mut **view) };
        }
    }
}
