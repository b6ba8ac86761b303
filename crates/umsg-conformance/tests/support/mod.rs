//! Runs existing programs of other authors on the kernel's queues and with the drop-in preloaded.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use umsg_conformance::library;
use umsg_conformance::runner::{namespace_directory, say};
use umsg_conformance::sys::{self, Pause};
pub use umsg_testkit::run::{on_the_path, skip as missing};

/// The longest run of a program. After this time, the test treats the program as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// The output of a program, and whether the program succeeded.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub success: bool,
    pub text: String,
}

/// The access of a program to the kernel's queues.
#[derive(Clone, Copy)]
pub enum Kernel {
    Open,
    /// The program can create no queue of the kernel, so a program that works has used umsg.
    Barred,
}

/// Makes the kernel refuse new POSIX queues to this process. In a private namespace, makes it also refuse new System V queues, if permitted. The
/// function makes only system calls, so it may run between fork and exec.
fn bar_kernel_queues(is_private: bool) -> io::Result<()> {
    if is_private {
        let _ = sys::limit_kernel_system_v_queues(0);
    }
    Ok(sys::limit_kernel_queues(0)?)
}

/// Runs a program to its end, in a private IPC namespace if permitted. The program has its own process group, which is killed if the program hangs.
/// The result combines its standard output and its standard error.
pub fn finish(mut command: Command, kernel: Kernel) -> Ran {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("output");
    let output = File::create(&path).expect("a file");
    let errors = output.try_clone().expect("the file again");
    command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0);
    // SAFETY: between fork and exec, the function makes only system calls.
    unsafe {
        command.pre_exec(move || {
            let is_private = sys::enter_private_ipc_namespace().is_some();
            match kernel {
                Kernel::Open => Ok(()),
                Kernel::Barred => bar_kernel_queues(is_private),
            }
        });
    }
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut pause = Pause::new(PATIENCE);
    let status = loop {
        if let Some(status) = child.try_wait().expect("waiting for a child") {
            break Some(status);
        }
        if !pause.again() {
            break None;
        }
    };
    sys::kill(-(child.id() as i32), libc::SIGKILL);
    if status.is_none() {
        let _ = child.wait();
    }
    let text = String::from_utf8_lossy(&fs::read(&path).expect("the output")).into_owned();
    let status =
        status.unwrap_or_else(|| panic!("{command:?} had not ended after {PATIENCE:?}:\n{text}"));
    Ran {
        success: status.success(),
        text,
    }
}

/// Runs one program on the kernel's queues and, with the drop-in preloaded, on umsg's. Fails unless both runs succeed and no queue of umsg is left.
pub fn on_both(command: impl Fn() -> Command) -> (Ran, Ran) {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    let kernel = finish(command(), Kernel::Open);
    let directory = namespace_directory();
    // This call makes the namespace before the program starts, as `umsg run` does, because a program may start under another user than root.
    umsg::Namespace::at(directory.path()).expect("a namespace");
    let mut preloaded = command();
    preloaded
        .env("LD_PRELOAD", library)
        .env("UMSG_DIR", directory.path());
    let umsg = finish(preloaded, Kernel::Barred);
    assert!(kernel.success, "on the kernel:\n{}", kernel.text);
    assert!(
        umsg.success,
        "on umsg:\n{}\non the kernel:\n{}",
        umsg.text, kernel.text
    );
    let left = queues_in(directory.path());
    assert!(left.is_empty(), "left behind: {left:?}");
    (kernel, umsg)
}

/// Returns the files of the queues in a namespace.
fn queues_in(namespace: &Path) -> Vec<PathBuf> {
    ["mq", "msg"]
        .iter()
        .filter_map(|kind| fs::read_dir(namespace.join(kind)).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Returns a Python interpreter that has a module, and the version of the module.
pub fn python_with(module: &str) -> Option<(PathBuf, String)> {
    let candidates = [std::env::var_os("UMSG_TEST_PYTHON"), Some("python3".into())];
    for candidate in candidates.into_iter().flatten() {
        let ask = format!("import {module}; print({module}.VERSION)");
        let Ok(output) = Command::new(&candidate).args(["-c", &ask]).output() else {
            continue;
        };
        if output.status.success() {
            return Some((
                candidate.into(),
                String::from_utf8_lossy(&output.stdout).trim().to_string(),
            ));
        }
    }
    None
}

/// Returns the directory with the source of a PyPI package and its tests. The directory is the value of `UMSG_POSIX_IPC_SOURCE` or
/// `UMSG_SYSV_IPC_SOURCE`, or pip downloads the source.
pub fn source_of(package: &str, python: &Path, version: &str) -> Option<PathBuf> {
    let variable = format!("UMSG_{}_SOURCE", package.to_uppercase());
    if let Some(source) = std::env::var_os(variable) {
        return Some(source.into());
    }
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package);
    let (source, archive) = (
        into.join(format!("{package}-{version}")),
        into.join(format!("{package}-{version}.tar.gz")),
    );
    if source.join("tests/test_message_queues.py").exists() {
        return Some(source);
    }
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]);
    pip.args(["--no-binary", ":all:", "--dest"])
        .arg(&into)
        .arg(format!("{package}=={version}"));
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&archive).arg("-C").arg(&into);
    for step in [pip, tar] {
        let ran = finish(step, Kernel::Open);
        if !ran.success {
            say(&format!("{}\n", ran.text));
            return None;
        }
    }
    Some(source)
}

/// Returns the names of the tests that Python's unittest reports as ok.
pub fn passed(ran: &Ran) -> Vec<&str> {
    let mut passed: Vec<&str> = ran
        .text
        .lines()
        .filter_map(|line| line.split_once(' ').filter(|_| line.starts_with("test_")))
        .map(|(name, _)| name)
        .collect();
    passed.sort_unstable();
    passed
}

/// Runs one of stress-ng's stressors on both sides. Fails if the stressor reports a fault or does not complete its rounds.
pub fn stress_ng(stressor: &str, further: &[&str]) {
    let Some(program) = on_the_path("stress-ng") else {
        return missing("stress-ng");
    };
    let rounds = 20_000;
    let (kernel, umsg) = on_both(|| {
        let mut command = Command::new(&program);
        command.args([&format!("--{stressor}"), "2", "--verify", "-t", "60"]);
        command.args([format!("--{stressor}-ops"), rounds.to_string()]);
        command.args(further).arg("--metrics");
        command
    });
    for ran in [kernel, umsg] {
        // The line with the number of rounds, for example: `stress-ng: info:  [1234] msg   20000   0.07 ...`
        let made = ran.text.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip_while(|word| *word != stressor);
            words.nth(1)?.parse::<u64>().ok()
        });
        assert!(made.is_some_and(|made| made >= rounds), "{}", ran.text);
        assert!(!ran.text.contains("fail:"), "{}", ran.text);
    }
}
