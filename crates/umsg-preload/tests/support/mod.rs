//! Compiles C programs, and runs them on the kernel's queues and on umsg's queues.
//!
//! The first test that needs the drop-in lets cargo build it, into the same target directory and profile. UMSG_PRELOAD_LIBRARY names another drop-in
//! to test. UMSG_TEST_CC names another compiler, with arguments: `cargo xtask musl` sets both.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses some of it"
)]

use umsg_testkit::TestNamespace;
pub use umsg_testkit::artefacts::drop_in as library;
use umsg_testkit::programs;
use umsg_testkit::run::{self, PATIENCE};

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Returns the time after which a program is taken as stuck. The time that `UMSG_SIGNAL_SECONDS` requests for a case is added.
fn patience() -> Duration {
    let asked = std::env::var("UMSG_SIGNAL_SECONDS").ok();
    let asked = asked.and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    PATIENCE + Duration::from_secs(asked)
}

/// A namespace of one test, which is removed at the end of the test.
pub struct Namespace(TestNamespace);

impl Namespace {
    pub fn new() -> Namespace {
        Namespace(TestNamespace::new("umsg-preload-test-"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns a command that will run a program on this namespace's queues.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.0.command(program.as_ref());
        command.env("LD_PRELOAD", library());
        command
    }
}

/// Compiles `tests/programs/NAME.c` into the target directory, once, with further arguments for the compiler.
pub fn compile_with(name: &str, output: &str, arguments: &[&str]) -> PathBuf {
    static DONE: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let compile = || {
        let other = std::env::var("UMSG_TEST_CC").unwrap_or_default();
        let mut words = other.split_whitespace();
        let (compiler, workshop) = match words.next() {
            Some(compiler) => (compiler, format!("umsg-preload-{compiler}")),
            None => ("cc", "umsg-preload".to_owned()),
        };
        let mut compiler = Command::new(compiler);
        compiler.args(words);
        let workshop = umsg_testkit::artefacts::workshop(&workshop);
        programs::of_drop_in(compiler, name, &workshop, output, arguments).run()
    };
    let done = done.get_or_insert_default();
    done.entry(output.to_owned())
        .or_insert_with(compile)
        .clone()
}

/// Compiles `tests/programs/NAME.c`, once.
pub fn compile(name: &str) -> PathBuf {
    compile_with(name, name, &[])
}

/// Runs a program to its end. Fails if the program does not end in time.
pub fn finish(command: &mut Command) -> Output {
    run::finish_within(command, patience())
}

/// Runs a program that must succeed, and returns its output.
pub fn succeed(command: &mut Command) -> String {
    run::succeed_within(command, patience())
}

/// Returns whether this kernel has its own queues, with which the drop-in can be compared.
pub fn kernel_has_queues() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let has = Path::new("/proc/sys/fs/mqueue").exists();
        if !has {
            eprintln!("this kernel has no message queues: only umsg's are tested");
        }
        has
    })
}

/// Runs one test case of a program on umsg's queues.
pub fn holds_on_umsg(program: &str, case: &str) {
    let namespace = Namespace::new();
    succeed(namespace.command(compile(program)).arg(case));
}

/// Runs one test case of a program on the kernel's queues, if the system has them, and then on umsg's queues. The case expects the kernel's
/// behaviour.
pub fn holds_on_both(program: &str, case: &str) {
    if kernel_has_queues() {
        succeed(Command::new(compile(program)).arg(case));
    }
    holds_on_umsg(program, case);
}

/// Defines a test for each case of a program. The test has the name of the case, and runs it on the kernel's queues and on umsg's queues.
#[macro_export]
macro_rules! cases_on_both {
    ($program:literal: $($case:ident),* $(,)?) => {
        $( #[test] fn $case() { support::holds_on_both($program, stringify!($case)); } )*
    };
}

/// Does the same as [`cases_on_both`], for cases that only umsg supports or that matter only for umsg.
#[macro_export]
macro_rules! cases_on_umsg {
    ($program:literal: $($case:ident),* $(,)?) => {
        $( #[test] fn $case() { support::holds_on_umsg($program, stringify!($case)); } )*
    };
}
