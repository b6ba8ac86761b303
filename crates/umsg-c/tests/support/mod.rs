//! Installs the C library below a prefix of the tests' own, compiles programs against it as a user would, and runs them.
//!
//! Another installation is tested by naming its prefix in UMSG_C_PREFIX.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a program may run before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(300);

/// A directory below `target/` for what the tests build.
pub fn workshop() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("umsg-c");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Below which the library is installed.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| match std::env::var_os("UMSG_C_PREFIX") {
        Some(prefix) => prefix.into(),
        None => install(),
    })
}

fn install() -> PathBuf {
    let prefix = workshop().join("prefix");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(["run", "--quiet", "--package", "xtask", "--", "c-install"])
        .arg(&prefix)
        .env("CARGO_TARGET_DIR", target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if cfg!(debug_assertions) {
        cargo.arg("--debug");
    }
    succeed(&mut cargo);
    prefix
}

/// A namespace of the test's own, removed with it.
pub struct Namespace(TempDir);

impl Namespace {
    pub fn new() -> Namespace {
        Namespace(
            tempfile::Builder::new()
                .prefix("umsg-c-test-")
                .tempdir_in("/dev/shm")
                .unwrap(),
        )
    }

    /// A program that will use this namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("UMSG_DIR", self.0.path());
        command
    }

    /// The names of the queues and rings that there are, and the files of queues of System V.
    pub fn queues(&self) -> Vec<String> {
        let directories = ["bell", "mq", "msg", "ring"].map(|kind| self.0.path().join(kind));
        let entries = directories.iter().flat_map(|kind| kind.read_dir());
        entries
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with('.'))
            .collect()
    }
}

/// How a program is compiled.
pub struct Build<'a> {
    /// Below `tests/programs`.
    pub source: &'a str,
    /// What the program is to be called.
    pub output: &'a str,
    /// Further arguments for the compiler.
    pub options: &'a [&'a str],
}

/// Compiles a program with what pkg-config says.
pub fn compile(build: &Build) -> PathBuf {
    let output = workshop().join(build.output);
    let compiler = if build.source.ends_with(".cpp") {
        "c++"
    } else {
        "cc"
    };
    let mut cc = Command::new(compiler);
    cc.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1"])
        .args(build.options)
        .arg(source(build.source))
        .arg("-o")
        .arg(&output)
        .args(flags())
        .arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()))
        .arg("-pthread");
    succeed(&mut cc);
    output
}

/// A file below `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// What pkg-config tells a compiler; if there is no pkg-config, what it would tell.
pub fn flags() -> Vec<String> {
    let told = pkg_config(&["--cflags", "--libs", "umsg"]);
    told.unwrap_or_else(|| {
        let prefix = prefix().display();
        vec![
            format!("-I{prefix}/include"),
            format!("-L{prefix}/lib"),
            "-lumsg".into(),
        ]
    })
}

/// What pkg-config says about the installed library; None if there is no pkg-config.
pub fn pkg_config(arguments: &[&str]) -> Option<Vec<String>> {
    if !is_installed("pkg-config") {
        return None;
    }
    let mut command = Command::new("pkg-config");
    command
        .args(arguments)
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let said = succeed(&mut command);
    Some(said.split_whitespace().map(str::to_owned).collect())
}

/// Runs a program to its end, which must come in time.
pub fn finish(command: &mut Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            // SAFETY: a system call on numbers; the group is that of the child, which was not waited for yet.
            unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
            let said = text(&child.wait_with_output().unwrap());
            panic!("{command:?} is stuck:\n{said}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// Runs a program that must succeed, and returns what it wrote to its standard output.
pub fn succeed(command: &mut Command) -> String {
    let output = finish(command);
    let status = output.status;
    assert!(
        status.success(),
        "{command:?} ended with {status}:\n{}",
        text(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// All that a program wrote.
pub fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Whether a program is on the path.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Something is missing: a failure where everything has to be, else only said, past the capture of the harness.
pub fn skip(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "missing: {what}");
    let _ = writeln!(std::io::stderr(), "skipped: {what} is missing");
}
