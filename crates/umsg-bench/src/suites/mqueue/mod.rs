//! The table that was published in 2012 with the change of the kernel's queue from a sorted array to a tree: one thread, messages of 16 bytes, a
//! queue of 65,528 messages.
//!
//! The test behind that table is tools/testing/selftests/mqueue/mq_perf_tests.c in the kernel's sources. As in that test, a queue is filled up to one
//! message below its depth. Then one message is sent and one received, over and over. At the end, the queue is drained. The priorities are constant,
//! increase, decrease or vary at random.
//!
//! This suite differs from the kernel's test in four points:
//!
//! - The kernel's test uses one queue for all four orders of priorities, so that the queue is new only for the first order. This suite uses two
//!   queues for each order: a new queue, and a queue that was filled and drained in the orders that precede this order in the kernel's test. The
//!   table has the times of both queues.
//! - The kernel's test reads the clock three times for each pair of a send and a receive. The readings would cost more than umsg's operations
//!   themselves, so this suite times a chunk of pairs as a whole.
//! - The send's share of a pair comes from a separate pass that reads the clock around each operation.
//! - The cost of filling is given as nanoseconds for each message, because the two sides may differ in depth.

mod round;

use self::round::{Figures, empty, full};
use crate::backends::array2012::ArrayQueue;
use crate::backends::dropin::DropinQueue;
use crate::backends::kernel::KernelQueue;
use crate::backends::umsg::UmsgQueue;
use crate::failure::Failure;
use crate::harness::{Plan, Samples, Side};
use crate::row::{Better, Row};
use crate::suites::pairs::MESSAGE_SIZE;
use crate::suites::priorities::{Order, with_order};

const SUITE: &str = "mqueue";

/// The depth of the queue in the published table, in messages.
const DEPTH: u32 = 65_528;

/// The goal for a send and a receive together on an empty queue, in nanoseconds.
const EMPTY_GOAL: f64 = 45.0;

/// The goal for the additional cost of a call through the libc names, in nanoseconds.
const DROPIN_GOAL: f64 = 10.0;

/// All sides of the comparison, under one order of priorities.
struct Sides {
    umsg: Side<Figures>,
    umsg_shallow: Side<Figures>,
    kernel: Side<Figures>,
    dropin: Side<Figures>,
    array: Side<Figures>,
}

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let kernel_depth = plan.allowance.deepest(DEPTH, MESSAGE_SIZE as u32);
    let mut rows = empty_rows(plan, &kernel_depth)?;
    // A round of the array takes seconds, and the result does not need many rounds.
    let arrays = if plan.quick { 1 } else { plan.rounds };
    for order in Order::ALL {
        let sides = measure(plan, order, &kernel_depth, arrays)?;
        rows.extend(full_rows(order, &sides));
        rows.extend(fill_rows(order, &sides));
    }
    if let (Ok(depth), Some(first)) = (kernel_depth, rows.first_mut()) {
        first.notes.push(plan.allowance.describe(depth));
    }
    Ok(rows)
}

/// Returns the rows of the suite "guard": an empty queue, and a full queue of mixed priorities.
pub fn guard(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let kernel_depth = plan.allowance.deepest(DEPTH, MESSAGE_SIZE as u32);
    let mut rows = empty_rows(plan, &kernel_depth)?;
    let sides = measure(plan, Order::Random, &kernel_depth, 0)?;
    rows.extend(full_rows(Order::Random, &sides));
    Ok(rows)
}

/// Returns the rows of a queue that holds no message before the send and after the receive.
fn empty_rows(plan: &Plan, kernel_depth: &Result<u32, Failure>) -> Result<Vec<Row>, Failure> {
    let mut sides = sides(plan, kernel_depth);
    for round in 0..plan.rounds {
        plan.progress("mqueue: empty", round);
        let budget = plan.budget;
        let shallow = *kernel_depth.as_ref().unwrap_or(&DEPTH);
        sides.umsg.round(|| empty::<UmsgQueue>(DEPTH, budget));
        sides.kernel.round(|| empty::<KernelQueue>(shallow, budget));
        sides
            .umsg_shallow
            .round(|| empty::<UmsgQueue>(shallow, budget));
        sides.dropin.round(|| empty::<DropinQueue>(DEPTH, budget));
        sides.array.round(|| empty::<ArrayQueue>(DEPTH, budget));
    }
    sides.check()?;
    let mut rows = sides.pair_rows("empty");
    // The sum has its own goal in addition to the ratio.
    let sum = rows.pop().map(|row| {
        let verdict = row.judge_umsg(EMPTY_GOAL).zip(row.judge_ratio(10.0));
        let verdict = verdict.map(|(time, ratio)| time.and(ratio));
        row.goal_if(format!("<= {EMPTY_GOAL} ns, ratio >= 10"), verdict)
    });
    rows.extend(sum);
    Ok(rows)
}

fn sides(plan: &Plan, kernel_depth: &Result<u32, Failure>) -> Sides {
    Sides {
        umsg: Side::new(),
        umsg_shallow: Side::new(),
        kernel: Side::absent(kernel_depth.as_ref().err().cloned()),
        dropin: Side::absent(plan.no_dropin()),
        array: Side::new(),
    }
}

fn measure(
    plan: &Plan,
    order: Order,
    kernel_depth: &Result<u32, Failure>,
    arrays: u32,
) -> Result<Sides, Failure> {
    let mut sides = sides(plan, kernel_depth);
    let shallow = *kernel_depth.as_ref().unwrap_or(&DEPTH);
    let before = order.before();
    for round in 0..plan.rounds {
        plan.progress(&format!("mqueue: full, {}", order.name()), round);
        let budget = plan.budget;
        sides
            .umsg
            .round(|| with_order!(order, full::<UmsgQueue>(DEPTH, budget, before)));
        sides
            .kernel
            .round(|| with_order!(order, full::<KernelQueue>(shallow, budget, before)));
        sides
            .umsg_shallow
            .round(|| with_order!(order, full::<UmsgQueue>(shallow, budget, before)));
        sides
            .dropin
            .round(|| with_order!(order, full::<DropinQueue>(DEPTH, budget, before)));
        if round < arrays {
            sides
                .array
                .round(|| with_order!(order, full::<ArrayQueue>(DEPTH, budget, &[order])));
        }
    }
    sides.check()?;
    Ok(sides)
}

impl Sides {
    /// Fails if umsg has failed. Notes report the failures of other sides.
    fn check(&self) -> Result<(), Failure> {
        for side in [&self.umsg, &self.umsg_shallow] {
            if let Some(failure) = &side.failure {
                return Err(failure.clone());
            }
        }
        Ok(())
    }

    fn row(&self, name: String, figure: impl Fn(&Figures) -> f64 + Copy) -> Row {
        let (umsg, kernel) = (self.umsg.each(figure), self.kernel.each(figure));
        let shallow = self.umsg_shallow.each(figure).median();
        let dropin = self.dropin.each(figure).median();
        let shallow_ratio = kernel
            .median()
            .zip(shallow)
            .map(|(kernel, umsg)| kernel / umsg);
        Row::compare(SUITE, name, "ns", Better::Less, &umsg, &kernel)
            .column("umsg_at_kernel_depth", shallow)
            .column("ratio_at_kernel_depth", shallow_ratio)
            .column("dropin", dropin)
            .column("array2012", self.array.each(figure).median())
            .spreads(&umsg, &kernel)
            .reason("kernel", self.kernel.failure.as_ref())
            .reason("drop-in", self.dropin.failure.as_ref())
            .goal_ratio(10.0)
    }

    /// Returns three rows with the cost of the drop-in: send, receive, and the sum of both.
    fn pair_rows(&self, state: &str) -> Vec<Row> {
        let split = "share of a pass with the clock read around each operation";
        let mut rows = vec![
            self.row(format!("{state}, send"), Figures::send)
                .note(split),
            self.row(format!("{state}, receive"), Figures::receive)
                .note(split),
        ];
        let mut both = self.row(format!("{state}, both"), |figures| figures.pair);
        let umsg: Samples = self.umsg.each(|figures| figures.pair);
        let dropin = self.dropin.each(|figures| figures.pair);
        if let Some((umsg, dropin)) = umsg.median().zip(dropin.median()) {
            let added = (dropin - umsg) / 2.0;
            let verdict = if added <= DROPIN_GOAL {
                "met"
            } else {
                "MISSED"
            };
            both = both.note(format!(
                "the libc names add {added:.1} ns a call ({verdict}: at most {DROPIN_GOAL})"
            ));
        }
        rows.push(both);
        rows
    }
}

fn full_rows(order: Order, sides: &Sides) -> Vec<Row> {
    sides.pair_rows(&format!("full, {}", order.name()))
}

fn fill_rows(order: Order, sides: &Sides) -> Vec<Row> {
    let order = order.name();
    let fresh = "ns a message; the queue is new, so its memory comes into use";
    let again = "ns a message; the queue was full before, in the orders that the published test has before this one";
    vec![
        sides
            .row(format!("fill, {order}"), |figures| figures.fill)
            .note(fresh),
        sides
            .row(format!("drain, {order}"), |figures| figures.drain)
            .note(fresh),
        sides
            .row(format!("fill again, {order}"), |figures| figures.refill)
            .note(again),
        sides
            .row(format!("drain again, {order}"), |figures| figures.redrain)
            .note(again),
    ]
}
