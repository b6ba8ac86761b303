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
/// The time of the soak of each face, in minutes: all faces at the same time.
const SOAK_MINUTES: f64 = 0.5;

/// Runs all tests and lists the failed ones. `quick` skips the longest tests. Stops at once only if a build fails.
pub fn run(workspace: &Workspace, quick: bool) -> Result<()> {
    // Ctrl-C ends the present step; the steps that run in parallel are then ended here.
    interrupt::install();
    let mut steps = Steps::new(workspace.root.clone());
    steps.need("release build", &mut workspace.build_release())?;
    let build = |mut tests: Command| {
        tests.arg("--no-run");
        tests
    };
    steps.need(
        "building the library's tests",
        &mut build(library(workspace)),
    )?;
    let models = match quick {
        true => None,
        false => Some(steps.begin("loom models", &mut models(workspace))?),
    };
    steps.run("library, with crash points", &mut library(workspace))?;
    steps.need("installing the C library", &mut c_library(workspace))?;
    steps.need("building all other tests", &mut build(others(workspace)))?;
    steps.run("all other crates", &mut others(workspace))?;
    note_missing_programs(&mut steps);
    let operations = if quick { OPERATIONS / 10 } else { OPERATIONS };
    compare_both(workspace, operations, &mut steps)?;
    let mut lives = lives(workspace, operations);
    // The same histories each time; `cargo xtask compare --lives` tries new ones.
    lives.args(["--seed", "101"]);
    steps.run("comparison, processes that live", &mut lives)?;
    match models {
        None => {
            steps.skip("loom models", "--quick");
            steps.skip("soak, repair time, waiter table, Miri", "--quick");
        }
        Some(models) => {
            steps.end(models)?;
            miri::short(workspace, &mut steps)?;
            steps.run("repair time, waiter table", &mut repair_time(workspace))?;
            soak::beside_each_other(workspace, &soak::Wish::new(SOAK_MINUTES, None), &mut steps)?;
        }
    }
    steps.finish()
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
    if is_of_lives {
        let mut lives = lives(workspace, operations);
        steps.run("comparison, processes that live", &mut lives)?;
    } else {
        compare_both(workspace, operations, &mut steps)?;
    }
    steps.finish()
}

/// The comparison of processes that fork, run other programs and end.
fn lives(workspace: &Workspace, operations: u64) -> Command {
    let mut lives = comparison(workspace, operations);
    lives.arg("--lives");
    lives
}

/// Compares POSIX and System V queues with the kernel's.
fn compare_both(workspace: &Workspace, operations: u64, steps: &mut Steps) -> Result<()> {
    let mut posix = comparison(workspace, operations);
    steps.run("comparison with the kernel", &mut posix)?;
    let mut sysv = comparison(workspace, operations);
    steps.run("comparison, System V", sysv.arg("--sysv"))
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
fn c_library(workspace: &Workspace) -> Command {
    let mut install = workspace.cargo(&["run", "--quiet", "-p", "xtask", "--", "c-install"]);
    install.arg(c_prefix(workspace));
    install
}

/// The tests of everything else, conformance and real programs among them, on the drop-in and the C library as they are
/// installed.
fn others(workspace: &Workspace) -> Command {
    let mut others = workspace.cargo(&["test", "--no-fail-fast", "--workspace"]);
    others
        .args(["--exclude", "umsg-shm", "--exclude", "umsg"])
        .env("UMSG_PRELOAD_LIBRARY", drop_in(workspace))
        .env("UMSG_C_PREFIX", c_prefix(workspace));
    others
}

/// The comparisons always run these histories, so that a failure is due to the change that is tested. `cargo xtask compare` without
/// `--seed` tries others.
const SEED: &str = "1";

/// The program that compares, as built by the release build.
fn comparison(workspace: &Workspace, operations: u64) -> Command {
    let mut compare = workspace.command(workspace.release("compare"));
    compare.args(["--ops", &operations.to_string(), "--seed", SEED]);
    compare.env("UMSG_PRELOAD_LIBRARY", drop_in(workspace));
    compare
}

/// Every interleaving of the protocols, in a separate target directory because they are built for loom. They use the CPU for minutes: the
/// tests of real processes, which mostly wait, run first.
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

fn drop_in(workspace: &Workspace) -> PathBuf {
    workspace.release("libumsg_preload.so")
}

fn c_prefix(workspace: &Workspace) -> PathBuf {
    workspace.target.join("c-prefix")
}
