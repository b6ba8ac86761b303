//! The published test: posts at a fixed interval of some microseconds, and the times that sender and receiver take.

use std::hint;
use std::sync::atomic::Ordering;
use std::time::Duration;

use umsg::ring::Waiting;

use super::report::{self, Figures, print};
use super::stage::{self, Member, Place};
use super::ways::{Channel, Eventfd, Receiver, Sender, Umsg, Uring, Way};
use super::{SUITE, line_transfer};
use crate::clock;
use crate::failure::Failure;
use crate::found::{Found, Latencies};
use crate::harness::{Plan, Side};
use crate::row::{Better, Row};
use crate::shared::SharedWords;
use crate::suites::duet::LINE_NOTE;

/// The intervals at which messages are posted, in nanoseconds.
const CADENCES: [u64; 2] = [10_000, 20_000];

/// The time for which each variant is measured, over all rounds.
const FULL: Duration = Duration::from_secs(3);
const QUICK: Duration = Duration::from_millis(400);

/// The two ends. Each end has figures of its own.
const END_NAMES: [&str; 2] = ["sender", "receiver"];

/// The message that tells the receiver to end.
const END: u64 = u64::MAX;

/// The means by which messages are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Umsg(Waiting),
    Uring { defer: bool, polling: bool },
    Channel,
    Eventfd,
}

const VARIANTS: [(Variant, &str); 9] = [
    (Variant::Umsg(Waiting::Adaptive), "umsg, adaptive"),
    (Variant::Umsg(Waiting::Spinning), "umsg, polling"),
    (Variant::Umsg(Waiting::Blocking), "umsg, blocking"),
    (uring(false, false), "io_uring, blocked"),
    (uring(false, true), "io_uring, polling"),
    (uring(true, false), "io_uring with DEFER_TASKRUN, blocked"),
    (uring(true, true), "io_uring with DEFER_TASKRUN, polling"),
    (Variant::Channel, "crossbeam-channel"),
    (Variant::Eventfd, "a queue with an eventfd"),
];

/// The rows. Each row has the index of umsg's variant, the indexes of two variants of io_uring (plain and with DEFER_TASKRUN), and the goals at 10
/// µs, in nanoseconds.
const MODES: [(&str, usize, [usize; 2], [f64; 2]); 3] = [
    ("adaptive", 0, [3, 5], [150.0, 350.0]),
    ("polling", 1, [4, 6], [60.0, 300.0]),
    ("asleep", 2, [3, 5], [f64::NAN, f64::NAN]),
];

const fn uring(defer: bool, polling: bool) -> Variant {
    Variant::Uring { defer, polling }
}

/// Measures the rows and the distributions of all cadences and places. Prints the tables of percentiles.
pub fn run(plan: &Plan) -> Result<Found, Failure> {
    let mut found = Found::default();
    for place in Place::ALL {
        for cadence in CADENCES {
            let (sides, line) = measure_all(plan, place, cadence);
            if plan.tables {
                print_all(place, cadence, &sides);
            }
            found.rows.extend(compare(place, cadence, &sides, line));
            found.latencies.extend(latencies(place, cadence, &sides));
        }
    }
    Ok(found)
}

/// Returns the rows of the suite "guard".
pub fn guard(plan: &Plan) -> Vec<Row> {
    let (place, cadence) = (Place::Processes, CADENCES[0]);
    let (sides, line) = measure_all(plan, place, cadence);
    compare(place, cadence, &sides, line)
}

fn latencies(place: Place, cadence: u64, sides: &[Side<Figures>]) -> Vec<Latencies> {
    let both = |((_, way), side): (&(Variant, &'static str), &Side<Figures>)| {
        [0, 1].map(|end| {
            Some(Latencies {
                place: place.name().to_owned(),
                cadence_us: cadence / 1000,
                way: (*way).to_owned(),
                end: END_NAMES[end].to_owned(),
                sent: side.rounds.iter().map(Figures::sent).sum(),
                expected: side.rounds.iter().map(|figures| figures.expected).sum(),
                percentiles: report::percentiles(&side.rounds, end)?,
            })
        })
    };
    VARIANTS
        .iter()
        .zip(sides)
        .flat_map(both)
        .flatten()
        .collect()
}

/// Measures all ways, and in each round the time of a cache line between the CPUs.
fn measure_all(plan: &Plan, place: Place, cadence: u64) -> (Vec<Side<Figures>>, Option<f64>) {
    let what = title(place, cadence);
    let mut sides: Vec<_> = VARIANTS.iter().map(|_| Side::new()).collect();
    let mut line = Side::new();
    for round in 0..plan.rounds {
        plan.progress(&what, round);
        line.round(|| line_transfer(plan));
        for ((variant, _), side) in VARIANTS.iter().zip(&mut sides) {
            side.round(|| measure(plan, *variant, place, cadence));
        }
    }
    (sides, line.each(|&time| time).median())
}

fn title(place: Place, cadence: u64) -> String {
    format!("{SUITE}: {}, every {} us", place.name(), cadence / 1000)
}

fn measure(plan: &Plan, variant: Variant, place: Place, cadence: u64) -> Result<Figures, Failure> {
    match variant {
        Variant::Umsg(waiting) => post(plan, &Umsg::new(waiting, false), place, cadence),
        Variant::Uring { defer, polling } => {
            post(plan, &Uring::new(defer, polling)?, place, cadence)
        }
        Variant::Channel | Variant::Eventfd if place == Place::Processes => Err(Failure::new(
            "this way works only between threads of one process",
        )),
        Variant::Channel => post(plan, &Channel::new(), place, cadence),
        Variant::Eventfd => post(plan, &Eventfd::new()?, place, cadence),
    }
}

/// The word with the number of sent messages.
const SENT: usize = 0;
/// The word with the CPU time of the sender.
const SENDER_CPU: usize = 1;
/// The word with the CPU time of the receiver.
const RECEIVER_CPU: usize = 2;
/// The word with the time for which the sender was posting.
const ELAPSED: usize = 3;
/// The first word of the samples.
const SAMPLES: usize = 16;

/// Measures one round of one way.
fn post<W: Way>(plan: &Plan, way: &W, place: Place, cadence: u64) -> Result<Figures, Failure> {
    let all = if plan.quick { QUICK } else { FULL };
    let slice = all.as_nanos() as u64 / u64::from(plan.rounds);
    let expected = (slice / cadence) as usize;
    let words = SharedWords::new(SAMPLES + 2 * (expected + 1))?;
    let (sends, receives) = (SAMPLES, SAMPLES + expected + 1);
    let Some(second) = plan.cpus.second else {
        return Err(Failure::new("this case needs two CPUs"));
    };
    let sender = |ready: &dyn Fn()| {
        let mut sender = way.sender()?;
        touch(&words, sends, expected);
        ready();
        let cpu = clock::thread_cpu();
        let (count, elapsed) = keep_posting(&mut sender, &words, sends, cadence, slice)?;
        words.set(SENDER_CPU, clock::thread_cpu() - cpu);
        words.set(ELAPSED, elapsed);
        words.set(SENT, count);
        sender.post(END)
    };
    let receiver = |ready: &dyn Fn()| {
        let mut receiver = way.receiver()?;
        touch(&words, receives, expected);
        ready();
        let cpu = clock::thread_cpu();
        let mut at = receives;
        loop {
            let posted = receiver.next()?;
            if posted == END {
                break;
            }
            note(&words, at, clock::now().saturating_sub(posted));
            at += 1;
        }
        words.set(RECEIVER_CPU, clock::thread_cpu() - cpu);
        Ok(())
    };
    let members = vec![
        Member {
            cpu: second,
            work: Box::new(sender),
        },
        Member {
            cpu: plan.cpus.first,
            work: Box::new(receiver),
        },
    ];
    stage::run(place, members)?;
    let count = words.get(SENT) as usize;
    let samples = |first: usize| (first..first + count).map(|at| words.get(at)).collect();
    let elapsed = words.get(ELAPSED) as f64;
    Figures::new(
        samples(sends),
        samples(receives),
        expected as u64,
        [SENDER_CPU, RECEIVER_CPU].map(|word| words.get(word) as f64 / elapsed),
    )
}

/// Writes the memory for samples once in the calling process, so that the measurement includes no page faults.
fn touch(words: &SharedWords, first: usize, count: usize) {
    for at in (first..=first + count).step_by(256) {
        note(words, at, 0);
    }
}

#[inline]
fn note(words: &SharedWords, at: usize, sample: u64) {
    // Relaxed: the word is read after all members have ended.
    words.word(at).store(sample, Ordering::Relaxed);
}

/// Posts the current time as a message at each interval. Returns the number of posts, and the nanoseconds from the first post to the end of the last.
fn keep_posting(
    sender: &mut impl Sender,
    words: &SharedWords,
    first: usize,
    cadence: u64,
    slice: u64,
) -> Result<(u64, u64), Failure> {
    let start = clock::now() + 100_000;
    let (mut due, mut count) = (start, 0);
    let end = start + slice / cadence * cadence;
    while due < end {
        let mut now = clock::now();
        while now < due {
            hint::spin_loop();
            now = clock::now();
        }
        sender.post(now)?;
        let after = clock::now();
        note(words, first + count as usize, after - now);
        count += 1;
        due += cadence;
        if after >= due {
            // The sender is late, and omits the posts whose times have passed.
            due += (after - due) / cadence * cadence;
        }
    }
    Ok((count, clock::now() - start))
}

fn print_all(place: Place, cadence: u64, sides: &[Side<Figures>]) {
    for ((_, name), side) in VARIANTS.iter().zip(sides) {
        let heading = format!("{}: {name}", title(place, cadence));
        match &side.failure {
            Some(failure) => println!("\n{heading}: {failure}"),
            None => print(&heading, &side.rounds),
        }
    }
}

fn compare(place: Place, cadence: u64, sides: &[Side<Figures>], line: Option<f64>) -> Vec<Row> {
    let row = |(mode, ours, [plain, defer], goals): (&str, usize, [usize; 2], [f64; 2]), at| {
        let name = END_NAMES[at];
        let (ours, plain, defer) = (&sides[ours], &sides[plain], &sides[defer]);
        let half = |side: &Side<Figures>| side.each(|figures| figures.quantile(at, 0.5));
        let tail = |side: &Side<Figures>| side.each(|figures| figures.quantile(at, 0.99)).median();
        let others = [&sides[7], &sides[8]].map(|side| half(side).median());
        let title = format!("{}, {} us, {mode}: {name}", place.name(), cadence / 1000);
        let (umsg, kernel) = (half(ours), half(plain));
        let row = Row::compare(SUITE, title, "ns", Better::Less, &umsg, &kernel)
            .column("defer_taskrun", half(defer).median())
            .column("crossbeam", others[0])
            .column("eventfd", others[1])
            .column("umsg_p99", tail(ours))
            .column("kernel_p99", tail(plain))
            .column("umsg_cpu", ours.each(|figures| figures.cpu[at]).median())
            .column("kernel_cpu", plain.each(|figures| figures.cpu[at]).median())
            .column("line", line)
            .spreads(&umsg, &kernel)
            .note(LINE_NOTE)
            .column("umsg_rate", ours.each(Figures::rate).median())
            .column("kernel_rate", plain.each(Figures::rate).median())
            .reason("umsg", ours.failure.as_ref())
            .reason("kernel", plain.failure.as_ref())
            .note("the time of half of the messages; sender: of its post; receiver: from before the post until it is received")
            .note("cpu: CPU time of that side, 1 for the whole time; the sender's is spent on waiting for the next message")
            .note("rate: messages sent, 1 for all that are due");
        judge(row, (mode, cadence), goals[at])
    };
    MODES
        .into_iter()
        .flat_map(|mode| [row(mode, 0), row(mode, 1)])
        .collect()
}

/// Judges a row. The goals in nanoseconds apply only to the interval of 10 µs. The goal of the mode "asleep" is a ratio, and applies to every
/// interval.
fn judge(row: Row, (mode, cadence): (&str, u64), most: f64) -> Row {
    if mode == "asleep" {
        let verdict = row.judge_ratio(1.0 / 1.1);
        row.goal_if("<= 1.1 times the kernel's", verdict)
    } else if cadence == CADENCES[0] {
        row.goal_umsg(format!("<= {most} ns"), most)
    } else {
        row
    }
}
