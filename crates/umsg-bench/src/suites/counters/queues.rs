//! The totals of real queues: whether they are exact when no thread works, and the cost of reading them.

use std::time::Duration;

use super::{SUITE, left_by};
use crate::backends::typed::dropin::DropinQueue;
use crate::backends::typed::kernel::KernelQueue;
use crate::backends::typed::own_namespace::OwnNamespace;
use crate::backends::typed::umsg::UmsgQueue;
use crate::backends::typed::{DEFAULT_BYTES, SIZE, Totals, TypedQueue, Want};
use crate::crew::{self, Member};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::suites::pairs::{self, Extent, receive_failed, send_failed};

const QUEUES: usize = 80;

pub fn row(plan: &Plan) -> Result<Row, Failure> {
    let name = format!("read the totals of {QUEUES} queues");
    // Uses a private namespace if permitted, because other processes create and remove queues in a shared one.
    let _namespace = OwnNamespace::enter(DEFAULT_BYTES);
    let mut umsg = Side::new();
    let mut kernel = Side::new();
    let mut dropin = Side::absent(plan.no_dropin());
    for round in 0..plan.rounds {
        plan.progress(&format!("{SUITE}: {name}"), round);
        umsg.round(|| measure::<UmsgQueue>(plan));
        kernel.round(|| measure::<KernelQueue>(plan));
        dropin.round(|| measure::<DropinQueue>(plan));
    }
    if let Some(failure) = umsg.failure {
        return Err(Failure::new(format!("{name}: {failure}")));
    }
    let time = |side: &Side<f64>| side.each(|&time| time);
    let (ours, kernels) = (time(&umsg), time(&kernel));
    Ok(
        Row::compare(SUITE, name, "ns", Better::Less, &ours, &kernels)
            .column("dropin", time(&dropin).median())
            .spreads(&ours, &kernels)
            .reason("kernel", kernel.failure.as_ref())
            .reason("drop-in", dropin.failure.as_ref())
            .note(format!(
                "totals: sysv::totals against msgctl(MSG_INFO), after {} threads have worked on the queues; found exact in \
                 every round. Asking is what umsg makes dear: it looks into each queue's file",
                2 * QUEUES
            )),
    )
}

/// Lets two threads work on each queue, and reads the totals when the threads are done. Returns the time of reading the totals, in nanoseconds.
fn measure<Q: TypedQueue>(plan: &Plan) -> Result<f64, Failure> {
    let before = Q::totals()?;
    let queues = (0..QUEUES).map(|_| Q::make(DEFAULT_BYTES));
    let queues = queues.collect::<Result<Vec<Q>, Failure>>()?;
    let seats = crew::anywhere(2 * QUEUES, &plan.cpus.both());
    crew::run(&seats, plan.duo_budget, |member| {
        work(&queues[member.index / 2], member)
    })?;
    let left: u64 = (0..2 * QUEUES).map(|thread| left_by(thread) as u64).sum();
    let expected = Totals {
        messages: before.messages + left,
        bytes: before.bytes + left * SIZE,
    };
    let found = Q::totals()?;
    if found != expected {
        return Err(Failure::new(format!(
            "{expected:?} are left, and {found:?} counted"
        )));
    }
    asking::<Q>(plan.budget)
}

/// Sends and receives messages of the thread's own type, and leaves some in the queue. The queue always has room. The calls may still have to wait,
/// because the partner may lose the CPU for long while the partner holds the queue's lock.
fn work<Q: TypedQueue>(queue: &Q, member: &Member<'_>) -> Result<(), Failure> {
    let mtype = member.index as i64 + 1;
    while !member.is_over() {
        queue.send(mtype, 0).map_err(send_failed)?;
        queue
            .receive(Want::Exactly(mtype))
            .map_err(receive_failed)?;
        member.count(1);
    }
    for _ in 0..left_by(member.index) {
        queue.send(mtype, 0).map_err(send_failed)?;
    }
    Ok(())
}

fn asking<Q: TypedQueue>(budget: Duration) -> Result<f64, Failure> {
    pairs::chunked(Extent::timed(budget), |count| {
        for _ in 0..count {
            Q::totals()?;
        }
        Ok(())
    })
}
