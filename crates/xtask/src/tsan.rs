//! `cargo xtask tsan`: the library's tests with threads under ThreadSanitizer, which reports two accesses to the same memory that
//! nothing orders, one of them a write. Needs Rust's nightly toolchain.

use std::process::Command;

use crate::failure::Result;
use crate::steps::Steps;
use crate::toolchain::Nightly;
use crate::workspace::Workspace;

/// The component of the nightly toolchain: the standard library is built with the sanitizer, too.
const COMPONENTS: [&str; 1] = ["rust-src"];

/// The sanitizer, and system calls by libc's names. The sanitizer watches these calls, and so notices that memory was unmapped and mapped again.
const FLAGS: &str = "-Zsanitizer=thread --cfg rustix_use_libc";

/// Integration tests whose threads share their queues: the sanitizer does not know that two mappings of one file are the same memory.
const TESTS: [&str; 8] = [
    "batches",
    "leases",
    "leases_random",
    "policies",
    "ring",
    "ring_model",
    "semantics",
    "wrap_around",
];

/// The module of the tests in which several threads use one engine.
const THREADS: &str = "threads::";

/// Runs the tests. Then runs the tests of threads on one engine in parallel, for the given number of minutes.
pub fn run(workspace: &Workspace, minutes: f64) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    let nightly = match Nightly::with(&COMPONENTS) {
        Ok(nightly) => nightly,
        Err(remedy) => {
            steps.skip("ThreadSanitizer", &remedy);
            return Ok(());
        }
    };
    let mut unit = tests(workspace, &nightly);
    steps.run("ThreadSanitizer, unit tests", unit.arg("--lib"))?;
    if minutes > 0.0 {
        let mut threads = tests(workspace, &nightly);
        threads
            .args(["--lib", "--", THREADS])
            .env("UMSG_THREADS_SECONDS", (minutes * 60.0).ceil().to_string());
        steps.run("ThreadSanitizer, for longer", &mut threads)?;
    }
    let mut integration = tests(workspace, &nightly);
    for test in TESTS {
        integration.args(["--test", test]);
    }
    steps.run("ThreadSanitizer, integration tests", &mut integration)?;
    steps.finish()
}

fn tests(workspace: &Workspace, nightly: &Nightly) -> Command {
    let mut tests = nightly.cargo(
        workspace,
        &["test", "-p", "umsg-shm", "-p", "umsg", "-Zbuild-std"],
    );
    tests
        .args(["--target", &nightly.host])
        .env("RUSTFLAGS", FLAGS)
        // A forked child may start threads; the sanitizer watches it, too.
        .env("TSAN_OPTIONS", "halt_on_error=1:die_after_fork=0")
        .env("CARGO_TARGET_DIR", workspace.target.join("tsan"));
    tests
}
