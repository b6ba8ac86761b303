//! Received messages as objects of Python.

use crate::gil::Guarded;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::ffi::c_int;
use std::ptr;
use std::sync::LazyLock;

/// The memory into which messages up to [`SHORT`] bytes are received. Their length is known afterwards.
static SCRATCH: LazyLock<Guarded<Vec<u8>>> = LazyLock::new(|| Guarded::new(Vec::new()));

/// The largest message size of a queue whose messages are received into [`SCRATCH`], in bytes.
pub const SHORT: usize = 1 << 16;

/// The result of a first attempt without waiting.
pub enum First<K, E> {
    /// The message, and its priority or type. The message is null if there is no memory for it.
    Received(*mut PyObject, K),
    Failed(E),
    HandleClosed,
}

/// Makes a first attempt to receive a message of at most `size` bytes, where `size` is at most [`SHORT`]. `call` receives, and returns the length of
/// the message and its priority or type; None if the handle is closed. `call` neither runs code of Python nor blocks.
#[inline(always)]
pub fn first<K, E>(
    py: Python<'_>,
    size: usize,
    call: impl FnOnce(&mut [u8]) -> Option<Result<(usize, K), E>>,
) -> First<K, E> {
    let work = |scratch: &mut Vec<u8>| {
        if scratch.len() < size {
            scratch.resize(SHORT, 0);
        }
        match call(scratch) {
            Some(Ok((len, key))) => {
                let len = len as ffi::Py_ssize_t;
                // SAFETY: the message has `len` bytes.
                let message =
                    unsafe { ffi::PyBytes_FromStringAndSize(scratch.as_ptr().cast(), len) };
                First::Received(message, key)
            }
            Some(Err(error)) => First::Failed(error),
            None => First::HandleClosed,
        }
    };
    // SAFETY: the work runs no code of Python. Making a bytes object only allocates memory.
    unsafe { SCRATCH.with(py, work) }
}

unsafe extern "C" {
    /// The stable interface lacks this function, which is documented and has been the same in all versions since 3.0.
    fn _PyBytes_Resize(bytes: *mut *mut PyObject, size: ffi::Py_ssize_t) -> c_int;
}

/// The reason why an attempt with limited room received no message.
pub enum Missed<E> {
    Error(E),
    /// The next message has this length.
    Longer(usize),
    /// An exception of Python.
    Exception(PyErr),
}

impl<E> From<PyErr> for Missed<E> {
    fn from(error: PyErr) -> Missed<E> {
        Missed::Exception(error)
    }
}

/// A buffer for messages, which lie one after the other.
pub struct Room<'a, K> {
    buffer: &'a mut [u8],
    used: usize,
    /// The length of the first message without room; 0 for none.
    longer: usize,
    /// The lengths of the received messages, and their priorities or types.
    pub received: Vec<(usize, K)>,
}

impl<'a, K> Room<'a, K> {
    /// `most` is the maximum number of messages.
    pub fn new(buffer: &'a mut [u8], most: usize) -> Room<'a, K> {
        Room {
            buffer,
            used: 0,
            longer: 0,
            // Allocated before the receive, because the queue is locked when a message comes.
            received: Vec::with_capacity(most),
        }
    }

    /// Returns the free part of the buffer, if a message of `len` bytes fits into it.
    pub fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        match self.buffer.len() - self.used >= len {
            true => self.buffer.get_mut(self.used..),
            false => {
                self.longer = len;
                None
            }
        }
    }

    pub fn note(&mut self, len: usize, key: K) {
        self.used += len;
        self.received.push((len, key));
    }

    /// Returns the result of an attempt that has ended with `result`.
    pub fn end<E>(self, result: Result<usize, E>) -> Result<Vec<(usize, K)>, Missed<E>> {
        match (self.received.is_empty(), self.longer, result) {
            (false, ..) => Ok(self.received),
            (true, 1.., _) => Err(Missed::Longer(self.longer)),
            (true, 0, Err(error)) => Err(Missed::Error(error)),
            (true, 0, Ok(_)) => Ok(Vec::new()),
        }
    }
}

/// Appends messages that lie one after the other to a list: as bytes objects, or as tuples with their priorities or types.
pub fn append(
    list: &Bound<'_, PyList>,
    (buffer, received): (&[u8], &[(usize, i64)]),
    with_keys: bool,
) -> PyResult<()> {
    let (py, mut rest) = (list.py(), buffer);
    for &(len, key) in received {
        let (bytes, behind) = rest.split_at(len);
        rest = behind;
        append_one(list, (PyBytes::new(py, bytes).into_ptr(), key), with_keys)?;
    }
    Ok(())
}

/// Appends a message to a list. Takes over the reference to its bytes object.
pub fn append_one(
    list: &Bound<'_, PyList>,
    (message, key): (*mut PyObject, i64),
    with_key: bool,
) -> PyResult<()> {
    let py = list.py();
    let item = match with_key {
        true => pair(py, message, key)?,
        false => message,
    };
    // SAFETY: the object is new, and the caller or `pair` owns the reference.
    list.append(unsafe { Bound::from_owned_ptr(py, item) })
}

/// Receives a message of at most `size` bytes into a bytes object, which is cut to the message's length.
#[cold]
pub fn long<K, E: From<PyErr>>(
    py: Python<'_>,
    size: usize,
    receive: impl FnOnce(&mut [u8]) -> Result<(usize, K), E>,
) -> Result<(*mut PyObject, K), E> {
    // SAFETY: the object is new, and no other code uses its bytes yet. The bytes are written before they are read: the library writes the message,
    // and the rest is cut off.
    unsafe {
        let mut object = ffi::PyBytes_FromStringAndSize(ptr::null(), size as ffi::Py_ssize_t);
        if object.is_null() {
            return Err(PyErr::fetch(py).into());
        }
        let start = ffi::PyBytes_AsString(object).cast::<u8>();
        match receive(std::slice::from_raw_parts_mut(start, size)) {
            Ok((len, key)) => match _PyBytes_Resize(&raw mut object, len as ffi::Py_ssize_t) {
                0 => Ok((object, key)),
                _ => Err(PyErr::fetch(py).into()),
            },
            Err(error) => {
                ffi::Py_DecRef(object);
                Err(error)
            }
        }
    }
}

/// Makes the tuple of a message and its priority or type.
#[inline(always)]
pub fn pair(py: Python<'_>, message: *mut PyObject, key: i64) -> PyResult<*mut PyObject> {
    // SAFETY: the tuple takes the two references. Each step that fails has set an exception.
    unsafe {
        let key = ffi::PyLong_FromLongLong(key);
        let tuple = ffi::PyTuple_New(2);
        if key.is_null() || tuple.is_null() {
            ffi::Py_DecRef(message);
            ffi::Py_DecRef(key);
            ffi::Py_DecRef(tuple);
            return Err(PyErr::fetch(py));
        }
        ffi::PyTuple_SetItem(tuple, 0, message);
        ffi::PyTuple_SetItem(tuple, 1, key);
        Ok(tuple)
    }
}
