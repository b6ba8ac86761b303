//! Programs that must end in time.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The maximum run time of a program. After this time, the program is taken as stuck. The time is long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The variable that reduces the rounds of repeating tests on an emulated machine: with 20, a test makes a twentieth of its rounds.
pub const PART: &str = "UMSG_TEST_PART";

/// Returns the number of rounds of a repeating test: all of them, or the part that [`PART`] selects on an emulated machine, where a round takes much
/// longer.
pub fn rounds(all: usize) -> usize {
    let part = std::env::var(PART).ok();
    let part = part.and_then(|part| part.parse().ok()).unwrap_or(1);
    all / std::cmp::max(part, 1)
}

/// Runs a program, which must end within [`PATIENCE`].
pub fn finish(command: &mut Command) -> Output {
    finish_within(command, PATIENCE)
}

/// Runs a program, which must end within `patience`. Otherwise the program and its process group are killed, and the test fails.
pub fn finish_within(command: &mut Command, patience: Duration) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > patience {
            // The children of the program are killed, too: they would keep the pipes open. SAFETY: the system call takes no pointers. The group is
            // that of the child, which was not reaped yet.
            unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
            let said = text(&child.wait_with_output().unwrap());
            panic!("{command:?} is stuck:\n{said}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// Runs a program that must succeed, and returns its standard output.
pub fn succeed(command: &mut Command) -> String {
    succeed_within(command, PATIENCE)
}

/// Does the same as [`succeed`], for a program that must end within `patience`.
pub fn succeed_within(command: &mut Command, patience: Duration) -> String {
    let output = finish_within(command, patience);
    let status = output.status;
    assert!(
        status.success(),
        "{command:?} ended with {status}:\n{}",
        text(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the standard output of a program, followed by its standard error.
pub fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Finds a program in the directories of PATH.
pub fn on_the_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|program| program.is_file())
}

/// Reports that a part of the system is missing. Fails if `CI` is set, because no part may be missing there. The report bypasses the capture of the
/// test harness.
pub fn skip(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "missing: {what}");
    let _ = writeln!(std::io::stderr(), "skipped: {what} is missing");
}
