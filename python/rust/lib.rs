//! The native module of the Python package `umsg`.
//!
//! | subject | where |
//! |---|---|
//! | the classes | `queue`, `sysv`, `ring`, `lease`, `reservation`, `producer`, `snapshot` |
//! | exceptions | `error` |
//! | methods of the fast path | `fast`, `message` |
//! | the buffer protocol | `buffer`, `exported` |
//! | time limits and signals | `wait` |
//! | the with statement | `context` |
//! | the interpreter's lock, and objects that one thread uses | `gil`, `exclusive` |
//! | events for the logger of a program | `log` |

mod buffer;
mod context;
mod error;
mod exclusive;
mod exported;
mod fast;
mod gil;
mod lease;
mod log;
mod message;
mod names;
mod producer;
mod queue;
mod reservation;
mod ring;
mod snapshot;
mod sysv;
mod wait;

use pyo3::prelude::*;

/// The native part of `umsg`. Import `umsg` instead.
#[pymodule(gil_used = true)]
fn _umsg(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::find_classes(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    lease::add(module)?;
    reservation::add(module)?;
    producer::add(module)?;
    queue::add(module)?;
    sysv::add(module)?;
    snapshot::add(module)?;
    ring::add(module)?;
    log::add(module)
}
