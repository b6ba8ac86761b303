//! The text of all metrics, in the forms of OpenMetrics and Prometheus.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
    prometheus_text, text as openmetrics,
};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
use prometheus_client::registry::{Registry, Unit};

use super::bridges;
use super::families::{FAMILIES, Family, Value};
use crate::commands::sample::figures::{Kind, Reason};
use crate::commands::sample::gather::{Gatherer, SHARE, Snapshot};
use crate::commands::sample::parallel;
use crate::failure::Result;

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus, which the textfile collector reads.
    Prometheus,
}

/// Produces the text of one scrape after the other.
pub struct Texts<'a> {
    gatherer: Gatherer<'a>,
    last: Arc<Text>,
}

impl<'a> Texts<'a> {
    pub fn of(gatherer: Gatherer<'a>) -> Texts<'a> {
        let last = Arc::default();
        Texts { gatherer, last }
    }

    /// Scrapes, and returns the metrics as text.
    ///
    /// # Errors
    /// The errors of [`Gatherer::sample`].
    pub fn of_now(&mut self, form: Form) -> Result<Arc<Text>> {
        let snapshot = self.gatherer.sample()?;
        // Reuses the memory of the last text, unless a thread still sends that text. New memory would cost more, because the kernel clears each page.
        let mut text = Arc::try_unwrap(std::mem::take(&mut self.last)).unwrap_or_default();
        text.renew(snapshot, form);
        self.last = Arc::new(text);
        Ok(Arc::clone(&self.last))
    }
}

/// A text in pieces. The pieces are not joined, because the text of 10,000 queues has 20 MB.
pub struct Text {
    pieces: Vec<Piece>,
}

/// The text of one metric, for all queues. If `family` is None: the text of the metrics of the namespace.
struct Piece {
    family: Option<&'static Family>,
    text: String,
}

/// A text with a piece for each metric; the pieces are empty.
impl Default for Text {
    fn default() -> Text {
        let families = FAMILIES.iter().map(Some);
        let pieces = std::iter::once(None).chain(families).map(Piece::of);
        Text {
            pieces: pieces.collect(),
        }
    }
}

impl Text {
    /// Makes a text that contains no metrics, such as an error message.
    pub fn plain(text: String) -> Text {
        let family = None;
        Text {
            pieces: vec![Piece { family, text }],
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.text.len()).sum()
    }

    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut pieces = self.pieces.iter();
        pieces.try_for_each(|piece| out.write_all(piece.text.as_bytes()))
    }

    /// Writes the text of all metrics.
    fn renew(&mut self, snapshot: Snapshot, form: Form) {
        // For few queues, one thread writes the whole text.
        let least = FAMILIES.len() * SHARE / snapshot.figures.len().max(1);
        let snapshot = Arc::new(snapshot);
        parallel::map(&mut self.pieces, least, |piece| {
            piece.renew(&snapshot, form);
        });
        if form == Form::OpenMetrics
            && let Some(last) = self.pieces.last_mut()
        {
            // Writing to a string can't fail.
            let _ = openmetrics::encode_eof(&mut last.text);
        }
    }
}

impl Piece {
    fn of(family: Option<&'static Family>) -> Piece {
        let text = String::new();
        Piece { family, text }
    }

    fn renew(&mut self, snapshot: &Arc<Snapshot>, form: Form) {
        self.text.clear();
        encode_into(&mut self.text, snapshot, self.family, form, false);
        if let Some(family) = self.family {
            let len = family.series.len() * (family.name.len() + 64);
            self.text.reserve(snapshot.figures.len() * len);
            snapshot.write_series(family, &mut self.text);
        }
    }
}

/// Writes the text that prometheus-client makes for a metric, or, if `family` is None, for the metrics of the namespace. If `has_series` is false,
/// the text of a metric is only its heading. For many queues, [`Snapshot::write_series`] writes the lines with the values faster.
fn encode_into(
    text: &mut String,
    snapshot: &Arc<Snapshot>,
    family: Option<&'static Family>,
    form: Form,
    has_series: bool,
) {
    let mut registry = Registry::default();
    let snapshot = Arc::clone(snapshot);
    registry.register_collector(Box::new(Part {
        snapshot,
        family,
        has_series,
    }));
    // Writing to a string can't fail.
    let _ = match form {
        Form::OpenMetrics => openmetrics::encode_registry(text, &registry),
        Form::Prometheus => prometheus_text::encode(text, &registry),
    };
}

/// The labels of a series.
struct Labels<'a>(&'a [(&'static str, &'a str)]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let mut labels = self.0.iter();
        labels.try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

/// A part of the text that one thread writes.
#[derive(Debug)]
struct Part {
    snapshot: Arc<Snapshot>,
    family: Option<&'static Family>,
    has_series: bool,
}

impl Collector for Part {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        match self.family {
            Some(family) => self
                .snapshot
                .encode_family(family, encoder, self.has_series),
            None => {
                self.snapshot.encode_info(encoder)?;
                self.snapshot.encode_found(encoder)?;
                bridges::encode_all(&bridges::read(&self.snapshot.namespace), encoder)
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

    fn encode_family(
        &self,
        family: &Family,
        encoder: &mut DescriptorEncoder<'_>,
        has_series: bool,
    ) -> fmt::Result {
        let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
        let (name, help) = (family.name, family.help);
        let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), family.kind)?;
        for figures in self.figures.iter().filter(|_| has_series) {
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

    /// Writes the series of a metric in the form of [`encode_family`](Self::encode_family), which OpenMetrics and Prometheus share. The labels of
    /// each queue were formatted before.
    fn write_series(&self, family: &Family, text: &mut String) {
        let mut name = family.name.to_owned();
        if let Some(unit) = family.unit {
            name.push('_');
            name.push_str(unit);
        }
        name.push_str(match family.kind {
            Counter => "_total{",
            _ => "{",
        });
        let values = family.series.iter().map(|(value, of)| {
            let further = match family.label {
                "" => "} ".to_owned(),
                label => format!(",{label}=\"{value}\"}} "),
            };
            (further, of)
        });
        let values: Vec<_> = values.collect();
        let is_gauge = matches!(family.kind, Gauge);
        let (mut whole, mut real) = (itoa::Buffer::new(), dtoa::Buffer::new());
        for figures in &self.figures {
            for (further, of) in &values {
                let number = match of(figures) {
                    None => continue,
                    // A gauge above the range of `i64` is printed as a floating-point number.
                    Some(Value::Whole(number)) if is_gauge && i64::try_from(number).is_err() => {
                        real.format_finite(number as f64)
                    }
                    Some(Value::Whole(number)) => whole.format(number),
                    Some(Value::Real(number)) => real.format_finite(number),
                };
                text.push_str(&name);
                text.push_str(&figures.labels);
                text.push_str(further);
                text.push_str(number);
                text.push('\n');
            }
        }
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
        // prometheus-client has gauges of `i64` and of `f64` only.
        (_, Value::Whole(value)) => match i64::try_from(*value) {
            Ok(value) => series.encode_gauge(&value),
            Err(_) => series.encode_gauge(&(*value as f64)),
        },
        (_, Value::Real(value)) => series.encode_gauge(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::figures::{Figures, labels};
    use std::time::SystemTime;

    /// Returns figures in which each number differs from the others.
    fn figures(kind: Kind, queue: &str, mut next: u64) -> Figures {
        let mut number = || {
            next = next.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) + 1;
            next >> (next % 63)
        };
        let labels = Arc::from(labels(kind, queue));
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(number() >> 3);
        Figures {
            queue: Arc::from(queue),
            labels,
            messages: number(),
            bytes: Some(number()),
            leased: (kind != Kind::Ring).then(&mut number),
            reserved: Some(number()),
            capacity: Some(u64::MAX),
            // The fill is always finite: a queue without capacity has the fill 1.
            fill: number() as f64 / 7.0,
            oldest: Some(time),
            closed: true,
            receiver_alive: Some(false),
            sent: u64::MAX,
            dropped: Some(number()),
            memory: number(),
            ..Figures::nothing(kind)
        }
    }

    #[test]
    fn the_series_are_written_as_prometheus_client_writes_them() {
        let mut snapshot = Snapshot::default();
        for (n, queue) in ["/q", "/a\"b\\c", "/line\nfeed\r", "/grün", ""]
            .iter()
            .enumerate()
        {
            let all = Kind::ALL.map(|kind| figures(kind, queue, n as u64 + 7));
            snapshot.figures.extend(all);
        }
        let snapshot = Arc::new(snapshot);
        for form in [Form::OpenMetrics, Form::Prometheus] {
            for family in FAMILIES {
                let mut wanted = String::new();
                encode_into(&mut wanted, &snapshot, Some(family), form, true);
                let mut piece = Piece::of(Some(family));
                for _ in 0..2 {
                    piece.renew(&snapshot, form);
                    assert_eq!(piece.text, wanted);
                }
            }
        }
    }
}
