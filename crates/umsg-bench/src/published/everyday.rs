//! Operations around the messages. Nothing was published for them.

use super::{Line, Table};
use crate::document::Document;

pub fn table(document: &Document) -> Table {
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
