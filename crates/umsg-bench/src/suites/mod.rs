//! The suites, one file each.

mod batch;
mod copy;
mod counters;
mod depth;
mod duet;
mod guard;
mod memory;
mod mqueue;
mod msg;
mod neighbour;
mod pairs;
mod peers;
mod pingpong;
mod poll;
mod priorities;
mod ring;
mod stream;

use crate::failure::Failure;
use crate::found::Found;
use crate::harness::Plan;
use crate::suite::Suite;

/// Runs one suite.
pub fn run(suite: Suite, plan: &Plan) -> Result<Found, Failure> {
    let rows = match suite {
        Suite::Mqueue => mqueue::run(plan),
        Suite::Depth => depth::run(plan),
        Suite::Stream => stream::run(plan),
        Suite::Batch => batch::run(plan),
        Suite::Pingpong => pingpong::run(plan),
        Suite::Poll => poll::run(plan),
        Suite::Copy => copy::run(plan),
        Suite::Memory => memory::run(plan),
        Suite::Neighbour => neighbour::run(plan),
        Suite::Msg => msg::run(plan),
        Suite::Counters => counters::run(plan),
        Suite::Ring => return ring::run(plan),
        Suite::Peers => return peers::run(plan),
        Suite::Guard => guard::run(plan),
        Suite::All => Err(Failure::new("all is not a single suite")),
    };
    rows.map(Found::from)
}
