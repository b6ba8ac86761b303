//! The metrics of each queue: names, help, and figures. Names and units follow the conventions of Prometheus.

use std::time::SystemTime;

use prometheus_client::metrics::MetricType;

use crate::commands::sample::figures::Figures;

/// The value of a metric for one queue.
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

/// A function that returns the value of a metric for one queue, or None if the kind of queue does not have this value.
pub(super) type Of = fn(&Figures) -> Option<Value>;

/// A metric that is printed for each queue.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Option<&'static str>,
    pub(super) kind: MetricType,
    /// The name of a label that the metric has in addition to the labels of the queue.
    pub(super) label: &'static str,
    /// The values of that label, each with its figure.
    pub(super) series: &'static [(&'static str, Of)],
}

const fn family(
    kind: MetricType,
    name: &'static str,
    unit: Option<&'static str>,
    help: &'static str,
    of: &'static [(&'static str, Of)],
) -> Family {
    labelled(kind, name, unit, help, "", of)
}

const fn labelled(
    kind: MetricType,
    name: &'static str,
    unit: Option<&'static str>,
    help: &'static str,
    label: &'static str,
    series: &'static [(&'static str, Of)],
) -> Family {
    Family {
        name,
        help,
        unit,
        kind,
        label,
        series,
    }
}

const BYTES: Option<&str> = Some("bytes");
const SECONDS: Option<&str> = Some("seconds");
use MetricType::{Counter, Gauge};

/// The metrics that are printed for each queue.
pub(super) const FAMILIES: &[Family] = &[
    family(
        Gauge,
        "umsg_queue_messages",
        None,
        "Messages that wait for a receiver",
        &[("", |of| whole(of.messages))],
    ),
    family(
        Gauge,
        "umsg_queue_size",
        BYTES,
        "Bytes of the messages that wait for a receiver",
        &[("", |of| some(of.bytes))],
    ),
    labelled(
        Gauge,
        "umsg_queue_held_messages",
        None,
        "Messages that can't be received now",
        "state",
        &[
            ("leased", |of| some(of.leased)),
            ("reserved", |of| some(of.reserved)),
            ("delayed", |of| some(of.delayed)),
            ("set_aside", |of| some(of.set_aside)),
        ],
    ),
    family(
        Gauge,
        "umsg_queue_capacity_messages",
        None,
        "The maximum number of messages in the queue",
        &[("", |of| some(of.capacity))],
    ),
    family(
        Gauge,
        "umsg_queue_capacity",
        BYTES,
        "The maximum number of bytes in a System V queue",
        &[("", |of| some(of.capacity_bytes))],
    ),
    family(
        Gauge,
        "umsg_queue_fill",
        Some("ratio"),
        "The used part of the capacity; 1 if the queue is full",
        &[("", |of| Some(Value::Real(of.fill)))],
    ),
    family(
        Gauge,
        "umsg_queue_oldest_message_timestamp",
        SECONDS,
        "Time at which the oldest waiting message was sent",
        &[("", |of| time(of.oldest))],
    ),
    family(
        Gauge,
        "umsg_queue_last_send_timestamp",
        SECONDS,
        "Time of the last send",
        &[("", |of| time(of.last_send))],
    ),
    family(
        Gauge,
        "umsg_queue_last_receive_timestamp",
        SECONDS,
        "Time of the last receive",
        &[("", |of| time(of.last_receive))],
    ),
    labelled(
        Gauge,
        "umsg_queue_blocked_threads",
        None,
        "Threads that wait for room (send) or for a message (receive)",
        "operation",
        &[
            ("send", |of| whole(of.blocked_senders)),
            ("receive", |of| some(of.blocked_receivers)),
        ],
    ),
    family(
        Gauge,
        "umsg_queue_memory",
        BYTES,
        "Memory that the queue uses",
        &[("", |of| whole(of.memory))],
    ),
    family(
        Gauge,
        "umsg_queue_closed",
        None,
        "1 if the queue is closed for sending",
        &[("", |of| whole(of.closed.into()))],
    ),
    family(
        Gauge,
        "umsg_queue_corrupted",
        None,
        "1 if corruption was found in the queue",
        &[("", |of| whole(of.corrupted.into()))],
    ),
    family(
        Gauge,
        "umsg_queue_receiver_alive",
        None,
        "1 if the process lives that receives from a ring",
        &[("", |of| some(of.receiver_alive.map(u64::from)))],
    ),
    family(
        Counter,
        "umsg_queue_sent_messages",
        None,
        "Messages that came to the queue",
        &[("", |of| whole(of.sent))],
    ),
    family(
        Counter,
        "umsg_queue_sent",
        BYTES,
        "Bytes of the messages that came to the queue",
        &[("", |of| some(of.sent_bytes))],
    ),
    family(
        Counter,
        "umsg_queue_removed_messages",
        None,
        "Messages that have left the queue: received, dropped, expired or moved",
        &[("", |of| whole(of.removed))],
    ),
    family(
        Counter,
        "umsg_queue_removed",
        BYTES,
        "Bytes of the messages that have left the queue",
        &[("", |of| some(of.removed_bytes))],
    ),
    labelled(
        Counter,
        "umsg_queue_waits",
        None,
        "Calls that waited for room (send) or for a message (receive)",
        "operation",
        &[
            ("send", |of| whole(of.sends_blocked)),
            ("receive", |of| whole(of.receives_blocked)),
        ],
    ),
    family(
        Counter,
        "umsg_queue_dropped_messages",
        None,
        "Messages that were dropped because the queue was full",
        &[("", |of| some(of.dropped))],
    ),
    family(
        Counter,
        "umsg_queue_expired_messages",
        None,
        "Messages whose time to live ended",
        &[("", |of| some(of.expired))],
    ),
    family(
        Counter,
        "umsg_queue_dead_lettered_messages",
        None,
        "Messages that were moved to the dead-letter queue",
        &[("", |of| some(of.dead_lettered))],
    ),
    family(
        Counter,
        "umsg_queue_returned_leases",
        None,
        "Leased messages that came back to the queue",
        &[("", |of| some(of.returned))],
    ),
    family(
        Counter,
        "umsg_queue_waiter_deaths",
        None,
        "Threads that died while they waited in the queue",
        &[("", |of| some(of.waiter_deaths))],
    ),
    family(
        Counter,
        "umsg_queue_repairs",
        None,
        "Repairs after a process died inside a call",
        &[("", |of| whole(of.repairs))],
    ),
];

#[allow(clippy::unnecessary_wraps, reason = "as an `Of` returns it")]
fn whole(value: u64) -> Option<Value> {
    Some(Value::Whole(value))
}

fn some(value: Option<u64>) -> Option<Value> {
    value.map(Value::Whole)
}

/// Converts a time to seconds since 1970.
fn time(time: Option<SystemTime>) -> Option<Value> {
    let since = time?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Value::Real(since.as_secs_f64()))
}
