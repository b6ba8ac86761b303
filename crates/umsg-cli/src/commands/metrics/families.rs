//! The metrics: names, help, and text. Names and units follow the conventions of Prometheus.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
    prometheus_text, text as openmetrics,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::bridges;
use super::figures::{Figures, Kind, Reason};
use super::gather::{SHARE, Snapshot};
use super::parallel;

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus, which the textfile collector reads.
    Prometheus,
}

/// Returns all metrics as text. `len` is about the length of the text.
pub fn text(snapshot: Snapshot, form: Form, len: usize) -> String {
    // For few queues, one thread writes all.
    let least = FAMILIES.len() * SHARE / snapshot.figures.len().max(1);
    let snapshot = Arc::new(snapshot);
    let mut text = String::with_capacity(len + len / 8);
    text.push_str(&part(&snapshot, None, form));
    let parts = parallel::map(FAMILIES, least, |family| {
        part(&snapshot, Some(family), form)
    });
    parts.iter().for_each(|part| text.push_str(part));
    if form == Form::OpenMetrics {
        // Writing to a string can't fail.
        let _ = openmetrics::encode_eof(&mut text);
    }
    text
}

/// Returns the text of a metric of each queue; of None, of the metrics of the namespace.
fn part(snapshot: &Arc<Snapshot>, family: Option<&'static Family>, form: Form) -> String {
    let mut registry = Registry::default();
    let snapshot = Arc::clone(snapshot);
    registry.register_collector(Box::new(Part { snapshot, family }));
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = match form {
        Form::OpenMetrics => openmetrics::encode_registry(&mut text, &registry),
        Form::Prometheus => prometheus_text::encode(&mut text, &registry),
    };
    text
}

/// A figure of a metric.
pub enum Value {
    Whole(u64),
    Real(f64),
}

/// Returns a figure of a queue; None if the queue does not have it.
type Of = fn(&Figures) -> Option<Value>;

/// A metric of each queue.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<&'static str>,
    kind: MetricType,
    /// The name of a label beside those of the queue.
    label: &'static str,
    /// The figures, by the value of that label.
    series: &'static [(&'static str, Of)],
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

/// The metrics of each queue.
const FAMILIES: &[Family] = &[
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
        "Messages that take room and can't be received now",
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

/// Seconds since 1970.
fn time(time: Option<SystemTime>) -> Option<Value> {
    let since = time?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Value::Real(since.as_secs_f64()))
}

/// The labels of a series.
struct Labels<'a>(&'a [(&'static str, &'a str)]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let mut labels = self.0.iter();
        labels.try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

/// A part of the text.
#[derive(Debug)]
struct Part {
    snapshot: Arc<Snapshot>,
    family: Option<&'static Family>,
}

impl Collector for Part {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        match self.family {
            Some(family) => self.snapshot.encode_family(family, encoder),
            None => {
                self.snapshot.encode_info(encoder)?;
                self.snapshot.encode_found(encoder)?;
                bridges::encode_all(&self.snapshot.bridges, encoder)
            }
        }
    }
}

impl Snapshot {
    fn encode_info(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "The version of the umsg command";
        let mut info = encoder.encode_descriptor("umsg", help, None, MetricType::Info)?;
        info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let help = "Duration of this scrape, without the encoding of its text";
        let seconds = Unit::Seconds;
        let name = "umsg_scrape_duration";
        let mut took = encoder.encode_descriptor(name, help, Some(&seconds), Gauge)?;
        took.encode_gauge(&self.seconds)
    }

    /// Counts the queues with and without metrics.
    fn encode_found(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Queues and rings in the namespace that --match selects";
        let mut found = encoder.encode_descriptor("umsg_queues", help, None, Gauge)?;
        for (kind, count) in Kind::ALL.iter().zip(self.found) {
            let labels = [("kind", kind.label())];
            encode(&mut found, Gauge, &labels, &Value::Whole(count))?;
        }
        let help = "Queues and rings without metrics, by reason";
        let name = "umsg_queues_left_out";
        let mut left_out = encoder.encode_descriptor(name, help, None, Gauge)?;
        for (kind, counts) in Kind::ALL.iter().zip(self.left_out) {
            for (reason, count) in Reason::ALL.iter().zip(counts) {
                let labels = [("kind", kind.label()), ("reason", reason.label())];
                encode(&mut left_out, Gauge, &labels, &Value::Whole(count))?;
            }
        }
        Ok(())
    }

    fn encode_family(&self, family: &Family, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
        let (name, help) = (family.name, family.help);
        let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), family.kind)?;
        for figures in &self.figures {
            for (value, of) in family.series {
                let Some(figure) = of(figures) else {
                    continue;
                };
                let labels = [
                    ("kind", figures.kind.label()),
                    ("queue", &figures.queue),
                    (family.label, value),
                ];
                let used = if family.label.is_empty() { 2 } else { 3 };
                encode(&mut metric, family.kind, &labels[..used], &figure)?;
            }
        }
        Ok(())
    }
}

pub fn encode(
    metric: &mut MetricEncoder<'_>,
    kind: MetricType,
    labels: &[(&'static str, &str)],
    value: &Value,
) -> fmt::Result {
    let labels = Labels(labels);
    let mut series = metric.encode_family(&labels)?;
    match (kind, value) {
        (Counter, Value::Whole(value)) => {
            series.encode_counter::<NoLabelSet, u64, u64>(value, None)
        }
        (Counter, Value::Real(value)) => series.encode_counter::<NoLabelSet, f64, u64>(value, None),
        // Gauges have signed or real values in this crate.
        (_, Value::Whole(value)) => match i64::try_from(*value) {
            Ok(value) => series.encode_gauge(&value),
            Err(_) => series.encode_gauge(&(*value as f64)),
        },
        (_, Value::Real(value)) => series.encode_gauge(value),
    }
}
