//! Pairs of threads bounce a message through one queue; each thread receives by its own type.

use std::thread;
use std::time::Duration;

use super::mixed_up;
use super::sides::{Ablation, Sides, Workload};
use crate::backends::typed::{DEFAULT_BYTES, TypedQueue, Want};
use crate::backends::{Errno, Waiting};
use crate::crew::{self, Member, Seats, Yield};
use crate::duo::{self, Places};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::shared::SharedWords;
use crate::suites::duet::LINE_NOTE;

/// The numbers of threads on the queue.
const THREADS: [usize; 3] = [2, 4, 8];

/// The goal for threads that have a core each: the minimum of umsg's rate divided by the kernel's rate.
const APART_GOAL: f64 = 10.0;
/// The goal for all other rows: the minimum of umsg's rate divided by the kernel's rate. If threads share a core, each message costs a switch between
/// the threads.
const SHARED_GOAL: f64 = 1.0;

/// The number in the message that ends the exchange of a pair.
const LAST: u64 = u64::MAX;

/// The CPUs of the threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cores {
    /// All threads on one core.
    Same,
    /// The two threads of a pair, on two CPUs.
    Split,
}

pub fn rows(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let mut cases = vec![(Cores::Same, Waiting::Adaptive)];
    if plan.cpus.second.is_some() {
        cases.push((Cores::Split, Waiting::Adaptive));
        cases.push((Cores::Split, Waiting::Blocking));
    }
    let mut rows = Vec::new();
    for (cores, waiting) in cases {
        for threads in THREADS {
            rows.push(row(plan, threads, cores, waiting)?);
        }
    }
    Ok(rows)
}

/// Returns the rows of the suite "guard".
pub fn guard(plan: &Plan) -> Result<Row, Failure> {
    row(plan, THREADS[0], Cores::Same, Waiting::Adaptive)
}

fn row(plan: &Plan, threads: usize, cores: Cores, waiting: Waiting) -> Result<Row, Failure> {
    let name = match (cores, waiting) {
        (Cores::Same, _) => format!("{threads} threads on one queue, same core"),
        (Cores::Split, Waiting::Adaptive) => format!("{threads} threads on one queue, split"),
        (Cores::Split, Waiting::Blocking) => format!("{threads} threads, split, blocking"),
    };
    let workload = Bounce {
        seats: match cores {
            Cores::Same => crew::together(threads, plan.cpus.first),
            Cores::Split => crew::spread(threads, &plan.cpus.both()),
        },
        budget: plan.duo_budget,
        waiting,
    };
    let limit = limit(plan, cores, &workload);
    let sides = Sides::measure(plan, &name, &workload, &workload, Ablation::Include)?;
    let row = sides.row(name, "k/s", Better::More, Yield::rate);
    let row = sides.with_cpu(row, Yield::cpu_each);
    let row = match cores {
        Cores::Same => row.column("bare_turns", limit).note(
            "bare turns: how often the same threads pass on a word in memory that says whose turn it is, calling \
             sched_yield until it is theirs: what the scheduler lets them do without any queue",
        ),
        Cores::Split => row.column("line", limit).note(LINE_NOTE),
    };
    let row = match waiting {
        Waiting::Adaptive => {
            row.note("umsg waits as it does by default: it spins while that pays, then sleeps")
        }
        Waiting::Blocking => {
            row.note("umsg does not spin: threads give way a few times, then sleep")
        }
    };
    Ok(match (cores, waiting) {
        (Cores::Split, Waiting::Adaptive) if threads == 2 => row.goal_ratio(APART_GOAL),
        _ => row.goal_ratio(SHARED_GOAL),
    })
}

/// Returns the figure that bounds the exchanges of these threads. On one core, this is the rate of bare turns; on two CPUs, the nanoseconds of a
/// cache line between them.
fn limit(plan: &Plan, cores: Cores, workload: &Bounce) -> Option<f64> {
    let mut limit = Side::new();
    for _ in 0..plan.rounds {
        limit.round(|| match (cores, plan.cpus.second) {
            (Cores::Split, Some(second)) => {
                duo::line_transfer(Places::Apart(plan.cpus.first, second))
            }
            _ => bare_turns(workload).map(|turns| turns.rate()),
        });
    }
    limit.each(|&limit| limit).median()
}

struct Bounce {
    seats: Seats,
    budget: Duration,
    waiting: Waiting,
}

impl Workload for Bounce {
    type Found = Yield;

    fn round<Q: TypedQueue>(&self) -> Result<Yield, Failure> {
        let queue = Q::make(DEFAULT_BYTES)?;
        queue.set_waiting(self.waiting);
        crew::run(&self.seats, self.budget, |member| {
            // Threads 0 and 1 are a pair, 2 and 3 are the next pair, and so on.
            if member.index % 2 == 0 {
                serve(&queue, member)
            } else {
                give_back(&queue, member)
            }
        })
    }
}

/// Measures threads that pass the turn to each other as fast as they can.
fn bare_turns(workload: &Bounce) -> Result<Yield, Failure> {
    let Bounce { seats, budget, .. } = workload;
    let turn = SharedWords::new(1)?;
    crew::run(seats, *budget, |member| {
        let (own, next) = (member.index, (member.index + 1) % seats.len());
        while !member.is_over() {
            if turn.get(0) == own as u64 {
                turn.set(0, next as u64);
                member.count(1);
            } else {
                thread::yield_now();
            }
        }
        Ok(())
    })
}

/// Returns the type that this thread receives; the type of its partner differs in the last bit.
fn own_type(member: &Member<'_>) -> i64 {
    member.index as i64 + 2
}

/// Sends numbered messages to the partner, and waits for each to come back before it sends the next, until the round is over. Then sends `LAST`.
fn serve<Q: TypedQueue>(queue: &Q, member: &Member<'_>) -> Result<(), Failure> {
    let (own, partners) = (own_type(member), own_type(member) ^ 1);
    let mut number = 0;
    while !member.is_over() {
        queue.send(partners, number).map_err(failed)?;
        let received = queue.receive(Want::Exactly(own)).map_err(failed)?;
        if received != number {
            return Err(mixed_up(number, received));
        }
        member.count(1);
        number += 1;
    }
    queue.send(partners, LAST).map_err(failed)
}

/// Sends each message back, up to the last one.
fn give_back<Q: TypedQueue>(queue: &Q, member: &Member<'_>) -> Result<(), Failure> {
    let (own, partners) = (own_type(member), own_type(member) ^ 1);
    loop {
        let number = queue.receive(Want::Exactly(own)).map_err(failed)?;
        if number == LAST {
            return Ok(());
        }
        member.count(1);
        queue.send(partners, number).map_err(failed)?;
    }
}

#[cold]
fn failed(errno: Errno) -> Failure {
    Failure::queue("a call between two threads failed", errno)
}
