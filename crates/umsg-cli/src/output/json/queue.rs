//! JSON output of a POSIX queue.

use std::time::SystemTime;

use serde::Serialize;
use umsg::posix::{self, DeadReason, NotifyKind, Status};

use super::super::time::utc;
use super::{on_full, priorities};

/// A queue, as `stat`, `ls` and `create` print it.
#[derive(Serialize)]
pub struct Queue {
    pub name: String,
    pub messages: usize,
    pub bytes: u64,
    pub max_messages: usize,
    pub message_size: usize,
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    pub creator_pid: u32,
    pub created: String,
    pub blocked_senders: usize,
    pub blocked_receivers: usize,
    pub last_send: Option<String>,
    pub last_receive: Option<String>,
    pub last_activity: Option<String>,
    pub registered: Option<Registered>,
    pub slots: usize,
    pub memory: u64,
    pub reserved: usize,
    pub leased: usize,
    pub delayed: usize,
    pub set_aside: usize,
    pub on_full: &'static str,
    pub ttl_seconds: Option<f64>,
    pub max_deliveries: Option<u32>,
    pub priorities: String,
    /// True if the queue records the events of its messages.
    pub trace_messages: bool,
    pub dead_letter: Option<String>,
    pub undelivered: Option<String>,
    /// `stat` only: the dead letters in the queue, by reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<DeadLetters>,
    pub retry_delay_seconds: Option<f64>,
    pub retry_delay_limit_seconds: Option<f64>,
    pub remove_on_last_close: bool,
    pub send_closed: bool,
    pub close_with_last_producer: bool,
    pub producers: usize,
    pub damaged: bool,
    pub statistics: Statistics,
}

/// The numbers of messages that have a history, by the reason for which they left their source queue.
#[derive(Clone, Copy, Default, Serialize)]
pub struct DeadLetters {
    pub expired: usize,
    pub undelivered: usize,
    pub dropped: usize,
    pub unknown: usize,
}

impl DeadLetters {
    /// Counts dead letters by reason. Returns None if there are no dead letters.
    pub fn of(letters: &[posix::History]) -> Option<DeadLetters> {
        let mut of = DeadLetters::default();
        for letter in letters {
            *match letter.reason {
                DeadReason::Expired => &mut of.expired,
                DeadReason::Undelivered => &mut of.undelivered,
                DeadReason::Dropped => &mut of.dropped,
                _ => &mut of.unknown,
            } += 1;
        }
        (!letters.is_empty()).then_some(of)
    }
}

/// A process that is registered for a notification.
#[derive(Serialize)]
pub struct Registered {
    pub pid: u32,
    /// The notification: `signal`, `call` or `nothing`.
    pub by: &'static str,
    pub signal: Option<u32>,
}

/// Defines the counts of events since a queue's creation: fields for all queues, and fields for one kind of queue.
macro_rules! statistics {
    ($of:ty { $($own:ident: $type:ty,)* }) => {
        /// Numbers of events since the queue's creation.
        #[derive(serde::Serialize)]
        pub struct Statistics {
            sends_blocked: u64,
            receives_blocked: u64,
            handed_over: u64,
            spins_paid: u64,
            given_up: u64,
            waiters_died: u64,
            returned: u64,
            $($own: $type,)*
        }

        impl Statistics {
            fn new(counted: &$of) -> Statistics {
                Statistics {
                    sends_blocked: counted.sends_blocked,
                    receives_blocked: counted.receives_blocked,
                    handed_over: counted.handed_over,
                    spins_paid: counted.spins_paid,
                    given_up: counted.given_up,
                    waiters_died: counted.waiters_died,
                    returned: counted.returned,
                    $($own: counted.$own,)*
                }
            }
        }
    };
}
pub(super) use statistics;

statistics! {
    umsg::posix::Statistics {
        dropped: u64,
        expired: u64,
        dead_lettered: u64,
        sender_repairs: u32,
        receiver_repairs: u32,
    }
}

impl Queue {
    pub fn new(name: &str, status: &Status) -> Queue {
        let attributes = status.attributes;
        Queue {
            name: name.to_owned(),
            messages: attributes.messages,
            bytes: attributes.bytes,
            max_messages: attributes.max_messages,
            message_size: attributes.message_size,
            mode: format!("{:04o}", status.mode),
            uid: status.uid,
            gid: status.gid,
            creator_pid: status.creator,
            created: utc(status.created),
            blocked_senders: status.blocked_senders,
            blocked_receivers: status.blocked_receivers,
            last_send: status.last_send.map(utc),
            last_receive: status.last_receive.map(utc),
            last_activity: last_activity(status).map(utc),
            registered: status.registered.map(Registered::new),
            slots: status.slots,
            memory: status.memory,
            reserved: attributes.reserved,
            leased: attributes.leased,
            delayed: attributes.delayed,
            set_aside: status.set_aside,
            on_full: on_full(status.on_full),
            ttl_seconds: status.time_to_live.map(|time| time.as_secs_f64()),
            max_deliveries: status.max_deliveries,
            priorities: priorities(status.fair_priorities),
            trace_messages: status.trace_messages,
            dead_letter: status
                .dead_letter
                .as_ref()
                .map(|name| name.to_string_lossy().into_owned()),
            undelivered: status.undelivered.map(|why| why.to_string()),
            dead_letters: None,
            retry_delay_seconds: status.retry_delay.map(|(first, _)| first.as_secs_f64()),
            retry_delay_limit_seconds: status.retry_delay.map(|(_, most)| most.as_secs_f64()),
            remove_on_last_close: status.remove_on_last_close,
            send_closed: status.send_closed,
            close_with_last_producer: status.close_with_last_producer,
            producers: status.producers,
            damaged: status.damaged,
            statistics: Statistics::new(&status.statistics),
        }
    }
}

/// Returns how a process is notified, and the signal that notifies the process.
pub(super) fn means(kind: NotifyKind) -> (&'static str, Option<u32>) {
    match kind {
        NotifyKind::Signal(signal) => ("signal", Some(signal)),
        NotifyKind::Call => ("call", None),
        _ => ("nothing", None),
    }
}

impl Registered {
    fn new(registered: umsg::posix::Registered) -> Registered {
        let (by, signal) = means(registered.kind);
        Registered {
            pid: registered.pid,
            by,
            signal,
        }
    }
}

/// Returns the time of the last send or receive.
pub fn last_activity(status: &Status) -> Option<SystemTime> {
    status.last_send.max(status.last_receive)
}
