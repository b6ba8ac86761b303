//! Measures whether a send and a receive cost the same at any depth.

use super::pairs::{self, Extent, MESSAGE_SIZE};
use super::priorities::{Order, Priorities, with_order};
use crate::backends::kernel::KernelQueue;
use crate::backends::umsg::UmsgQueue;
use crate::backends::{MessageQueue, Spec};
use crate::failure::Failure;
use crate::harness::{Plan, Samples, Side};
use crate::row::{Better, Row};

const SUITE: &str = "depth";

/// The numbers of messages in the queue, at which a send and a receive are measured.
const DEPTHS: [u32; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// The capacity with which both sides create the queue: room for the largest of `DEPTHS`.
const DECLARED: u32 = 1_048_576;

/// The goal: the maximum ratio of the cost at the slowest depth to the cost at the fastest depth.
const FLAT: f64 = 3.0;

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let kernel_depth = plan.allowance.deepest(DECLARED, MESSAGE_SIZE as u32);
    let mut rows = Vec::new();
    for order in [Order::Constant, Order::Random] {
        let mut umsg = Side::new();
        let mut kernel = Side::absent(kernel_depth.as_ref().err().cloned());
        let shallow = *kernel_depth.as_ref().unwrap_or(&1);
        for round in 0..plan.rounds {
            plan.progress(&format!("depth: {}", order.name()), round);
            umsg.round(|| with_order!(order, climb::<UmsgQueue>(plan, DECLARED)));
            kernel.round(|| with_order!(order, climb::<KernelQueue>(plan, shallow)));
        }
        if let Some(failure) = umsg.failure {
            return Err(failure);
        }
        rows.extend(order_rows(order, &umsg, &kernel));
    }
    if let (Ok(depth), Some(first)) = (kernel_depth, rows.first_mut()) {
        first.notes.push(plan.allowance.describe(depth));
    }
    Ok(rows)
}

/// The figures at one depth, in nanoseconds.
#[derive(Clone, Copy)]
struct Stop {
    pair: f64,
    first_receive: f64,
}

/// Fills one queue further and further, and stops at each depth to measure.
fn climb<Q: MessageQueue, P: Priorities>(plan: &Plan, declared: u32) -> Result<Vec<Stop>, Failure> {
    let queue = Q::make(&Spec {
        depth: declared,
        message_size: MESSAGE_SIZE as u32,
    })?;
    let mut priorities = P::FIRST;
    let mut held = 0;
    let mut stops = Vec::new();
    for depth in DEPTHS.into_iter().filter(|&depth| depth <= declared) {
        pairs::fill(&queue, depth - held, &mut priorities)?;
        held = depth - 1;
        stops.push(Stop {
            first_receive: pairs::first_receive(&queue)?,
            pair: pairs::pair(&queue, &mut priorities, Extent::published(plan.budget))?,
        });
    }
    Ok(stops)
}

fn order_rows(order: Order, umsg: &Side<Vec<Stop>>, kernel: &Side<Vec<Stop>>) -> Vec<Row> {
    let mut rows: Vec<Row> = DEPTHS
        .iter()
        .enumerate()
        .map(|(index, depth)| {
            let pair = |side| at(side, index, |stop| stop.pair);
            let first = |side| at(side, index, |stop| stop.first_receive).median();
            let (umsg_first, kernel_first) = (first(umsg), first(kernel));
            let (umsg, kernel) = (pair(umsg), pair(kernel));
            Row::compare(
                SUITE,
                format!("{}, {depth}", order.name()),
                "ns",
                Better::Less,
                &umsg,
                &kernel,
            )
            .column("umsg_first_receive", umsg_first)
            .column("kernel_first_receive", kernel_first)
            .spreads(&umsg, &kernel)
            .note("first receive: the one right after filling up to this depth, in ns")
        })
        .collect();
    // Computes the ratio of each round's own figures, and then the median over the rounds.
    let flat = |side: &Side<Vec<Stop>>| side.each(|stops| flatness(stops));
    let (umsg_flat, kernel_flat) = (flat(umsg), flat(kernel));
    let mut flat = Row::compare(
        SUITE,
        format!("{}, dearest / cheapest", order.name()),
        "x",
        Better::Less,
        &umsg_flat,
        &kernel_flat,
    );
    // No ratio: the two sides were not measured over the same depths.
    flat.ratio = None;
    rows.push(
        flat.reason("kernel", kernel.failure.as_ref())
            .goal_umsg(format!("<= {FLAT}"), FLAT),
    );
    rows
}

/// Returns one figure at one depth, over the rounds; empty if a side does not reach that depth.
fn at(side: &Side<Vec<Stop>>, index: usize, figure: impl Fn(&Stop) -> f64) -> Samples {
    let rounds = side.rounds.iter();
    Samples(
        rounds
            .filter_map(|stops| stops.get(index).map(&figure))
            .collect(),
    )
}

/// Returns the time at the slowest depth of a round, divided by the time at the fastest depth.
fn flatness(stops: &[Stop]) -> f64 {
    let pairs = || stops.iter().map(|stop| stop.pair);
    pairs().fold(f64::MIN, f64::max) / pairs().fold(f64::MAX, f64::min)
}
