//! System V queues: messages of 8 bytes, received by their type.
//!
//! - One thread sends a message and receives it.
//! - The workload that was published in 2016, when the kernel began to wake processes outside of the queue's lock. Pairs of threads bounce a message
//!   through one queue, and each thread receives by its own type. A further column shows umsg with wake-ups inside the lock.
//! - A receive by type from a queue that holds many other messages.
//! - The workload that was published in 2022, when the kernel's sends and receives stopped sharing counters: 160 threads on 80 queues.
//!
//! The threads are those of one process, as in the published tests. umsg's queues are in shared memory in this suite, too, and treat threads and
//! processes alike.

mod bounce;
mod crowd;
mod pair;
mod sides;
mod typed;

use crate::backends::typed::own_namespace::OwnNamespace;
use crate::failure::Failure;
use crate::harness::Plan;
use crate::row::Row;

const SUITE: &str = "msg";

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    // Uses a private namespace if possible: in a shared namespace, other processes may change the limits during the measurement.
    let _namespace = OwnNamespace::enter(typed::MOST_BYTES);
    let mut rows = vec![pair::row(plan)?];
    rows.extend(bounce::rows(plan)?);
    rows.extend(typed::rows(plan)?);
    rows.extend(crowd::rows(plan)?);
    Ok(rows)
}

/// Returns the rows of the suite "guard": one thread, two threads that share a core, and a receive by type.
pub fn guard(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let _namespace = OwnNamespace::enter(typed::MOST_BYTES);
    Ok(vec![
        pair::row(plan)?,
        bounce::guard(plan)?,
        typed::guard(plan)?,
    ])
}

/// Returns the failure of a receive that returned another message than expected: each message is identified by its number.
#[cold]
fn mixed_up(expected: u64, received: u64) -> Failure {
    Failure::new(format!(
        "message {expected} was expected; {received} arrived"
    ))
}
