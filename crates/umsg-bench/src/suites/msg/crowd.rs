//! 160 threads on 80 queues: half of them send as fast as they can, half of them receive.

use std::time::Duration;

use super::mixed_up;
use super::sides::{Ablation, Sides, Workload};
use crate::backends::typed::{DEFAULT_BYTES, TypedQueue, Want};
use crate::backends::{Errno, Waiting};
use crate::crew::{self, Seats, Yield};
use crate::failure::Failure;
use crate::harness::Plan;
use crate::row::{Better, Row};

const QUEUES: usize = 80;

/// The goal: the minimum of umsg's rate divided by the kernel's rate.
const GOAL: f64 = 4.0;

/// The factor by which a round of this suite is longer, because a turn of all threads on two cores takes hundreds of milliseconds.
const TIMES_LONGER: u32 = 4;

const MTYPE: i64 = 1;

/// The number in the message that ends the stream.
const LAST: u64 = u64::MAX;

pub fn rows(plan: &Plan) -> Result<Vec<Row>, Failure> {
    [
        (Waiting::Adaptive, "adaptive"),
        (Waiting::Blocking, "blocking"),
    ]
    .into_iter()
    .map(|(waiting, name)| row(plan, waiting, name))
    .collect()
}

fn row(plan: &Plan, waiting: Waiting, waiting_name: &str) -> Result<Row, Failure> {
    let threads = 2 * QUEUES;
    let name = format!("{threads} threads on {QUEUES} queues, {waiting_name}");
    let cpus = plan.cpus.both();
    let workload = Streams {
        seats: crew::anywhere(threads, &cpus),
        budget: plan.duo_budget * TIMES_LONGER,
        waiting,
    };
    let sides = Sides::measure(plan, &name, &workload, &workload, Ablation::Include)?;
    let row = sides.row(name, "k/s", Better::More, Yield::rate);
    Ok(sides
        .with_cpu(row, Yield::cpu_each)
        .note(format!(
            "{DEFAULT_BYTES} bytes a queue on both sides; with {threads} threads on {} CPUs this measures scheduling \
             as much as queues",
            cpus.len()
        ))
        .goal_ratio(GOAL))
}

struct Streams {
    seats: Seats,
    budget: Duration,
    waiting: Waiting,
}

impl Workload for Streams {
    type Found = Yield;

    fn round<Q: TypedQueue>(&self) -> Result<Yield, Failure> {
        let queues = (0..QUEUES).map(|_| Q::make(DEFAULT_BYTES));
        let queues = queues.collect::<Result<Vec<Q>, Failure>>()?;
        for queue in &queues {
            queue.set_waiting(self.waiting);
        }
        crew::run(&self.seats, self.budget, |member| {
            let queue = &queues[member.index / 2];
            let failed = |errno: Errno| Failure::queue("a call in the crowd failed", errno);
            for number in 0.. {
                if member.index % 2 == 0 {
                    let number = if member.is_over() { LAST } else { number };
                    queue.send(MTYPE, number).map_err(failed)?;
                    if number == LAST {
                        break;
                    }
                } else {
                    let received = queue.receive(Want::Exactly(MTYPE)).map_err(failed)?;
                    if received == LAST {
                        break;
                    }
                    if received != number {
                        return Err(mixed_up(number, received));
                    }
                    member.count(1);
                }
            }
            Ok(())
        })
    }
}
