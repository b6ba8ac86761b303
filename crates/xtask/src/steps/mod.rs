//! A list of commands, run one after another: how long each took, how many tests it ran, and which failed.

mod again;
mod jobs;
mod output;
mod plan;

use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process_group};

pub use self::jobs::{Again, Job};
use self::output::Program;
pub use self::output::{Output, Tests};
use self::plan::Plan;
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::shell;

/// The steps so far. A step that fails is noted, and [`finish`](Self::finish) lists it; the steps after it still run.
pub struct Steps {
    root: PathBuf,
    start: Instant,
    done: Vec<Done>,
    skipped: Vec<String>,
    /// The time that a long step has taken; hidden unless [`show_time`](Self::show_time) is called on a terminal.
    clock: ProgressBar,
    /// The steps to come, for an estimate of the time.
    plan: Option<Plan>,
}

/// A command that runs in parallel with the others, with low priority.
pub struct Beside {
    what: String,
    child: Child,
    output: Option<JoinHandle<io::Result<Printed>>>,
    /// The commands to be printed if the command fails.
    line: String,
    again: again::Command,
}

/// The output of a command that has ended.
#[derive(Default)]
struct Printed {
    bytes: Vec<u8>,
    /// The time that the command took.
    took: Duration,
}

struct Done {
    what: String,
    took: Duration,
    tests: Tests,
    failed: Option<Failed>,
}

struct Failed {
    status: ExitStatus,
    /// The command lines that repeat the failed tests.
    again: Vec<String>,
    /// The last lines that the failed test programs printed.
    report: Vec<String>,
    /// The beginning of the output of each failed test, below the test's name.
    said: Vec<String>,
}

impl Steps {
    /// Creates an empty list; commands to repeat are given from `root`.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            start: Instant::now(),
            done: Vec::new(),
            skipped: Vec::new(),
            clock: ProgressBar::hidden(),
            plan: None,
        }
    }

    /// Makes each of these steps print its number and the estimated time that is left when it begins. The seconds of a step are its
    /// estimate, unless `file` has its time in an earlier run.
    pub fn plan(&mut self, file: PathBuf, steps: &[(&'static str, u64)]) {
        self.plan = Some(Plan::new(file, steps));
    }

    /// Shows from now on how much of the expected time has passed, if standard error is a terminal.
    pub fn show_time(&mut self, expected: Duration) {
        let style = ProgressStyle::with_template("{spinner} {elapsed} of {msg}");
        self.clock = ProgressBar::new_spinner()
            .with_finish(ProgressFinish::AndClear)
            .with_message(seconds(expected))
            .with_style(style.unwrap_or(ProgressStyle::default_spinner()));
        self.clock.enable_steady_tick(Duration::from_secs(1));
    }

    /// Ends the display that [`show_time`](Self::show_time) has begun.
    pub fn hide_time(&mut self) {
        self.clock = ProgressBar::hidden();
    }

    /// Runs a command without which the following steps make no sense. Fails if the command does.
    pub fn need(&mut self, what: &str, command: &mut Command) -> Result<()> {
        self.run(what, command)?;
        match self.done.last() {
            Some(Done {
                failed: Some(_), ..
            }) => self.finish(),
            _ => Ok(()),
        }
    }

    /// Runs a command, and only records its failure. Fails after a signal.
    pub fn run(&mut self, what: &str, command: &mut Command) -> Result<()> {
        let done = self.perform(what, command)?;
        let took = done.took;
        self.note(done, took);
        Ok(())
    }

    /// Runs test programs, `places` at a time, and prints the output of each program when it has ended. `again` is a command of cargo that
    /// repeats a program if the program's options are added.
    pub fn run_jobs(
        &mut self,
        what: &str,
        jobs: Vec<Job>,
        places: usize,
        again: &Command,
    ) -> Result<()> {
        let count = jobs.len();
        self.announce(what, &format!("{count} programs, {places} at a time"));
        let start = Instant::now();
        let mut output = Output::default();
        let mut number = 0;
        let mut failed = None;
        let mut whole = Vec::new();
        jobs::run(jobs, places, |job| {
            number += 1;
            let took = seconds(job.took);
            let computed = match job.computed {
                Some(computed) => format!(" ({} of a processor)", seconds(computed)),
                None => String::new(),
            };
            println!("\n{number} of {count}, {took}{computed}: {}", job.name);
            let printed = String::from_utf8_lossy(&job.output);
            print!("{printed}");
            printed.lines().for_each(|line| output.add(line));
            if job.status.success() {
                return;
            }
            failed.get_or_insert(job.status);
            match job.again {
                Again::Options(options) => {
                    let line = output::failure(&options);
                    println!("{line}\n    {}", job.status);
                    output.add(&line);
                }
                Again::Printed => {}
                Again::Whole => whole.push(shell::line(&job.command)),
            }
        })?;
        let again = again::Command::of(again);
        let took = start.elapsed();
        let is_of_tests = !output.failed.is_empty();
        let mut done = done(what, took, output, failed.unwrap_or_default(), &again)?;
        if let (Some(failed), false) = (&mut done.failed, whole.is_empty()) {
            if !is_of_tests {
                // The jobs' own commands replace the command for all tests.
                failed.again.clear();
            }
            failed.again.extend(whole);
        }
        self.note(done, took);
        Ok(())
    }

    /// Runs a command. If it fails, reports the step as left out, not as failed.
    pub fn try_run(&mut self, what: &str, command: &mut Command, otherwise: &str) -> Result<()> {
        let done = self.perform(what, command)?;
        match done.failed {
            None => {
                let took = done.took;
                self.note(done, took);
            }
            Some(failed) => self.skip(what, &format!("failed ({}); {otherwise}", failed.status)),
        }
        Ok(())
    }

    /// Runs a command, passes its output on, and reads the output.
    fn perform(&self, what: &str, command: &mut Command) -> Result<Done> {
        self.announce(what, &shell::line(command));
        let start = Instant::now();
        let (mut child, printed) = spawn(command)?;
        let mut output = Output::default();
        for line in BufReader::new(printed).split(b'\n') {
            let line = line.context(what)?;
            let line = String::from_utf8_lossy(&line);
            self.clock.suspend(|| println!("{line}"));
            output.add(&line);
        }
        let status = child.wait().context(what)?;
        let again = again::Command::of(command);
        self.clock
            .suspend(|| done(what, start.elapsed(), output, status, &again))
    }

    /// Starts a command in parallel with the following commands; its output is kept for [`end`](Self::end).
    pub fn begin(&mut self, what: &str, command: &mut Command) -> Result<Beside> {
        let line = shell::line(command);
        self.announce(&format!("{what}, beside what follows"), &line);
        let start = Instant::now();
        let (child, mut printed) = spawn(command.process_group(0))?;
        let output = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            printed.read_to_end(&mut bytes)?;
            let took = start.elapsed();
            Ok(Printed { bytes, took })
        });
        Ok(Beside {
            what: what.to_owned(),
            child,
            output: Some(output),
            line,
            again: again::Command::of(command),
        })
    }

    /// Waits for the end of a command that was begun, and notes its failure.
    pub fn end(&mut self, beside: Beside) -> Result<()> {
        self.announce(&beside.what, &beside.line);
        let start = Instant::now();
        let done = self.clock.suspend(|| beside.end())?;
        self.note(done, start.elapsed());
        Ok(())
    }

    /// Records a result. `waited` is the time that the other steps were held up.
    fn note(&mut self, done: Done, waited: Duration) {
        if let (None, Some(plan)) = (&done.failed, &mut self.plan) {
            plan.record(&done.what, waited);
            plan.keep();
        }
        self.done.push(done);
    }

    /// Notes that something was left out, and why.
    pub fn skip(&mut self, what: &str, why: &str) {
        println!("\n==> {what}: skipped: {why}");
        self.skipped.push(format!("{what}: {why}"));
    }

    fn announce(&self, what: &str, line: &str) {
        let elapsed = seconds(self.start.elapsed());
        let progress = self.plan.as_ref().and_then(|plan| plan.progress(what));
        let place = progress.map_or(format!("after {elapsed}"), |at| {
            let left = seconds(at.left);
            format!(
                "{} of {}, after {elapsed}, about {left} left",
                at.step, at.steps
            )
        });
        self.clock
            .suspend(|| println!("\n==> {what} ({place})\n    {line}"));
    }

    /// Prints the completed steps, the failures, and the commands that repeat them. The end has the form of the reports of cargo's test
    /// programs. Fails if a step failed.
    pub fn finish(&self) -> Result<()> {
        self.print_table();
        for skipped in &self.skipped {
            println!("skipped: {skipped}");
        }
        let failed = self.print_failures();
        self.print_result(failed);
        match failed {
            0 => Ok(()),
            _ => Err(Failure::new(format!(
                "{failed} of {} steps failed",
                self.done.len()
            ))),
        }
    }

    fn print_table(&self) {
        let width = self.done.iter().map(|done| done.what.len()).max();
        let width = width.unwrap_or(0).max(4);
        println!("\n{:width$}  {:>7}  {:>6}", "step", "time", "tests");
        for done in &self.done {
            let tests = match done.tests.passed + done.tests.failed {
                0 => String::new(),
                run => run.to_string(),
            };
            let failed = match done.failed {
                None => "",
                Some(_) => "  FAILED",
            };
            let Done { what, took, .. } = done;
            println!("{what:width$}  {:>7}  {tests:>6}{failed}", seconds(*took));
        }
        println!("{:width$}  {:>7}", "all", seconds(self.start.elapsed()));
    }

    /// Returns the number of failed steps.
    fn print_failures(&self) -> usize {
        let failures = self
            .done
            .iter()
            .filter_map(|done| Some((&done.what, done.failed.as_ref()?)));
        let mut count = 0;
        for (what, failed) in failures {
            let Failed {
                status,
                again,
                report,
                said,
            } = failed;
            let root = self.root.display();
            if !report.is_empty() {
                println!("\nthe last lines of {what}:");
                report.iter().for_each(|line| println!("    {line}"));
            }
            println!("\nfailed: {what} ({status}); to repeat it, in {root}:");
            again.iter().for_each(|line| println!("    {line}"));
            // .ci/run repeats this paragraph last.
            if !said.is_empty() {
                println!("\nthe failed tests of {what}:");
                said.iter().for_each(|line| println!("    {line}"));
            }
            count += 1;
        }
        count
    }

    fn print_result(&self, failed_steps: usize) {
        let mut all = Tests::default();
        self.done.iter().for_each(|done| all.add(done.tests));
        if all == Tests::default() {
            return;
        }
        println!(
            "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out; finished in {:.2}s",
            if failed_steps == 0 { "ok" } else { "FAILED" },
            all.passed,
            all.failed,
            all.ignored,
            all.filtered,
            self.start.elapsed().as_secs_f64()
        );
    }
}

/// Starts a command; both of its outputs come out of one pipe, in the order of the writes.
fn spawn(command: &mut Command) -> Result<(Child, PipeReader)> {
    let line = shell::line(command);
    let (reader, writer) = io::pipe().context(&line)?;
    let twin = writer.try_clone().context(&line)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(twin)
        .stderr(writer)
        .spawn();
    // `Command` keeps the write end of the pipe for its next child. Until `Command` drops that end, the reader gets no end of file.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    Ok((child.context(&line)?, reader))
}

/// Returns the record of a command that has ended. Fails after a signal.
fn done(
    what: &str,
    took: Duration,
    output: Output,
    status: ExitStatus,
    again: &again::Command,
) -> Result<Done> {
    let result = if status.success() { "" } else { ", FAILED" };
    println!("<== {what}: {}{result}", seconds(took));
    interrupt::check()?;
    Ok(Done {
        what: what.to_owned(),
        took,
        tests: output.tests,
        failed: (!status.success()).then(|| Failed {
            status,
            again: again.lines(&output.failed),
            said: output.failed.iter().flat_map(Program::said).collect(),
            report: output
                .failed
                .into_iter()
                .flat_map(|program| program.report)
                .collect(),
        }),
    })
}

impl Beside {
    fn end(mut self) -> Result<Done> {
        let printed = self.output.take().and_then(|thread| thread.join().ok());
        let printed = printed.unwrap_or_else(|| Ok(Printed::default()));
        let Printed { bytes, took } = printed.context(&self.what)?;
        let printed = String::from_utf8_lossy(&bytes);
        print!("{printed}");
        let mut output = Output::default();
        printed.lines().for_each(|line| output.add(line));
        let status = self.child.wait().context(&self.what)?;
        done(&self.what, took, output, status, &self.again)
    }
}

impl Drop for Beside {
    /// Ends the command and its children, if another step failed meanwhile.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let group = Pid::from_child(&self.child);
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        short @ 0..60 => format!("{short}.{} s", time.subsec_millis() / 100),
        long => format!("{}m{:02} s", long / 60, long % 60),
    }
}

#[cfg(test)]
mod tests;
