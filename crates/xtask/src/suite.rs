//! The tests of all crates: built by one command, and run as programs in parallel.
//!
//! cargo builds a crate again for each set of features, and the features of a dependency depend on the crates that a command names. One
//! command for everything builds each crate once. cargo runs test programs one after another, and most of them wait most of the time.

use std::ffi::OsString;
use std::process::Command;

use crate::built::{self, TestProgram};
use crate::failure::{Failure, Result};
use crate::steps::{Again, Job};
use crate::workspace::Workspace;

/// The features of the library for its tests: processes that die at named points, tokio, and events of tracing.
pub const FEATURES: [&str; 4] = [
    "umsg/crash-points",
    "umsg/tokio",
    "umsg/tracing",
    "umsg-cli/crash-points",
];

/// The group of the jobs that use the kernel's POSIX queues, whose memory is limited for all processes of a user together (RLIMIT_MSGQUEUE).
pub const KERNEL: &str = "the kernel's POSIX queues";
/// The group of the jobs that use the kernel's System V queues, which all processes see.
pub const KERNEL_SYSV: &str = "the kernel's System V queues";

const GROUPS: [(&str, &str); 16] = [
    ("umsg-bench/", KERNEL),
    ("umsg-cli/relay_sysv", KERNEL_SYSV),
    ("umsg-cli/relay", KERNEL),
    ("umsg-cli/sysv", KERNEL_SYSV),
    ("umsg-conformance/comparison", KERNEL),
    ("umsg-conformance/kernel", KERNEL),
    ("umsg-conformance/lives", KERNEL),
    ("umsg-conformance/programs_sysv", KERNEL_SYSV),
    ("umsg-conformance/programs", KERNEL),
    ("umsg-conformance/sysv_comparison", KERNEL_SYSV),
    ("umsg-conformance/sysv_kernel", KERNEL_SYSV),
    ("umsg-preload/by_number", KERNEL_SYSV),
    ("umsg-preload/recycle", KERNEL_SYSV),
    ("umsg-preload/sysv", KERNEL_SYSV),
    ("umsg-preload/unit", ""),
    ("umsg-preload/", KERNEL),
];

/// The programs that take longest, which begin first. The programs of a group, of which only one runs at a time, begin next.
const LONGEST: [&str; 9] = [
    "umsg-cli/adversary",
    "umsg-conformance/comparison",
    "umsg-conformance/sysv_comparison",
    "umsg/hostile",
    "umsg/crash_points",
    "umsg-conformance/programs",
    "umsg/sandbox",
    "umsg/consent",
    DOCUMENTATION,
];

/// The name of the job for the examples in the documentation, which one program of cargo compiles and runs.
const DOCUMENTATION: &str = "documentation";

/// The tests, and the variables and arguments with which each program runs.
pub struct Suite<'a> {
    workspace: &'a Workspace,
    /// The crates that are neither built nor tested.
    left_out: Vec<&'static str>,
    variables: Vec<(&'static str, OsString)>,
    arguments: Vec<String>,
}

impl<'a> Suite<'a> {
    /// Prepares all tests of all crates.
    pub fn new(workspace: &'a Workspace) -> Self {
        Self {
            workspace,
            left_out: Vec::new(),
            variables: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Leaves out a crate on which no other depends.
    pub fn leave_out(&mut self, crate_name: &'static str) {
        self.left_out.push(crate_name);
    }

    /// Sets a variable for all programs.
    pub fn env(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.variables.push((name, value.into()));
    }

    /// Leaves out the tests whose names contain this text.
    pub fn skip(&mut self, test: &str) {
        self.arguments.push(format!("--skip={test}"));
    }

    /// Returns the command that builds all test programs, all programs and libraries, and the examples.
    pub fn build(&self) -> Command {
        let mut build = self.cargo("build");
        build.args(["--lib", "--bins", "--tests", "--examples"]);
        build
    }

    /// Returns the command that repeats a program with the options that select it.
    pub fn again(&self) -> Command {
        let mut again = self.workspace.cargo(&["test"]);
        again.envs(self.variables.iter().cloned());
        again.arg("--").args(&self.arguments);
        again
    }

    /// Returns a job for each program that [`build`](Self::build) has built, the longest first.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        let messages = built::messages(&mut self.build())?;
        let programs = messages.iter().filter_map(TestProgram::of);
        let mut jobs: Vec<Job> = programs.map(|program| self.job(&program)).collect();
        jobs.push(self.documentation());
        let place = |name: &str| LONGEST.iter().position(|long| *long == name);
        if let Some(gone) = LONGEST
            .iter()
            .find(|long| jobs.iter().all(|job| job.name != **long))
        {
            return Err(Failure::new(format!("{gone} is not a test program")));
        }
        jobs.sort_by_key(|job| {
            let place = place(&job.name).unwrap_or(LONGEST.len());
            (place, job.group.is_none(), job.name.clone())
        });
        Ok(jobs)
    }

    /// Returns the job that runs a program in the environment in which cargo runs it.
    fn job(&self, program: &TestProgram) -> Job {
        let mut command = Command::new(&program.executable);
        command
            .current_dir(&program.directory)
            .env("CARGO_MANIFEST_DIR", &program.directory)
            .envs(self.variables.iter().cloned())
            .args(&self.arguments);
        let features = match program.of.as_str() {
            "umsg-shm" => " --features crash-points",
            "umsg" => " --features crash-points,tokio,tracing",
            "umsg-cli" => " --features crash-points",
            _ => "",
        };
        let name = program.name();
        Job {
            group: group(&name),
            name,
            command,
            again: Again::Options(format!("{}{features}", program.options)),
        }
    }

    /// Returns the job that compiles and runs the examples in the documentation.
    fn documentation(&self) -> Job {
        let mut command = self.cargo("test");
        command
            .args(["--doc", "--no-fail-fast"])
            .envs(self.variables.iter().cloned());
        command.arg("--").args(&self.arguments);
        Job {
            name: DOCUMENTATION.into(),
            command,
            again: Again::Printed,
            group: None,
        }
    }

    /// Returns a command of cargo for all crates, always with the same features.
    fn cargo(&self, task: &str) -> Command {
        let mut cargo = self.workspace.cargo(&[task, "--workspace"]);
        // The bridge has its own step in .ci/run, so a test run of the library builds no client of NATS.
        cargo.args(["--exclude", "umsg-bridge"]);
        for name in &self.left_out {
            cargo.args(["--exclude", name]);
        }
        cargo.arg("--features").arg(FEATURES.join(","));
        cargo
    }
}

fn group(name: &str) -> Option<&'static str> {
    let is_meant = |part: &str| name == part || (part.ends_with('/') && name.starts_with(part));
    let (_, group) = GROUPS.iter().find(|(part, _)| is_meant(part))?;
    Some(*group).filter(|group| !group.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_on_the_kernels_queues_are_in_a_group() {
        assert_eq!(group("umsg-conformance/kernel"), Some(KERNEL));
        assert_eq!(group("umsg-conformance/native"), None);
        assert_eq!(group("umsg-preload/sysv"), Some(KERNEL_SYSV));
        assert_eq!(group("umsg-preload/poll"), Some(KERNEL));
        assert_eq!(group("umsg-preload/unit"), None);
        assert_eq!(group("umsg/ring"), None);
    }

    #[test]
    fn a_program_is_repeated_with_the_features_that_it_was_built_with() {
        let workspace = Workspace::find().unwrap();
        let mut suite = Suite::new(&workspace);
        suite.skip("long");
        let program = TestProgram {
            directory: "/w/crates/umsg".into(),
            of: "umsg".into(),
            file: Some("ring".into()),
            options: "-p umsg --test ring".into(),
            executable: "/w/target/debug/deps/ring-0".into(),
        };
        let job = suite.job(&program);
        assert_eq!(job.name, "umsg/ring");
        let options = "-p umsg --test ring --features crash-points,tokio,tracing";
        assert!(matches!(&job.again, Again::Options(all) if all == options));
        assert_eq!(job.command.get_args().collect::<Vec<_>>(), ["--skip=long"]);
    }
}
