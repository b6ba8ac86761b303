//! The events of a message in a queue that traces messages.

use std::time::SystemTime;
use umsg_shm::posix_engine::segment::{Trace, TraceEvent, TraceKind};
use umsg_shm::sys::clock;

/// A step of a message, in a queue that [traces messages](super::OpenOptions::trace_messages).
///
/// Every process that may use the queue can forge the events of its messages. Events are for people to read: programs must not rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageEvent {
    /// The kind of the event.
    pub kind: EventKind,
    /// The time of the event, accurate to a few milliseconds.
    pub at: SystemTime,
    /// The process that sent the message, leased it, held the lease that ended, or moved the message to another queue.
    pub pid: u32,
    /// The number of the delivery in the queue, from 1. `None` for a send, and for a message that moved before its first delivery.
    pub delivery: Option<u32>,
}

/// The kind of a [`MessageEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A process sent the message.
    Sent,
    /// A process leased the message.
    Delivered,
    /// The process that held the lease gave the message back.
    Returned,
    /// The time limit of the lease was over, and the message came back.
    TimedOut,
    /// The process that held the lease died, and the message came back.
    HolderDied,
    /// The message was older than the time to live, and went to the dead-letter queue.
    DeadExpired,
    /// The message was delivered as often as the queue allows, and went to the dead-letter queue.
    DeadUndelivered,
    /// The queue was full, and the message went to the dead-letter queue.
    DeadDropped,
    /// The message was sent back from a dead-letter queue.
    Redriven,
    /// The queue's memory has an unknown code for the kind.
    Unknown,
}

impl MessageEvent {
    pub(super) fn sent(at: u64, pid: u32) -> MessageEvent {
        MessageEvent {
            kind: EventKind::Sent,
            at: clock::shown(at),
            pid,
            delivery: None,
        }
    }

    /// Returns all known events after the send.
    pub(super) fn all_of(trace: &Trace) -> impl Iterator<Item = MessageEvent> {
        trace.events().map(|event: &TraceEvent| MessageEvent {
            kind: EventKind::of(event.kind),
            at: clock::shown(event.at),
            pid: event.pid,
            delivery: (event.delivery != 0).then_some(event.delivery),
        })
    }
}

impl EventKind {
    fn of(kind: TraceKind) -> EventKind {
        match kind {
            TraceKind::Delivered => EventKind::Delivered,
            TraceKind::Returned => EventKind::Returned,
            TraceKind::TimedOut => EventKind::TimedOut,
            TraceKind::HolderDied => EventKind::HolderDied,
            TraceKind::DeadExpired => EventKind::DeadExpired,
            TraceKind::DeadUndelivered => EventKind::DeadUndelivered,
            TraceKind::DeadDropped => EventKind::DeadDropped,
            TraceKind::Redriven => EventKind::Redriven,
            _ => EventKind::Unknown,
        }
    }
}
