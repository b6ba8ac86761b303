//! Histories of whole processes, on the kernel and under the drop-in in lockstep.
//!
//! The histories of [`crate::compare`] mainly make calls on queues. In the histories of this module, processes fork from a process that uses queues,
//! run another program that inherits descriptors, exit, and are killed. They also pass descriptors on, reuse descriptor numbers, share epoll sets,
//! and end blocked calls of other processes. One history uses POSIX and System V queues:
//!
//! ```text
//!   coordinator ──sockets──► p0 ─fork─► p1 ─exec─► p1   (kernel, in an IPC namespace of the history)
//!        │
//!        └───────sockets──► p0 ─fork─► p1 ─exec─► p1   (drop-in, in a directory of the history)
//! ```
//!
//! The process with the same number on both sides performs each step. Before the next step begins, the coordinator sees in `/proc` whether a process
//! sleeps in a call. A difference ends the history. If no known gap (`gaps.rs`) explains the difference, the history is shortened to the steps that
//! show the difference.

mod act;
mod actor;
mod descriptors;
mod gaps;
mod generate;
mod lockstep;
mod mailbox;
mod side;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

pub use actor::{ACTOR, act};
pub use gaps::Gap;
pub use lockstep::Seen;
pub use side::Queues;

use crate::compare::shrink;
use act::Step;
use generate::Generator;
use lockstep::{End, Played};

/// The time to wait for an answer while a history is shortened.
const AGAIN: Duration = Duration::from_secs(2);

/// The number of attempts to reproduce a difference before the history is shortened.
const ATTEMPTS: u32 = 3;

/// The parameters of a comparison.
pub struct Config<'a> {
    /// The path of the program `compare`.
    pub program: &'a Path,
    /// The queues that are compared with the kernel's queues.
    pub queues: Queues,
    /// The minimum number of operations, unless the time is over before.
    pub operations: u64,
    /// The time after which no further history begins.
    pub budget: Option<Duration>,
    /// The seed of the random numbers.
    pub seed: u64,
    /// A function that the comparison calls from time to time, with the number of operations so far.
    pub progress: Option<&'a dyn Fn(u64)>,
}

/// The extent of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// The number of operations that both sides performed.
    pub operations: u64,
    /// The number of histories.
    pub histories: u64,
    /// The number of operations that blocked.
    pub blocked: u64,
    /// The number of histories that a known gap ended.
    pub masked: BTreeMap<Gap, u64>,
    /// For each call and each result, the number of such calls.
    pub seen: Seen,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations in {} histories, {} of them blocking: no difference",
            self.operations, self.histories, self.blocked
        )?;
        if !self.masked.is_empty() {
            write!(f, " but known gaps:")?;
        }
        for (gap, count) in &self.masked {
            write!(f, "\n{count:6} histories ended at: {}", gap.row())?;
        }
        Ok(())
    }
}

/// The reason why a comparison failed: a difference, as text with a short history that shows it, or an obstacle.
pub type Failure = crate::compare::Failure<String>;

fn differs(played: &Played) -> bool {
    matches!(played.end, End::Differed(_))
}

/// Reproduces the difference, shortens the history to the steps that show it, and returns the text for the report.
fn explain(config: &Config<'_>, steps: Vec<Step>, history: u64, first: Played) -> String {
    let sides = [Queues::Kernel, config.queues.clone()];
    let play = |steps: &[Step]| lockstep::play(config.program, &sides, steps, AGAIN);
    let again = (0..ATTEMPTS).filter(|_| differs(&play(&steps))).count() as u32;
    let mut shortest = first;
    if again > 0 {
        shrink(steps, |steps| {
            // If the difference depends on timing, several attempts may be necessary to see it.
            let found = (0..=ATTEMPTS - again).map(|_| play(steps)).find(differs);
            let still = found.is_some();
            if let Some(played) = found {
                shortest = played;
            }
            still
        });
    }
    format!(
        "a difference, in history {history} of seed {} (again in {again} of {ATTEMPTS} attempts):\n{shortest}",
        config.seed
    )
}

/// Compares the kernel with the drop-in.
///
/// # Errors
/// The first difference, with a short history that shows it, or the reason why no history could be compared.
pub fn run(config: &Config<'_>) -> Result<Summary, Failure> {
    let sides = [Queues::Kernel, config.queues.clone()];
    let mut generator = Generator::new(config.seed);
    let mut summary = Summary::default();
    let began = Instant::now();
    let in_time = || config.budget.is_none_or(|budget| began.elapsed() < budget);
    while summary.operations < config.operations && in_time() {
        let steps = generator.history();
        let played = lockstep::play(
            config.program,
            &sides,
            &steps,
            crate::compare::party::PATIENCE,
        );
        summary.operations += played.operations;
        summary.blocked += played.blocked;
        for (what, count) in &played.seen {
            *summary.seen.entry(what.clone()).or_default() += count;
        }
        match &played.end {
            End::Agreed => {}
            End::Masked(gap) => *summary.masked.entry(*gap).or_default() += 1,
            End::Impossible(why) => return Err(Failure::Impossible(why.clone())),
            End::Differed(_) => {
                let text = explain(config, steps, summary.histories, played);
                return Err(Failure::Difference(text));
            }
        }
        summary.histories += 1;
        if let Some(progress) = config.progress {
            progress(summary.operations);
        }
    }
    Ok(summary)
}
