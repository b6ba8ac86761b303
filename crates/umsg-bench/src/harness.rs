//! The settings that every suite needs, and rounds that alternate between the sides.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::backends::dropin;
use crate::backends::kernel::{self, Allowance};
use crate::cli::Cli;
use crate::clock;
use crate::duo::Places;
use crate::failure::Failure;
use crate::machine::{self, Cpus};
use crate::only::Only;
use crate::peers::scratch::Scratch;
use crate::progress::Progress;
use crate::row::rounded;
use crate::suite::Suite;

/// The requested options, and the permissions that the machine grants.
pub struct Plan {
    /// The number of rounds, over which medians are taken.
    pub rounds: u32,
    /// True to measure the slow cases fewer times.
    pub quick: bool,
    /// True to print tables for people.
    pub tables: bool,
    /// The reports on standard error during the measurement.
    pub progress: Progress,
    /// The time for which one cheap operation is repeated within a round.
    pub budget: Duration,
    /// The time for which two processes work within a round.
    pub duo_budget: Duration,
    /// Seconds for each row of the suite `realtime` on each side, if the command line sets them.
    pub seconds: Option<u32>,
    /// The rows that are measured.
    pub only: Only,
    pub cpus: Cpus,
    /// True if the measurement has precedence over other processes, at nice -20.
    pub hurried: bool,
    /// The means to find the depth that the kernel allows this process.
    pub allowance: Allowance,
    /// A directory for the files of peers. The supervisor removes it.
    pub scratch: Scratch,
    /// The file of the drop-in, or the reason why the drop-in has no column.
    pub dropin: Result<PathBuf, Failure>,
}

impl Plan {
    /// Returns a CPU for each of the two processes of a suite.
    ///
    /// # Errors
    /// Fails if there is only one CPU.
    pub fn apart(&self, suite: &str) -> Result<Places, Failure> {
        let [first, second] = self.cpus.two(suite)?;
        Ok(Places::Apart(first, second))
    }

    pub fn new(cli: &Cli, scratch: Scratch) -> Result<Self, Failure> {
        refuse_preload()?;
        let only = Only::of(cli.only.as_deref(), &cli.suites())?;
        let cpus = Cpus::choose()?;
        machine::pin(cpus.first)?;
        let hurried = machine::hurry();
        let milliseconds =
            |quick: u64, full: u64| Duration::from_millis(if cli.quick { quick } else { full });
        Ok(Self {
            rounds: cli.rounds(),
            quick: cli.quick,
            tables: cli.tables(),
            progress: Progress::new(&cli.suites(), cli.quick),
            budget: milliseconds(20, 60),
            duo_budget: milliseconds(80, 250),
            seconds: cli.seconds,
            only,
            cpus,
            hurried,
            allowance: kernel::allowance(cli.kernel_depth),
            scratch,
            dropin: dropin::load(cli.dropin.as_deref()),
        })
    }

    /// Returns the lines above the table of a suite.
    pub fn heading(&self, suite: Suite) -> String {
        let mut heading = format!(
            "{}: {}; medians of {} rounds, reading the clock takes {:.0} ns",
            suite.name(),
            machine::describe(self.cpus),
            self.rounds,
            clock::overhead(),
        );
        if self.hurried {
            heading += ", at nice -20";
        }
        heading
    }

    /// Returns the reason why the table has no column for the drop-in, or None if the table has the column.
    pub fn no_dropin(&self) -> Option<Failure> {
        self.dropin.as_ref().err().cloned()
    }

    /// Reports the progress on standard error.
    pub fn progress(&self, what: &str, round: u32) {
        self.progress_of(what, round, self.rounds);
    }

    /// Shows the progress as `progress` does, for a measurement of `rounds` rounds.
    pub fn progress_of(&self, what: &str, round: u32, rounds: u32) {
        self.progress.show(what, round, rounds);
    }
}

/// Fails if the drop-in is preloaded: the libc functions would then use umsg, and the kernel's column would be wrong.
fn refuse_preload() -> Result<(), Failure> {
    let preload = std::env::var("LD_PRELOAD").unwrap_or_default();
    if preload.contains("umsg") {
        return Err(Failure::new(
            "LD_PRELOAD names the drop-in, so the kernel's queues can't be measured: unset LD_PRELOAD",
        ));
    }
    Ok(())
}

/// The results of one side over all rounds, or the reason why there are none.
#[derive(Debug)]
pub struct Side<T> {
    pub rounds: Vec<T>,
    pub failure: Option<Failure>,
}

impl<T> Side<T> {
    pub fn new() -> Self {
        Self {
            rounds: Vec::new(),
            failure: None,
        }
    }

    /// Returns a side without figures. `failure` is the reason.
    pub fn absent(failure: Option<Failure>) -> Self {
        Self {
            rounds: Vec::new(),
            failure,
        }
    }

    /// Measures one more round. Does nothing if an earlier round failed.
    pub fn round(&mut self, measure: impl FnOnce() -> Result<T, Failure>) {
        if self.failure.is_some() {
            return;
        }
        match measure() {
            Ok(found) => self.rounds.push(found),
            Err(failure) => {
                self.rounds.clear();
                self.failure = Some(failure);
            }
        }
    }

    /// Returns one figure of each round.
    pub fn each(&self, figure: impl Fn(&T) -> f64) -> Samples {
        Samples(self.rounds.iter().map(figure).collect())
    }
}

/// The values of one figure in all rounds; empty if the figure was not measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Samples(#[serde(serialize_with = "rounded_all")] pub Vec<f64>);

fn rounded_all<S: Serializer>(samples: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(samples.iter().map(|&sample| rounded(sample)))
}

impl Samples {
    pub fn median(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| crate::stats::median(&self.0))
    }

    /// Returns the distance of the quartiles, in percent of the median.
    pub fn spread(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| crate::stats::spread(&self.0))
    }
}
