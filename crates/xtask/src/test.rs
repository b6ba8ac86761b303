//! `cargo xtask test`: all tests, in steps.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Result;
use crate::interrupt;
use crate::miri;
use crate::programs;
use crate::soak;
use crate::steps::{Again, Job, Steps};
use crate::suite::{self, Suite};
use crate::workspace::Workspace;

/// The default number of random operations that are compared with the kernel.
pub const OPERATIONS: u64 = 100_000;
const DROP_IN: &str = "libumsg_preload.so";
/// The time of the soak of each API, in minutes: all soaks run at the same time.
const SOAK_MINUTES: f64 = 0.5;

/// The extent of the tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All tests of all crates, and a short comparison, within a few minutes.
    Default,
    /// The default, and all tests that take long: models, soaks, Miri, the whole comparison, and times in a release build.
    Full,
}

/// The steps of the default, with the seconds that each takes on two cores, from an empty target directory.
const DEFAULT: [(&str, u64); 3] = [(BUILD, 110), (INSTALL, 2), (TESTS, 160)];
/// The steps of `--full`. The models run in parallel with other steps.
const FULL: [(&str, u64); 9] = [
    (BUILD_RELEASE, 120),
    (BUILD, 130),
    (INSTALL, 2),
    (TESTS, 350),
    (soak::BUILD, 30),
    ("soak, posix", 35),
    (MODELS, 0),
    (MIRI, 10),
    (TIMES, 40),
];

/// Parts of the names of tests that the default leaves to `--full`: attacks on queues in use, each value at each boundary, each refused call, and C
/// programs under valgrind, which take minutes. Shorter tests of the same files remain.
const LONG: [&str; 5] = [
    "no_value_at_a_boundary",
    "a_refused_call_is_done_without_or_named",
    "what_a_stranger_does_to_an_object_harms_no_other_user",
    "what_a_stranger_puts_at_a_free_name_harms_no_other_user",
    "with_valgrind",
];

/// The crate that the default leaves to `--full`: the other queues that it measures are a quarter of all dependencies.
const BENCHMARKS: &str = "umsg-bench";

/// The sizes of random tests in the default; without these variables the tests take the sizes of `--full`.
const SMALL: [(&str, &str); 2] = [("UMSG_COMPARE_OPS", "4000"), ("UMSG_HOSTILE_SECONDS", "3")];

/// The number of programs that run at the same time. With two cores, two programs compute while the others wait.
const PLACES: usize = 4;

const BUILD_RELEASE: &str = "release build";
const BUILD: &str = "build";
const INSTALL: &str = "installing the C library";
const TESTS: &str = "tests, with crash points";
const COMPARISON: &str = "comparison with the kernel";
const COMPARISON_SYSV: &str = "comparison, System V";
const COMPARISON_LIVES: &str = "comparison, processes that live";
const MODELS: &str = "loom models";
const MIRI: &str = "Miri";
const TIMES: &str = "repair time, waiter table";

/// Runs the tests and lists the failed ones. Stops at once only if a build fails.
pub fn run(workspace: &Workspace, extent: Extent) -> Result<()> {
    // Ctrl-C ends the current step. The end of this task then ends the steps that run in parallel.
    interrupt::install();
    let mut steps = Steps::new(workspace.root.clone());
    match extent {
        Extent::Default => default(workspace, &mut steps)?,
        Extent::Full => full(workspace, &mut steps)?,
    }
    steps.finish()
}

/// Runs the tests in the profile of development, so that each crate is compiled once.
fn default(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let profile = Profile::Development;
    steps.plan(workspace.target.join("xtask-times.json"), &DEFAULT);
    let mut suite = suite(workspace, profile);
    suite.leave_out(BENCHMARKS);
    for test in LONG {
        suite.skip(test);
    }
    for (variable, value) in SMALL {
        suite.env(variable, value);
    }
    steps.need(BUILD, &mut suite.build())?;
    steps.need(INSTALL, &mut c_library(workspace, profile))?;
    run_suite(
        &suite,
        comparisons(workspace, profile, OPERATIONS / 10),
        steps,
    )?;
    note_missing_programs(steps);
    for what in LONG {
        steps.skip(what, "cargo xtask test --full");
    }
    steps.skip("tests of the benchmarks", "cargo xtask test --full");
    steps.skip(
        "loom models, Miri, soak, repair time, waiter table",
        "cargo xtask test --full",
    );
    Ok(())
}

fn full(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let profile = Profile::Release;
    steps.plan(workspace.target.join("xtask-times-full.json"), &FULL);
    let suite = suite(workspace, profile);
    steps.need(BUILD_RELEASE, &mut workspace.build_release())?;
    steps.need(BUILD, &mut suite.build())?;
    // The models run beside the tests, which mostly wait: the models use the processor at a low priority.
    let models = steps.begin(MODELS, &mut models(workspace))?;
    steps.need(INSTALL, &mut c_library(workspace, profile))?;
    run_suite(&suite, comparisons(workspace, profile, OPERATIONS), steps)?;
    note_missing_programs(steps);
    note_missing_browser(steps);
    soak::beside_each_other(workspace, &soak::Wish::new(SOAK_MINUTES, None), steps)?;
    steps.end(models)?;
    miri::short(workspace, steps)?;
    // This step measures times, so no other step runs at the same time.
    steps.run(TIMES, &mut repair_time(workspace))
}

/// Returns the tests of all crates, with the drop-in and the C library as they are installed.
fn suite(workspace: &Workspace, profile: Profile) -> Suite<'_> {
    let mut suite = Suite::new(workspace);
    // These soaks are short, because a longer soak follows in a release build.
    suite.env("UMSG_SOAK_SECONDS", "2");
    suite.env("UMSG_PRELOAD_LIBRARY", profile.file(workspace, DROP_IN));
    suite.env("UMSG_C_PREFIX", c_prefix(workspace));
    suite
}

/// Runs the tests and the comparisons in parallel. The comparisons begin early because they take long.
fn run_suite(suite: &Suite, mut jobs: Vec<Job>, steps: &mut Steps) -> Result<()> {
    jobs.extend(suite.jobs()?);
    steps.run_jobs(TESTS, jobs, PLACES, &suite.again())
}

/// The profile of cargo in which the drop-in, the C library and the comparing program are built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    Development,
    Release,
}

impl Profile {
    /// Returns the path of a file that the build makes.
    fn file(self, workspace: &Workspace, name: &str) -> PathBuf {
        match self {
            Profile::Development => workspace.target.join("debug").join(name),
            Profile::Release => workspace.release(name),
        }
    }
}

/// Reports missing programs as skipped steps. The tests skip cases whose programs are not installed, and say so in their output; with CI set they
/// fail instead.
fn note_missing_programs(steps: &mut Steps) {
    if programs::pmqtest().is_none() {
        steps.skip("pmqtest", "not installed; apt-get install rt-tests");
    }
    if programs::curl().is_none() {
        steps.skip("curl", "not installed; apt-get install curl");
    }
    if programs::python_with_posix_ipc().is_none() {
        let remedy =
            "not installed; pip install posix_ipc, and UMSG_TEST_PYTHON names a Python that has it";
        steps.skip("posix_ipc", remedy);
    }
}

/// Does the same as [`note_missing_programs`], for the tests of the benchmarks.
fn note_missing_browser(steps: &mut Steps) {
    if programs::chromium().is_none() {
        let remedy = "not installed; apt-get install chromium, or UMSG_TEST_CHROMIUM names one";
        steps.skip("a browser's look at the page of benchmarks", remedy);
    }
}

/// Does the work of `cargo xtask compare`: only the comparison, of calls or of the lives of processes. Without a seed, each run tries new histories.
pub fn compare(
    workspace: &Workspace,
    operations: u64,
    seed: Option<u64>,
    is_of_lives: bool,
) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    steps.need("release build", &mut workspace.build_release())?;
    let kinds: &[_] = match is_of_lives {
        true => &[(COMPARISON_LIVES, "--lives")],
        false => &[(COMPARISON, ""), (COMPARISON_SYSV, "--sysv")],
    };
    for (name, kind) in kinds {
        let mut compare = comparison(workspace, Profile::Release, operations);
        compare.args(Some(kind).filter(|kind| !kind.is_empty()));
        if let Some(seed) = seed {
            compare.args(["--seed", &seed.to_string()]);
        }
        steps.run(name, &mut compare)?;
    }
    steps.finish()
}

/// Returns the jobs that compare umsg with the kernel, by calls and by the lives of processes.
fn comparisons(workspace: &Workspace, profile: Profile, operations: u64) -> Vec<Job> {
    let mut posix = comparison(workspace, profile, operations);
    let mut sysv = comparison(workspace, profile, operations);
    sysv.arg("--sysv");
    let mut lives = comparison(workspace, profile, operations);
    lives.arg("--lives");
    // The histories are the same each time, so that a failure is due to the change that is tested. `cargo xtask compare` tries new ones.
    for (compare, seed) in [(&mut posix, "1"), (&mut sysv, "1"), (&mut lives, "101")] {
        compare.args(["--seed", seed]);
    }
    let job = |name: &str, group, command| Job {
        name: name.to_owned(),
        command,
        again: Again::Whole,
        group: Some(group),
    };
    vec![
        job(COMPARISON_LIVES, suite::KERNEL, lives),
        job(COMPARISON, suite::KERNEL, posix),
        job(COMPARISON_SYSV, suite::KERNEL_SYSV, sysv),
    ]
}

/// Returns the command that installs the C library below a prefix in the target directory.
fn c_library(workspace: &Workspace, profile: Profile) -> Command {
    let mut install = workspace.cargo(&["run", "--quiet", "-p", "xtask", "--", "c-install"]);
    install.arg(c_prefix(workspace)).arg("--built");
    if profile == Profile::Development {
        install.arg("--debug");
    }
    install
}

/// Returns the command that compares umsg with the kernel. Without a seed, the program takes a seed from the clock, and prints the seed.
fn comparison(workspace: &Workspace, profile: Profile, operations: u64) -> Command {
    let mut compare = workspace.command(profile.file(workspace, "compare"));
    compare.args(["--ops", &operations.to_string()]);
    compare.env("UMSG_PRELOAD_LIBRARY", profile.file(workspace, DROP_IN));
    compare
}

/// Returns the command that checks every interleaving of the protocols. The models have a separate target directory because they are built for loom.
/// They use the CPU for minutes, with a lower priority than the tests of real processes, which mostly wait.
fn models(workspace: &Workspace) -> Command {
    let mut models = workspace.command("nice");
    models
        .arg("--adjustment=10")
        .arg(workspace.cargo(&[]).get_program())
        .args([
            "test",
            "-p",
            "umsg-shm",
            "--profile",
            "fast-tests",
            "--lib",
            "--",
            "model",
        ])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", workspace.target.join("loom"));
    models
}

/// Returns the command that runs, in a release build, the tests that measure times or take long.
fn repair_time(workspace: &Workspace) -> Command {
    let mut test = soak::tests(workspace);
    test.args(["--test", "repair_time", "--test", "waiter_table"]);
    test.args(["--no-fail-fast", "--", "--nocapture"]);
    test
}

fn c_prefix(workspace: &Workspace) -> PathBuf {
    workspace.target.join("c-prefix")
}
