//! The published table of 2022: System V totals that the kernel keeps for each CPU.

use super::{Entry, Table};
use crate::document::Document;

/// The factor by which the published change raised the throughput, with 160 threads on 80 cores.
const GAIN: f64 = 3.99;

const THREADS: [&str; 8] = [
    "1 thread",
    "2 threads",
    "4 threads",
    "8 threads",
    "16 threads",
    "32 threads",
    "64 threads",
    "160 threads",
];

pub fn table(document: &Document) -> Table {
    let mut table = Table {
        id: "counters-2022",
        title: "System V: 160 threads, and the totals of all queues",
        origin: "Published in 2022 with the change of the kernel's totals of messages and bytes from shared counters to counters \
                 by CPU: 3.99 times the throughput on two processors of 40 cores with 160 threads. Two cores measure scheduling. In the \
                 rows of updates the kernel's column is its way since 2022, made anew in process; umsg keeps the totals by queue.",
        goal: "80 pairs of threads with a queue each at least 4 times the kernel's rate; an update of the totals no dearer than another way.",
        more: [
            "by CPU, atomic",
            "shared, as before 2022",
            "umsg CPU ns",
            "kernel CPU ns",
        ]
        .map(Into::into)
        .into(),
        published: vec!["gain"],
        lines: Vec::new(),
        notes: Vec::new(),
    };
    let keys = ["percpu_atomic", "shared", "umsg_cpu_ns", "kernel_cpu_ns"];
    for way in ["adaptive", "blocking"] {
        let row = format!("160 threads on 80 queues, {way}");
        let entry = Entry {
            suite: "msg",
            row: &row,
            label: &row,
            published: vec![Some(GAIN)],
        };
        table.push(document, &keys, entry);
    }
    for row in THREADS {
        let label = format!("update of the totals, {row}");
        let entry = Entry {
            suite: "counters",
            row,
            label: &label,
            published: vec![None],
        };
        table.push(document, &keys, entry);
    }
    table
}
