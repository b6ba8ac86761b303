//! Pairs of threads bounce a message through one queue, each thread receiving by a type of its own.

use std::thread;
use std::time::Duration;

use super::mixed_up;
use super::sides::{Ablation, Sides, Workload};
use crate::backends::typed::{DEFAULT_BYTES, TypedQueue, Want};
use crate::backends::{Errno, Waiting};
use crate::crew::{self, Member, Seats, Yield};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::report::{Better, Row};
use crate::shared::SharedWords;

/// Threads on the queue.
const THREADS: [usize; 3] = [2, 4, 8];

/// The goals, as ratios: of threads that have a core each, and of threads that share one.
const APART_GOAL: f64 = 10.0;
const SHARED_GOAL: f64 = 1.0;

/// The number of the message that ends the exchange of a pair.
const LAST: u64 = u64::MAX;

pub fn rows(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let cpus = plan.cpus.both();
    let mut rows = Vec::new();
    for threads in THREADS {
        let seats = crew::together(threads, plan.cpus.first);
        rows.push(row(plan, threads, "same core", seats, SHARED_GOAL)?);
    }
    if cpus.len() > 1 {
        for threads in THREADS {
            let goal = if threads <= cpus.len() {
                APART_GOAL
            } else {
                SHARED_GOAL
            };
            rows.push(row(
                plan,
                threads,
                "split",
                crew::spread(threads, &cpus),
                goal,
            )?);
        }
    }
    Ok(rows)
}

fn row(plan: &Plan, threads: usize, cores: &str, seats: Seats, goal: f64) -> Result<Row, Failure> {
    let name = format!("{threads} threads on one queue, {cores}");
    let workload = Bounce {
        seats,
        budget: plan.duo_budget,
    };
    let mut bare = Side::new();
    for _ in 0..plan.rounds {
        bare.round(|| bare_turns(&workload.seats, workload.budget));
    }
    let sides = Sides::measure(plan, &name, &workload, &workload, Ablation::Include)?;
    let row = sides.row(name, "k/s", Better::More, Yield::rate);
    let row = sides
        .with_cpu(row, Yield::cpu_each)
        .column("bare_turns", bare.each(Yield::rate).median())
        .note(
            "bare turns: how often the same threads pass on a word in memory that says whose turn it is, calling \
             sched_yield until it is theirs: what the scheduler lets them do without any queue",
        )
        .note("umsg waits as it does by default: it spins while that pays, then sleeps");
    Ok(if goal == SHARED_GOAL {
        let met = row.ratio.map(|ratio| ratio >= goal);
        row.goal("ratio >= 1, better 2", met)
            .note("threads share a core: a message costs a switch between them")
    } else {
        row.goal_ratio(goal)
    })
}

struct Bounce {
    seats: Seats,
    budget: Duration,
}

impl Workload for Bounce {
    type Found = Yield;

    fn round<Q: TypedQueue>(&self) -> Result<Yield, Failure> {
        let queue = Q::make(DEFAULT_BYTES)?;
        queue.set_waiting(Waiting::Adaptive);
        crew::run(&self.seats, self.budget, |member| {
            // 0 and 1 are a pair, 2 and 3, and so on.
            if member.index % 2 == 0 {
                serve(&queue, member)
            } else {
                give_back(&queue, member)
            }
        })
    }
}

/// As often as they can, the threads say in turn whose turn is next.
fn bare_turns(seats: &Seats, budget: Duration) -> Result<Yield, Failure> {
    let turn = SharedWords::new(1)?;
    crew::run(seats, budget, |member| {
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

/// The type that this thread receives; its partner's differs in the last bit.
fn own_type(member: &Member<'_>) -> i64 {
    member.index as i64 + 2
}

/// Keeps the message going until the round is over.
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

/// Sends back what comes, until the last.
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
