//! Builds the drop-in and C programs, and runs these on the kernel's queues and on umsg's.
//!
//! `cargo test` does not build a cdylib for the tests of its package: it builds the library's own test program only.
//! So the first test that needs the drop-in has cargo build it, into the same target directory and profile. Another one
//! is tested by naming it in UMSG_PRELOAD_LIBRARY.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a program may run before it counts as stuck: five minutes beyond what it was asked to take, for the machine may be busy.
fn patience() -> Duration {
    let asked = std::env::var("UMSG_SIGNAL_SECONDS").ok();
    let asked = asked.and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    Duration::from_secs(300 + asked)
}

/// The drop-in, built.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| match std::env::var_os("UMSG_PRELOAD_LIBRARY") {
        Some(path) => path.into(),
        None => build_library(),
    })
}

fn build_library() -> PathBuf {
    // <target>/<profile>/deps/<this program>
    let program = std::env::current_exe().unwrap();
    let directory = program.ancestors().nth(2).unwrap();
    let profile = match directory.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        profile => profile,
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "umsg-preload",
        "--profile",
        profile,
    ]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.env("CARGO_TARGET_DIR", directory.parent().unwrap());
    assert!(
        cargo.status().unwrap().success(),
        "the drop-in does not build"
    );
    directory.join("libumsg_preload.so")
}

/// A namespace of the test's own, removed with it.
pub struct Namespace(TempDir);

impl Namespace {
    pub fn new() -> Namespace {
        Namespace(
            tempfile::Builder::new()
                .prefix("umsg-preload-test-")
                .tempdir_in("/dev/shm")
                .unwrap(),
        )
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A program that will run on this namespace's queues.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("LD_PRELOAD", library())
            .env("UMSG_DIR", self.path());
        command
    }
}

/// Compiles `tests/programs/NAME.c` into the target directory, once, with further arguments for the compiler.
pub fn compile_with(name: &str, output: &str, arguments: &[&str]) -> PathBuf {
    static DONE: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let done = done.get_or_insert_default();
    if let Some(path) = done.get(output) {
        return path.clone();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(format!("{name}.c"));
    // Others may run these tests at the same time.
    let workshop = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = workshop.join(output);
    let unfinished = workshop.join(format!("{output}.{}", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"])
        .arg(source)
        .arg("-o")
        .arg(&unfinished);
    cc.args(arguments).args(["-pthread", "-ldl"]);
    assert!(cc.status().unwrap().success(), "{name}.c does not compile");
    std::fs::rename(&unfinished, &path).unwrap();
    done.insert(output.to_owned(), path.clone());
    path
}

/// Compiles `tests/programs/NAME.c`, once.
pub fn compile(name: &str) -> PathBuf {
    compile_with(name, name, &[])
}

/// Runs a program to its end, which must come in time.
pub fn finish(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    wait(child, command)
}

fn wait(mut child: Child, command: &Command) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > patience() {
            // Its children, too: they would keep the pipes open.
            // SAFETY: a group that a child of ours leads, which was not reaped.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let output = child.wait_with_output().unwrap();
            panic!(
                "{command:?} is stuck: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// Runs a program that must succeed, and returns what it wrote.
pub fn succeed(command: &mut Command) -> String {
    let output = finish(command);
    assert_success(output.status, command, &output);
    String::from_utf8(output.stdout).unwrap()
}

fn assert_success(status: ExitStatus, command: &Command, output: &Output) {
    assert!(
        status.success(),
        "{command:?} ended with {status}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Whether this kernel has queues of its own to compare with.
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

/// Runs one case of a program of cases on umsg's queues.
pub fn holds_on_umsg(program: &str, case: &str) {
    let namespace = Namespace::new();
    succeed(namespace.command(compile(program)).arg(case));
}

/// Runs one case of a program of cases on the kernel's queues, if there are any, and then on umsg's: what the test expects is
/// what the kernel does.
pub fn holds_on_both(program: &str, case: &str) {
    if kernel_has_queues() {
        succeed(Command::new(compile(program)).arg(case));
    }
    holds_on_umsg(program, case);
}

/// A test for each case of a program, named as the case, on the kernel's queues and on umsg's.
#[macro_export]
macro_rules! cases_on_both {
    ($program:literal: $($case:ident),* $(,)?) => {
        $( #[test] fn $case() { support::holds_on_both($program, stringify!($case)); } )*
    };
}

/// As [`cases_on_both`], for what only umsg can do or what only matters to it.
#[macro_export]
macro_rules! cases_on_umsg {
    ($program:literal: $($case:ident),* $(,)?) => {
        $( #[test] fn $case() { support::holds_on_umsg($program, stringify!($case)); } )*
    };
}
