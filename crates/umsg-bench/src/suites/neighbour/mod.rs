//! Measures the slowdown of a process (the neighbour) while another process (the hammer) uses a deep queue without a pause on another core.
//!
//! The hammer does what it did in the comparison published in 2012 (`mq_perf_tests -c`, with a kernel compile as the neighbour). The hammer keeps a
//! queue full: it receives one message and sends one, over and over. The baseline is a spinner: a process that spins on the hammer's core without
//! touching memory. The neighbour is a compiler, or a walk through memory that lies in a cache that the cores share. The suite compares the
//! neighbour's own CPU time for a fixed amount of work. Each run beside a hammer is paired with a run beside the spinner, and the report has the
//! median over the pairs with its 95 % confidence interval.
//!
//! At full speed, umsg moves some twenty times as many messages through the caches as the kernel does. So a further column shows umsg at the
//! kernel's rate.

pub(super) mod work;

use std::hint;
use std::time::Duration;

use self::work::Neighbour;
use super::pairs::{self, Extent, MESSAGE_SIZE};
use super::priorities::Constant;
use crate::backends::array2012::ArrayQueue;
use crate::backends::kernel::KernelQueue;
use crate::backends::umsg::UmsgQueue;
use crate::backends::{MessageQueue, Spec};
use crate::clock;
use crate::duo::{self, Barrier, Places};
use crate::failure::Failure;
use crate::harness::{Plan, Samples, Side};
use crate::row::{Better, Row, Verdict};
use crate::shared::SharedWords;
use crate::stats::Interval;

const SUITE: &str = "neighbour";

/// The depth of the queue in the published table, in messages.
const DEPTH: u32 = 65_528;

/// The minimum number of pairs of runs: one run beside the hammer, and one run beside the spinner.
const PAIRS: u32 = 30;
/// The number of pairs with `--quick`, which can hardly resolve the goal.
const QUICK_PAIRS: u32 = 3;
/// The number of pairs for the sorted array. Its queue takes seconds to fill, and fewer pairs are enough for its result.
const ARRAYS: u32 = 5;

/// The goal: the maximum slowdown of the neighbour, in percent.
const GOAL: f64 = 0.5;

/// The number of times that the neighbour does its work in a run.
const TIMES: u32 = 2;

/// The number of pairs of a send and a receive between two checks whether to stop.
const BLOWS: u32 = 16;

/// The time for which the kernel's rate is measured.
const PACING: Duration = Duration::from_millis(20);

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let places = plan.apart(SUITE)?;
    let compile = Neighbour::compile();
    let reason = compile.as_ref().err().cloned();
    let neighbours = compile.into_iter().chain([Neighbour::chase()]);
    let rows = neighbours.map(|neighbour| row(plan, places, &neighbour));
    let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
    if let (Some(row), Some(reason)) = (rows.first_mut(), reason) {
        row.notes.push(format!("no row with a compile: {reason}"));
    }
    Ok(rows)
}

fn row(plan: &Plan, places: Places, neighbour: &Neighbour) -> Result<Row, Failure> {
    let kernel_depth = plan.allowance.deepest(DEPTH, MESSAGE_SIZE as u32);
    let shallow = *kernel_depth.as_ref().unwrap_or(&DEPTH);
    let mut umsg = Side::new();
    let mut umsg_shallow = Side::new();
    let pace = match kernel_depth {
        Ok(depth) => Some(kernels_pair(depth)?),
        Err(_) => None,
    };
    let mut umsg_paced = Side::absent(kernel_depth.as_ref().err().cloned());
    let mut kernel = Side::absent(kernel_depth.as_ref().err().cloned());
    let mut array = Side::new();
    let pairs = match plan.quick {
        true => QUICK_PAIRS,
        false => plan.rounds.max(PAIRS),
    };
    for pair in 0..pairs {
        plan.progress_of(neighbour.name(), pair, pairs);
        let beside = Paired {
            places,
            neighbour,
            hammer_first: pair.is_multiple_of(2),
        };
        umsg.round(|| beside.slowdown(|stop| hammer::<UmsgQueue>(DEPTH, 0, stop)));
        kernel.round(|| beside.slowdown(|stop| hammer::<KernelQueue>(shallow, 0, stop)));
        umsg_shallow.round(|| beside.slowdown(|stop| hammer::<UmsgQueue>(shallow, 0, stop)));
        if let Some(pace) = pace {
            umsg_paced.round(|| beside.slowdown(|stop| hammer::<UmsgQueue>(DEPTH, pace, stop)));
        }
        if pair.is_multiple_of(ARRAYS) {
            array.round(|| beside.slowdown(|stop| hammer::<ArrayQueue>(DEPTH, 0, stop)));
        }
    }
    let failed = umsg.failure.or(umsg_shallow.failure);
    if let Some(failure) = failed.or(umsg_paced.failure.filter(|_| pace.is_some())) {
        return Err(failure);
    }
    let [umsg, umsg_shallow, umsg_paced, kernel, array] = [
        umsg.rounds,
        umsg_shallow.rounds,
        umsg_paced.rounds,
        kernel.rounds,
        array.rounds,
    ]
    .map(Interval::of);
    let mut row = compare(neighbour, &umsg, &kernel)
        .column("umsg_at_kernel_depth", Some(umsg_shallow.median))
        .column("umsg_at_kernel_rate", pace.map(|_| umsg_paced.median))
        .column("array2012", Some(array.median));
    for (side, interval) in [
        ("umsg", &umsg),
        ("kernel", &kernel),
        ("umsg at kernel depth", &umsg_shallow),
        ("umsg at kernel rate", &umsg_paced),
        ("array of 2012", &array),
    ] {
        row = row.note(format!("{side}: {}", interval.describe()));
    }
    if let Some(pace) = pace {
        row = row.note(format!(
            "the kernel's rate: a send and a receive in {pace} ns"
        ));
    }
    if let Ok(depth) = kernel_depth {
        row = row.note(plan.allowance.describe(depth));
    }
    Ok(row)
}

fn compare(neighbour: &Neighbour, umsg: &Interval, kernel: &Interval) -> Row {
    let samples = |interval: &Interval| Samples(vec![interval.median]);
    let mut row = Row::compare(
        SUITE,
        format!("more CPU time for {}, queue full", neighbour.name()),
        "%",
        Better::Less,
        &samples(umsg),
        &samples(kernel),
    );
    // The quotient of two differences is meaningless if a difference may be about zero.
    row.ratio = None;
    row.goal(format!("<= {GOAL} %"), Verdict::of(umsg.within(GOAL)))
}

/// A run of the neighbour beside the hammer, and a run beside the spinner.
struct Paired<'a> {
    places: Places,
    neighbour: &'a Neighbour,
    /// True if the run beside the hammer comes first. The order changes from pair to pair.
    hammer_first: bool,
}

impl Paired<'_> {
    /// Measures how much more CPU time the neighbour needs beside the hammer than beside the spinner, in percent.
    fn slowdown(&self, hammer: impl Fn(&Stop) -> Result<(), Failure>) -> Result<f64, Failure> {
        let hammered = || self.beside(&hammer);
        let idle = || self.beside(spin);
        let (with, without) = if self.hammer_first {
            let with = hammered()?;
            (with, idle()?)
        } else {
            let without = idle()?;
            (hammered()?, without)
        };
        Ok(100.0 * (with - without) / without)
    }

    /// Returns the CPU time of the neighbour's work while `company` runs on the other core, in nanoseconds.
    fn beside(&self, company: impl Fn(&Stop) -> Result<(), Failure>) -> Result<f64, Failure> {
        let words = SharedWords::new(2)?;
        duo::run(
            self.places,
            |barrier| {
                company(&Stop {
                    barrier,
                    words: &words,
                })
            },
            |barrier| {
                // The work is done once before the measurement, so that the allocator and the caches are warm.
                self.neighbour.work()?;
                barrier.meet();
                let start = clock::cpu_with_children();
                for _ in 0..TIMES {
                    self.neighbour.work()?;
                }
                words.set(TIME, clock::cpu_with_children() - start);
                words.set(STOPPED, 1);
                Ok(())
            },
        )?;
        Ok(words.get(TIME) as f64)
    }
}

/// The words by which the measurement starts and stops the hammer.
struct Stop<'a> {
    barrier: &'a Barrier,
    words: &'a SharedWords,
}

const STOPPED: usize = 0;
const TIME: usize = 1;

impl Stop<'_> {
    fn begin(&self) {
        self.barrier.meet();
    }

    fn is_set(&self) -> bool {
        self.words.get(STOPPED) != 0
    }
}

fn spin(stop: &Stop) -> Result<(), Failure> {
    stop.begin();
    while !stop.is_set() {
        hint::spin_loop();
    }
    Ok(())
}

/// Hammers a queue at full speed, or with at most one pair in this number of nanoseconds.
fn hammer<Q: MessageQueue>(depth: u32, pace: u64, stop: &Stop) -> Result<(), Failure> {
    let queue = nearly_full::<Q>(depth)?;
    stop.begin();
    let mut next = clock::now();
    while !stop.is_set() {
        pairs::pairs(&queue, &mut Constant, BLOWS)?;
        next += pace * u64::from(BLOWS);
        // Spins like the process of the baseline.
        while pace != 0 && clock::now() < next && !stop.is_set() {
            hint::spin_loop();
        }
    }
    Ok(())
}

/// Returns a queue with room for one more message.
fn nearly_full<Q: MessageQueue>(depth: u32) -> Result<Q, Failure> {
    let queue = Q::make(&Spec {
        depth,
        message_size: MESSAGE_SIZE as u32,
    })?;
    pairs::fill(&queue, depth - 1, &mut Constant)?;
    Ok(queue)
}

/// Returns the time that a send and a receive take on the kernel's queue, in nanoseconds.
fn kernels_pair(depth: u32) -> Result<u64, Failure> {
    let queue = nearly_full::<KernelQueue>(depth)?;
    Ok(pairs::pair(&queue, &mut Constant, Extent::timed(PACING))? as u64)
}
