//! Messages of rings.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::IntoRawFd;
use umsg::ring::OwnedMessage;

/// A message of a ring.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct RingMessage {
    /// The value of `user_data` that the sender gave, 0 to 2**64 - 1.
    user_data: u64,
    /// The value of `res` that the sender gave, -2**31 to 2**31 - 1.
    res: i32,
    /// The value of `flags` that the sender gave, 0 to 2**32 - 1.
    flags: u32,
    /// The bytes of the message.
    payload: Py<PyBytes>,
    /// Process id of the sender.
    pid: u32,
    /// The index of the sender, unique among the senders of the ring.
    index: u32,
    /// The descriptor that came with the message, which the receiver closes; None without one.
    descriptor: Option<i32>,
}

impl RingMessage {
    pub fn of(py: Python<'_>, from: OwnedMessage) -> RingMessage {
        RingMessage {
            user_data: from.user_data,
            res: from.res,
            flags: from.flags,
            payload: PyBytes::new(py, &from.payload).unbind(),
            pid: from.tag.pid,
            index: from.tag.index,
            descriptor: from.descriptor.map(IntoRawFd::into_raw_fd),
        }
    }
}

#[pymethods]
impl RingMessage {
    fn __repr__(&self, py: Python<'_>) -> String {
        let payload = self.payload.bind(py);
        format!(
            "<umsg.RingMessage user_data {}, res {}, flags {:#x}, {payload}>",
            self.user_data, self.res, self.flags
        )
    }
}
