//! Measures how much `umsg top` slows down a queue that it watches.
//!
//! One process sends and receives without a pause, with a thousand messages in the queue. The command refreshes its figures of this queue and 99
//! other queues ten times a second, on another core. A second row measures the work of the page of details: the priorities of the messages at each
//! refresh, and diagnoses, which copy the queue. In a third row, the command runs on the core of the queue's process, and takes time from that
//! process.
//!
//! Signals stop and continue the observer. Phases with and without the observer alternate: with, without, without, with, and in the next group the
//! other way round. So a slow change of the machine's speed cancels out in each group of four phases. The result is the median of the groups. An
//! observer that was stopped for longer than its interval refreshes as soon as it continues. A phase is a bit shorter than the interval, so it has
//! one refresh. The command refreshes twenty times a second in its phases, as often as it can. Half of the measured cost is reported, and with it
//! half of the noise.
//!
//! The measured time is the CPU time of the process that sends and receives, because other programs on the machine hardly change this time. If the
//! observer runs on the same core, its own CPU time is part of the cost.

use std::fs::File;
use std::io::Write;
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

/// The goal: the maximum slowdown of the process that sends and receives, in percent.
const GOAL: f64 = 1.0;
/// The number of refreshes a second for which the cost is reported.
const RATE: f64 = 10.0;
/// The number of queues beside the heavily used queue.
const OTHERS: u32 = 99;
/// The number of messages in the heavily used queue.
const DEPTH: u32 = 1000;
/// The time for which a row is measured.
const ROW: Duration = Duration::from_secs(42);
const QUICK_ROW: Duration = Duration::from_secs(3);
/// The unmeasured time before each phase. In this time, the caches recover from the previous phase.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of operations between two readings of the clock.
const BLOWS: u32 = 64;
/// As in `umsg top`: the maximum number of messages whose priorities are counted, and the inverse of the share of the time that diagnoses take.
const MOST: usize = 10_000;
const SHARE: u32 = 20;

/// The process that observes the queue.
enum Observer<'a> {
    /// `umsg top`, on the processor with this index.
    Command(&'a Path, usize),
    /// The work of the page of details of a queue, on the processor with this index.
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
        let is_beside = observer.cpu() != first;
        let cost = measure(plan, &hammered.queue, title, (observer, is_beside))?;
        Ok::<Row, Failure>(row(title, cost, has_goal))
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

/// A queue whose name is removed when this value is dropped.
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

/// The cost of an observer.
struct Cost {
    /// The additional time of a send and a receive at [`RATE`], in percent, for each group of phases.
    shares: Vec<f64>,
    /// The number of refreshes a second in the phases with the observer.
    rate: f64,
}

/// Measures the cost of an observer. `is_beside` is true for an observer on another core. On the same core, the observer's own CPU time is part of
/// the cost.
fn measure(
    plan: &Plan,
    queue: &UmsgQueue,
    title: &str,
    (observer, is_beside): (&Observer<'_>, bool),
) -> Result<Cost, Failure> {
    let row = if plan.quick { QUICK_ROW } else { ROW };
    // In a phase of this length, the observer refreshes once: its next refresh is due after the end of the phase.
    let phase = observer.every() * 19 / 20;
    let groups = row.div_duration_f64(4 * (phase + PAUSE)).ceil() as u32;
    let output = plan.scratch.path().join("refreshes");
    let observer = observer.start(&output)?;
    observer.pause();
    let before = refreshes(&output)?;
    let (mut shares, mut time) = (Vec::new(), 0);
    for group in 0..groups {
        plan.progress_of(title, group, groups);
        let is_first = group.is_multiple_of(2);
        let (mut with, mut without) = (Phases::default(), Phases::default());
        for is_watched in [is_first, !is_first, !is_first, is_first] {
            // Both kinds of phases begin after a signal. In a watched phase, the signal makes the observer start its work, so the measurement begins
            // with the signal.
            if !is_watched {
                observer.pause();
            }
            Phases::default().add(queue, PAUSE)?;
            if is_watched {
                let begin = clock::cpu_of(observer.id());
                observer.resume();
                with.add(queue, phase)?;
                observer.pause();
                with.observer += clock::cpu_of(observer.id()) - begin;
            } else {
                without.add(queue, phase)?;
            }
        }
        time += with.time;
        let own = match is_beside {
            true => 0.0,
            false => with.observer as f64 / with.time as f64,
        };
        let slower = with.each() / without.each() - 1.0;
        shares.push(100.0 * (slower + own));
    }
    let seen = refreshes(&output)? - before;
    if seen == 0 {
        return Err(Failure::new(format!(
            "{title}: the observing process ended early"
        )));
    }
    let rate = seen as f64 / Duration::from_nanos(time).as_secs_f64();
    shares.iter_mut().for_each(|share| *share *= RATE / rate);
    Ok(Cost { shares, rate })
}

/// The work in phases of one kind. All times are in nanoseconds.
#[derive(Default)]
struct Phases {
    /// The elapsed time.
    time: u64,
    /// The CPU time of the process that sends and receives.
    cpu: u64,
    /// The CPU time of the observer.
    observer: u64,
    /// The number of sends and receives.
    count: u64,
}

impl Phases {
    /// Sends and receives for the time `length`.
    fn add(&mut self, queue: &UmsgQueue, length: Duration) -> Result<(), Failure> {
        let (begin, cpu) = (clock::now(), clock::thread_cpu());
        let end = begin + length.as_nanos() as u64;
        loop {
            pairs::pairs(queue, &mut Constant, BLOWS)?;
            self.count += u64::from(BLOWS);
            let now = clock::now();
            if now >= end {
                self.time += now - begin;
                self.cpu += clock::thread_cpu() - cpu;
                return Ok(());
            }
        }
    }

    /// Returns the CPU time of a send and a receive.
    fn each(&self) -> f64 {
        self.cpu as f64 / self.count as f64
    }
}

/// Returns the number of refreshes of an observer. The observer writes a line for each refresh.
fn refreshes(output: &Path) -> Result<usize, Failure> {
    let lines = std::fs::read(output)?;
    Ok(lines.iter().filter(|byte| **byte == b'\n').count())
}

impl Observer<'_> {
    /// The time between two refreshes. The command refreshes at twice the reported rate, so half of its cost is reported. The details are refreshed
    /// at the reported rate, and their whole cost is reported: a part of them, the diagnoses, has its own interval.
    fn every(&self) -> Duration {
        Duration::from_millis(match self {
            Observer::Command(..) => 50,
            Observer::Details(..) => 100,
        })
    }

    fn cpu(&self) -> usize {
        match *self {
            Observer::Command(_, cpu) | Observer::Details(_, cpu) => cpu,
        }
    }

    /// Starts the observer, and returns after its first refresh. The observer ends when the returned value is dropped.
    fn start(&self, output: &Path) -> Result<Child, Failure> {
        let _ = std::fs::remove_file(output);
        let every = self.every();
        let child = match *self {
            Observer::Command(program, cpu) => {
                let program = program.to_owned();
                let output = output.to_owned();
                Child::start(&[cpu], move || {
                    let mut command = Command::new(program);
                    let every = format!("{}ms", every.as_millis());
                    command.args(["top", "--json", "--every", &every]);
                    command.stdin(Stdio::null()).stdout(File::create(output)?);
                    Err(Failure::from(command.exec()))
                })
            }
            Observer::Details(name, cpu) => Child::start(&[cpu], || details(name, every, output)),
        }?;
        let begin = Instant::now();
        while std::fs::metadata(output).map_or(0, |found| found.len()) == 0 {
            if begin.elapsed() > Duration::from_secs(20) {
                return Err(Failure::new("the observing process did not start"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(child)
    }
}

/// Does the work of the page of details until the process is killed.
fn details(name: &str, every: Duration, output: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{name}: {error}"));
    let namespace = Namespace::resolve().map_err(|error| failed(&error))?;
    let mut options = OpenOptions::new();
    let options = options.read(true).counted(false).namespace(&namespace);
    let queue: Queue = options.open(name).map_err(|error| failed(&error))?;
    let mut output = File::create(output)?;
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
        output.write_all(line.as_bytes())?;
        thread::sleep(every);
    }
}

fn row(title: &str, Cost { shares, rate }: Cost, has_goal: bool) -> Row {
    let interval = Interval::of(shares);
    let median = Samples(vec![interval.median]);
    let none = Samples(Vec::new());
    let row = Row::compare(SUITE, title, "%", Better::Less, &median, &none);
    let row = row.note(format!(
        "{title}: {}, measured at {rate:.0} refreshes a second",
        interval.describe()
    ));
    match has_goal {
        true => row.goal(format!("<= {GOAL} %"), Verdict::of(interval.within(GOAL))),
        false => row,
    }
}
