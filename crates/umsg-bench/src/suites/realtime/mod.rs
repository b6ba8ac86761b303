//! Real time: the longest call of a thread of high priority, and the wake-up latency of threads of equal priority beside a load. All threads run
//! under SCHED_FIFO, in turn on the kernel's queues and under the drop-in.
//!
//! A real-time program is judged by its longest call. The goals therefore compare the longest calls of all rounds.

mod cyclic;
mod inversion;
mod threads;

use std::time::Duration;

use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row, Verdict};
use crate::stats;
use crate::suite::Suite;
use crate::trial::{self, Setting, System};

const SUITE: &str = "realtime";

/// The definition of a row.
struct Case {
    name: &'static str,
    /// The maximum of umsg's longest call, as a multiple of the kernel's.
    goal: f64,
    note: &'static str,
    /// Returns the times of the calls, in nanoseconds.
    measure: fn(&Setting) -> Result<Vec<f64>, Failure>,
}

const CASES: &[Case] = &[
    Case {
        name: "priority inversion on one core, longest send + receive",
        goal: 2.0,
        note: "a thread of low priority uses the queue without pause, one of medium priority takes the CPU for 100 ms at a time, and one of \
               high priority sends and receives each millisecond; other load on the CPU can add 50 ms to either side, because the \
               scheduler reserves such a share for it",
        measure: inversion::measure,
    },
    Case {
        name: "cyclic wake-up on one core beside a load, longest",
        goal: 1.0,
        note: WAKE_UP,
        measure: cyclic::on_one_core,
    },
    Case {
        name: "cyclic wake-up on two cores beside a load, longest",
        goal: 1.0,
        note: WAKE_UP,
        measure: cyclic::on_two_cores,
    },
];

const WAKE_UP: &str = "from before the send, each millisecond, until the blocked receiver has the message; an ordinary thread loads each CPU";

/// The times of a round's calls, in nanoseconds.
struct Calls {
    median: f64,
    p999: f64,
    longest: f64,
}

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let cases = CASES.iter().filter(|case| plan.only.has(case.name));
    cases.map(|case| row(plan, case)).collect()
}

/// Measures a case in the calling process, which is the process of a trial.
pub fn trial(name: &str, setting: &Setting) -> Result<Vec<f64>, Failure> {
    let case = CASES.iter().find(|case| case.name == name);
    let case = case.ok_or_else(|| Failure::new(format!("{SUITE} has no row {name:?}")))?;
    let calls = (case.measure)(setting)?;
    if calls.is_empty() {
        return Err(Failure::new("the time was too short for a single call"));
    }
    Ok([0.5, 0.999, 1.0]
        .map(|part| stats::quantile(&calls, part))
        .into())
}

/// Returns the time of a round.
fn budget(plan: &Plan) -> Duration {
    let seconds = plan.seconds.unwrap_or(if plan.quick { 2 } else { 10 });
    Duration::from_secs(seconds.into()) / plan.rounds
}

fn row(plan: &Plan, case: &Case) -> Result<Row, Failure> {
    let name = case.name;
    let (mut umsg, mut kernel) = (Side::new(), Side::new());
    for round in 0..plan.rounds {
        plan.progress(&format!("{SUITE}: {name}"), round);
        let measure = |system| {
            let figures = trial::run(plan, system, Suite::Realtime, name, budget(plan))?;
            match figures[..] {
                [median, p999, longest] => Ok(Calls {
                    median,
                    p999,
                    longest,
                }),
                _ => Err(Failure::new("a trial gave other figures than three")),
            }
        };
        umsg.round(|| measure(System::Dropin));
        kernel.round(|| measure(System::Kernel));
    }
    if let Some(failure) = umsg.failure {
        return Err(failure);
    }
    let longest = [&umsg, &kernel].map(|side| side.each(|calls| calls.longest));
    let most = |side: &Side<Calls>| {
        let longest = side.rounds.iter().map(|calls| calls.longest);
        longest.reduce(f64::max)
    };
    let (most_umsg, most_kernel) = (most(&umsg), most(&kernel));
    let [ours, theirs] = &longest;
    let row = Row::compare(SUITE, name, "ns", Better::Less, ours, theirs)
        .column("umsg_longest", most_umsg)
        .column("kernel_longest", most_kernel)
        .column("umsg_p50", umsg.each(|calls| calls.median).median())
        .column("kernel_p50", kernel.each(|calls| calls.median).median())
        .column("umsg_p99.9", umsg.each(|calls| calls.p999).median())
        .column("kernel_p99.9", kernel.each(|calls| calls.p999).median())
        .spreads(ours, theirs)
        .reason("kernel", kernel.failure.as_ref())
        .note(case.note)
        .note("umsg and kernel: the longest of a round; umsg longest and kernel longest: of all rounds");
    let verdict = most_umsg.zip(most_kernel);
    let verdict = verdict.map(|(umsg, kernel)| Verdict::of(Some(umsg <= case.goal * kernel)));
    Ok(row.goal_if(format!("<= {} x the kernel's longest", case.goal), verdict))
}
