//! A list of commands, run one after another, with what each took and how many tests it ran.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{Context as _, Failure, Result};
use crate::shell;

/// What was done so far.
pub struct Steps {
    root: PathBuf,
    start: Instant,
    done: Vec<Done>,
    skipped: Vec<String>,
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
            return Err(self.failed(what, command, status));
        }
        println!("<== {what}: {}", seconds(took));
        self.done.push(Done {
            what: what.to_owned(),
            took,
            tests,
        });
        Ok(())
    }

    fn failed(&self, what: &str, command: &Command, status: std::process::ExitStatus) -> Failure {
        self.print_table();
        Failure::new(format!(
            "{what} failed ({status}); to repeat it, in {}:\n    {}",
            self.root.display(),
            shell::line(command)
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
}
