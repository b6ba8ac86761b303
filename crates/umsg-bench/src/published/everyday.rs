//! Tables of the operations other than sending and receiving, and of real time. There are no published figures for them.

use super::{Line, Table};
use crate::document::Document;
use crate::row::Row;

pub fn operations(document: &Document) -> Table {
    let rows = document.rows.iter().filter(|row| row.suite == "everyday");
    let line = |row| Line::of(row, &row.row, Vec::new(), Vec::new());
    Table {
        id: "everyday",
        title: "Everyday operations",
        origin: "Nothing was published for these. Each row calls the C functions in a process of its own, in turn on the kernel and \
                 under the drop-in, so that the column of umsg is the drop-in's.",
        goal: "Never slower than the kernel where messages move, and at most a few times slower where a queue is opened or created.",
        more: Vec::new(),
        published: Vec::new(),
        lines: rows.map(line).collect(),
        notes: Vec::new(),
    }
}

/// The further columns in the table of real time: the key of each column in the document, and the heading of the column.
const MORE: [(&str, &str); 6] = [
    ("umsg_longest", "umsg, longest of all"),
    ("kernel_longest", "kernel, longest of all"),
    ("umsg_p50", "umsg, half"),
    ("kernel_p50", "kernel, half"),
    ("umsg_p99.9", "umsg, 99.9 %"),
    ("kernel_p99.9", "kernel, 99.9 %"),
];

pub fn realtime(document: &Document) -> Table {
    let rows = document.rows.iter().filter(|row| row.suite == "realtime");
    let line = |row: &Row| {
        let more = MORE.map(|(key, _)| row.columns.get(key));
        Line::of(row, &row.row, more.into(), Vec::new())
    };
    Table {
        id: "realtime",
        title: "Real time: threads of SCHED_FIFO",
        origin: "Nothing was published for these. The figures of umsg and of the kernel are the longest call of a round, of which the median                  over the rounds stands here; beside them stand the longest call of all rounds, and what half and 99.9 % of the calls take.",
        goal: "The longest send and receive beside a thread of medium priority at most twice the kernel's; the longest wake-up at most the                kernel's.",
        more: MORE.map(|(_, name)| name.to_owned()).into(),
        published: Vec::new(),
        lines: rows.map(line).collect(),
        notes: Vec::new(),
    }
}
