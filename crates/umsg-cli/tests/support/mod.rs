//! Runs the real umsg command, each test in a namespace of its own.
#![allow(dead_code, reason = "each test program uses some of it")]

pub mod compiler;
pub mod patients;
pub mod relays;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use umsg_testkit::users::is_root;

use compiler::Workshop;
use rustix::fs::{SeekFrom, seek};
use serde_json::Value;
use tempfile::TempDir;

/// The time after which a command without an end is taken as stuck.
const PATIENCE: Duration = Duration::from_secs(300);
/// A user other than root who owns no files.
pub const NOBODY: u32 = 65_534;

/// The result of a command.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub output: Vec<u8>,
    pub errors: String,
}

impl Outcome {
    /// Returns the standard output. Fails unless the command succeeded and printed nothing on standard error.
    #[track_caller]
    pub fn text(&self) -> &str {
        assert_eq!((self.code, self.errors.as_str()), (Some(0), ""), "{self:?}");
        std::str::from_utf8(&self.output).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap()
    }

    /// Returns the JSON values of the output, one for each line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let lines = self.text().lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Asserts that the command failed with this code, and with one line on standard error that contains all the parts.
    #[track_caller]
    pub fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.errors.lines().count(), 1, "{self:?}");
        assert!(self.errors.starts_with("umsg: "), "{self:?}");
        for part in parts {
            assert!(self.errors.contains(part), "{part:?} is not in {self:?}");
        }
    }
}

/// A namespace that is removed at the end of the test.
pub struct Site(TempDir);

impl Site {
    pub fn new() -> Site {
        let mut builder = tempfile::Builder::new();
        Site(
            builder
                .prefix("umsg-cli-test-")
                .tempdir_in("/dev/shm")
                .unwrap(),
        )
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the command, not yet started, with a known environment.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umsg"));
        clean(&mut command)
            .env("UMSG_DIR", self.path())
            .args(arguments);
        command
    }

    pub fn umsg<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Outcome {
        finish(&mut self.command(arguments), b"")
    }

    pub fn umsg_with_input(&self, arguments: &[&str], input: &[u8]) -> Outcome {
        finish(&mut self.command(arguments), input)
    }

    /// Runs the command with a standard output to which no byte can be written.
    pub fn umsg_into_full_disk(&self, arguments: &[&str]) -> Outcome {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = self.command(arguments);
        command.stdout(full.unwrap()).stderr(Stdio::piped());
        end(command.spawn().unwrap())
    }

    /// Runs the command as a user other than root. None if the test is not root, and so can't change its user.
    pub fn umsg_as_nobody(&self, arguments: &[&str]) -> Option<Outcome> {
        self.umsg_as_nobody_with(arguments, &[])
    }

    /// Runs the command as [`umsg_as_nobody`](Self::umsg_as_nobody) does, with further environment variables.
    pub fn umsg_as_nobody_with(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Option<Outcome> {
        if !is_root() {
            return None;
        }
        // The copy is needed: the other user may have no access to the directory in which the command was built.
        let workshop = Workshop::new();
        let mut command = Command::new(workshop.copy(env!("CARGO_BIN_EXE_umsg"), "umsg"));
        clean(&mut command)
            .env("UMSG_DIR", self.path())
            .args(arguments);
        command.envs(variables.iter().copied());
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        Some(finish(&mut command, b""))
    }

    /// Writes bytes into a queue's file, such as `mq/q`, at an offset.
    pub fn scribble(&self, file: &str, offset: u64, bytes: &[u8]) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.path().join(file));
        file.unwrap().write_all_at(bytes, offset).unwrap();
    }

    /// Returns the first bytes of a file of the namespace.
    pub fn header(&self, file: &str) -> [u8; 64] {
        let file = std::fs::File::open(self.path().join(file)).unwrap();
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).unwrap();
        header
    }

    /// Returns the pages of a file of the namespace that contain a byte other than 0, by offset. The file of a System V queue has gigabytes of holes.
    pub fn pages(&self, file: &str) -> BTreeMap<u64, Vec<u8>> {
        const PAGE: u64 = 4096;
        let file = std::fs::File::open(self.path().join(file)).unwrap();
        let mut pages = BTreeMap::new();
        let mut at = 0;
        // The loop ends with ENXIO: only a hole is left.
        while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
            let end = seek(&file, SeekFrom::Hole(data)).unwrap();
            for offset in (data / PAGE * PAGE..end).step_by(PAGE as usize) {
                let mut page = vec![0; PAGE.min(end - offset) as usize];
                file.read_exact_at(&mut page, offset).unwrap();
                if page.iter().any(|byte| *byte != 0) {
                    pages.insert(offset, page);
                }
            }
            at = end;
        }
        pages
    }

    /// Waits until `umsg stat NAME` shows this number in the given field.
    pub fn wait_for(&self, name: &str, field: &str, number: u64) {
        let start = Instant::now();
        while self.umsg(&["stat", name, "--json"]).json()[field] != number {
            assert!(
                start.elapsed() < PATIENCE,
                "{name}: {field} is not {number}"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn clean(command: &mut Command) -> &mut Command {
    for variable in [
        "UMSG_PRELOAD",
        "UMSG_RAW_SYSCALLS",
        "UMSG_WAIT",
        "UMSG_DEBUG",
        "LD_PRELOAD",
    ] {
        command.env_remove(variable);
    }
    command
}

pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

pub fn give_to(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
}

pub fn start(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs a command to its end.
pub fn finish(command: &mut Command, input: &[u8]) -> Outcome {
    let mut child = start(command);
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // A failed write is ignored: the command may end before it has read the whole input.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let outcome = end(child);
    writer.join().unwrap();
    outcome
}

/// Waits for a command that was started. Kills the command if it is stuck.
pub fn end(mut child: Child) -> Outcome {
    drop(child.stdin.take());
    let output = child.stdout.take().map(read_all);
    let errors = child.stderr.take().map(read_all);
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > PATIENCE => child.kill().unwrap(),
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let joined = |reader: Option<thread::JoinHandle<_>>| {
        reader
            .map(|reader| reader.join().unwrap())
            .unwrap_or_default()
    };
    Outcome {
        code: status.code(),
        output: joined(output),
        errors: String::from_utf8(joined(errors)).unwrap(),
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}
