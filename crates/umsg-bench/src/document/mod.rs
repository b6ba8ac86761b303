//! The figures of a run in one JSON document, from which pages are made without measuring anything.
//!
//! | field | |
//! |---|---|
//! | `format` | [`FORMAT`]. A change of the meaning of a field raises it; a new field does not |
//! | `date`, `seconds` | when the run began, in UTC, and how long it took |
//! | `program` | the version, and the commit if `UMSG_BENCH_COMMIT` named it |
//! | `quick`, `rounds`, `left_out` | how much was measured |
//! | `machine` | see [`Machine`] |
//! | `suites` | for each suite, its duration, the other load on the machine during it, and the reason if it failed |
//! | `rows` | see [`Row`] |
//! | `latencies` | distributions, for plots |
//! | `kill_trials` | the trials in which a peer was killed, if there were any |
//! | `published` | the published tables with the rows that correspond to them, for programs that read the document; made from `rows` with each page |

mod lines;
pub mod machine;

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::lines::Lines;
use self::machine::Machine;
use crate::company::Load;
use crate::failure::Failure;
use crate::found::{Found, KillTrial, Latencies};
use crate::harness::Plan;
use crate::published;
use crate::row::{Row, Verdict, rounded};
use crate::suite::Suite;

/// The version of the document's format.
pub const FORMAT: u32 = 1;

/// The results of one run of the benchmarks, as the JSON document has them.
#[derive(Debug, Deserialize)]
pub struct Document {
    pub date: String,
    pub seconds: f64,
    pub program: Program,
    pub quick: bool,
    pub rounds: u32,
    pub left_out: Vec<String>,
    pub machine: Machine,
    pub suites: Vec<Measured>,
    pub rows: Vec<Row>,
    pub latencies: Vec<Latencies>,
    #[serde(default)]
    pub kill_trials: Vec<KillTrial>,
}

/// The version of umsg that was measured, and the commit from which it was built.
#[derive(Debug, Serialize, Deserialize)]
pub struct Program {
    pub version: String,
    pub commit: Option<String>,
}

/// The results of a suite.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub suite: String,
    /// The duration in seconds, and the load by other processes and other virtual machines.
    #[serde(flatten)]
    pub load: Load,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The number of rows with each verdict on the goal: met, missed or open.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub met: usize,
    pub missed: usize,
    pub open: usize,
}

impl Document {
    /// Creates the document of a run that begins now.
    pub fn new(plan: &Plan) -> Self {
        Self {
            date: format!("{:.0}", Timestamp::now()),
            seconds: 0.0,
            program: Program {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                commit: std::env::var("UMSG_BENCH_COMMIT").ok(),
            },
            quick: plan.quick,
            rounds: plan.rounds,
            left_out: Vec::new(),
            machine: Machine::describe(plan),
            suites: Vec::new(),
            rows: Vec::new(),
            latencies: Vec::new(),
            kill_trials: Vec::new(),
        }
    }

    /// Adds the results of a suite.
    pub fn add(&mut self, suite: Suite, load: Load, found: Result<Found, Failure>) {
        let mut failure = None;
        match found {
            Ok(found) => {
                self.rows.extend(found.rows);
                self.latencies.extend(found.latencies);
                self.kill_trials.extend(found.kill_trials);
            }
            Err(error) => failure = Some(error.to_string()),
        }
        let left_out = suite.left_out().filter(|_| self.quick);
        self.left_out.extend(left_out.map(str::to_owned));
        self.seconds += load.seconds;
        self.suites.push(Measured {
            suite: suite.name().to_owned(),
            load,
            failure,
        });
    }

    /// Returns a row by its name.
    pub fn row(&self, suite: &str, row: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|found| found.suite == suite && found.row == row)
    }

    /// Counts the goals that were met, the goals that were missed, and the open goals.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for goal in self.rows.iter().filter_map(|row| row.goal.as_ref()) {
            match goal.verdict {
                Verdict::Met => tally.met += 1,
                Verdict::Missed => tally.missed += 1,
                Verdict::Open => tally.open += 1,
            }
        }
        tally
    }

    /// Returns the version and the commit of the program.
    pub fn program(&self) -> String {
        let Program { version, commit } = &self.program;
        match commit {
            Some(commit) => format!("umsg {version}, commit {commit}"),
            None => format!("umsg {version}"),
        }
    }

    /// Returns the document as JSON, with one line for each row.
    pub fn text(&self) -> Result<String, Failure> {
        let mut lines = Lines::default();
        lines.field("format", &FORMAT)?;
        lines.field("date", &self.date)?;
        lines.field("seconds", &rounded(self.seconds))?;
        lines.field("program", &self.program)?;
        lines.field("quick", &self.quick)?;
        lines.field("rounds", &self.rounds)?;
        lines.list("left_out", &self.left_out)?;
        lines.field("machine", &self.machine)?;
        lines.list("suites", &self.suites)?;
        lines.list("rows", &self.rows)?;
        lines.list("latencies", &self.latencies)?;
        lines.list("kill_trials", &self.kill_trials)?;
        lines.list("published", &published::tables(self))?;
        Ok(lines.text())
    }

    /// Reads a file that contains the text of [`Self::text`].
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!(
                "cannot read figures from {}: {error}",
                path.display()
            ))
        };
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| failed(&error))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => {
                let other = format!(
                    "the file has format {format}, and this program reads only format {FORMAT}"
                );
                return Err(failed(&other));
            }
            None => {
                return Err(failed(
                    &"the file has no `format`: use a file written by umsg-bench --json",
                ));
            }
        }
        // The text is parsed again, because a `Value` does not keep the order of columns.
        serde_json::from_str(&text).map_err(|error| failed(&error))
    }
}
