//! One thread sends a message and receives it, over and over.

use std::time::Duration;

use super::sides::{Ablation, Sides, Workload};
use crate::backends::typed::{DEFAULT_BYTES, TypedQueue, Want};
use crate::failure::Failure;
use crate::harness::Plan;
use crate::row::{Better, Row};
use crate::suites::pairs::{self, Extent};

/// The goal for a send and a receive together, in nanoseconds.
const GOAL: f64 = 60.0;

const MTYPE: i64 = 1;

pub fn row(plan: &Plan) -> Result<Row, Failure> {
    let name = "one thread, send + receive";
    let workload = Pairs {
        budget: plan.budget,
    };
    let sides = Sides::measure(plan, name, &workload, &workload, Ablation::LeaveOut)?;
    let row = sides.row(name, "ns", Better::Less, |&pair| pair);
    Ok(row.goal_umsg(format!("<= {GOAL} ns"), GOAL))
}

struct Pairs {
    budget: Duration,
}

impl Workload for Pairs {
    /// The nanoseconds of a send and a receive.
    type Found = f64;

    fn round<Q: TypedQueue>(&self) -> Result<f64, Failure> {
        let queue = Q::make(DEFAULT_BYTES)?;
        let mut number = 0;
        pairs::chunked(Extent::timed(self.budget), |count| {
            for _ in 0..count {
                number += 1;
                queue.try_send(MTYPE, number).map_err(pairs::send_failed)?;
                let received = queue
                    .try_receive(Want::Exactly(MTYPE))
                    .map_err(pairs::receive_failed)?;
                if received != number {
                    return Err(super::mixed_up(number, received));
                }
            }
            Ok(())
        })
    }
}
