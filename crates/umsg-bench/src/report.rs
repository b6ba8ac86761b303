//! A row of results, for programs (JSON) and for people (see [`crate::table`]).

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::failure::Failure;
use crate::harness::Samples;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Less,
    More,
}

/// One row: what was measured, on both sides, and how it compares.
#[derive(Debug)]
pub struct Row {
    pub suite: &'static str,
    pub row: String,
    pub unit: &'static str,
    pub umsg: Option<f64>,
    pub kernel: Option<f64>,
    /// How many times better umsg is: above 1, umsg is better.
    pub ratio: Option<f64>,
    /// The goal in words, and whether it was reached.
    pub goal: Option<(String, bool)>,
    pub notes: Vec<String>,
    /// Further columns, in the order of the table.
    pub extra: Vec<(&'static str, Option<f64>)>,
}

impl Row {
    /// A row of medians, with the ratio that follows from them.
    pub fn compare(
        suite: &'static str,
        row: impl Into<String>,
        unit: &'static str,
        better: Better,
        umsg: &Samples,
        kernel: &Samples,
    ) -> Self {
        let (umsg_median, kernel_median) = (umsg.median(), kernel.median());
        let ratio = umsg_median
            .zip(kernel_median)
            .map(|(umsg, kernel)| match better {
                Better::Less => kernel / umsg,
                Better::More => umsg / kernel,
            });
        Self {
            suite,
            row: row.into(),
            unit,
            umsg: umsg_median,
            kernel: kernel_median,
            ratio,
            goal: None,
            notes: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// A further column; a figure that was not taken stays empty.
    pub fn column(mut self, key: &'static str, value: Option<f64>) -> Self {
        self.extra.push((key, value));
        self
    }

    /// The spreads of both sides, in percent.
    pub fn spreads(self, umsg: &Samples, kernel: &Samples) -> Self {
        self.column("umsg_spread", umsg.spread())
            .column("kernel_spread", kernel.spread())
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Says why a side has no figure, if so.
    pub fn reason(self, side: &str, failure: Option<&Failure>) -> Self {
        match failure {
            Some(failure) => self.note(format!("no {side}: {failure}")),
            None => self,
        }
    }

    /// A goal that needs a figure; without one it is not judged.
    pub fn goal(mut self, goal: impl Into<String>, met: Option<bool>) -> Self {
        self.goal = met.map(|met| (goal.into(), met));
        self
    }

    /// The goal of a ratio of at least this.
    pub fn goal_ratio(self, at_least: f64) -> Self {
        let met = self.ratio.map(|ratio| ratio >= at_least);
        self.goal(format!("ratio >= {at_least}"), met)
    }

    fn all_notes(&self) -> String {
        self.notes.join("; ")
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("suite", self.suite)?;
        map.serialize_entry("row", &self.row)?;
        map.serialize_entry("unit", self.unit)?;
        map.serialize_entry("umsg", &self.umsg.map(rounded))?;
        map.serialize_entry("kernel", &self.kernel.map(rounded))?;
        map.serialize_entry("ratio", &self.ratio.map(rounded))?;
        map.serialize_entry("note", &self.all_notes())?;
        if let Some((goal, met)) = &self.goal {
            map.serialize_entry("goal", goal)?;
            map.serialize_entry("met", met)?;
        }
        for (key, value) in &self.extra {
            map.serialize_entry(key, &value.map(rounded))?;
        }
        map.end()
    }
}

/// To a thousandth: no figure here is better than that.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Prints an array of rows.
pub fn print_json(rows: &[Row]) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(rows)
        .map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    println!("{text}");
    Ok(())
}
