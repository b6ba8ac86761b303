//! The peers, in short rounds: whoever is installed is measured, whoever is not is missed with a line that helps, and nothing stays
//! behind, also after Ctrl-C.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// One short round, with temporary files in a directory of its own.
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

/// Whether two CPUs are there to be measured on.
fn two_cpus() -> bool {
    let enough = std::thread::available_parallelism().is_ok_and(|count| count.get() >= 2);
    if !enough {
        eprintln!("skipped: takes two CPUs");
    }
    enough
}

/// What is in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn peers_are_measured_or_missed_and_a_killed_one_leaves_nobody_of_umsg_stuck() {
    if !two_cpus() {
        return;
    }
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
        assert_eq!(
            (&trial["stuck"], &trial["kills"]),
            (&Value::from(0), &Value::from(2))
        );
    }
    assert_eq!(names(temporary.path()), Vec::<String>::new());
}

#[test]
fn nothing_stays_behind_when_it_is_interrupted_while_peers_are_killed() {
    if !two_cpus() {
        return;
    }
    let temporary = TempDir::new().unwrap();
    let mut bench = peers(temporary.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let run = wait_for(&mut bench, " killed", temporary.path());
    // SAFETY: our own child, which has not been waited for, and a signal.
    unsafe { libc::kill(bench.id() as libc::pid_t, libc::SIGINT) };
    assert!(!bench.wait().unwrap().success());
    assert_eq!(names(temporary.path()), Vec::<String>::new());
    // Shared memory has the name of the directory in front.
    let mut shared = names(Path::new("/dev/shm"));
    shared.retain(|name| name.starts_with(&run));
    assert_eq!(shared, Vec::<String>::new());
}

/// Reads what it says until it says this; what its directory is called.
fn wait_for(bench: &mut Child, what: &str, temporary: &Path) -> String {
    let lines = BufReader::new(bench.stderr.take().unwrap()).lines();
    let mut heard = String::new();
    for line in lines {
        heard += &line.unwrap();
        heard.push('\n');
        if heard.contains(what) {
            let run = names(temporary).pop();
            return run.unwrap();
        }
    }
    bench.wait().unwrap();
    panic!("it did not say{what}, but: {heard}");
}
