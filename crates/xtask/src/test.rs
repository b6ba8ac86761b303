//! `cargo xtask test`: everything that has to hold, in steps.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Result;
use crate::interrupt;
use crate::miri;
use crate::programs;
use crate::soak;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The default number of random operations that are compared with the kernel.
pub const OPERATIONS: u64 = 100_000;
const DROP_IN: &str = "libumsg_preload.so";
/// The time of the soak of each face, in minutes: all faces at the same time.
const SOAK_MINUTES: f64 = 0.5;

/// How much is tested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All tests of all crates, and a short comparison, within a few minutes.
    Default,
    /// The default, and all that takes its time: models, soaks, Miri, the whole comparison, and times in a release build.
    Full,
}

/// The steps of the default, with the seconds that each takes on two cores, from an empty target directory.
const DEFAULT: [(&str, u64); 9] = [
    (BUILD, 40),
    (BUILD_LIBRARY, 25),
    (INSTALL, 2),
    (BUILD_OTHERS, 25),
    (LIBRARY, 230),
    (OTHERS, 0),
    (COMPARISON, 3),
    (COMPARISON_SYSV, 3),
    (COMPARISON_LIVES, 7),
];
/// The steps of the whole. The models and the tests of the other crates run beside others.
const FULL: [(&str, u64); 14] = [
    (BUILD, 120),
    (BUILD_LIBRARY, 60),
    (INSTALL, 5),
    (BUILD_OTHERS, 90),
    (LIBRARY, 480),
    (OTHERS, 10),
    (COMPARISON, 15),
    (COMPARISON_SYSV, 20),
    (COMPARISON_LIVES, 40),
    (soak::BUILD, 60),
    ("soak, posix", 40),
    (MODELS, 0),
    (MIRI, 10),
    (TIMES, 60),
];

/// Parts of the names of tests that the default leaves to `--full`: a stranger's attacks, each value at each boundary, and each refused call,
/// which take minutes (shorter tests of the same files remain), and runs of the benchmarks (their reports and options remain).
const LONG: [&str; 7] = [
    "no_value_at_a_boundary",
    "a_refused_call_is_done_without_or_named",
    "what_a_stranger_does_to_an_object_harms_no_other_user",
    "what_a_stranger_puts_at_a_free_name_harms_no_other_user",
    "each_row_has_a_figure_of_the_kernel_and_of_the_drop_in",
    "each_row_has_the_longest_call_of_both_sides_or_the_system_refuses_the_scheduler",
    "peers_are_measured_or_missed_and_those_that_are_killed_are_counted",
];

/// The sizes of random tests in the default; without these variables the tests take the sizes of `--full`.
const SMALL: [(&str, &str); 2] = [("UMSG_COMPARE_OPS", "4000"), ("UMSG_HOSTILE_SECONDS", "3")];

/// The tests of a program that the default runs at the same time: most of them mostly wait.
const TEST_THREADS: &str = "3";

const BUILD: &str = "build";
const BUILD_LIBRARY: &str = "building the library's tests";
const LIBRARY: &str = "library, with crash points";
const INSTALL: &str = "installing the C library";
const BUILD_OTHERS: &str = "building all other tests";
const OTHERS: &str = "all other crates";
const COMPARISON: &str = "comparison with the kernel";
const COMPARISON_SYSV: &str = "comparison, System V";
const COMPARISON_LIVES: &str = "comparison, processes that live";
const MODELS: &str = "loom models";
const MIRI: &str = "Miri";
const TIMES: &str = "repair time, waiter table";

/// Runs the tests and lists the failed ones. Stops at once only if a build fails.
pub fn run(workspace: &Workspace, extent: Extent) -> Result<()> {
    // Ctrl-C ends the present step; the steps that run in parallel are then ended here.
    interrupt::install();
    let mut steps = Steps::new(workspace.root.clone());
    match extent {
        Extent::Default => default(workspace, &mut steps)?,
        Extent::Full => full(workspace, &mut steps)?,
    }
    steps.finish()
}

/// The tests in the profile of development, so that each crate is compiled once less.
fn default(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let profile = Profile::Development;
    steps.plan(workspace.target.join("xtask-times.json"), &DEFAULT);
    steps.need(BUILD, &mut workspace.build())?;
    steps.need(BUILD_LIBRARY, &mut build(library(workspace)))?;
    steps.need(INSTALL, &mut c_library(workspace, profile))?;
    steps.need(BUILD_OTHERS, &mut build(others(workspace, profile)))?;
    let others = steps.begin(OTHERS, &mut short(others(workspace, profile)))?;
    steps.run(LIBRARY, &mut short(library(workspace)))?;
    steps.end(others)?;
    note_missing_programs(steps);
    compare_all(workspace, profile, OPERATIONS / 10, steps)?;
    for what in LONG {
        steps.skip(what, "cargo xtask test --full");
    }
    steps.skip(
        "loom models, Miri, soak, repair time, waiter table",
        "cargo xtask test --full",
    );
    Ok(())
}

/// Leaves out the longest tests, and makes the random ones smaller.
fn short(mut tests: Command) -> Command {
    tests.arg("--");
    for test in LONG {
        tests.arg(format!("--skip={test}"));
    }
    tests.envs(SMALL).env("RUST_TEST_THREADS", TEST_THREADS);
    tests
}

fn full(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let profile = Profile::Release;
    steps.plan(workspace.target.join("xtask-times-full.json"), &FULL);
    steps.need(BUILD, &mut workspace.build_release())?;
    steps.need(BUILD_LIBRARY, &mut build(library(workspace)))?;
    // The models need the processor and have a low priority. The tests mostly wait.
    let models = steps.begin(MODELS, &mut models(workspace))?;
    steps.need(INSTALL, &mut c_library(workspace, profile))?;
    steps.need(BUILD_OTHERS, &mut build(others(workspace, profile)))?;
    let others = steps.begin(OTHERS, &mut others(workspace, profile))?;
    steps.run(LIBRARY, &mut library(workspace))?;
    steps.end(others)?;
    note_missing_programs(steps);
    compare_all(workspace, profile, OPERATIONS, steps)?;
    soak::beside_each_other(workspace, &soak::Wish::new(SOAK_MINUTES, None), steps)?;
    steps.end(models)?;
    miri::short(workspace, steps)?;
    // Measures times: nothing runs beside it.
    steps.run(TIMES, &mut repair_time(workspace))
}

/// The command without running the tests.
fn build(mut tests: Command) -> Command {
    tests.arg("--no-run");
    tests
}

/// The profile of cargo in which the drop-in, the C library and the comparing program are built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    Development,
    Release,
}

impl Profile {
    /// A file that the build makes.
    fn file(self, workspace: &Workspace, name: &str) -> PathBuf {
        match self {
            Profile::Development => workspace.target.join("debug").join(name),
            Profile::Release => workspace.release(name),
        }
    }
}

/// The tests skip cases whose programs are not installed, and say so in their output; with CI set they fail instead.
fn note_missing_programs(steps: &mut Steps) {
    if programs::pmqtest().is_none() {
        steps.skip("pmqtest", "not installed; apt-get install rt-tests");
    }
    if programs::curl().is_none() {
        steps.skip("curl", "not installed; apt-get install curl");
    }
    if programs::chromium().is_none() {
        let remedy = "not installed; apt-get install chromium, or UMSG_TEST_CHROMIUM names one";
        steps.skip("a browser's look at the page of benchmarks", remedy);
    }
    if programs::python_with_posix_ipc().is_none() {
        let remedy =
            "not installed; pip install posix_ipc, and UMSG_TEST_PYTHON names a Python that has it";
        steps.skip("posix_ipc", remedy);
    }
}

/// `cargo xtask compare`: only the comparison, of calls or of processes that live.
pub fn compare(workspace: &Workspace, operations: u64, is_of_lives: bool) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    steps.need("release build", &mut workspace.build_release())?;
    let profile = Profile::Release;
    if is_of_lives {
        let mut lives = lives(workspace, profile, operations);
        steps.run(COMPARISON_LIVES, &mut lives)?;
    } else {
        compare_both(workspace, profile, operations, &mut steps)?;
    }
    steps.finish()
}

/// The comparisons of calls and of processes that live.
fn compare_all(
    workspace: &Workspace,
    profile: Profile,
    operations: u64,
    steps: &mut Steps,
) -> Result<()> {
    compare_both(workspace, profile, operations, steps)?;
    let mut lives = lives(workspace, profile, operations);
    // The histories are the same each time; `cargo xtask compare --lives` tries new ones.
    lives.args(["--seed", "101"]);
    steps.run(COMPARISON_LIVES, &mut lives)
}

/// The comparison of processes that fork, run other programs and end.
fn lives(workspace: &Workspace, profile: Profile, operations: u64) -> Command {
    let mut lives = comparison(workspace, profile, operations);
    lives.arg("--lives");
    lives
}

/// Compares POSIX and System V queues with the kernel's.
fn compare_both(
    workspace: &Workspace,
    profile: Profile,
    operations: u64,
    steps: &mut Steps,
) -> Result<()> {
    let mut posix = comparison(workspace, profile, operations);
    steps.run(COMPARISON, &mut posix)?;
    let mut sysv = comparison(workspace, profile, operations);
    steps.run(COMPARISON_SYSV, sysv.arg("--sysv"))
}

/// The library's unit, integration and documentation tests, with real SIGKILL at every named point; the soak that counts
/// comes later and in a release build.
fn library(workspace: &Workspace) -> Command {
    let mut library = workspace.cargo(&["test", "--no-fail-fast", "-p", "umsg-shm", "-p", "umsg"]);
    library.args(["--features", "umsg/crash-points,umsg/tokio"]);
    library.env("UMSG_SOAK_SECONDS", "2");
    library
}

/// Below a prefix in the target directory.
fn c_library(workspace: &Workspace, profile: Profile) -> Command {
    let mut install = workspace.cargo(&["run", "--quiet", "-p", "xtask", "--", "c-install"]);
    install.arg(c_prefix(workspace));
    if profile == Profile::Development {
        install.arg("--debug");
    }
    install
}

/// The tests of everything else, conformance and real programs among them, on the drop-in and the C library as they are
/// installed.
fn others(workspace: &Workspace, profile: Profile) -> Command {
    let mut others = workspace.cargo(&["test", "--no-fail-fast", "--workspace"]);
    others
        .args(["--exclude", "umsg-shm", "--exclude", "umsg"])
        .env("UMSG_PRELOAD_LIBRARY", profile.file(workspace, DROP_IN))
        .env("UMSG_C_PREFIX", c_prefix(workspace));
    others
}

/// The comparisons always run these histories, so that a failure is due to the change that is tested. `cargo xtask compare` without
/// `--seed` tries others.
const SEED: &str = "1";

/// The program that compares.
fn comparison(workspace: &Workspace, profile: Profile, operations: u64) -> Command {
    let mut compare = workspace.command(profile.file(workspace, "compare"));
    compare.args(["--ops", &operations.to_string(), "--seed", SEED]);
    compare.env("UMSG_PRELOAD_LIBRARY", profile.file(workspace, DROP_IN));
    compare
}

/// Every interleaving of the protocols, in a separate target directory because they are built for loom. They use the CPU for minutes, with a
/// lower priority than the tests of real processes, which mostly wait.
fn models(workspace: &Workspace) -> Command {
    let mut models = workspace.command("nice");
    models
        .arg("--adjustment=10")
        .arg(workspace.cargo(&[]).get_program())
        .args([
            "test",
            "-p",
            "umsg-shm",
            "--release",
            "--lib",
            "--",
            "model",
        ])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", workspace.target.join("loom"));
    models
}

/// Runs the tests that measure times, or take their time, in a release build.
fn repair_time(workspace: &Workspace) -> Command {
    let mut test = soak::tests(workspace);
    test.args(["--test", "repair_time", "--test", "waiter_table"]);
    test.args(["--no-fail-fast", "--", "--nocapture"]);
    test
}

fn c_prefix(workspace: &Workspace) -> PathBuf {
    workspace.target.join("c-prefix")
}
