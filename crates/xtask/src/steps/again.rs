//! Command lines that repeat only the failed tests.

use std::ffi::OsString;
use std::process;

use super::output::Program;
use crate::shell;

/// Options of cargo that select packages or programs of tests: those with an argument, and those without.
const SELECT_ONE: [&str; 4] = ["-p", "--exclude", "--test", "--bench"];
const SELECT_ALL: [&str; 4] = ["--workspace", "--lib", "--doc", "--no-fail-fast"];

/// A command, without the destination of its output.
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, Option<OsString>)>,
}

impl Command {
    pub fn of(command: &process::Command) -> Self {
        let owned = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| {
            (name.to_owned(), value.map(ToOwned::to_owned))
        };
        Self {
            program: command.get_program().to_owned(),
            arguments: command.get_args().map(ToOwned::to_owned).collect(),
            variables: command.get_envs().map(owned).collect(),
        }
    }

    /// Returns a line for each program of tests that failed. Returns the whole command if `failed` is empty.
    pub fn lines(&self, failed: &[Program]) -> Vec<String> {
        match failed {
            [] => vec![self.line(self.arguments.clone())],
            failed => failed.iter().map(|one| self.one(one)).collect(),
        }
    }

    /// Returns the command for one test program, and for its failed tests only.
    fn one(&self, failed: &Program) -> String {
        let mut parts = self.arguments.splitn(2, |argument| argument == "--");
        let mut arguments = unselected(parts.next().unwrap_or_default());
        arguments.extend(failed.options.split_whitespace().map(OsString::from));
        let filters = parts.next().unwrap_or_default();
        let is_flag = |word: &&OsString| word.as_encoded_bytes().starts_with(b"--");
        let kept: Vec<OsString> = match failed.tests.is_empty() {
            true => filters.to_vec(),
            false => filters.iter().filter(is_flag).cloned().collect(),
        };
        if !failed.tests.is_empty() || !kept.is_empty() {
            arguments.push("--".into());
        }
        if !failed.tests.is_empty() {
            arguments.push("--exact".into());
        }
        arguments.extend(failed.tests.iter().map(OsString::from));
        arguments.extend(kept);
        self.line(arguments)
    }

    fn line(&self, arguments: Vec<OsString>) -> String {
        let mut command = process::Command::new(&self.program);
        command.args(arguments);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        shell::line(&command)
    }
}

/// Returns cargo's arguments without those that select packages or programs.
fn unselected(arguments: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if SELECT_ONE.iter().any(|option| argument == option) {
            arguments.next();
        } else if !SELECT_ALL.iter().any(|option| argument == option) {
            kept.push(argument.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tests_that_failed_are_repeated() {
        let mut command = process::Command::new("cargo");
        command
            .args(["test", "--workspace", "--exclude", "umsg", "--release"])
            .args(["--no-fail-fast", "--", "model", "--nocapture"])
            .env("UMSG_C_PREFIX", "/tmp/c");
        let program = |options: &str, tests: &[&str]| Program {
            options: options.to_owned(),
            tests: tests.iter().map(|name| name.to_string()).collect(),
            said: Vec::new(),
            report: Vec::new(),
        };
        let failed = [
            program("-p umsg-cli --test gc", &["one", "two"]),
            program("-p umsg-c --test programs", &[]),
        ];
        assert_eq!(
            Command::of(&command).lines(&failed),
            [
                "UMSG_C_PREFIX=/tmp/c cargo test --release -p umsg-cli --test gc -- --exact one two --nocapture",
                "UMSG_C_PREFIX=/tmp/c cargo test --release -p umsg-c --test programs -- model --nocapture",
            ]
        );
    }

    #[test]
    fn a_command_without_tests_is_repeated_as_it_is() {
        let mut command = process::Command::new("compare");
        command.args(["--ops", "10"]);
        assert_eq!(Command::of(&command).lines(&[]), ["compare --ops 10"]);
    }
}
