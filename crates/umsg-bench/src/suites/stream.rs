//! One process sends, and another process receives, as fast as they can.
//!
//! The sender stops when the time of the round is over, and marks its last message. Each message carries its sequence number, which the receiver
//! checks. Each 256th message also carries the time of its send, for the latency at this rate. After a warm-up, the receiver measures the rate, and
//! both processes measure their CPU time.

use super::duet::{LAST, LINE_NOTE, Letter, Mode, SIZES};
use crate::backends::kernel::KernelQueue;
use crate::backends::umsg::UmsgQueue;
use crate::backends::{MessageQueue, Spec};
use crate::clock;
use crate::duo::{self, Barrier, Places};
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Goal, Row};
use crate::shared::SharedWords;
use crate::stats;

const SUITE: &str = "stream";

/// The kernel's default depth, and a depth at which neither process has to wait for the other all the time.
const DEPTHS: [u32; 2] = [10, 1024];

/// The goal for the best setting, in million messages of 64 bytes a second.
const GOAL: f64 = 15.0;

/// The number of messages before the measurement.
const WARM_UP: u64 = 2_000;

/// One message in this many carries the time.
const STAMPED: u64 = 256;

/// The number of messages after which the sender checks whether the round is over. `LOOK` messages take a small part of a round, even if both
/// processes sleep for each message.
const LOOK: u64 = 64;

/// The results of one round.
pub(super) struct Flow {
    /// The rate, in million messages a second.
    pub(super) rate: f64,
    /// The CPU time of both processes, in nanoseconds a message.
    pub(super) cpu: f64,
    /// The median time from send to receive, in nanoseconds.
    pub(super) latency: f64,
}

impl Flow {
    /// Reads the results of a round from these words. The latency is 0 if none was measured.
    pub(super) fn of(words: &SharedWords) -> Flow {
        let get = |word: Word| words.get(word as usize) as f64;
        let messages = get(Word::Messages);
        Flow {
            rate: messages / get(Word::Nanoseconds) * 1000.0,
            cpu: (get(Word::SenderCpu) + get(Word::ReceiverCpu)) / messages,
            latency: get(Word::Latency),
        }
    }
}

/// The parameters of a row.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) mode: Mode,
    pub(super) depth: u32,
    pub(super) size: usize,
}

impl Case {
    fn name(&self) -> String {
        let Case { mode, depth, size } = self;
        format!("{size} B, depth {depth}, {}", mode.name())
    }
}

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let places = plan.apart(SUITE)?;
    let mut rows = Vec::new();
    let cases = cases(plan.quick).into_iter();
    for case in cases.filter(|case| plan.only.has(&case.name())) {
        rows.push(measure(plan, case, places)?);
    }
    if plan.only.is_all() {
        judge_best(&mut rows, "64 B", GOAL);
    }
    Ok(rows)
}

/// Returns all rows. With `--quick`, larger messages have only the rows with the default way of waiting and the deeper queue.
fn cases(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in SIZES {
        for mode in [Mode::Polling, Mode::Pausing, Mode::Adaptive, Mode::Blocking] {
            for depth in DEPTHS {
                let usual = matches!(mode, Mode::Adaptive | Mode::Blocking) && depth == DEPTHS[1];
                if usual || size == SIZES[0] || !quick {
                    cases.push(Case { mode, depth, size });
                }
            }
        }
    }
    cases
}

/// Returns the rows of the suite "guard": short messages through a queue of the kernel's default depth.
pub fn guard(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let Ok(places) = plan.apart(SUITE) else {
        return Ok(Vec::new());
    };
    let row = |mode| {
        let (depth, size) = (DEPTHS[0], SIZES[0]);
        measure(plan, Case { mode, depth, size }, places)
    };
    Ok(vec![row(Mode::Adaptive)?, row(Mode::Blocking)?])
}

fn measure(plan: &Plan, case: Case, places: Places) -> Result<Row, Failure> {
    let Case { mode, depth, size } = case;
    let name = case.name();
    let kernel_depth = plan.allowance.deepest(depth, size as u32);
    let (mut umsg, mut line) = (Side::new(), Side::new());
    let mut kernel = Side::absent(kernel_depth.as_ref().err().cloned());
    for round in 0..plan.rounds {
        plan.progress(&format!("stream: {name}"), round);
        line.round(|| duo::line_transfer(places));
        umsg.round(|| flow::<UmsgQueue>(plan, case, places));
        if let Ok(depth) = kernel_depth {
            kernel.round(|| flow::<KernelQueue>(plan, Case { depth, ..case }, places));
        }
    }
    if let Some(failure) = umsg.failure {
        return Err(Failure::new(format!("{name}: {failure}")));
    }
    let rates = (umsg.each(|flow| flow.rate), kernel.each(|flow| flow.rate));
    let mut row = Row::compare(SUITE, name, "M/s", Better::More, &rates.0, &rates.1)
        .column("umsg_cpu_ns", umsg.each(|flow| flow.cpu).median())
        .column("kernel_cpu_ns", kernel.each(|flow| flow.cpu).median())
        .column("umsg_latency_ns", umsg.each(|flow| flow.latency).median())
        .column(
            "kernel_latency_ns",
            kernel.each(|flow| flow.latency).median(),
        )
        .column("line", line.each(|&time| time).median())
        .spreads(&rates.0, &rates.1)
        .reason("kernel", kernel.failure.as_ref())
        .note(
            "cpu: of both processes, a message; latency: median from send to receive \
             of every 256th message, at this rate",
        )
        .note(LINE_NOTE);
    if kernel_depth.as_ref().is_ok_and(|&kernel| kernel < depth) {
        row = row.note(plan.allowance.describe(kernel_depth?));
    }
    if mode == Mode::Adaptive {
        row = row.note("the kernel has no such mode: it blocks");
    }
    if mode == Mode::Blocking {
        row = row.goal_ratio(0.95);
    }
    Ok(row)
}

/// Judges the row with umsg's highest rate among the rows whose names begin with `begins`. Only that row gets the goal, because the goal is for the
/// best setting.
pub(super) fn judge_best(rows: &mut [Row], begins: &str, goal: f64) {
    let rate = |row: &Row| row.umsg.unwrap_or(0.0);
    let rows = rows.iter_mut().filter(|row| row.row.starts_with(begins));
    if let Some(best) = rows.max_by(|a, b| rate(a).total_cmp(&rate(b))) {
        let text = format!(">= {goal} M/s at the best setting");
        best.goal = best.judge_umsg(goal).map(|verdict| Goal { text, verdict });
    }
}

/// The words in which the two processes leave their results.
#[derive(Clone, Copy)]
pub(super) enum Word {
    Messages,
    Nanoseconds,
    SenderCpu,
    ReceiverCpu,
    Latency,
}

pub(super) const WORDS: usize = Word::Latency as usize + 1;

pub(super) fn flow<Q: MessageQueue>(
    plan: &Plan,
    case: Case,
    places: Places,
) -> Result<Flow, Failure> {
    let queue = Q::make(&Spec {
        depth: case.depth,
        message_size: case.size as u32,
    })?;
    let words = SharedWords::new(WORDS)?;
    let budget = plan.duo_budget.as_nanos() as u64;
    duo::run(
        places,
        |barrier| sender(&queue, case, barrier, budget, &words),
        |barrier| receiver(&queue, case, barrier, &words),
    )?;
    Ok(Flow::of(&words))
}

fn sender<Q: MessageQueue>(
    queue: &Q,
    Case { mode, size, .. }: Case,
    barrier: &Barrier,
    budget: u64,
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut letter = Letter::new(size);
    mode.prepare(queue);
    barrier.meet();
    for number in 0..WARM_UP {
        mode.send(queue, letter.write(number, 0))?;
    }
    let cpu = clock::cpu();
    let end = clock::now() + budget;
    let mut number = WARM_UP;
    loop {
        let mut stamp = 0;
        if number.is_multiple_of(LOOK) {
            let now = clock::now();
            if now >= end {
                break;
            }
            if number.is_multiple_of(STAMPED) {
                stamp = now;
            }
        }
        mode.send(queue, letter.write(number, stamp))?;
        number += 1;
    }
    mode.send(queue, letter.write(number, LAST))?;
    words.set(Word::SenderCpu as usize, clock::cpu() - cpu);
    Ok(())
}

fn receiver<Q: MessageQueue>(
    queue: &Q,
    Case { mode, size, .. }: Case,
    barrier: &Barrier,
    words: &SharedWords,
) -> Result<(), Failure> {
    let mut letter = Letter::new(size);
    let mut latencies = Vec::with_capacity(1 << 16);
    mode.prepare(queue);
    barrier.meet();
    for number in 0..WARM_UP {
        mode.receive(queue, letter.buffer())?;
        letter.read(number)?;
    }
    let cpu = clock::cpu();
    let start = clock::now();
    let mut number = WARM_UP;
    loop {
        mode.receive(queue, letter.buffer())?;
        match letter.read(number)? {
            0 => {}
            LAST => break,
            sent => latencies.push(clock::now().saturating_sub(sent) as f64),
        }
        number += 1;
    }
    let end = clock::now();
    words.set(Word::Messages as usize, number + 1 - WARM_UP);
    words.set(Word::Nanoseconds as usize, end - start);
    words.set(Word::ReceiverCpu as usize, clock::cpu() - cpu);
    words.set(Word::Latency as usize, stats::median(&latencies) as u64);
    Ok(())
}
