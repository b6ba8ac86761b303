//! The published figures of 2024: messages between io_uring's rings.

use super::{Entry, Line, Table};
use crate::document::Document;

/// The published times of a message, in nanoseconds, when a message is posted every 10 us. For each end, the first pair is the median before and
/// after the change, and the second pair is the 99th percentile before and after the change.
const ENDS: [(&str, [f64; 2], [f64; 2]); 2] = [
    ("sender", [2_544.0, 290.0], [3_568.0, 1_032.0]),
    ("receiver", [1_688.0, 764.0], [2_416.0, 2_448.0]),
];

/// The share of the due messages that were sent, before and after the change.
const SENT: [f64; 2] = [131_950.0 / 299_882.0, 247_931.0 / 299_882.0];

pub fn table(document: &Document) -> Table {
    let mut table = Table {
        id: "rings-2024",
        title: "Rings: a message every 10 µs, and as many as go through",
        origin: "Published in 2024 with faster messages between io_uring's rings (MSG_RING): nanoseconds of the sender's post, and from \
                 before it until the message is received; of half of the messages (p50) and of 99 % (p99).",
        goal: "At 10 µs half of the messages within 150 / 350 ns (sender / receiver) by default, 60 / 300 ns polling, asleep at most 1.1 times \
               io_uring's; 15 million messages of 64 bytes a second from one producer, 8 million from four; one wake-up for a batch of 16.",
        more: [
            "io_uring, DEFER_TASKRUN",
            "crossbeam-channel",
            "queue with eventfd",
        ]
        .map(Into::into)
        .into(),
        published: vec!["before", "after"],
        lines: Vec::new(),
        notes: Vec::new(),
    };
    for place in ["threads", "processes"] {
        for mode in ["adaptive", "polling", "asleep"] {
            for end in ENDS {
                latencies(&mut table, document, place, mode, end);
            }
        }
    }
    for place in ["threads", "processes"] {
        for senders in [1, 2, 4] {
            for each in ["one by one", "batches of 16"] {
                let row = format!("{place}, {senders} to 1, {each}");
                push(&mut table, document, &row, &row, vec![None, None]);
            }
        }
    }
    let sleeps = "sleeps of a receiver for a batch of 16";
    push(&mut table, document, sleeps, sleeps, vec![None, None]);
    table
}

/// Adds the rows of one variant at one end: the median, the 99th percentile, and for the sender also the number of sent messages.
fn latencies(
    table: &mut Table,
    document: &Document,
    place: &str,
    mode: &str,
    (end, half, most): (&str, [f64; 2], [f64; 2]),
) {
    let name = format!("{place}, 10 us, {mode}: {end}");
    // The published test used threads, and a receiver that sleeps. Other rows have no published figures.
    let published = |figures: [f64; 2]| match (place, mode) {
        ("threads", "asleep") => figures.map(Some).into(),
        _ => vec![None, None],
    };
    let label = format!("{place}, {mode}: {end}");
    push(
        table,
        document,
        &name,
        &format!("{label}, p50"),
        published(half),
    );
    let Some(row) = document.row("ring", &name) else {
        return;
    };
    let tail = ["umsg_p99", "kernel_p99"];
    table.lines.push(Line::of_columns(
        table,
        row,
        &format!("{label}, p99"),
        tail,
        published(most),
    ));
    if end == "sender" {
        let rates = ["umsg_rate", "kernel_rate"];
        let mut line = Line::of_columns(
            table,
            row,
            &format!("{label}, sent of due"),
            rates,
            published(SENT),
        );
        // For the share of sent messages, more is better.
        line.ratio = line.ratio.map(|ratio| 1.0 / ratio);
        line.unit = "share".to_owned();
        table.lines.push(line);
    }
}

fn push(
    table: &mut Table,
    document: &Document,
    row: &str,
    label: &str,
    published: Vec<Option<f64>>,
) {
    let entry = Entry {
        suite: "ring",
        row,
        label,
        published,
    };
    table.push(document, &["defer_taskrun", "crossbeam", "eventfd"], entry);
}
