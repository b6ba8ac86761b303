//! Message rings: the test that was published with the faster MSG_RING of io_uring (2024), and the throughput.
//!
//! ```text
//!   sender, on one CPU                          receiver, on the other
//!   every 10 µs or 20 µs, for 3 s: post     ->  takes it
//!   |<- sender's time ->|
//!   |<------------- receiver's time -------------->|
//! ```
//!
//! A sender that is late omits the posts whose times have passed, so the number of posts shows how often the sender was late. Each way of passing
//! messages is measured between threads and between processes. The ways take turns, each for a slice of its time.

mod cadence;
mod report;
pub(super) mod stage;
mod throughput;
mod wakeups;
mod ways;

use crate::duo::{self, Places};
use crate::failure::Failure;
use crate::found::Found;
use crate::harness::Plan;
use crate::row::Row;

const SUITE: &str = "ring";

/// Measures the rows of the suite "guard": a post every 10 us between processes, and the throughput of one sender to one receiver.
pub fn guard(plan: &Plan) -> Vec<Row> {
    let mut rows = cadence::guard(plan);
    rows.push(throughput::guard(plan));
    rows
}

pub fn run(plan: &Plan) -> Result<Found, Failure> {
    let mut found = cadence::run(plan)?;
    found.rows.extend(throughput::rows(plan)?);
    found.rows.push(wakeups::row(plan)?);
    Ok(found)
}

/// Measures the nanoseconds that a cache line takes between the two CPUs.
fn line_transfer(plan: &Plan) -> Result<f64, Failure> {
    let Some(second) = plan.cpus.second else {
        return Err(Failure::new("this case needs two CPUs"));
    };
    duo::line_transfer(Places::Apart(plan.cpus.first, second))
}
