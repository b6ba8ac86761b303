//! Arguments of Python that are names of queues, namespaces, or words such as "blocking".

use crate::error::{Failure, invalid};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use umsg::Namespace;

/// Reads a name: str, bytes or a path.
pub fn os_string(value: &Bound<'_, PyAny>, what: &str) -> PyResult<OsString> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(OsString::from_vec(bytes.as_bytes().to_vec()));
    }
    match value.extract::<PathBuf>() {
        Ok(path) => Ok(path.into_os_string()),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {
            Err(PyTypeError::new_err(format!(
                "{what} must be str, bytes or os.PathLike, not {}",
                value.get_type().name()?
            )))
        }
        Err(error) => Err(error),
    }
}

/// Opens the namespace of an argument: the directory's path, or None for the namespace that `umsg` resolves.
pub fn namespace(py: Python<'_>, path: Option<&Bound<'_, PyAny>>) -> PyResult<Namespace> {
    let path = match path {
        Some(path) if !path.is_none() => Some(os_string(path, "namespace")?),
        _ => None,
    };
    let opened = py.detach(|| match &path {
        Some(path) => Namespace::at(path),
        None => Namespace::resolve(),
    });
    opened.map_err(|error| error.raise(py, path.as_deref()))
}

/// Reads an argument that is one of several words.
pub fn choice<T: Copy>(
    py: Python<'_>,
    value: &str,
    what: &str,
    choices: &[(&str, T)],
) -> PyResult<T> {
    let found = choices.iter().find(|(word, _)| *word == value);
    found.map(|&(_, choice)| choice).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|&(word, _)| word).collect();
        invalid(
            py,
            &format!("{what} must be one of {}, not {value:?}", words.join(", ")),
        )
    })
}
