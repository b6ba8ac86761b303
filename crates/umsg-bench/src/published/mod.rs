//! Tables that were published when the kernel's queues and rings became faster, each with the figures of this command for the same measurement.
//!
//! The published figures were taken on other machines: only the proportions within a table compare.

mod counters2022;
mod everyday;
mod processes;
mod queue2012;
mod rings2024;
mod sysv2016;

use serde::Serialize;

use crate::document::Document;
use crate::row::{Goal, Row};

/// A table of figures of this run, beside published figures of the same measurement if there are any.
#[derive(Debug, Serialize)]
pub struct Table {
    pub id: &'static str,
    pub title: &'static str,
    /// The author, content and date of a publication, and the derivation of the table's figures.
    pub origin: &'static str,
    /// The goals for the figures of this table, as a text.
    pub goal: &'static str,
    /// The headings of further figures of this run.
    pub more: Vec<String>,
    /// The headings of the published figures.
    pub published: Vec<&'static str>,
    pub lines: Vec<Line>,
    /// Notes on the use of the peers in the columns, for peers whose use is not obvious.
    pub notes: Vec<String>,
}

/// A line of a table.
#[derive(Debug, Serialize)]
pub struct Line {
    pub label: String,
    pub unit: String,
    pub umsg: Option<f64>,
    pub kernel: Option<f64>,
    pub ratio: Option<f64>,
    pub more: Vec<Option<f64>>,
    pub published: Vec<Option<f64>>,
    pub goal: Option<Goal>,
    pub resolved: bool,
    pub doubts: Vec<String>,
}

/// Returns all tables, in the order of their years, without tables that have no measured figure.
pub fn tables(document: &Document) -> Vec<Table> {
    let all = [
        queue2012::table(document),
        sysv2016::table(document),
        counters2022::table(document),
        rings2024::table(document),
        processes::table(document),
        everyday::operations(document),
        everyday::realtime(document),
    ];
    all.into_iter()
        .filter(|table| !table.lines.is_empty())
        .collect()
}

/// A row of the document, and how it appears in a table.
struct Entry<'a> {
    suite: &'static str,
    row: &'a str,
    label: &'a str,
    published: Vec<Option<f64>>,
}

impl Table {
    /// Adds a line for a row, if the row was measured. The further figures of the line are the row's columns with these keys.
    fn push(&mut self, document: &Document, keys: &[&str], entry: Entry<'_>) {
        if let Some(row) = document.row(entry.suite, entry.row) {
            let more = keys.iter().map(|key| row.columns.get(key)).collect();
            self.lines
                .push(Line::of(row, entry.label, more, entry.published));
        }
    }
}

impl Line {
    fn of(row: &Row, label: &str, more: Vec<Option<f64>>, published: Vec<Option<f64>>) -> Self {
        Self {
            label: label.to_owned(),
            unit: row.unit.clone(),
            umsg: row.umsg,
            kernel: row.kernel,
            ratio: row.ratio,
            more,
            published,
            goal: row.goal.clone(),
            resolved: row.resolved,
            doubts: row.doubts.clone(),
        }
    }

    /// Returns a line with the figures of two columns, for a row without figures of its own. The row's goal does not apply to the line.
    fn of_columns(
        table: &Table,
        row: &Row,
        label: &str,
        [umsg, kernel]: [&str; 2],
        published: Vec<Option<f64>>,
    ) -> Self {
        let (umsg, kernel) = (row.columns.get(umsg), row.columns.get(kernel));
        Self {
            umsg,
            kernel,
            ratio: umsg.zip(kernel).map(|(umsg, kernel)| kernel / umsg),
            goal: None,
            ..Self::of(row, label, vec![None; table.more.len()], published)
        }
    }
}
