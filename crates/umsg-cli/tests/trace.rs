//! Tests `umsg trace`: the calls of a program.

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::compiler::Workshop;
use support::patients::Killed;
use support::{Outcome, Site, finish, start};
use umsg_testkit::artefacts::drop_in;
use umsg_testkit::signals::heeding_interrupts;

/// A time longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Stage {
    site: Site,
    workshop: Workshop,
}

impl Stage {
    fn new() -> Stage {
        Stage {
            site: Site::new(),
            workshop: Workshop::new(),
        }
    }

    fn program(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/trace")
            .join(format!("{name}.c"));
        let source = std::fs::read_to_string(source).unwrap();
        self.workshop.compile(name, &source, &["-pthread", "-lrt"])
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        command.env("UMSG_PRELOAD", drop_in());
        command
    }

    /// Traces a program to its end.
    fn trace(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Outcome {
        let program = program.to_str().unwrap();
        let all = [&["trace"], options, &["--", program], arguments].concat();
        finish(&mut self.command(&all), b"")
    }

    /// Returns the records of a program's calls.
    fn records(&self, program: &Path, arguments: &[&str]) -> Vec<Value> {
        let file = self.workshop.path("records");
        let output = file.to_str().unwrap();
        self.trace(&["--json", "--output", output], program, arguments)
            .text();
        let lines = std::fs::read_to_string(file).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Starts a program under `umsg run`. The program's first line of output says that its queue exists.
    fn run(&self, program: &Path) -> Killed {
        let arguments = ["run", "--", program.to_str().unwrap()];
        let mut process = Killed(start(&mut self.command(&arguments)));
        let mut line = String::new();
        BufReader::new(process.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        process
    }

    fn attach(&self, options: &[&str], process: &Killed) -> Attached {
        let pid = process.0.id().to_string();
        let mut command = self.command(&[&["trace", "--pid", &pid], options].concat());
        let mut process = Killed(start(heeding_interrupts(&mut command)));
        let errors = BufReader::new(process.0.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // The thread reads all output, so that the command never waits for the test. The thread ends with the command.
        thread::spawn(move || {
            errors
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let attached = Attached { process, lines };
        assert!(attached.line().contains("is traced; Ctrl-C ends the trace"));
        attached
    }

    /// Returns the names of rings in the namespace.
    fn rings(&self) -> Vec<String> {
        let rings = std::fs::read_dir(self.site.path().join("ring"));
        let names = rings.into_iter().flatten().map(|entry| entry.unwrap());
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        // A killed `umsg trace` also leaves the hidden file through which other processes polled its ring.
        names.filter(|name| !name.starts_with('.')).collect()
    }
}

/// A running `umsg trace --pid`.
struct Attached {
    process: Killed,
    lines: Receiver<String>,
}

impl Attached {
    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

/// Returns a line of `umsg trace` without the parts that differ from run to run: time, process, duration, and whether the call slept. Even a short
/// call sleeps if the kernel has to wait for a lock in one of its system calls or page faults.
fn stable(line: &str) -> String {
    let (_, call) = line.split_once("] ").unwrap();
    let (call, rest) = call.split_once(" <").unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    format!("{call}{rest}").replace(" slept", "")
}

#[test]
fn each_call_is_shown_with_its_arguments_result_and_depth() {
    let stage = Stage::new();
    let outcome = stage.trace(&[], &stage.program("calls"), &[]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    let lines: Vec<String> = outcome.errors.lines().map(stable).collect();
    let expected = [
        r#"mq_open("/jobs", O_RDWR|O_CREAT|O_EXCL, 0600, {mq_maxmsg=10, mq_msgsize=64}) = 3"#,
        r#"mq_open("/jobs", O_RDWR|O_CREAT|O_EXCL, 0600, NULL) = -1 EEXIST"#,
        r#"mq_send(3</jobs>, "hello", 5, 3) = 0 depth 1"#,
        r#"mq_receive(3</jobs>, "hello", 64, [3]) = 5 depth 0"#,
        r#"mq_timedreceive(3</jobs>, ..., 64, ..., {1, 5}) = -1 ETIMEDOUT depth 0"#,
        r#"mq_send(3</jobs>, ..., 65, 0) = -1 EMSGSIZE depth 0"#,
        r"mq_setattr(3</jobs>, {mq_flags=O_NONBLOCK}) = 0 depth 0",
        r"mq_receive(3</jobs>, ..., 64, ...) = -1 EAGAIN depth 0",
        r"mq_getattr(3</jobs>, {mq_flags=O_NONBLOCK, mq_maxmsg=10, mq_msgsize=64, mq_curmsgs=0}) = 0 depth 0",
        r"mq_notify(3</jobs>, {SIGEV_NONE}) = 0 depth 0",
        r"mq_notify(3</jobs>, NULL) = 0 depth 0",
        r#"mq_send(3</jobs>, "0123456789012345678901234567890\xff"..., 40, 0) = 0 depth 1"#,
        r"mq_close(3</jobs>) = 0",
        r#"mq_unlink("/jobs") = 0"#,
        r#"mq_unlink("/jobs") = -1 ENOENT"#,
        r"msgget(0x4d, IPC_CREAT|0600) = ID depth 0",
        r#"msgsnd(ID, {4, "abc"}, 3, 0) = 0 depth 1"#,
        r#"msgrcv(ID, {4, "abc"}, 10, -5, MSG_NOERROR) = 3 depth 0"#,
        r"msgrcv(ID, ..., 10, 0, IPC_NOWAIT) = -1 ENOMSG depth 0",
        r"msgctl(ID, IPC_STAT) = 0 depth 0",
        r"msgctl(ID, IPC_RMID) = 0",
    ];
    assert_eq!(lines, with_identifier(&expected, &lines));
    assert!(stage.rings().is_empty(), "{:?}", stage.rings());
}

/// Replaces `ID` in the expected lines by the identifier that msgget has returned.
fn with_identifier(expected: &[&str], lines: &[String]) -> Vec<String> {
    let got = lines.iter().find(|line| line.starts_with("msgget("));
    let id = got.and_then(|line| line.split(" = ").nth(1)).unwrap();
    let id = id.split(' ').next().unwrap();
    let expected = expected.iter();
    let expected = expected.map(|line| line.replace("ID,", &format!("{id},")));
    expected
        .map(|line| line.replace("= ID", &format!("= {id}")))
        .collect()
}

#[test]
fn a_call_by_its_number_has_the_name_of_the_function() {
    let stage = Stage::new();
    let outcome = stage.trace(&[], &stage.program("numbered"), &[]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    let lines: Vec<String> = outcome.errors.lines().map(stable).collect();
    let expected = [
        r#"mq_open("/jobs", O_RDWR|O_CREAT|O_EXCL, 0600, {mq_maxmsg=10, mq_msgsize=64}) = 3"#,
        r#"mq_open("/jobs", O_RDWR|O_CREAT|O_EXCL, 0600, NULL) = -1 EEXIST"#,
        r#"mq_open("//jobs", O_RDWR) = -1 EACCES"#,
        r#"mq_send(3</jobs>, "hello", 5, 3) = 0 depth 1"#,
        r#"mq_receive(3</jobs>, "hello", 64, [3]) = 5 depth 0"#,
        r#"mq_timedreceive(3</jobs>, ..., 64, ..., {1, 5}) = -1 ETIMEDOUT depth 0"#,
        r#"mq_timedsend(3</jobs>, "", 0, 0, {1, 5}) = 0 depth 1"#,
        r"mq_setattr(3</jobs>, {mq_flags=O_NONBLOCK}) = 0 depth 1",
        r"mq_getattr(3</jobs>, {mq_flags=O_NONBLOCK, mq_maxmsg=10, mq_msgsize=64, mq_curmsgs=1}) = 0 depth 1",
        r"mq_notify(3</jobs>, {SIGEV_NONE}) = 0 depth 1",
        r"mq_notify(3</jobs>, {SIGEV_THREAD}) = -1 EINVAL depth 1",
        r"mq_send(0, ..., 1, 0) = -1 EBADF",
        r"mq_close(3</jobs>) = 0",
        r#"mq_unlink("/jobs") = 0"#,
        r#"mq_unlink("/jobs") = -1 ENOENT"#,
        r"msgget(0x4d, IPC_CREAT|0600) = ID depth 0",
        r#"msgsnd(ID, {4, "abc"}, 3, 0) = 0 depth 1"#,
        r#"msgrcv(ID, {4, "abc"}, 10, -5, MSG_NOERROR) = 3 depth 0"#,
        r"msgrcv(ID, ..., 10, 0, IPC_NOWAIT) = -1 ENOMSG depth 0",
        r"msgctl(ID, IPC_RMID) = 0",
    ];
    assert_eq!(lines, with_identifier(&expected, &lines));
}

#[test]
fn records_name_queue_process_thread_and_duration() {
    let stage = Stage::new();
    let records = stage.records(&stage.program("family"), &[]);
    let of = |data: &str| {
        let found = records
            .iter()
            .find(|it| it["call"] == "mq_send" && it["data"] == data);
        found.unwrap_or_else(|| panic!("{data} in {records:?}"))
    };
    // The data of the messages in base64: those of the first thread, another thread, a child, and a program that the child executes.
    let [first, thread, child, program] = ["Zmlyc3Q=", "dGhyZWFk", "Y2hpbGQ=", "cHJvZ3JhbQ=="];
    let pid = of(first)["pid"].as_u64().unwrap();
    assert_eq!(of(first)["tid"], pid);
    assert_eq!(of(thread)["pid"], pid);
    assert_ne!(of(thread)["tid"], pid);
    assert_ne!(of(child)["pid"], pid);
    assert_eq!(of(program)["pid"], of(child)["pid"]);
    for data in [first, thread, child, program] {
        let record = of(data);
        assert_eq!(record["queue"], "/family");
        assert_eq!(record["errno"], Value::Null);
    }
    // The child has sent its message after the parent had slept for 50 ms in the call.
    let waits = |it: &&Value| it["call"] == "mq_receive" && it["data"] == child;
    let waited = records.iter().find(waits).expect("a call that waited");
    assert_eq!(waited["slept"], true, "{waited}");
    assert!(waited["seconds"].as_f64().unwrap() >= 0.04, "{waited}");
}

#[test]
fn filters_select_calls_and_the_summary_counts_them_all() {
    let stage = Stage::new();
    let program = stage.program("calls");
    let lines = |options: &[&str]| stage.trace(options, &program, &[]).errors.lines().count();
    assert_eq!(lines(&[]), 21);
    assert_eq!(lines(&["--calls", "mq_send,msgsnd"]), 4);
    assert_eq!(lines(&["--failed"]), 6);
    assert_eq!(lines(&["--errors", "EAGAIN,ENOENT"]), 2);
    assert_eq!(lines(&["--queue", "/jo*"]), 15);
    assert_eq!(lines(&["--queue", "id:*"]), 6);
    assert_eq!(lines(&["--slower-than", "1h"]), 0);
    let outcome = stage.trace(&["--summary", "--json"], &stage.program("many"), &["1000"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let rows: Vec<Value> = outcome
        .errors
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for call in ["mq_send", "mq_receive"] {
        let row = rows.iter().find(|row| row["call"] == call).unwrap();
        assert_eq!((&row["calls"], &row["errors"]), (&1000.into(), &0.into()));
    }
    let table = stage.trace(&["-c"], &program, &[]).errors;
    assert!(table.starts_with("CALL "), "{table}");
    for arguments in [["--calls", "mq_sendd"], ["--errors", "EWHAT"]] {
        stage.trace(&arguments, &program, &[]).fails_usage();
    }
}

#[test]
fn a_running_process_is_traced_until_the_command_ends_and_goes_on() {
    let stage = Stage::new();
    let process = stage.run(&stage.program("loop"));
    let mut attached = stage.attach(&["--calls", "mq_send"], &process);
    for _ in 0..3 {
        assert_eq!(
            stable(&attached.line()),
            r#"mq_send(3</loop>, "x", 1, 0) = 0 depth 1"#
        );
    }
    let again = finish(
        &mut stage.command(&["trace", "--pid", &process.0.id().to_string()]),
        b"",
    );
    again.fails(1, &["is already traced by process"]);
    attached.signal("-INT");
    assert_eq!(attached.process.0.wait().unwrap().code(), Some(0));
    assert!(stage.rings().is_empty(), "{:?}", stage.rings());
    // A killed `umsg trace` does not change the traced process. The next `umsg trace` uses or removes the ring of the killed one.
    let attached = stage.attach(&[], &process);
    attached.signal("-KILL");
    drop(attached);
    assert_eq!(stage.rings().len(), 1, "{:?}", stage.rings());
    let mut attached = stage.attach(&["--calls", "mq_receive"], &process);
    assert!(attached.line().contains("mq_receive(3</loop>, \"x\""));
    assert_eq!(stage.rings().len(), 1, "{:?}", stage.rings());
    // `umsg trace --pid` ends when the traced process has ended.
    drop(process);
    assert_eq!(attached.process.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_process_that_is_traced_again_and_again_keeps_one_ring() {
    let stage = Stage::new();
    let process = stage.run(&stage.program("loop"));
    for turn in 0..5 {
        let mut attached = stage.attach(&["--calls", "mq_send"], &process);
        attached.line();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.0.id())).unwrap();
        let rings = maps.lines().filter(|line| line.contains("/umsg-trace-"));
        let rings: std::collections::BTreeSet<_> = rings
            .map(|line| line.split_whitespace().nth(4).unwrap())
            .collect();
        assert_eq!(rings.len(), 1, "turn {turn}: {maps}");
        attached.signal("-INT");
        assert_eq!(attached.process.0.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_process_waits_for_a_stopped_command_and_loses_no_record() {
    let stage = Stage::new();
    let process = stage.run(&stage.program("loop"));
    let attached = stage.attach(&["--json", "--calls", "mq_send"], &process);
    attached.line();
    attached.signal("-STOP");
    // The ring has room for some thousand records. When the ring is full, the traced process waits for room, and sends nothing more.
    let sent = || stage.site.umsg(&["metrics"]).text().to_owned();
    let begin = Instant::now();
    let mut last = sent();
    loop {
        thread::sleep(Duration::from_millis(300));
        let now = sent();
        let count = |text: &str| {
            let line = text
                .lines()
                .find(|line| line.contains("messages_total") && line.contains("/loop"));
            line.map(str::to_owned)
        };
        assert!(count(&now).is_some(), "{now}");
        if count(&now) == count(&last) {
            break;
        }
        last = now;
        assert!(begin.elapsed() < PATIENCE, "the process does not wait");
    }
    attached.signal("-CONT");
    let mut last = None;
    for _ in 0..10_000 {
        let record: Value = serde_json::from_str(&attached.line()).unwrap();
        let number = record["pid"].as_u64();
        assert!(last.is_none() || last == number);
        last = number;
    }
    // A traced process that waits for room in the ring continues when `umsg trace` is killed.
    attached.signal("-STOP");
    thread::sleep(Duration::from_millis(500));
    attached.signal("-KILL");
    drop(attached);
    let attached = stage.attach(&[], &process);
    drop(attached);
    drop(process);
}

#[test]
fn a_traced_thread_can_be_cancelled_and_a_signal_decides_the_exit_code() {
    let stage = Stage::new();
    let outcome = stage.trace(&["--calls", "mq_receive"], &stage.program("cancelled"), &[]);
    assert_eq!(outcome.code, Some(128 + 15), "{outcome:?}");
    assert_eq!(outcome.output, b"cancelled\n");
}

#[test]
fn a_process_that_can_t_be_traced_is_named_with_the_reason() {
    let stage = Stage::new();
    let trace = |arguments: &[&str]| finish(&mut stage.command(arguments), b"");
    trace(&["trace", "--pid", "4194304"]).fails(1, &["there is no process 4194304"]);
    let own = std::process::id().to_string();
    trace(&["trace", "--pid", &own]).fails(1, &["does not use the drop-in", "umsg run"]);
    trace(&["trace", "--", "no-such-program"]).fails(127, &["was not found"]);
    trace(&["trace"]).fails_usage();
    let full = ["trace", "--output", "/dev/full", "--", "true"];
    assert_eq!(trace(&full).code, Some(0));
    let program = stage.program("calls");
    let full = stage.trace(&["--output", "/dev/full"], &program, &[]);
    full.fails(1, &["/dev/full: No space left on device"]);
    let missing = stage.trace(&["--output", "/nowhere/x"], &program, &[]);
    missing.fails(125, &["/nowhere/x", "--output"]);
}

trait Usage {
    fn fails_usage(&self);
}

impl Usage for Outcome {
    fn fails_usage(&self) {
        assert_eq!(self.code, Some(2), "{self:?}");
    }
}

#[test]
fn a_process_that_runs_as_another_user_is_named() {
    if !umsg_testkit::users::is_root() {
        return;
    }
    let stage = Stage::new();
    // The program runs until the test closes its input.
    let program = "setpriv --reuid 65534 --clear-groups cat; true";
    let mut command = stage.command(&["trace", "--", "sh", "-c", program]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut tracer = command.spawn().unwrap();
    let (input, errors) = (tracer.stdin.take(), tracer.stderr.take().unwrap());
    let (told, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(errors).lines() {
            let _ = told.send(line.unwrap());
        }
    });
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert!(
        line.contains("runs as user 65534 and can't send records"),
        "{line}"
    );
    drop(input);
    reader.join().unwrap();
    assert!(tracer.wait().unwrap().success());
    assert_eq!(lines.try_iter().count(), 0, "told once");
}
