//! Ratios of two runs side by side.

use std::fmt;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::{Context as _, Failure, Result};

/// A ratio has dropped if it is lower than this part of the accepted ratio.
const KEPT: f64 = 0.85;

/// The ratios of two processes depend on the distance of their CPUs, which on a virtual machine changes by the hour. If the
/// times of a cache line in two runs differ by more than this factor, their ratios are not compared.
const FARTHER: f64 = 1.5;

/// The format version of the JSON documents that this task reads.
const FORMAT: u64 = 1;

/// The ratios of a run.
#[derive(Debug)]
pub struct Figures(Vec<Figure>);

#[derive(Debug)]
struct Figure {
    row: String,
    ratio: f64,
    /// True if the machine was quiet enough for the ratio to mean something.
    resolved: bool,
    /// The time of a cache line between the two CPUs, in nanoseconds; None if the row uses one CPU.
    line: Option<f64>,
}

impl Figure {
    /// Returns the reason why the ratio can't be compared with an accepted one; None if it can.
    fn unlike(&self, accepted: &Figure) -> Option<String> {
        if !accepted.resolved {
            return Some("which noise had made meaningless".to_owned());
        }
        let (now, then) = self.line.zip(accepted.line)?;
        (now.max(then) > FARTHER * now.min(then))
            .then(|| format!("when a cache line took {then:.0} ns between the CPUs, now {now:.0}"))
    }
}

/// A row whose ratio has dropped.
#[derive(Debug, PartialEq)]
pub struct Dropped {
    pub row: String,
    accepted: f64,
    found: f64,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            row,
            accepted,
            found,
        } = self;
        let percent = 100.0 * (1.0 - found / accepted);
        write!(
            f,
            "  {row}: {found:.2} times the kernel's, {accepted:.2} accepted ({percent:.0} % less)"
        )
    }
}

impl Figures {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).context(path.display())?;
        Self::parse(&text, path)
    }

    /// Parses the output of `umsg-bench --json`.
    pub fn parse(text: &str, from: &Path) -> Result<Self> {
        let document: Value = serde_json::from_str(text).context(from.display())?;
        if document["format"].as_u64() != Some(FORMAT) {
            let what = format!("{}: no figures of format {FORMAT}", from.display());
            return Err(Failure::new(what));
        }
        let rows = document["rows"].as_array().map_or(&[][..], Vec::as_slice);
        let figure = |row: &Value| {
            Some(Figure {
                row: format!("{}: {}", row["suite"].as_str()?, row["row"].as_str()?),
                ratio: row["ratio"].as_f64()?,
                resolved: row["resolved"].as_bool()?,
                line: row["columns"]["line"].as_f64(),
            })
        };
        Ok(Self(rows.iter().filter_map(figure).collect()))
    }

    /// Returns the rows of the run `found` whose ratio is lower than in this run by more than the tolerance. Prints the compared runs.
    pub fn drops(&self, found: &Figures) -> Vec<Dropped> {
        let mut drops = Vec::new();
        for figure in &found.0 {
            let Figure { row, ratio, .. } = figure;
            let Some(accepted) = self.0.iter().find(|accepted| accepted.row == *row) else {
                println!("{row}: {ratio:.2}, not among the accepted");
                continue;
            };
            let quiet = if figure.resolved {
                ""
            } else {
                " (not resolved)"
            };
            let unlike = figure.unlike(accepted);
            println!(
                "{row}: {ratio:.2}{quiet}, accepted {:.2}{}",
                accepted.ratio,
                unlike
                    .as_ref()
                    .map_or(String::new(), |why| format!(", {why}"))
            );
            if unlike.is_none() && *ratio < accepted.ratio * KEPT {
                drops.push(Dropped {
                    row: row.clone(),
                    accepted: accepted.ratio,
                    found: *ratio,
                });
            }
        }
        drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rows: &[(&str, Option<f64>, bool)]) -> Figures {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(row, ratio, resolved)| {
                serde_json::json!({"suite": "suite", "row": row, "ratio": ratio, "resolved": resolved})
            })
            .collect();
        let text = serde_json::json!({"format": 1, "rows": rows}).to_string();
        Figures::parse(&text, Path::new("test")).unwrap()
    }

    #[test]
    fn only_a_drop_of_more_than_15_percent_of_what_was_resolved_counts() {
        let accepted = figures(&[
            ("same", Some(10.0), true),
            ("less", Some(10.0), true),
            ("noise", Some(10.0), false),
            ("no ratio", None, true),
        ]);
        let found = figures(&[
            ("same", Some(8.6), true),
            ("less", Some(8.4), false),
            ("noise", Some(1.0), true),
            ("no ratio", Some(1.0), true),
            ("new", Some(1.0), true),
        ]);
        let drops = accepted.drops(&found);
        assert_eq!(drops.len(), 1);
        assert_eq!(
            drops[0].to_string(),
            "  suite: less: 8.40 times the kernel's, 10.00 accepted (16 % less)"
        );
    }

    #[test]
    fn a_ratio_of_cpus_that_are_farther_apart_now_is_not_compared() {
        let figures = |ratio: f64, line: f64| {
            let row = serde_json::json!({
                "suite": "suite", "row": "row", "ratio": ratio, "resolved": true, "columns": {"line": line}
            });
            let text = serde_json::json!({"format": 1, "rows": [row]}).to_string();
            Figures::parse(&text, Path::new("test")).unwrap()
        };
        let accepted = figures(10.0, 30.0);
        assert_eq!(accepted.drops(&figures(5.0, 130.0)), []);
        assert_eq!(accepted.drops(&figures(5.0, 31.0)).len(), 1);
    }

    #[test]
    fn figures_of_another_format_are_refused() {
        let refused = Figures::parse("{\"format\": 2, \"rows\": []}", Path::new("old.json"));
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("old.json: no figures of format 1")
        );
    }
}
