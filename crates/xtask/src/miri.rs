//! `cargo xtask miri`: the library's tests in Miri, an interpreter that reports undefined behaviour: data races, references to memory that
//! other processes write, invented addresses. Needs Rust's nightly toolchain.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Result;
use crate::steps::Steps;
use crate::toolchain::Nightly;
use crate::workspace::Workspace;

/// The default number of schedules of the threads.
pub const SEEDS: u32 = 16;

/// The components of the nightly toolchain: the interpreter, and the standard library's source, which is interpreted, too.
const COMPONENTS: [&str; 2] = ["miri", "rust-src"];

/// The module of the tests in which several threads use one engine.
const THREADS: &str = "threads::";

/// The tests that `cargo xtask test` runs, in some seconds.
const SHORT: [&str; 2] = ["messages_in_place_pass_beside_copies", "threads::ring"];

/// The modules of the other tests that need no files, no mappings of files and no other processes. Exceptions have `cfg_attr(miri, ignore =
/// ...)`.
const OTHERS: [&str; 9] = [
    "order::priority",
    "queue::",
    "reclaim::",
    "ring::tests",
    "segment::",
    "arena::",
    "sys::cut",
    "sysv_engine::tests",
    "waiters::",
];

/// Omitted from [`OTHERS`]: tests of rings that need facilities which Miri lacks (passing descriptors and polling them, names, a runtime), and
/// thousands of types in plain memory.
const BEYOND: [&str; 5] = [
    "descriptor",
    "named",
    "polls",
    "tokio",
    "sysv_engine::order",
];

/// System calls find no files, and the interpreter simulates the clock, so that a seed gives the same run on every machine.
/// `reclaim/link.rs` packs the address of a slot and some flag bits into one integer. Miri can't follow the provenance of such an address, so the
/// provenance is permissive.
const FLAGS: &str = "-Zmiri-isolation-error=hide -Zmiri-permissive-provenance";

/// Runs the tests whose names contain `filter`, or all that Miri supports; tests with threads in the given number of schedules.
pub fn run(workspace: &Workspace, filter: Option<&str>, seeds: u32) -> Result<()> {
    let mut steps = Steps::new(workspace.root.clone());
    let nightly = match Nightly::with(&COMPONENTS) {
        Ok(nightly) => nightly,
        Err(remedy) => {
            steps.skip("Miri", &remedy);
            return Ok(());
        }
    };
    match filter {
        Some(filter) => {
            let mut tests = tests(workspace, &nightly, &[filter], seeds);
            steps.run("Miri", &mut tests)?;
        }
        None => {
            let mut others = tests(workspace, &nightly, &OTHERS, 1);
            steps.run("Miri, one thread or few", &mut others)?;
            let mut threads = tests(workspace, &nightly, &[THREADS], seeds);
            steps.run("Miri, threads", &mut threads)?;
        }
    }
    steps.finish()
}

/// Runs one schedule of some tests with threads, if Miri's standard library is already built: building it takes minutes.
pub fn short(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let ready = Nightly::with(&COMPONENTS).and_then(|nightly| match has_library(&nightly) {
        true => Ok(nightly),
        false => Err("its standard library was not built yet; cargo xtask miri".to_owned()),
    });
    match ready {
        Ok(nightly) => steps.run("Miri", &mut tests(workspace, &nightly, &SHORT, 1)),
        Err(remedy) => {
            steps.skip("Miri", &remedy);
            Ok(())
        }
    }
}

fn tests(workspace: &Workspace, nightly: &Nightly, filters: &[&str], seeds: u32) -> Command {
    let mut tests = nightly.cargo(
        workspace,
        &[
            "miri", "test", "-p", "umsg-shm", "-p", "umsg", "--lib", "--",
        ],
    );
    let flags = match seeds {
        1 => FLAGS.to_owned(),
        many => format!("{FLAGS} -Zmiri-many-seeds=0..{many}"),
    };
    tests.args(filters).env("MIRIFLAGS", flags);
    for beyond in BEYOND {
        tests.args(["--skip", beyond]);
    }
    tests
}

/// Returns whether `cargo miri` has already built the standard library for Miri.
fn has_library(nightly: &Nightly) -> bool {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let library = cache.map(|cache| {
        cache
            .join("miri/lib/rustlib")
            .join(&nightly.host)
            .join("lib")
    });
    library.is_some_and(|library| {
        library
            .read_dir()
            .is_ok_and(|mut files| files.next().is_some())
    })
}
