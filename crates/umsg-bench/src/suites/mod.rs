//! The suites, one file each.

mod batch;
mod calls;
mod copy;
mod counters;
mod depth;
mod duet;
mod everyday;
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
mod realtime;
mod ring;
mod stream;
mod watch;

use crate::failure::Failure;
use crate::found::Found;
use crate::harness::Plan;
use crate::suite::Suite;
use crate::trial::Setting;

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
        Suite::Everyday => everyday::run(plan),
        Suite::Realtime => realtime::run(plan),
        Suite::Peers => return peers::run(plan),
        Suite::Watch => watch::run(plan),
        Suite::Guard => guard::run(plan),
        Suite::All => Err(Failure::new("all is not a single suite")),
    };
    rows.map(Found::from)
}

/// Measures a case of a suite in the calling process, which is the process of a trial.
pub fn trial(suite: Suite, case: &str, setting: &Setting) -> Result<Vec<f64>, Failure> {
    match suite {
        Suite::Everyday => everyday::trial(case, setting),
        Suite::Realtime => realtime::trial(case, setting),
        _ => Err(Failure::new(format!("{} has no trials", suite.name()))),
    }
}
