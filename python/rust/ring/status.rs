//! The contents and the options of a ring.

use crate::wait::stamp;
use pyo3::prelude::*;
use umsg::ring::Status;

/// The complete status of a ring.
#[pyclass(frozen, get_all, module = "umsg")]
pub struct RingStatus {
    /// Capacity in messages, without the overflow.
    entries: u32,
    /// Capacity of the overflow, in messages.
    overflow: u32,
    /// Length of the longest payload, in bytes.
    longest: usize,
    /// Number of messages in the ring, including the overflow.
    messages: u64,
    /// Number of messages in the overflow.
    overflowing: u64,
    /// True if senders may send.
    enabled: bool,
    /// True if the owner has closed the ring.
    closed: bool,
    /// Process id of the owner.
    owner: u32,
    /// True if the owner lives.
    owner_alive: bool,
    /// Permission bits.
    mode: u32,
    /// Time of the creation in seconds since 1970.
    created: f64,
    /// Bytes of memory in use.
    memory: u64,
    /// Number of senders that were opened.
    senders: u32,
    /// Number of threads that wait for room.
    blocked_senders: usize,
    /// Number of messages that `send_or_drop` has dropped.
    dropped: u64,
    /// True if the memory of the ring had values that no operation writes.
    damaged: bool,
}

impl RingStatus {
    pub fn of(from: &Status) -> RingStatus {
        RingStatus {
            entries: from.entries,
            overflow: from.overflow,
            longest: from.longest,
            messages: from.messages,
            overflowing: from.overflowing,
            enabled: from.enabled,
            closed: from.closed,
            owner: from.owner,
            owner_alive: from.owner_alive,
            mode: from.mode,
            created: stamp(from.created),
            memory: from.memory,
            senders: from.senders,
            blocked_senders: from.blocked_senders,
            dropped: from.dropped,
            damaged: from.damaged,
        }
    }
}

#[pymethods]
impl RingStatus {
    fn __repr__(&self) -> String {
        format!(
            "<umsg.RingStatus: {} messages, {} entries, {} more, {} bytes each at most>",
            self.messages, self.entries, self.overflow, self.longest
        )
    }
}
