//! Measures how many messages go through a ring in a second, from 1, 2 and 4 senders, one by one and in batches.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};

use umsg::ring::Waiting;

use super::stage::{self, Member, Place};
use super::ways::{BATCH, Channel, Eventfd, Receiver, Sender, Umsg, Uring, Way};
use super::{SUITE, line_transfer};
use crate::clock;
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::shared::SharedWords;
use crate::suites::duet::LINE_NOTE;

const SENDERS: [usize; 3] = [1, 2, 4];

/// The number of messages, or of batches, between two readings of the clock.
const LOOK: usize = 64;

/// The value of each message of a sender except its last message.
const MORE: u64 = 0;
/// The value of a sender's last message.
const END: u64 = 1;

/// The parameters of a measurement.
#[derive(Clone, Copy)]
struct Case {
    place: Place,
    senders: usize,
    batch: bool,
}

/// The findings of one round.
#[derive(Debug)]
struct Found {
    /// The rate, in million messages a second.
    rate: f64,
    /// The CPU time of all members, in nanoseconds a message.
    cpu: f64,
}

pub fn rows(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for place in Place::ALL {
        for senders in SENDERS {
            for batch in [false, true] {
                let case = Case {
                    place,
                    senders,
                    batch,
                };
                rows.push(row(plan, case));
            }
        }
    }
    Ok(rows)
}

/// Returns the rows of the suite "guard".
pub fn guard(plan: &Plan) -> Row {
    let case = Case {
        place: Place::Processes,
        senders: 1,
        batch: false,
    };
    row(plan, case)
}

fn row(plan: &Plan, case: Case) -> Row {
    let Case {
        place,
        senders,
        batch,
    } = case;
    let each = if batch { "batches of 16" } else { "one by one" };
    let name = format!("{}, {senders} to 1, {each}", place.name());
    let [mut ours, mut plain, mut defer, mut channel, mut eventfd] =
        std::array::from_fn(|_| Side::new());
    let mut line = Side::new();
    let threads_only = || match place {
        Place::Threads => Ok(()),
        Place::Processes => Err(Failure::new(
            "this way works only between threads of one process",
        )),
    };
    for round in 0..plan.rounds {
        plan.progress(&format!("{SUITE}: {name}"), round);
        line.round(|| line_transfer(plan));
        ours.round(|| measure(plan, &Umsg::new(Waiting::Adaptive, true), case));
        plain.round(|| measure(plan, &Uring::new(false, false)?, case));
        defer.round(|| measure(plan, &Uring::new(true, false)?, case));
        channel.round(|| threads_only().and_then(|()| measure(plan, &Channel::new(), case)));
        eventfd.round(|| threads_only().and_then(|()| measure(plan, &Eventfd::new()?, case)));
    }
    let rate = |side: &Side<Found>| side.each(|found| found.rate);
    let cpu = |side: &Side<Found>| side.each(|found| found.cpu).median();
    let goal = match senders {
        1 => Some(15.0),
        4 => Some(8.0),
        _ => None,
    };
    let (umsg, kernel) = (rate(&ours), rate(&plain));
    let row = Row::compare(SUITE, name, "M/s", Better::More, &umsg, &kernel)
        .column("defer_taskrun", rate(&defer).median())
        .column("crossbeam", rate(&channel).median())
        .column("eventfd", rate(&eventfd).median())
        .column("umsg_cpu", cpu(&ours))
        .column("kernel_cpu", cpu(&plain))
        .column("line", line.each(|&time| time).median())
        .spreads(&umsg, &kernel)
        .note(LINE_NOTE)
        .reason("umsg", ours.failure.as_ref())
        .reason("kernel", plain.failure.as_ref())
        .note("messages of 64 bytes (io_uring's carry none) through a ring of 1,024; the receiver has a CPU, the senders share the other")
        .note("cpu: CPU time of all of them, in ns a message");
    match goal {
        Some(goal) => row.goal_umsg(format!(">= {goal} M/s"), goal),
        None => row,
    }
}

/// Measures one round of one way.
fn measure<W: Way>(plan: &Plan, way: &W, case: Case) -> Result<Found, Failure> {
    let Some(second) = plan.cpus.second else {
        return Err(Failure::new("this case needs two CPUs"));
    };
    let words = SharedWords::new(4)?;
    let [count, elapsed, cpu] = [0, 1, 2].map(|index| words.word(index));
    let budget = plan.duo_budget.as_nanos() as u64;
    let spend = |since: u64| {
        // Relaxed: the sum is read after all members have ended.
        cpu.fetch_add(clock::thread_cpu() - since, Ordering::Relaxed);
    };
    let send = |ready: &dyn Fn()| {
        let mut sender = way.sender()?;
        ready();
        let before = clock::thread_cpu();
        keep_sending(&mut sender, case.batch, budget)?;
        sender.post(END)?;
        spend(before);
        Ok(())
    };
    let receive = |ready: &dyn Fn()| {
        let mut receiver = way.receiver()?;
        ready();
        let (start, before) = (clock::now(), clock::thread_cpu());
        keep_receiving(&mut receiver, case.senders as u64, count)?;
        elapsed.store(clock::now() - start, Ordering::Relaxed);
        spend(before);
        Ok(())
    };
    let mut members = vec![Member {
        cpu: plan.cpus.first,
        work: Box::new(receive),
    }];
    members.extend((0..case.senders).map(|_| Member {
        cpu: second,
        work: Box::new(send),
    }));
    stage::run(case.place, members)?;
    let [count, elapsed, cpu] =
        [count, elapsed, cpu].map(|word| word.load(Ordering::Relaxed) as f64);
    Ok(Found {
        rate: count / elapsed * 1e3,
        cpu: cpu / count,
    })
}

fn keep_sending(sender: &mut impl Sender, batch: bool, budget: u64) -> Result<(), Failure> {
    let end = clock::now() + budget;
    while clock::now() < end {
        for _ in 0..if batch { LOOK / BATCH } else { LOOK } {
            match batch {
                true => sender.post_batch(MORE)?,
                false => sender.post(MORE)?,
            }
        }
    }
    Ok(())
}

fn keep_receiving(
    receiver: &mut impl Receiver,
    senders: u64,
    total: &AtomicU64,
) -> Result<(), Failure> {
    let (mut count, mut ended) = (0, 0);
    while ended < senders {
        receiver.wait(1)?;
        receiver.drain(|value| {
            count += 1;
            ended += hint::black_box(value);
        })?;
    }
    // Relaxed: the count is read after all members have ended.
    total.store(count, Ordering::Relaxed);
    Ok(())
}
