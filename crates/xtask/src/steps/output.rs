//! The results of a step's tests, read from its output.

use std::collections::VecDeque;

/// Counts and failures, gathered line by line.
#[derive(Default)]
pub struct Output {
    pub tests: Tests,
    /// The failed test programs, by the names that cargo prints.
    pub failed: Vec<Program>,
    /// The list of names that the current test program prints last, below "failures:".
    names: Vec<String>,
    in_list: bool,
    /// The outputs of failed tests that the current test program prints above the list, below another "failures:".
    said: Vec<Said>,
    in_outputs: bool,
    /// The latest lines, at most [`REPORT`].
    latest: VecDeque<String>,
}

/// The number of output lines that are repeated for a test program that failed.
const REPORT: usize = 60;
/// The number of lines of a failed test's own output that are repeated.
const SAID: usize = 6;

/// A program of tests that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// The options of `cargo test` that select the program.
    pub options: String,
    /// The failed tests of the program; none if the program ended before it named them.
    pub tests: Vec<String>,
    /// The output of each failed test.
    pub said: Vec<Said>,
    /// The last lines of the program's output.
    pub report: Vec<String>,
}

/// The beginning of the output of a failed test.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub test: String,
    /// At most [`SAID`] lines.
    pub lines: Vec<String>,
}

/// Numbers of tests.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tests {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
    pub filtered: u64,
}

impl Output {
    /// Reads one more line.
    pub fn add(&mut self, line: &str) {
        self.tests.add(Tests::of_line(line));
        // A test program prints "failures:" twice: above the output of the failed tests, and above their names.
        if line == "failures:" {
            self.names.clear();
            self.in_outputs = !self.in_list;
            self.in_list = true;
        } else if line.starts_with("test result: ") {
            self.in_list = false;
            self.in_outputs = false;
        } else if let Some(options) = options_to_repeat(line) {
            self.failed.push(Program {
                options: options.to_owned(),
                tests: std::mem::take(&mut self.names),
                said: std::mem::take(&mut self.said),
                report: self.latest.drain(..).collect(),
            });
        } else if let Some(test) = failed_test(line).filter(|_| self.in_outputs) {
            self.said.push(Said {
                test: test.to_owned(),
                lines: Vec::new(),
            });
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.in_list) {
            self.names.push(name.to_owned());
        }
        if let Some(said) = self.said.last_mut().filter(|_| self.in_outputs) {
            said.add(line);
        }
        if is_of_success(line) {
            return;
        }
        if self.latest.len() == REPORT {
            self.latest.pop_front();
        }
        self.latest.push_back(line.to_owned());
    }
}

impl Program {
    /// Returns the name of each failed test and, below it, the beginning of the test's own output.
    pub fn said(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for test in &self.tests {
            lines.push(format!("{}: {test}", self.options));
            let said = self.said.iter().filter(|said| said.test == *test);
            lines.extend(said.flat_map(|said| said.lines.iter().map(|line| format!("    {line}"))));
        }
        lines
    }
}

impl Said {
    fn add(&mut self, line: &str) {
        if self.lines.len() < SAID && !line.is_empty() && failed_test(line).is_none() {
            self.lines.push(line.to_owned());
        }
    }
}

/// Returns the name of the test whose output begins: "---- a_test stdout ----".
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Returns whether a line reports success, so that a report on failures can omit it.
fn is_of_success(line: &str) -> bool {
    line.is_empty() || line.ends_with(" ... ok") || line.starts_with("test result: ok")
}

/// Returns the line that cargo prints after a program that failed, with the options that select it.
pub fn failure(options: &str) -> String {
    format!("error: test failed, to rerun pass `{options}`")
}

/// Returns the options that cargo prints after a program that failed: "error: test failed, to rerun pass `-p umsg --test ring`".
fn options_to_repeat(line: &str) -> Option<&str> {
    let (_, options) = line.split_once("test failed, to rerun pass `")?;
    options.split_once('`').map(|(options, _)| options)
}

impl Tests {
    /// Returns the counts in the last line of a test program, such as "test result: ok. 3 passed; 0 failed; ...". Any other line has counts of zero.
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

    pub fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
        self.filtered += more.filtered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Output {
        let mut output = Output::default();
        text.lines().for_each(|line| output.add(line));
        output
    }

    #[test]
    fn tests_are_counted_from_the_last_line_of_a_test_program() {
        let line = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 4 filtered out; finished in 0.01s";
        let expected = Tests {
            passed: 12,
            failed: 0,
            ignored: 3,
            filtered: 4,
        };
        assert_eq!(read(line).tests, expected);
        assert_eq!(read("running 12 tests").tests, Tests::default());
    }

    #[test]
    fn failed_tests_are_named_with_their_program() {
        let output = read(
            "\
failures:

---- a_test stdout ----
    left: 1
failures:
    a_test
    another_test

test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

error: test failed, to rerun pass `-p umsg-cli --test gc`
     Running tests/run.rs (target/debug/deps/run-0)
error: test failed, to rerun pass `-p umsg-cli --test run`

Caused by:
  process didn't exit successfully: `run-0` (signal: 6, SIGABRT: process abort signal)
    not_a_test
",
        );
        let said: Vec<_> = output.failed.iter().flat_map(Program::said).collect();
        let expected = [
            "-p umsg-cli --test gc: a_test",
            "        left: 1",
            "-p umsg-cli --test gc: another_test",
        ];
        assert_eq!(said, expected);
        let failed: Vec<_> = output
            .failed
            .iter()
            .map(|program| (program.options.as_str(), program.tests.join(" ")))
            .collect();
        let expected = [
            ("-p umsg-cli --test gc", "a_test another_test".to_owned()),
            ("-p umsg-cli --test run", String::new()),
        ];
        assert_eq!(failed, expected);
        assert_eq!(output.tests.failed, 2);
    }

    #[test]
    fn the_report_of_a_failed_program_has_its_last_lines() {
        let passed = "test passed ... ok\n";
        let many: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let error = "error: test failed, to rerun pass `-p umsg --lib`\n";
        let output = read(&format!("{many}{passed}{error}the next\n{error}"));
        let reports: Vec<_> = output
            .failed
            .iter()
            .map(|program| {
                (
                    program.report.len(),
                    program.report.last().unwrap().as_str(),
                )
            })
            .collect();
        assert_eq!(reports, [(REPORT, "line 99"), (2, "the next")]);
    }
}
