//! `cargo xtask fuzz`: the fuzz targets with libFuzzer and AddressSanitizer, which need Rust's nightly toolchain.

use std::process::Command;

use crate::failure::{Context as _, Result};
use crate::steps::Steps;
use crate::toolchain::{self, Nightly};
use crate::workspace::Workspace;

/// The default time for which each target runs, in seconds.
pub const SECONDS: u64 = 60;

/// All targets, see fuzz/src/lib.rs.
const TARGETS: [&str; 6] = ["attach", "namespace", "snapshot", "posix", "sysv", "ring"];

/// The flags for the coverage that libFuzzer needs, and for the sanitizer. Source: cargo-fuzz, which builds in the same way.
const FLAGS: [&str; 8] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
    "-Zsanitizer=address",
];

/// Runs the named targets, or all, one after another. Inputs that crash a target are kept in target/fuzz.
pub fn run(workspace: &Workspace, targets: &[String], seconds: u64) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    let Some(nightly) = Nightly::find() else {
        steps.skip("fuzz", toolchain::REMEDY);
        return Ok(());
    };
    steps.need("fuzz targets", &mut build(workspace, &nightly))?;
    let all = TARGETS.map(String::from);
    let targets = if targets.is_empty() { &all } else { targets };
    for target in targets {
        // Fuzzers end without removing their files.
        let directory = tempfile::tempdir_in("/dev/shm").context("a directory in /dev/shm")?;
        let mut feed = feed(workspace, &nightly, target, seconds);
        feed.env("UMSG_FUZZ_DIR", directory.path());
        steps.run(target, &mut feed)?;
    }
    steps.finish()
}

fn build(workspace: &Workspace, nightly: &Nightly) -> Command {
    let arguments = ["build", "--release", "--bins", "--target", &nightly.host];
    let mut build = nightly.cargo(workspace, &arguments);
    build
        .args(["--manifest-path", "fuzz/Cargo.toml"])
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env("CARGO_TARGET_DIR", workspace.target.join("fuzz"));
    build
}

/// Returns the command of a fuzzer, which also gets the interesting inputs of earlier runs.
fn feed(workspace: &Workspace, nightly: &Nightly, target: &str, seconds: u64) -> Command {
    let home = workspace.target.join("fuzz");
    let corpus = home.join("corpus").join(target);
    // If this fails, the fuzzer can't write to the directory, and reports that.
    let _ = std::fs::create_dir_all(&corpus);
    let mut feed = workspace.command(home.join(&nightly.host).join("release").join(target));
    feed.arg(corpus)
        .arg(workspace.root.join("fuzz/seeds").join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/{target}-", home.display()))
        .args(["-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"])
        // The sanitizer does not look for leaks: threads that wait for notifications live as long as the process.
        .env("ASAN_OPTIONS", "detect_leaks=0:handle_sigbus=0");
    feed
}
