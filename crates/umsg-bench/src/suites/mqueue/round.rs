//! One round of one side.

use std::time::Duration;

use crate::backends::{MessageQueue, Spec};
use crate::clock;
use crate::failure::Failure;
use crate::suites::pairs::{self, Extent, MESSAGE_SIZE};
use crate::suites::priorities::{Constant, Order, Priorities, with_order};

/// Queues with a smaller depth are filled and drained several times, so that the measured time is long compared with a reading of the clock.
const SHALLOW: u32 = 2_000;

/// The costs that one round has measured, in nanoseconds a message.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    pub pair: f64,
    send_share: f64,
    pub fill: f64,
    pub drain: f64,
    pub refill: f64,
    pub redrain: f64,
}

impl Figures {
    pub fn send(&self) -> f64 {
        self.pair * self.send_share
    }

    pub fn receive(&self) -> f64 {
        self.pair * (1.0 - self.send_share)
    }
}

/// Measures sends and receives in a queue that is otherwise empty.
pub fn empty<Q: MessageQueue>(depth: u32, budget: Duration) -> Result<Figures, Failure> {
    let queue = Q::make(&spec(depth))?;
    let extent = Extent::timed(budget);
    let pair = pairs::pair(&queue, &mut Constant, extent)?;
    let send_share = pairs::send_share(&queue, &mut Constant, extent.quarter())?;
    Ok(Figures {
        pair,
        send_share,
        fill: f64::NAN,
        drain: f64::NAN,
        refill: f64::NAN,
        redrain: f64::NAN,
    })
}

/// Fills a new queue up to one message below its depth, and drains the queue. Then takes a second queue, which was filled and drained in each of the
/// orders `before`. Fills the second queue, sends and receives at that depth, and drains the queue. If `depth` is below `SHALLOW`, the queues are
/// filled and drained several times.
pub fn full<Q: MessageQueue, P: Priorities>(
    depth: u32,
    budget: Duration,
    before: &[Order],
) -> Result<Figures, Failure> {
    let cycles = (SHALLOW / depth).max(1);
    let mut times = Times::default();
    for _ in 0..cycles {
        let queue = Q::make(&spec(depth))?;
        times.first.add(fill_and_drain::<Q, P>(&queue, depth - 1)?);
    }
    for _ in 1..cycles {
        let queue = used::<Q>(depth, before)?;
        times.again.add(fill_and_drain::<Q, P>(&queue, depth - 1)?);
    }
    let queue = used::<Q>(depth, before)?;
    let mut priorities = P::FIRST;
    times.again.fill += timed(|| pairs::fill(&queue, depth - 1, &mut priorities))?;
    let extent = Extent::published(budget);
    let pair = pairs::pair(&queue, &mut priorities, extent)?;
    let send_share = pairs::send_share(&queue, &mut priorities, extent.quarter())?;
    times.again.drain += timed(|| drain_exactly(&queue, depth - 1))?;
    let each = |time: f64| (time / f64::from(cycles) - clock::overhead()) / f64::from(depth - 1);
    Ok(Figures {
        pair,
        send_share,
        fill: each(times.first.fill),
        drain: each(times.first.drain),
        refill: each(times.again.fill),
        redrain: each(times.again.drain),
    })
}

/// Returns a queue that was filled and drained in each of the orders `before`.
fn used<Q: MessageQueue>(depth: u32, before: &[Order]) -> Result<Q, Failure> {
    let queue = Q::make(&spec(depth))?;
    for &order in before {
        with_order!(order, fill_and_drain::<Q>(&queue, depth - 1))?;
    }
    Ok(queue)
}

/// The times of filling and draining the two queues of a round, in nanoseconds, summed over the cycles.
#[derive(Default)]
struct Times {
    first: Cycle,
    again: Cycle,
}

#[derive(Default)]
struct Cycle {
    fill: f64,
    drain: f64,
}

impl Cycle {
    fn add(&mut self, other: Self) {
        self.fill += other.fill;
        self.drain += other.drain;
    }
}

fn fill_and_drain<Q: MessageQueue, P: Priorities>(queue: &Q, count: u32) -> Result<Cycle, Failure> {
    let mut priorities = P::FIRST;
    Ok(Cycle {
        fill: timed(|| pairs::fill(queue, count, &mut priorities))?,
        drain: timed(|| drain_exactly(queue, count))?,
    })
}

/// Drains the queue, and fails unless it held this number of messages.
fn drain_exactly<Q: MessageQueue>(queue: &Q, count: u32) -> Result<(), Failure> {
    let drained = pairs::drain(queue)?;
    if drained == count {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "{count} messages were in the queue, {drained} came out"
        )))
    }
}

fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = clock::now();
    work()?;
    Ok((clock::now() - start) as f64)
}

fn spec(depth: u32) -> Spec {
    Spec {
        depth,
        message_size: MESSAGE_SIZE as u32,
    }
}
