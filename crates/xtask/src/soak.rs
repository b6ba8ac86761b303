//! `cargo xtask soak`: random kills and disturbances of processes that use queues, for a given time.
//!
//! The test program `soak` of `crates/umsg/tests` has a module for each API: POSIX, System V and rings. The program prints its figures and fails on
//! any loss, duplicate, disorder, stall, crash or leak.

use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;

use crate::failure::{Context as _, Failure, Result};
use crate::interrupt;
use crate::shell;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// An API of umsg.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Face {
    Posix,
    Sysv,
    Ring,
}

/// The step that builds the test program.
pub const BUILD: &str = "building the soak";

impl Face {
    const ALL: [Face; 3] = [Face::Posix, Face::Sysv, Face::Ring];

    /// Returns the module of the test program for this API.
    pub fn module(self) -> &'static str {
        match self {
            Face::Posix => "posix",
            Face::Sysv => "sysv",
            Face::Ring => "ring",
        }
    }
}

/// The requested duration and seed of a soak.
pub struct Wish {
    seconds: u64,
    seed: Option<u64>,
}

impl Wish {
    pub fn new(minutes: f64, seed: Option<u64>) -> Self {
        // At least a second: the tests take no fractions.
        let seconds = (minutes * 60.0).round().max(1.0) as u64;
        Self { seconds, seed }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn command(&self, workspace: &Workspace, face: Face) -> Command {
        self.command_in(tests(workspace), face)
    }

    /// Returns the command for the soak of an API. `soak` is a command that builds and runs the library's tests.
    pub fn command_in(&self, mut soak: Command, face: Face) -> Command {
        soak.args(["--test", "soak", "--", "--nocapture"]);
        soak.arg(format!("{}::", face.module()));
        soak.env("UMSG_SOAK_SECONDS", self.seconds.to_string());
        if let Some(seed) = self.seed {
            soak.env("UMSG_SOAK_SEED", seed.to_string());
        }
        soak
    }
}

/// Returns the library's tests with optimisation, in a build in which processes die at named points.
pub fn tests(workspace: &Workspace) -> Command {
    workspace.cargo(&[
        "test",
        "-p",
        "umsg",
        "--profile",
        "fast-tests",
        "--features",
        "crash-points",
    ])
}

/// Does the work of `cargo xtask soak`.
pub fn run(workspace: &Workspace, wish: &Wish, face: Option<Face>, json: bool) -> Result<()> {
    interrupt::install();
    if json {
        return run_for_programs(workspace, wish, face);
    }
    let mut steps = Steps::new(workspace.root.clone());
    match face {
        Some(face) => {
            steps.show_time(wish.duration());
            let what = format!("soak, {}", face.module());
            steps.run(&what, &mut wish.command(workspace, face))?;
            steps.hide_time();
        }
        None => beside_each_other(workspace, wish, &mut steps)?,
    }
    steps.finish()
}

/// Runs the soaks of all APIs at the same time, because their processes mostly wait.
pub fn beside_each_other(workspace: &Workspace, wish: &Wish, steps: &mut Steps) -> Result<()> {
    let mut build = tests(workspace);
    build.args(["--no-run", "--test", "soak"]);
    steps.need(BUILD, &mut build)?;
    steps.show_time(wish.duration());
    let [first, others @ ..] = Face::ALL;
    let mut beside = Vec::new();
    for face in others {
        let what = format!("soak, {}", face.module());
        beside.push(steps.begin(&what, &mut wish.command(workspace, face))?);
    }
    let what = format!("soak, {}", first.module());
    steps.run(&what, &mut wish.command(workspace, first))?;
    let ended = beside.into_iter().try_for_each(|beside| steps.end(beside));
    steps.hide_time();
    ended
}

/// Prints only the figures of the soaks. The figures of an API are printed when its test program has ended.
fn run_for_programs(workspace: &Workspace, wish: &Wish, face: Option<Face>) -> Result<()> {
    for face in Face::ALL
        .into_iter()
        .filter(|one| face.is_none_or(|face| face == *one))
    {
        let mut command = wish.command(workspace, face);
        command.env("UMSG_SOAK_JSON", "1").stderr(Stdio::inherit());
        let output = command
            .stdin(Stdio::null())
            .output()
            .context(shell::line(&command))?;
        let text = String::from_utf8_lossy(&output.stdout);
        figures(&text).for_each(|line| println!("{line}"));
        if !output.status.success() {
            return Err(Failure::new(format!(
                "soak, {}: failed ({})",
                face.module(),
                output.status
            )));
        }
    }
    Ok(())
}

/// Returns the figures in the output of a test program; the harness may have begun the line.
fn figures(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let begin = line.find("{\"soak\":")?;
        let end = line.rfind('}')?;
        line.get(begin..=end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_a_test_program_prints() {
        let text =
            "running 1 test\ntest a ... {\"soak\":\"rings\",\"kills\":3}\nok\ntest result: ok.";
        assert_eq!(
            figures(text).collect::<Vec<_>>(),
            ["{\"soak\":\"rings\",\"kills\":3}"]
        );
        assert_eq!(figures("no figures").count(), 0);
    }

    #[test]
    fn minutes_are_asked_for_in_whole_seconds() {
        assert_eq!(Wish::new(1.5, None).seconds, 90);
        assert_eq!(Wish::new(0.0, None).seconds, 1);
    }
}
