//! Four ways to keep the totals of a namespace, with 1 to 160 threads. The totals are the messages and bytes in all System V queues of the namespace.
//!
//! | way | kept in | an update | a reader sums |
//! |---|---|---|---|
//! | shared | one line (the kernel before 2022) | two locked additions | nothing |
//! | per CPU | a line for each CPU (the kernel since 2022) | two additions that no migration can tear (rseq) | CPUs |
//! | per CPU, atomic | a line for each CPU | asks for the CPU, then two locked additions | CPUs |
//! | per queue | the queue's own counts (umsg) | two stores, under the queue's lock | queues |
//!
//! Each thread works on its own queue as if the thread held the queue's lock. The thread only updates the counts, in turn as a sender and as a
//! receiver. Every queue, also a queue of the kernel, needs its own counts to detect that it is full. So the way "per queue" adds no cost to a queue.
//!
//! At the end of each round, every thread leaves some messages in its queue, and the sum must count exactly these messages. Then the suite measures
//! real queues, whose totals it reads by the call that programs use.

mod cpu;
mod queues;
mod ways;

use self::cpu::{PerCpu, PerCpuAtomic};
use self::ways::{PerQueue, Shared, Way};
use crate::clock;
use crate::crew::{self, Yield};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};

const SUITE: &str = "counters";

const THREADS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 160];

/// The size of a message, in bytes.
const SIZE: i64 = 8;

/// The number of updates between two checks whether the round is over. An update is a send and a receive.
const PAIRS: u64 = 500;

/// The number of readings of the totals in one measurement. With this many, a reading of the clock is short compared with the measurement.
const READS: u32 = 1_000;

/// The costs of one way in one round, in nanoseconds.
struct Cost {
    /// The time of an update: the elapsed time, times the number of CPUs, divided by the number of updates. The time includes waits for cache lines.
    update: f64,
    /// The time of an update, computed from the CPU time of the threads.
    cpu: f64,
    /// The time of one reading of the totals while no thread works.
    read: f64,
}

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let ways = THREADS.into_iter().map(|threads| row(plan, threads));
    let mut rows = ways.collect::<Result<Vec<Row>, Failure>>()?;
    rows.push(queues::row(plan)?);
    Ok(rows)
}

fn row(plan: &Plan, threads: usize) -> Result<Row, Failure> {
    let name = match threads {
        1 => "1 thread".to_owned(),
        many => format!("{many} threads"),
    };
    let [mut queue, mut cpu, mut atomic, mut shared] = std::array::from_fn(|_| Side::new());
    for round in 0..plan.rounds {
        plan.progress(&format!("{SUITE}: {name}"), round);
        queue.round(|| measure::<PerQueue>(plan, threads));
        cpu.round(|| measure::<PerCpu>(plan, threads));
        atomic.round(|| measure::<PerCpuAtomic>(plan, threads));
        shared.round(|| measure::<Shared>(plan, threads));
    }
    for side in [&queue, &atomic, &shared] {
        if let Some(failure) = &side.failure {
            return Err(Failure::new(format!("{name}: {failure}")));
        }
    }
    let update = |side: &Side<Cost>| side.each(|cost| cost.update);
    let median = |side: &Side<Cost>, figure: fn(&Cost) -> f64| side.each(figure).median();
    let (ours, kernels) = (update(&queue), update(&cpu));
    let others = [&cpu, &atomic, &shared].map(|side| update(side).median());
    let cheapest = others.into_iter().flatten().fold(f64::INFINITY, f64::min);
    Ok(
        Row::compare(SUITE, name, "ns", Better::Less, &ours, &kernels)
            .column("percpu_atomic", update(&atomic).median())
            .column("shared", update(&shared).median())
            .column("cpu_queue", median(&queue, |cost| cost.cpu))
            .column("cpu_percpu", median(&cpu, |cost| cost.cpu))
            .column("cpu_shared", median(&shared, |cost| cost.cpu))
            .column("read_queues", median(&queue, |cost| cost.read))
            .column("read_percpu", median(&cpu, |cost| cost.read))
            .column("read_shared", median(&shared, |cost| cost.read))
            .spreads(&ours, &kernels)
            .reason("kernel", cpu.failure.as_ref())
            .note(
                "an update of messages and bytes, in ns that a CPU spends on it; umsg: the counts of each queue, which \
                 is what umsg uses; kernel: its way since 2022, a line a CPU, re-created in process with rseq; shared: \
                 its way before",
            )
            .note("cpu: the same, in CPU time of the threads")
            .note("read: the sum, in process; the last row asks for the totals of real queues")
            .goal_umsg("no dearer than the others", cheapest),
    )
}

/// Measures one round of one way. Fails if the sum is not exact.
fn measure<W: Way>(plan: &Plan, threads: usize) -> Result<Cost, Failure> {
    let way = W::make(threads)?;
    let mut cpus = plan.cpus.both();
    cpus.truncate(threads);
    let seats = crew::spread(threads, &cpus);
    let found = crew::run(&seats, plan.duo_budget / 2, |member| {
        while !member.is_over() {
            for _ in 0..PAIRS {
                way.add(member.index, 1, SIZE);
                way.add(member.index, -1, -SIZE);
            }
            member.count(2 * PAIRS);
        }
        for _ in 0..left_by(member.index) {
            way.add(member.index, 1, SIZE);
        }
        Ok(())
    })?;
    let left: i64 = (0..threads).map(left_by).sum();
    if way.read() != (left, left * SIZE) {
        return Err(Failure::new(format!(
            "{left} messages were left, and {:?} counted",
            way.read()
        )));
    }
    Ok(cost(&found, cpus.len(), read_time(&way)))
}

/// Returns the number of messages that a thread leaves in its queue.
fn left_by(thread: usize) -> i64 {
    thread as i64 % 3 + 1
}

fn cost(found: &Yield, cpus: usize, read: f64) -> Cost {
    Cost {
        update: found.elapsed as f64 * cpus as f64 / found.count as f64,
        cpu: found.cpu_each(),
        read,
    }
}

fn read_time<W: Way>(way: &W) -> f64 {
    let start = clock::now();
    for _ in 0..READS {
        std::hint::black_box(way.read());
    }
    (clock::now() - start) as f64 / f64::from(READS)
}
