//! `cargo xtask bench`: the benchmarks, with everything that they need built.

use crate::failure::{Failure, Result};
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Runs the suites one after another.
pub fn run(workspace: &Workspace, suites: &[String], quick: bool) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    steps.run("release build", &mut workspace.build_release())?;
    let mut failed = Vec::new();
    for suite in suites {
        let mut bench = workspace.command(workspace.release("umsg-bench"));
        bench.arg(suite).args(quick.then_some("--quick"));
        // One that can't be measured here does not keep the others from it.
        if let Err(failure) = steps.run(suite, &mut bench) {
            failed.push(failure.to_string());
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(failed.join("\n"))),
    }
}
