//! Two processes and two queues: a message goes to the other process, the answer comes back, and only then the next message starts.
//!
//! The clock is read once a round trip, and the cost of the reading is subtracted. The median and the 99th percentile are computed for each round.
//! The figures are the medians of these values over the rounds.

use super::duet::{LAST, LINE_NOTE, Letter, Mode, SIZES, time_trips};
use crate::backends::kernel::KernelQueue;
use crate::backends::umsg::UmsgQueue;
use crate::backends::{MessageQueue, Spec};
use crate::clock;
use crate::duo::{self, Barrier, Places};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::shared::SharedWords;
use crate::stats;

const SUITE: &str = "pingpong";

/// The kernel's default depth.
const DEPTH: u32 = 10;

/// The goal for a round trip of 64 bytes while both processes spin, in nanoseconds.
const SPINNING_GOAL: f64 = 600.0;

/// The goal for the ratio with sleeping processes: umsg may take 1.05 times the kernel's time.
const ASLEEP_GOAL: f64 = 1.0 / 1.05;

/// The number of round trips before the measurement.
const WARM_UP: u64 = 1_000;

/// The maximum number of round trips whose times a round keeps.
const KEPT: usize = 1 << 20;

/// The results of one round, in nanoseconds.
struct Trip {
    median: f64,
    p99: f64,
    /// The CPU time of both processes.
    cpu: f64,
}

/// The parameters of a row.
#[derive(Clone, Copy)]
struct Case {
    mode: Mode,
    places: Places,
    size: usize,
}

impl Case {
    fn name(&self, cores: &str) -> String {
        format!("{} B, {cores}, {}", self.size, self.mode.name())
    }
}

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let sizes = if plan.quick { &SIZES[..1] } else { &SIZES };
    for &size in sizes {
        for (places, cores, modes) in settings(plan) {
            for &mode in modes {
                let case = Case { mode, places, size };
                if plan.only.has(&case.name(cores)) {
                    rows.push(measure(plan, cores, case)?);
                }
            }
        }
    }
    Ok(rows)
}

/// Returns the rows of the suite "guard": two processes that spin before they sleep, and two processes that share a core.
pub fn guard(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let row = |places, cores, mode| {
        let size = SIZES[0];
        measure(plan, cores, Case { mode, places, size })
    };
    let first = plan.cpus.first;
    let mut rows = vec![row(Places::Together(first), "one core", Mode::Blocking)?];
    if let Some(second) = plan.cpus.second {
        rows.push(row(
            Places::Apart(first, second),
            "two cores",
            Mode::Adaptive,
        )?);
    }
    Ok(rows)
}

type Setting = (Places, &'static str, &'static [Mode]);

/// Returns the places, each with the modes that make sense there. Two processes that poll on one core would measure the scheduler's time slice.
fn settings(plan: &Plan) -> Vec<Setting> {
    let first = plan.cpus.first;
    let sleeping: &[Mode] = &[Mode::Adaptive, Mode::Blocking];
    let one: Setting = (Places::Together(first), "one core", sleeping);
    match plan.cpus.second {
        None => vec![one],
        Some(second) => vec![
            (
                Places::Apart(first, second),
                "two cores",
                &[Mode::Polling, Mode::Adaptive, Mode::Blocking],
            ),
            one,
            (Places::Anywhere(first, second), "unpinned", sleeping),
        ],
    }
}

fn measure(plan: &Plan, cores: &str, case: Case) -> Result<Row, Failure> {
    let Case { mode, places, size } = case;
    let name = case.name(cores);
    let (mut umsg, mut kernel) = (Side::new(), Side::new());
    let mut line = Side::new();
    for round in 0..plan.rounds {
        plan.progress(&format!("pingpong: {name}"), round);
        if let Places::Apart(..) = places {
            line.round(|| duo::line_transfer(places));
        }
        umsg.round(|| trips::<UmsgQueue>(plan, case));
        kernel.round(|| trips::<KernelQueue>(plan, case));
    }
    if let Some(failure) = umsg.failure {
        return Err(Failure::new(format!("{name}: {failure}")));
    }
    let medians = (
        umsg.each(|trip| trip.median),
        kernel.each(|trip| trip.median),
    );
    let row = Row::compare(SUITE, name, "ns", Better::Less, &medians.0, &medians.1)
        .column("umsg_p99", umsg.each(|trip| trip.p99).median())
        .column("kernel_p99", kernel.each(|trip| trip.p99).median())
        .column("umsg_cpu_ns", umsg.each(|trip| trip.cpu).median())
        .column("kernel_cpu_ns", kernel.each(|trip| trip.cpu).median())
        .column("line", line.each(|&time| time).median())
        .spreads(&medians.0, &medians.1)
        .reason("kernel", kernel.failure.as_ref())
        .note("cpu: of both processes, a round trip")
        .note(LINE_NOTE);
    Ok(match mode {
        Mode::Polling if size == SIZES[0] => {
            row.goal_umsg(format!("<= {SPINNING_GOAL} ns"), SPINNING_GOAL)
        }
        Mode::Adaptive => row.note("the kernel has no such mode: it blocks"),
        Mode::Blocking => {
            let verdict = row.judge_ratio(ASLEEP_GOAL);
            row.goal_if("<= 1.05 x kernel", verdict)
        }
        _ => row,
    })
}

/// The words in which the two processes leave their results.
#[derive(Clone, Copy)]
enum Word {
    Median,
    P99,
    Trips,
    CallerCpu,
    EchoCpu,
}

const WORDS: usize = Word::EchoCpu as usize + 1;

fn trips<Q: MessageQueue>(plan: &Plan, case: Case) -> Result<Trip, Failure> {
    let spec = Spec {
        depth: DEPTH,
        message_size: case.size as u32,
    };
    let (there, back) = (Q::make(&spec)?, Q::make(&spec)?);
    let words = SharedWords::new(WORDS)?;
    let budget = plan.duo_budget.as_nanos() as u64;
    duo::run(
        case.places,
        |barrier| caller(&there, &back, case, barrier, budget, &words),
        |barrier| echo(&there, &back, case, barrier, &words),
    )?;
    let get = |word: Word| words.get(word as usize) as f64;
    Ok(Trip {
        median: (get(Word::Median) - clock::overhead()).max(0.0),
        p99: (get(Word::P99) - clock::overhead()).max(0.0),
        cpu: (get(Word::CallerCpu) + get(Word::EchoCpu)) / get(Word::Trips),
    })
}

fn caller<Q: MessageQueue>(
    there: &Q,
    back: &Q,
    Case { mode, size, .. }: Case,
    barrier: &Barrier,
    budget: u64,
    words: &SharedWords,
) -> Result<(), Failure> {
    let (mut out, mut answer) = (Letter::new(size), Letter::new(size));
    // The vector is filled once, so that no page fault falls into a round trip.
    let mut times = vec![1.0; KEPT];
    times.clear();
    mode.prepare(there);
    mode.prepare(back);
    barrier.meet();
    let mut trip = |number, stamp| {
        mode.send(there, out.write(number, stamp))?;
        mode.receive(back, answer.buffer())?;
        answer.read(number).map(|_| ())
    };
    for number in 0..WARM_UP {
        trip(number, 0)?;
    }
    let cpu = clock::cpu();
    let number = time_trips(&mut times, budget, WARM_UP, |number| trip(number, 0))?;
    let cpu = clock::cpu() - cpu;
    trip(number, LAST)?;
    words.set(Word::CallerCpu as usize, cpu);
    words.set(Word::Trips as usize, times.len() as u64);
    words.set(Word::Median as usize, stats::median(&times) as u64);
    words.set(Word::P99 as usize, stats::quantile(&times, 0.99) as u64);
    Ok(())
}

fn echo<Q: MessageQueue>(
    there: &Q,
    back: &Q,
    Case { mode, size, .. }: Case,
    barrier: &Barrier,
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut letter = Letter::new(size);
    mode.prepare(there);
    mode.prepare(back);
    barrier.meet();
    let mut cpu = 0;
    for number in 0.. {
        if number == WARM_UP {
            cpu = clock::cpu();
        }
        mode.receive(there, letter.buffer())?;
        let stamp = letter.read(number)?;
        mode.send(back, letter.buffer())?;
        if stamp == LAST {
            break;
        }
    }
    words.set(Word::EchoCpu as usize, clock::cpu() - cpu);
    Ok(())
}
