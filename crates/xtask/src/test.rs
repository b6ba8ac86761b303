//! `cargo xtask test`: everything that has to hold, in steps.

use std::process::Command;

use crate::failure::Result;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Random operations that are compared with the kernel, unless asked for another number.
pub const OPERATIONS: u64 = 100_000;
/// How long the soak kills processes, in seconds, unless asked for another time.
pub const SOAK_SECONDS: u64 = 10;

/// Runs all tests; `quick` leaves out what takes longest.
pub fn run(workspace: &Workspace, quick: bool) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    steps.run("release build", &mut workspace.build_release())?;
    steps.run("tests of all crates", &mut tests(workspace))?;
    steps.run("crash points", &mut crash_points(workspace))?;
    let operations = if quick { OPERATIONS / 10 } else { OPERATIONS };
    steps.run(
        "comparison with the kernel",
        &mut comparison(workspace, operations),
    )?;
    if quick {
        steps.skip("loom models", "--quick");
        steps.skip("soak", "--quick");
    } else {
        steps.run("loom models", &mut models(workspace))?;
        steps.run("soak", &mut soak_test(workspace, SOAK_SECONDS))?;
    }
    steps.finish();
    Ok(())
}

/// `cargo xtask compare`: only the comparison.
pub fn compare(workspace: &Workspace, operations: u64) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    steps.run("release build", &mut workspace.build_release())?;
    steps.run(
        "comparison with the kernel",
        &mut comparison(workspace, operations),
    )
}

/// `cargo xtask soak`: only the soak.
pub fn soak(workspace: &Workspace, seconds: u64) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    steps.run("soak", &mut soak_test(workspace, seconds))
}

/// Unit, integration and documentation tests, conformance and real programs among them.
fn tests(workspace: &Workspace) -> Command {
    workspace.cargo(&["test", "--workspace"])
}

/// The library once more, with SIGKILL at every named point.
fn crash_points(workspace: &Workspace) -> Command {
    workspace.cargo(&[
        "test",
        "--package",
        "umsg",
        "--tests",
        "--features",
        "crash-points",
    ])
}

/// The program that compares, as built by the release build.
fn comparison(workspace: &Workspace, operations: u64) -> Command {
    let mut compare = workspace.command(workspace.release("compare"));
    compare.args(["--ops", &operations.to_string()]);
    compare
}

/// Every interleaving of the protocols, in a target directory of their own because they are built for loom.
fn models(workspace: &Workspace) -> Command {
    let mut models = workspace.cargo(&["test", "--package", "umsg", "--release", "--lib", "model"]);
    models
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", workspace.target.join("loom"));
    models
}

fn soak_test(workspace: &Workspace, seconds: u64) -> Command {
    let mut soak = workspace.cargo(&[
        "test",
        "--package",
        "umsg",
        "--features",
        "crash-points",
        "--test",
        "soak",
    ]);
    soak.env("UMSG_SOAK_SECONDS", seconds.to_string());
    soak
}
