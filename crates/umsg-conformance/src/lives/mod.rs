//! Histories of whole processes, on the kernel and under the drop-in in lockstep.
//!
//! The histories of [`crate::compare`] mainly make calls on queues. Here, processes fork from a process that uses queues, run another program that
//! inherits descriptors, exit, and are killed. They also pass descriptors on, reuse numbers, share epoll sets, and end the blocked calls of each
//! other. One history uses POSIX and System V queues:
//!
//! ```text
//!   coordinator ──sockets──► p0 ─fork─► p1 ─exec─► p1   (kernel, in an IPC namespace of the history)
//!        │
//!        └───────sockets──► p0 ─fork─► p1 ─exec─► p1   (drop-in, in a directory of the history)
//! ```
//!
//! The same process of both sides takes each step. Before the next step begins, the coordinator sees in `/proc` whether a process sleeps in a call.
//! A difference ends the history. If it is no known gap (`gaps.rs`), the history is cut down to the steps that show the difference.

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

/// The number of attempts to see a difference again before the history is shortened.
const ATTEMPTS: u32 = 3;

/// The subject of a comparison.
pub struct Config<'a> {
    /// The program `compare`.
    pub program: &'a Path,
    /// The subjects of the comparison with the kernel.
    pub queues: Queues,
    /// The least number of operations.
    pub operations: u64,
    /// No history begins after this time.
    pub budget: Option<Duration>,
    /// The start of the random numbers.
    pub seed: u64,
    /// Gets the number of operations from time to time.
    pub progress: Option<&'a dyn Fn(u64)>,
}

/// The extent of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Operations that both sides performed.
    pub operations: u64,
    /// The number of histories with these operations.
    pub histories: u64,
    /// Operations that blocked.
    pub blocked: u64,
    /// Histories that a known gap ended.
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

/// The reason why a comparison ended early: a difference, as text with a short history that shows it, or an obstacle.
pub type Failure = crate::compare::Failure<String>;

fn differs(played: &Played) -> bool {
    matches!(played.end, End::Differed(_))
}

/// Cuts a history down to the steps that show the difference.
fn explain(config: &Config<'_>, steps: Vec<Step>, history: u64, first: Played) -> String {
    let sides = [Queues::Kernel, config.queues.clone()];
    let play = |steps: &[Step]| lockstep::play(config.program, &sides, steps, AGAIN);
    let again = (0..ATTEMPTS).filter(|_| differs(&play(&steps))).count() as u32;
    let mut shortest = first;
    if again > 0 {
        shrink(steps, |steps| {
            // A difference that depends on timing may need several attempts.
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
/// The first difference, with a short history that shows it; or the reason why no history could be compared.
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
