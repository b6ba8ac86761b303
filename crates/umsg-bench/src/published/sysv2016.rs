//! The published figures of 2016: System V queues with hand-off, and with wake-ups outside of the queue's lock.

use super::{Entry, Table};
use crate::document::Document;

/// The number of threads, and the messages in 60 seconds: first with wake-ups inside the lock, then with wake-ups outside the lock.
const THREADS: [(u32, [f64; 2]); 3] = [
    (2, [22_884_224.0, 24_278_200.0]),
    (4, [21_367_197.0, 35_743_458.0]),
    (8, [19_347_422.0, 30_442_191.0]),
];

/// Rows without published figures.
const BESIDES: [(&str, &str); 5] = [
    ("one thread, send + receive", "one thread, send + receive"),
    (
        "a type behind 15000 messages of another",
        "receive a type behind 15,000 messages of another",
    ),
    (
        "except one type, behind 15000 messages of it",
        "receive all but a type, behind 15,000 of it",
    ),
    (
        "a new message among 15000 types",
        "receive a new message among 15,000 types",
    ),
    (
        "the lowest of 15000 types",
        "receive the lowest of 15,000 types",
    ),
];

pub fn table(document: &Document) -> Table {
    let mut table = Table {
        id: "sysv-2016",
        title: "System V: pairs of threads on one queue, each receiving by its own type",
        origin: "Published in 2016 with the change that took the kernel's wake-ups out of the queue's lock: messages in 60 s, \
                 here by the second, on a machine with a core for each thread.",
        goal: "Threads with a core each at least 10 times the kernel's rate; threads that share a core never below it; a receive by \
               type at a depth of 15,000 at least 500 times faster; a send and a receive in one thread at most 60 ns.",
        more: [
            "umsg, wake-up inside the lock",
            "umsg CPU ns",
            "kernel CPU ns",
        ]
        .map(Into::into)
        .into(),
        published: vec!["inside the lock", "outside"],
        lines: Vec::new(),
        notes: Vec::new(),
    };
    let keys = ["wake_inside_lock", "umsg_cpu_ns", "kernel_cpu_ns"];
    for place in [
        "one queue, split",
        "one queue, same core",
        "split, blocking",
    ] {
        for (threads, published) in THREADS {
            let row = match place {
                "split, blocking" => format!("{threads} threads, {place}"),
                _ => format!("{threads} threads on {place}"),
            };
            let published = published.map(|messages| Some(messages / 60.0 / 1000.0));
            let entry = entry(&row, &row, published.into());
            table.push(document, &keys, entry);
        }
    }
    for (row, label) in BESIDES {
        table.push(document, &keys, entry(row, label, vec![None, None]));
    }
    table
}

fn entry<'a>(row: &'a str, label: &'a str, published: Vec<Option<f64>>) -> Entry<'a> {
    Entry {
        suite: "msg",
        row,
        label,
        published,
    }
}
