//! The tables of two processes and messages of 64 bytes: umsg, the kernel, and the measured peers.
//!
//! Each line of the tables names a row of the suite "peers". Each peer is a further column of that row.

use super::{Line, Table};
use crate::document::Document;

/// The lines of the tables. A line has a label, the suite and the row with the figures of umsg and the kernel, and the row of the suite "peers".
const LINES: [(&str, &str, &str, &str); 11] = [
    (
        "stream, queue of 1,024, best way to wait",
        "stream",
        "",
        "stream",
    ),
    (
        "stream, queue of 10, as programs do by default",
        "stream",
        "64 B, depth 10, adaptive",
        "",
    ),
    (
        "stream, queue of 10, blocking",
        "stream",
        "64 B, depth 10, blocking",
        "",
    ),
    (
        "stream in batches of 64",
        "batch",
        "64 a call, adaptive",
        "",
    ),
    (
        "round trip, two cores, both spinning",
        "pingpong",
        "64 B, two cores, polling",
        "round trip, spinning",
    ),
    (
        "round trip, two cores, as programs do by default",
        "pingpong",
        "64 B, two cores, adaptive",
        "",
    ),
    (
        "round trip, two cores, both asleep",
        "pingpong",
        "64 B, two cores, blocking",
        "round trip, asleep",
    ),
    (
        "round trip, one core, both asleep",
        "pingpong",
        "64 B, one core, blocking",
        "",
    ),
    (
        "send + receive, one thread",
        "mqueue",
        "empty, both",
        "one thread",
    ),
    (
        "stuck after a busy sender was killed",
        "peers",
        "sender killed",
        "sender killed",
    ),
    (
        "stuck after a busy receiver was killed",
        "peers",
        "receiver killed",
        "receiver killed",
    ),
];

pub fn table(document: &Document) -> Table {
    let mut table = Table {
        id: "processes",
        title: "Between two processes: 64 bytes",
        origin: "Nothing was published for these. Latency: from send to receive, of half of the messages, at that rate. What stands right of it is from \
                 suite peers, which has all of them, umsg and the kernel too, in the same rounds.",
        goal: "15 million messages a second at the best setting; a round trip within 600 ns while both spin, at most 1.05 times the \
               kernel's while both sleep; a send and a receive in one thread at most 45 ns; no process stuck.",
        more: [
            "umsg CPU ns",
            "kernel CPU ns",
            "umsg latency ns",
            "umsg p99 ns",
            "kernel p99 ns",
        ]
        .map(Into::into)
        .into(),
        published: Vec::new(),
        lines: Vec::new(),
        notes: Vec::new(),
    };
    let keys = [
        "umsg_cpu_ns",
        "kernel_cpu_ns",
        "umsg_latency_ns",
        "umsg_p99",
        "kernel_p99",
    ];
    let peers = peers(document);
    table.more.extend(peers.iter().cloned());
    table.notes = notes(document);
    for (label, suite, row, beside) in LINES {
        let found = match row {
            "" => best_stream(document),
            row => document.row(suite, row),
        };
        let Some(row) = found else { continue };
        let mut more: Vec<_> = keys.iter().map(|key| row.columns.get(key)).collect();
        let beside = document.row("peers", beside);
        more.extend(peers.iter().map(|peer| beside?.columns.get(peer)));
        table.lines.push(Line::of(row, label, more, Vec::new()));
    }
    table
}

/// Returns the names of all peers that were measured.
fn peers(document: &Document) -> Vec<String> {
    let mut names = Vec::<String>::new();
    let rows = document.rows.iter().filter(|row| row.suite == "peers");
    for (name, _) in rows.flat_map(|row| row.columns.iter()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns notes on the use of each peer.
fn notes(document: &Document) -> Vec<String> {
    let mut notes = Vec::<String>::new();
    let rows = document.rows.iter().filter(|row| row.suite == "peers");
    for note in rows.flat_map(|row| &row.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    notes
}

fn best_stream(document: &Document) -> Option<&crate::row::Row> {
    let short = document
        .rows
        .iter()
        .filter(|row| row.suite == "stream" && row.row.starts_with("64 B, depth 1024"));
    short.max_by(|a, b| a.umsg.unwrap_or(0.0).total_cmp(&b.umsg.unwrap_or(0.0)))
}
