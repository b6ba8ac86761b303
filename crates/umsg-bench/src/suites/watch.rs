//! Measures how much `umsg top` slows down a queue that it watches.
//!
//! One process sends and receives on and on, with a thousand messages in the queue. Beside it, the command refreshes its figures of this and 99 other
//! queues ten times a second, on another core. A second row measures the work of the page of details: the priorities of the messages at each refresh,
//! and diagnoses, which copy the queue. In a third row, the command runs on the core of the queue's process, so that it also takes the core's time.
//!
//! Each window with an observer is paired with one without, in turn first and last. The mean time of a window counts, because a median over chunks
//! would hide the moments of the refreshes.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ::umsg::posix::{self, OpenOptions, Queue};
use ::umsg::{Namespace, diagnosis::Diagnosis};

use super::pairs::{self, MESSAGE_SIZE};
use super::priorities::Constant;
use crate::backends::Spec;
use crate::backends::umsg::UmsgQueue;
use crate::child::Child;
use crate::clock;
use crate::failure::Failure;
use crate::harness::{Plan, Samples};
use crate::row::{Better, Row, Verdict};
use crate::stats::Interval;

const SUITE: &str = "watch";

/// The goal, in percent.
const GOAL: f64 = 1.0;
/// The time between two refreshes.
const EVERY: Duration = Duration::from_millis(100);
/// The number of queues beside the heavily used queue.
const OTHERS: u32 = 99;
/// The number of messages in the heavily used queue.
const DEPTH: u32 = 1000;
/// The number of pairs of windows.
const PAIRS: u32 = 30;
const QUICK_PAIRS: u32 = 3;
/// The length of a window: ten refreshes.
const WINDOW: Duration = Duration::from_secs(1);
const QUICK_WINDOW: Duration = Duration::from_millis(300);
/// The number of operations between two readings of the clock.
const BLOWS: u32 = 64;
/// As in `umsg top`: the maximum number of messages whose priorities are counted, and the inverse of the share of the time that diagnoses take.
const MOST: usize = 10_000;
const SHARE: u32 = 20;

/// The process that observes the queue during a window.
enum Observer<'a> {
    /// `umsg top`, on the processor of this number.
    Command(&'a Path, usize),
    /// The work of the page of details of a queue, on the processor of this number.
    Details(&'a str, usize),
}

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let [first, second] = plan.cpus.two(SUITE)?;
    let spec = |depth| Spec {
        depth,
        message_size: MESSAGE_SIZE as u32,
    };
    let others: Result<Vec<Named>, Failure> = (0..OTHERS).map(|_| Named::make(&spec(8))).collect();
    let others = others?;
    let hammered = Named::make(&spec(DEPTH + 1))?;
    pairs::fill(&hammered.queue, DEPTH, &mut Constant)?;
    let name = hammered.name.as_str();
    let command = command();
    let observed = |title: &str, observer: &Observer<'_>, has_goal: bool| {
        let shares = windows(plan, &hammered.queue, title, observer)?;
        Ok::<Row, Failure>(row(title, shares, has_goal))
    };
    let details = Observer::Details(name, second);
    let mut rows = vec![observed(
        "details of the queue, another core",
        &details,
        true,
    )?];
    match &command {
        Ok(program) => {
            let there = Observer::Command(program, second);
            rows.insert(
                0,
                observed("umsg top at 10 Hz, another core", &there, true)?,
            );
            let here = Observer::Command(program, first);
            rows.push(observed("umsg top at 10 Hz, the same core", &here, false)?);
        }
        Err(failure) => rows[0].notes.push(format!("no row of umsg top: {failure}")),
    }
    drop(others);
    Ok(rows)
}

/// A queue that has its name as long as this value lives.
struct Named {
    queue: UmsgQueue,
    name: String,
}

impl Named {
    fn make(spec: &Spec) -> Result<Named, Failure> {
        let (queue, file) = crate::backends::umsg::make_with_file(spec)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("/{name}");
        Ok(Named { queue, name })
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = posix::unlink(&self.name);
    }
}

/// Returns the path of the command that was built along with this program.
fn command() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let above = program.ancestors().nth(2).map(|above| above.join("umsg"));
    let mut found = [Some(program.with_file_name("umsg")), above]
        .into_iter()
        .flatten();
    let found = found.find(|path| path.is_file());
    found.ok_or_else(|| Failure::new("the command umsg is not built (cargo build -p umsg-cli)"))
}

/// Returns the additional time of a send and a receive with an observer, in percent, for each pair of windows.
fn windows(
    plan: &Plan,
    queue: &UmsgQueue,
    title: &str,
    observer: &Observer<'_>,
) -> Result<Vec<f64>, Failure> {
    let (pairs, window) = match plan.quick {
        true => (QUICK_PAIRS, QUICK_WINDOW),
        false => (plan.rounds.max(PAIRS), WINDOW),
    };
    let alone = || hammer(queue, window);
    let watched = || {
        let _observer = observer.start(&plan.scratch.path().join("refreshes"))?;
        hammer(queue, window)
    };
    let mut shares = Vec::new();
    for pair in 0..pairs {
        plan.progress_of(title, pair, pairs);
        let (with, without) = if pair.is_multiple_of(2) {
            let with = watched()?;
            (with, alone()?)
        } else {
            let without = alone()?;
            (watched()?, without)
        };
        shares.push(100.0 * (with - without) / without);
    }
    Ok(shares)
}

/// Returns the mean time of a send and a receive, in nanoseconds.
fn hammer(queue: &UmsgQueue, window: Duration) -> Result<f64, Failure> {
    let begin = clock::now();
    let end = begin + window.as_nanos() as u64;
    let mut count = 0_u64;
    loop {
        pairs::pairs(queue, &mut Constant, BLOWS)?;
        count += u64::from(BLOWS);
        let now = clock::now();
        if now >= end {
            return Ok((now - begin) as f64 / count as f64);
        }
    }
}

impl Observer<'_> {
    /// Starts the observer, and returns after its first refresh. The observer ends when the returned value is dropped.
    fn start(&self, output: &Path) -> Result<Child, Failure> {
        let _ = std::fs::remove_file(output);
        let child = match *self {
            Observer::Command(program, cpu) => {
                let program = program.to_owned();
                let output = output.to_owned();
                Child::start(&[cpu], move || {
                    let mut command = Command::new(program);
                    let every = format!("{}ms", EVERY.as_millis());
                    command.args(["top", "--json", "--every", &every]);
                    command.stdin(Stdio::null()).stdout(File::create(output)?);
                    Err(Failure::from(command.exec()))
                })
            }
            Observer::Details(name, cpu) => Child::start(&[cpu], || details(name, output)),
        }?;
        let begin = Instant::now();
        while std::fs::metadata(output).map_or(0, |found| found.len()) == 0 {
            if begin.elapsed() > Duration::from_secs(20) {
                return Err(Failure::new("the observer does not begin"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(child)
    }
}

/// Does the work of the page of details until the process is killed.
fn details(name: &str, output: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{name}: {error}"));
    let namespace = Namespace::resolve().map_err(|error| failed(&error))?;
    let mut options = OpenOptions::new();
    let options = options.read(true).counted(false).namespace(&namespace);
    let queue: Queue = options.open(name).map_err(|error| failed(&error))?;
    let mut due = Instant::now();
    let mut seen: Option<Diagnosis> = None;
    loop {
        let ranks = queue.glance_at_priorities(MOST);
        let glance = queue.glance();
        if Instant::now() >= due {
            let begin = Instant::now();
            let found = posix::diagnose(&namespace, name).map_err(|error| failed(&error))?;
            seen = Some(found);
            due = Instant::now() + (begin.elapsed() * SHARE).max(Duration::from_secs(1));
        }
        let blocked = seen.as_ref().map_or(0, |seen| seen.blocked.len());
        let line = format!("{} {} {blocked}\n", ranks.len(), glance.sent);
        std::fs::write(output, line)?;
        thread::sleep(EVERY);
    }
}

fn row(title: &str, shares: Vec<f64>, has_goal: bool) -> Row {
    let interval = Interval::of(shares);
    let median = Samples(vec![interval.median]);
    let none = Samples(Vec::new());
    let row = Row::compare(SUITE, title, "%", Better::Less, &median, &none);
    let row = row.note(format!("{title}: {}", interval.describe()));
    match has_goal {
        true => row.goal(format!("<= {GOAL} %"), Verdict::of(interval.within(GOAL))),
        false => row,
    }
}
