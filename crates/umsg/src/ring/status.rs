//! What can be said of a ring.

use super::receiver::Ring;
use super::sender::Sender;
use super::shared::{CLOSED, ENABLED, Shared};
use crate::counters::Event;
use crate::sync::Ordering;

/// The state of a ring, as of a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Messages that the ring was made for, and how many more overflow.
    pub entries: u32,
    /// See [`entries`](Status::entries).
    pub overflow: u32,
    /// Messages that wait.
    pub messages: u64,
    /// Whether senders are let in.
    pub enabled: bool,
    /// Whether it was closed.
    pub closed: bool,
    /// The process that receives.
    pub owner: u32,
    /// Messages that senders have dropped.
    pub dropped: u64,
    /// How often the receiver went to sleep, and how often it did not need to because a message came while it looked.
    pub slept: u64,
    /// See [`slept`](Status::slept).
    pub spun: u64,
}

impl Shared {
    fn status(&self) -> Status {
        let ownership = self.ownership();
        let counters = &self.engine.segment().fixed().counters;
        // Relaxed: for people.
        let entries = ownership.entries.load(Ordering::Relaxed);
        let state = ownership.state.load(Ordering::Relaxed);
        let max = self.engine.segment().layout().max_messages as u32;
        Status {
            entries,
            overflow: max.saturating_sub(entries),
            messages: self.engine.available(),
            enabled: state == ENABLED,
            closed: state == CLOSED,
            owner: ownership.pid.load(Ordering::Relaxed),
            dropped: ownership.dropped.load(Ordering::Relaxed),
            slept: counters.sum(Event::ReceiveBlocked),
            spun: counters.sum(Event::SpinPaid),
        }
    }
}

impl Ring {
    /// The state of the ring.
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

impl Sender {
    /// The state of the ring.
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}
