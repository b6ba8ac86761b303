//! The peers, in short rounds: installed peers are measured, and missing peers are reported with advice. No file or process is left behind, also
//! after Ctrl-C.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::FromRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

/// One short round, with temporary files in a separate directory.
fn peers(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umsg-bench"));
    command
        .args([
            "peers",
            "--quick",
            "--rounds",
            "1",
            "--minutes",
            "3",
            "--json",
        ])
        .env("TMPDIR", temporary)
        .env_remove("LD_PRELOAD");
    command
}

/// Returns whether the tests can use two CPUs.
fn two_cpus() -> bool {
    let enough = std::thread::available_parallelism().is_ok_and(|count| count.get() >= 2);
    if !enough {
        eprintln!("skipped: takes two CPUs");
    }
    enough
}

/// The tests take turns: each has processes that spin on the same CPUs.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the entries of a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn peers_are_measured_or_missed_and_those_that_are_killed_are_counted() {
    if !two_cpus() {
        return;
    }
    let _turn = turn();
    let temporary = TempDir::new().unwrap();
    let output = peers(temporary.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = figures["rows"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["row"] == name).unwrap();
    let said = |what: &str| row("one thread")["notes"].to_string().contains(what);
    for peer in ["pipe", "Unix socket", "eventfd", "crossbeam (threads)"] {
        for name in ["one thread", "round trip, spinning", "round trip, asleep"] {
            assert!(
                row(name)["columns"][peer].as_f64().unwrap() > 0.0,
                "{peer}, {name}"
            );
        }
    }
    for (peer, remedy) in [
        ("Boost.Interprocess", "apt-get install"),
        ("iceoryx2", "cargo xtask bench peers"),
        ("Redis", "apt-get install redis-server"),
        ("NATS", "apt-get install nats-server"),
    ] {
        let measured = &row("stream")["columns"][peer];
        let missed = format!("left out {peer}");
        assert!(
            measured.as_f64().is_some() != (said(&missed) && said(remedy)),
            "{peer}: {measured}, {}",
            row("one thread")["notes"]
        );
    }
    for name in [
        "one thread",
        "stream",
        "round trip, spinning",
        "round trip, asleep",
    ] {
        let row = row(name);
        assert!(row["umsg"].as_f64().unwrap() > 0.0 && row["kernel"].as_f64().unwrap() > 0.0);
    }
    let trials = figures["kill_trials"].as_array().unwrap();
    for trial in ["umsg, sender killed", "umsg, receiver killed"] {
        let trial = trials.iter().find(|found| found["peer"] == trial).unwrap();
        assert_eq!(trial["kills"], 2, "{trial}");
        // A process that gets no CPU for a second counts as stuck. On a busy machine, a working process can be counted, too; `cargo xtask bench`
        // checks the count on a quiet machine.
        assert!(trial["stuck"].as_u64().unwrap() <= 2, "{trial}");
    }
    assert_eq!(names(temporary.path()), Vec::<String>::new());
}

#[test]
fn nothing_stays_behind_when_it_is_interrupted_while_peers_are_killed() {
    if !two_cpus() {
        return;
    }
    let _turn = turn();
    let temporary = TempDir::new().unwrap();
    let (reading, writing) = turnstile();
    let mut bench = peers(temporary.path())
        .stdout(Stdio::null())
        .stderr(writing)
        .spawn()
        .unwrap();
    // The test reads the pipe to its end, because a process that writes to a pipe without a reader panics.
    let mut said = BufReader::new(reading);
    wait_for(&mut said, " killed");
    let run = names(temporary.path()).pop().unwrap();
    // SAFETY: the process is a child of this process, which has not waited for the child.
    unsafe { libc::kill(bench.id() as libc::pid_t, libc::SIGINT) };
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("stopped by signal 2"), "{rest}");
    assert_eq!(names(temporary.path()), Vec::<String>::new());
    // The names of shared memory objects begin with the name of the directory.
    let mut shared = names(Path::new("/dev/shm"));
    shared.retain(|name| name.starts_with(&run));
    assert_eq!(shared, Vec::<String>::new());
}

/// Makes a pipe with room for one write. A benchmark that reports its progress to the pipe can't end before the test has read all reports.
fn turnstile() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors. The files own the descriptors.
    unsafe {
        // With O_DIRECT, each write takes a page of the pipe, and the pipe has one page.
        assert_eq!(
            libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_DIRECT),
            0
        );
        assert!(libc::fcntl(ends[1], libc::F_SETPIPE_SZ, 1) > 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

/// Reads the output of the benchmark up to this text.
fn wait_for(said: &mut BufReader<File>, what: &str) {
    let mut heard = String::new();
    while !heard.contains(what) {
        let more = said.read_line(&mut heard).unwrap();
        assert_ne!(more, 0, "it did not say{what}, but: {heard}");
    }
}
