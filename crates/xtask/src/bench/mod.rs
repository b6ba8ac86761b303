//! `cargo xtask bench`, `bench-publish` and `bench-check`: the benchmarks, with everything that they need built.

mod compare;
mod readme;

use std::path::Path;
use std::process::{Command, Stdio};

use self::compare::{Dropped, Figures};
use crate::failure::{Context as _, Failure, Result};
use crate::shell;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The figures that were accepted last, and the documents made from them.
const FIGURES: &str = "docs/benchmarks.json";
const PAGE: &str = "docs/benchmarks.html";
const DOCUMENT: &str = "docs/benchmarks.md";
/// A text that is written by hand, and is put at the end of the document.
const ATTEMPTS: &str = "docs/benchmarks-attempts.md";

/// The number of runs that have to show a drop before the check fails.
const RUNS: usize = 3;

/// Runs the suites one after another.
pub fn run(workspace: &Workspace, suites: &[String], quick: bool) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    steps.need("release build", &mut workspace.build_benchmarks())?;
    if suites
        .iter()
        .any(|suite| suite == "peers" || suite == "all")
    {
        build_peers(&mut steps, workspace)?;
    }
    for suite in suites {
        let mut bench = workspace.command(workspace.release("umsg-bench"));
        bench.arg(suite).args(quick.then_some("--quick"));
        // If one suite can't be measured on this machine, the others still run.
        steps.run(suite, &mut bench)?;
    }
    steps.finish()
}

/// Measures everything, and writes the figures, the page and the document in `docs`, and the table of the README. With `again`, the command measures
/// nothing, and makes page, document and table from the existing figures.
pub fn publish(workspace: &Workspace, again: bool) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    steps.need("release build", &mut workspace.build_benchmarks())?;
    if !again {
        build_peers(&mut steps, workspace)?;
    }
    let mut bench = workspace.command(workspace.release("umsg-bench"));
    match again {
        true => bench.args(["report", FIGURES]),
        false => bench.args(["all", "--json", FIGURES]),
    };
    bench.args(["--html", PAGE, "--markdown", DOCUMENT]);
    bench.args(["--attempts", ATTEMPTS]);
    if let Some(commit) = commit(workspace) {
        bench.env("UMSG_BENCH_COMMIT", commit);
    }
    steps.need("benchmarks", &mut bench)?;
    readme::renew(workspace, DOCUMENT)
}

/// Builds the plug-in for iceoryx2 that `umsg-bench peers` loads, outside of this workspace. If the build fails, for example without a
/// network, the comparison omits iceoryx2.
fn build_peers(steps: &mut Steps, workspace: &Workspace) -> Result<()> {
    let mut build = workspace.build_peers();
    let otherwise = "umsg-bench peers does without iceoryx2";
    steps.try_run("build of iceoryx2", &mut build, otherwise)
}

/// Returns the commit that was built, with a mark if files that are built differ from it.
fn commit(workspace: &Workspace) -> Option<String> {
    let output = workspace
        .command("git")
        .args(["rev-parse", "--short=8", "HEAD"])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    let built = ["--", ":/", ":(exclude,top)docs", ":(exclude,top)*.md"];
    let mut compare = workspace.command("git");
    compare.args(["diff", "--quiet", "HEAD"]).args(built);
    // Source: git-diff(1), --quiet.
    let has_changed = compare.status().ok()?.code() == Some(1);
    let mark = if has_changed { " with changes" } else { "" };
    output
        .status
        .success()
        .then(|| format!("{}{mark}", commit.trim()))
}

/// Compares ratios with the accepted ones, in up to three runs. Fails only for a drop that each run shows.
pub fn check(workspace: &Workspace) -> Result<()> {
    let accepted = accepted(workspace)?;
    let mut steps = Steps::new(workspace.root.clone());
    steps.need("release build", &mut workspace.build_benchmarks())?;
    let mut drops = accepted.drops(&measure(workspace)?);
    for run in 1..RUNS {
        if drops.is_empty() {
            break;
        }
        println!("\nrun {run} of {RUNS} shows drops; once more\n");
        let again = accepted.drops(&measure(workspace)?);
        drops.retain(|drop| again.iter().any(|other| other.row == drop.row));
    }
    if drops.is_empty() {
        println!("\nbench-check: no ratio has dropped by more than 15 %");
        return Ok(());
    }
    let drops = lines(&drops);
    Err(Failure::new(format!(
        "these ratios are lower in each of {RUNS} runs:\n{drops}"
    )))
}

/// Compares the ratios of one run with the accepted ones, and prints the drops. Drops do not fail the task, because other load on the machine may
/// cause them.
pub fn advise(workspace: &Workspace) {
    let compared = accepted(workspace).and_then(|accepted| {
        let drops = accepted.drops(&measure(workspace)?);
        Ok(match drops.is_empty() {
            true => "no ratio has dropped by more than 15 %".to_owned(),
            false => format!(
                "lower in this one run; whether it is noise, `cargo xtask bench-check` finds out:\n{}",
                lines(&drops)
            ),
        })
    });
    match compared {
        Ok(found) => println!("\nbench-check: {found}"),
        Err(failure) => println!("\nbench-check: nothing was compared: {failure}"),
    }
}

fn accepted(workspace: &Workspace) -> Result<Figures> {
    let path = workspace.root.join(FIGURES);
    match path.exists() {
        true => Figures::read(&path),
        false => Err(Failure::new(format!(
            "{FIGURES} is missing: run `cargo xtask bench-publish` on a quiet machine"
        ))),
    }
}

fn lines(drops: &[Dropped]) -> String {
    let lines: Vec<String> = drops.iter().map(Dropped::to_string).collect();
    lines.join("\n")
}

/// Returns the figures of a short run of the rows that `bench-check` compares.
fn measure(workspace: &Workspace) -> Result<Figures> {
    let program = workspace.release("umsg-bench");
    if !program.exists() {
        return Err(Failure::new(format!("{} is not built", program.display())));
    }
    let mut bench = workspace.command(program);
    bench.args(["guard", "--quick", "--json", "-"]);
    figures_of(&mut bench)
}

fn figures_of(bench: &mut Command) -> Result<Figures> {
    let line = shell::line(bench);
    let output = bench.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context(&line)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = Figures::parse(&text, Path::new("what was measured"));
    match output.status.success() {
        true => figures,
        false => Err(Failure::new(format!("{line} failed ({})", output.status))),
    }
}
