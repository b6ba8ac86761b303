//! The cost of waking a receiver that waits for sixteen messages, if they arrive as a batch.

use umsg::ring::Waiting;

use super::SUITE;
use super::stage::{self, Member, Place};
use super::ways::{BATCH, Receiver, Sender, Umsg, Uring, Way};
use crate::clock;
use crate::failure::Failure;
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::shared::SharedWords;

/// The number of batches in a round.
const BATCHES: u64 = 200;

/// The time between two batches, in nanoseconds. The receiver falls asleep in this time.
const REST: u64 = 100_000;

/// Measures the voluntary context switches of the receiver for each batch.
pub fn row(plan: &Plan) -> Result<Row, Failure> {
    let [mut ours, mut plain] = std::array::from_fn(|_| Side::new());
    for round in 0..plan.rounds {
        plan.progress(&format!("{SUITE}: wake-ups"), round);
        ours.round(|| measure(plan, &Umsg::new(Waiting::Blocking, false)));
        plain.round(|| measure(plan, &Uring::new(false, false)?));
    }
    let (umsg, kernel) = (ours.each(|&found| found), plain.each(|&found| found));
    Ok(Row::compare(
        SUITE,
        "sleeps of a receiver for a batch of 16",
        "sleeps",
        Better::Less,
        &umsg,
        &kernel,
    )
    .note("voluntary context switches of the receiver's thread, which waits for 16 messages and takes them")
    .spreads(&umsg, &kernel)
    .reason("umsg", ours.failure.as_ref())
    .reason("kernel", plain.failure.as_ref())
    // The figure can be less than one: in a pause that was cut short, the receiver did not fall asleep.
    .goal_umsg("one", 1.01))
}

fn measure<W: Way>(plan: &Plan, way: &W) -> Result<f64, Failure> {
    let words = SharedWords::new(2)?;
    let send = |ready: &dyn Fn()| {
        let mut sender = way.sender()?;
        ready();
        (0..BATCHES).try_for_each(|_| {
            clock::spin(REST);
            sender.post_batch(0)
        })
    };
    let receive = |ready: &dyn Fn()| {
        let mut receiver = way.receiver()?;
        ready();
        let before = switches();
        let mut count = 0;
        while count < BATCHES * BATCH as u64 {
            receiver.wait(BATCH)?;
            receiver.drain(|_| count += 1)?;
        }
        words.set(0, switches() - before);
        Ok(())
    };
    let members = vec![
        Member {
            cpu: plan.cpus.first,
            work: Box::new(receive),
        },
        Member {
            cpu: plan.cpus.second.unwrap_or(plan.cpus.first),
            work: Box::new(send),
        },
    ];
    stage::run(Place::Threads, members)?;
    Ok(words.get(0) as f64 / BATCHES as f64)
}

/// Returns the number of times that the calling thread has gone to sleep.
fn switches() -> u64 {
    // SAFETY: an all-zero rusage is valid, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_nvcsw as u64
}
