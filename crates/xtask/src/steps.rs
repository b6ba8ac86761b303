//! A list of commands, run one after another, with what each took and how many tests it ran.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::{Context as _, Failure, Result};
use crate::shell;

/// What was done so far.
pub struct Steps {
    root: PathBuf,
    start: Instant,
    done: Vec<Done>,
    skipped: Vec<String>,
}

/// A command that runs beside the others, as they leave it time.
pub struct Beside {
    what: String,
    line: String,
    start: Instant,
    child: Child,
    output: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

struct Done {
    what: String,
    took: Duration,
    tests: Tests,
}

impl Steps {
    /// An empty list; commands to repeat are given from `root`.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            start: Instant::now(),
            done: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Runs a command, passes on what it prints, and counts the tests in it.
    pub fn run(&mut self, what: &str, command: &mut Command) -> Result<()> {
        println!("\n==> {what}\n    {}", shell::line(command));
        let start = Instant::now();
        let mut tests = Tests::default();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context(shell::line(command))?;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line.context(what)?;
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                tests.add(Tests::of_line(&line));
            }
        }
        let status = child.wait().context(what)?;
        let took = start.elapsed();
        if !status.success() {
            return Err(self.failed(what, &shell::line(command), status));
        }
        println!("<== {what}: {}", seconds(took));
        self.done.push(Done {
            what: what.to_owned(),
            took,
            tests,
        });
        Ok(())
    }

    /// Begins to run a command beside those that follow; what it prints is kept for [`end`](Self::end).
    pub fn begin(&mut self, what: &str, command: &mut Command) -> Result<Beside> {
        let line = shell::line(command);
        println!("\n==> {what}, beside what follows\n    {line}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context(&line)?;
        let output = child.stdout.take().map(|mut stdout| {
            std::thread::spawn(move || {
                let mut output = Vec::new();
                stdout.read_to_end(&mut output).map(|_| output)
            })
        });
        Ok(Beside {
            what: what.to_owned(),
            line,
            start: Instant::now(),
            child,
            output,
        })
    }

    /// Waits for the end of a command that was begun.
    pub fn end(&mut self, mut beside: Beside) -> Result<()> {
        let what = beside.what.clone();
        println!("\n==> {what}\n    {}", beside.line);
        let output = beside.output.take().and_then(|output| output.join().ok());
        let output = output.unwrap_or_else(|| Ok(Vec::new())).context(&what)?;
        let output = String::from_utf8_lossy(&output);
        print!("{output}");
        let status = beside.child.wait().context(&what)?;
        if !status.success() {
            return Err(self.failed(&what, &beside.line, status));
        }
        let mut tests = Tests::default();
        output
            .lines()
            .for_each(|line| tests.add(Tests::of_line(line)));
        let took = beside.start.elapsed();
        println!("<== {what}: {}", seconds(took));
        self.done.push(Done { what, took, tests });
        Ok(())
    }

    fn failed(&self, what: &str, line: &str, status: std::process::ExitStatus) -> Failure {
        self.print_table();
        Failure::new(format!(
            "{what} failed ({status}); to repeat it, in {}:\n    {line}",
            self.root.display(),
        ))
    }

    /// Notes that something was left out, and why.
    pub fn skip(&mut self, what: &str, why: &str) {
        println!("\n==> {what}: skipped: {why}");
        self.skipped.push(format!("{what}: {why}"));
    }

    /// What was done, in the end in the form in which cargo's test programs report.
    pub fn finish(&self) {
        self.print_table();
        for skipped in &self.skipped {
            println!("skipped: {skipped}");
        }
        let all = self.done.iter().fold(Tests::default(), |mut all, done| {
            all.add(done.tests);
            all
        });
        println!(
            "\ntest result: ok. {} passed; {} failed; {} ignored; 0 measured; {} filtered out; finished in {:.2}s",
            all.passed,
            all.failed,
            all.ignored,
            all.filtered,
            self.start.elapsed().as_secs_f64()
        );
    }

    fn print_table(&self) {
        let width = self.done.iter().map(|done| done.what.len()).max();
        let width = width.unwrap_or(0).max(4);
        println!("\n{:width$}  {:>7}  {:>6}", "step", "time", "tests");
        for Done { what, took, tests } in &self.done {
            let tests = match tests.passed {
                0 => String::new(),
                passed => passed.to_string(),
            };
            println!("{what:width$}  {:>7}  {tests:>6}", seconds(*took));
        }
        println!("{:width$}  {:>7}", "all", seconds(self.start.elapsed()));
    }
}

impl Drop for Beside {
    /// Ends it, if something else failed meanwhile, and what it has started.
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

/// How many tests a test program ran.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
struct Tests {
    passed: u64,
    failed: u64,
    ignored: u64,
    filtered: u64,
}

impl Tests {
    /// The counts in the last line of a test program: "test result: ok. 3 passed; 0 failed; ...". None in any other.
    fn of_line(line: &str) -> Self {
        let mut tests = Self::default();
        let Some(counts) = line.strip_prefix("test result: ") else {
            return tests;
        };
        let counts = counts.trim_start_matches(|c: char| !c.is_ascii_digit());
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            match what {
                "passed" => tests.passed = number,
                "failed" => tests.failed = number,
                "ignored" => tests.ignored = number,
                "filtered out" => tests.filtered = number,
                _ => {}
            }
        }
        tests
    }

    fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
        self.filtered += more.filtered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_from_the_last_line_of_a_test_program() {
        let line = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 4 filtered out; finished in 0.01s";
        let counted = Tests::of_line(line);
        let expected = Tests {
            passed: 12,
            failed: 0,
            ignored: 3,
            filtered: 4,
        };
        assert_eq!(counted, expected);
        assert_eq!(Tests::of_line("running 12 tests"), Tests::default());
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_runs_beside_the_others_is_counted_when_it_has_ended() {
        let mut steps = Steps::new(PathBuf::new());
        let line = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let beside = steps.begin("beside", &mut shell(&format!("echo '{line}'")));
        steps.end(beside.unwrap()).unwrap();
        assert_eq!(steps.done[0].tests.passed, 3);
        let fails = steps.begin("fails", &mut shell("exit 7")).unwrap();
        assert!(steps.end(fails).is_err());
    }

    #[test]
    fn what_runs_beside_a_step_that_fails_is_ended_with_all_that_it_started() {
        let mut steps = Steps::new(PathBuf::new());
        let mut long = steps
            .begin("long", &mut shell("sleep 600 & sleep 600"))
            .unwrap();
        let output = long.output.take().unwrap();
        let start = Instant::now();
        drop(long);
        // All that could write are gone.
        output.join().unwrap().unwrap();
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
