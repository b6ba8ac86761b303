//! Tests `umsg recv --exec`: commands that process messages, and how the commands end.

mod support;

use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use support::{Outcome, Site, end, start};
use umsg_testkit::signals::heeding_interrupts;

/// A namespace whose queue `/jobs` has the given messages, and a trace file for the commands.
struct Shop(Site);

impl Shop {
    fn new(messages: &[&str]) -> Shop {
        Shop::with(&[], messages)
    }

    fn with(attributes: &[&str], messages: &[&str]) -> Shop {
        let shop = Shop(Site::new());
        shop.0
            .umsg(&[&["create", "/jobs"], attributes].concat())
            .text();
        for message in messages {
            shop.0.umsg(&["send", "/jobs", message, "-p", "7"]).text();
        }
        shop
    }

    /// The trace lies next to the namespace's directory, because that directory must have no foreign files.
    fn trace(&self) -> PathBuf {
        self.0.path().with_extension("trace")
    }

    /// Returns the path of a file whose existence ends the command of a test, `$T.end` for the command.
    fn end_of_command(&self) -> PathBuf {
        self.0.path().with_extension("trace.end")
    }

    /// Returns the lines that commands appended to the trace.
    fn traced(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.trace()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns `umsg recv` with the options, and a shell script as its command. `$T` is the trace.
    fn command(&self, options: &[&str], script: &str, arguments: &[&str]) -> Command {
        let all = [
            &["recv", "/jobs"],
            options,
            &["--exec", "bash", "-c", script],
            arguments,
        ];
        let mut command = self.0.command(&all.concat());
        command.env("T", self.trace());
        command
    }

    fn work(&self, options: &[&str], script: &str) -> Outcome {
        end(start(&mut self.command(options, script, &[])))
    }

    fn start(&self, options: &[&str], script: &str) -> Child {
        let mut command = self.command(options, script, &[]);
        start(heeding_interrupts(&mut command))
    }

    fn figure(&self, field: &str) -> u64 {
        self.0.umsg(&["stat", "/jobs", "--json"]).json()[field]
            .as_u64()
            .unwrap()
    }

    #[track_caller]
    fn wait_for_lines(&self, count: usize) {
        let start = Instant::now();
        while self.traced().len() < count {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{:?}",
                self.traced()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.trace());
        let _ = std::fs::remove_file(self.end_of_command());
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// Waits until the first thread of `umsg recv`, which reads the signals, has handled all of them and sleeps again.
fn wait_for_no_signal(child: &Child) {
    let is = |field: &str, wanted: &str| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)).unwrap();
        value.trim_start().starts_with(wanted)
    };
    let start = Instant::now();
    while !(is("ShdPnd:", "0000000000000000") && is("State:", "S")) {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn ended(outcome: &Outcome, code: i32, last_line: &str) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    let last = outcome.errors.lines().last().unwrap_or_default();
    assert!(last.starts_with(last_line), "{outcome:?}");
}

#[test]
fn the_message_is_standard_input_argument_and_environment() {
    let shop = Shop::new(&[]);
    shop.0.umsg(&["send", "/jobs", "a b\n", "-p", "7"]).text();
    let script = r#"od -An -c; echo "$0|$1|$UMSG_QUEUE|$UMSG_PRIORITY|$UMSG_TYPE|$UMSG_DELIVERIES|$UMSG_DIR"; echo $UMSG_SENDER >> "$T""#;
    let mut command = shop.command(&[], script, &["<{}>", "--follow"]);
    let outcome = end(start(command.env("UMSG_TYPE", "stale")));
    ended(&outcome, 0, "umsg: /jobs: 1 acknowledged, 0 returned, in ");
    let dir = shop.0.path().display();
    assert_eq!(
        String::from_utf8(outcome.output).unwrap(),
        format!("   a       b  \\n\n<a b>|--follow|/jobs|7||1|{dir}\n")
    );
    assert!(shop.traced()[0].parse::<u32>().unwrap() > 0);
    assert_eq!(shop.figure("messages"), 0);
}

#[test]
fn a_command_gets_the_type_of_a_system_v_message() {
    let site = Site::new();
    site.umsg(&["create", "key:0x77"]).text();
    site.umsg(&["send", "key:0x77", "x", "--type", "9"]).text();
    let script = "echo $UMSG_QUEUE $UMSG_TYPE $UMSG_PRIORITY; cat";
    let outcome = site.umsg(&["recv", "0x77", "--type", "9", "--exec", "sh", "-c", script]);
    ended(&outcome, 0, "umsg: key:0x77: 1 acknowledged");
    assert_eq!(outcome.output, b"key:0x77 9\nx");
    // A failed command returns the message to the queue.
    site.umsg(&["send", "key:0x77", "y"]).text();
    ended(
        &site.umsg(&["recv", "0x77", "--exec", "false"]),
        1,
        "umsg: key:0x77: 0 acknowledged, 1 returned",
    );
    assert_eq!(site.umsg(&["recv", "0x77"]).text(), "y\n");
}

#[test]
fn a_message_returns_unless_the_exit_code_is_0_and_each_is_tried_once() {
    let shop = Shop::new(&["good", "bad", "good"]);
    let outcome = shop.work(&["--all"], "read m; echo $m >> $T; test $m = good");
    ended(&outcome, 1, "umsg: /jobs: 2 acknowledged, 1 returned");
    let told = ", delivery 1: the command failed with exit code 1; the message returns";
    assert!(
        outcome.errors.starts_with("umsg: /jobs: message ") && outcome.errors.contains(told),
        "{outcome:?}"
    );
    assert_eq!(shop.traced(), ["good", "bad", "good"]);
    let left = shop.0.umsg(&["recv", "/jobs", "--json"]).json();
    assert_eq!(
        (&left["data"], &left["deliveries"]),
        (&json!("bad"), &json!(2))
    );
}

#[test]
fn the_report_of_a_last_delivery_names_the_dead_letter_queue_without_follow_too() {
    let policy = ["--max-deliveries", "1", "--dead-letter", "/failed"];
    let shop = Shop::with(&policy, &["bad"]);
    let outcome = shop.work(&[], "false");
    assert!(
        outcome
            .errors
            .contains("the message goes to the dead-letter queue when umsg ends\n"),
        "{outcome:?}"
    );
    assert_eq!(shop.0.umsg(&["recv", "/failed"]).text(), "bad\n");
}

#[test]
fn a_message_that_always_fails_goes_to_the_dead_letter_queue_and_the_work_goes_on() {
    let policy = ["--max-deliveries", "2", "--dead-letter", "/failed"];
    let shop = Shop::with(&policy, &["bad", "good"]);
    let script = "read m; echo $m$UMSG_DELIVERIES >> $T; test $m = good";
    let outcome = shop.work(&["--follow", "--timeout", "0.3"], script);
    ended(&outcome, 1, "umsg: /jobs: 1 acknowledged, 2 returned");
    assert!(
        outcome
            .errors
            .contains("goes to the dead-letter queue /failed\n"),
        "{outcome:?}"
    );
    assert_eq!(shop.traced(), ["bad1", "bad2", "good1"]);
    assert_eq!(shop.0.umsg(&["recv", "/failed"]).text(), "bad\n");
}

#[test]
fn a_message_that_returns_with_a_delay_keeps_the_worker_from_no_other() {
    for of_queue in [false, true] {
        let work = |delay: &str, messages: &[&str], options: &[&str], last: &str| {
            let delay = ["--retry-delay", delay];
            let (policy, option) = match of_queue {
                true => (&delay[..], &[][..]),
                false => (&[][..], &delay[..]),
            };
            let shop = Shop::with(policy, messages);
            let fails = "read m; echo $m$UMSG_DELIVERIES >> $T; test $m$UMSG_DELIVERIES != bad1";
            let options = [&["--follow"], options, option].concat();
            let outcome = shop.work(&options, &format!("{fails} && {last}"));
            (shop, outcome)
        };
        // No command takes as long as the delay, even on a busy machine.
        let (shop, outcome) = work(
            "1h",
            &["bad", "good", "fine"],
            &["--timeout", "0.3"],
            "true",
        );
        ended(&outcome, 1, "umsg: /jobs: 2 acknowledged, 1 returned");
        assert_eq!(shop.traced(), ["bad1", "good1", "fine1"]);
        assert_eq!(shop.figure("delayed"), 1);
        // The second delivery closes the queue, so that the worker ends after it.
        let close = format!("{} close /jobs", env!("CARGO_BIN_EXE_umsg"));
        let (shop, outcome) = work("400ms", &["bad"], &[], &close);
        ended(&outcome, 1, "umsg: /jobs: 1 acknowledged, 1 returned");
        let told = "exit code 1; the message is delivered again after 400ms";
        assert!(outcome.errors.contains(told), "{outcome:?}");
        assert_eq!(shop.traced(), ["bad1", "bad2"]);
    }
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let alone = site.umsg(&["recv", "/q", "--retry-delay", "1s"]);
    ended(&alone, 2, "umsg: --retry-delay needs --exec or --ack");
}

#[test]
fn jobs_run_at_once_up_to_the_number() {
    let shop = Shop::new(&["1", "2", "3", "4"]);
    // Each command waits until two of them run: if only one ran at a time, the first would wait for ever.
    let script = r#"echo $1 >> $T; for i in $(seq 1000); do test $(wc -l < $T) -ge 2 && exit 0; sleep 0.01; done; exit 1"#;
    let mut command = shop.command(&["--all", "--jobs", "2", "--json"], script, &["x", "{}"]);
    let outcome = end(start(&mut command));
    let figures = outcome.json();
    assert_eq!(
        (&figures["acknowledged"], &figures["returned"]),
        (&json!(4), &json!(0))
    );
    assert_eq!(figures["queue"], "/jobs");
    let mut all = shop.traced();
    all.sort();
    assert_eq!(all, ["1", "2", "3", "4"]);
}

#[test]
fn a_command_that_takes_too_long_is_ended_and_its_message_returns() {
    let shop = Shop::new(&["slow"]);
    let is_begun = |traced: &[String]| traced.first().is_some_and(|line| line != "told");
    let mut time = 200;
    // On a busy machine, the time may be over before the shell has written its first line.
    while !is_begun(&shop.traced()) {
        assert!(time < 100_000, "the shell does not begin");
        let _ = std::fs::remove_file(shop.trace());
        let outcome = shop.work(
            &["--timeout-per-job", &format!("{time}ms")],
            r#"trap 'echo told >> $T; exit 0' TERM; sleep 100 & echo $! >> $T; wait"#,
        );
        ended(&outcome, 1, "umsg: /jobs: 0 acknowledged, 1 returned");
        assert!(
            outcome.errors.contains("the command exceeded its time"),
            "{outcome:?}"
        );
        time *= 2;
    }
    assert_eq!(shop.traced()[1], "told");
    // The processes that the command has started are killed, too.
    let child = shop.traced()[0].clone();
    let start = Instant::now();
    while std::fs::read_to_string(format!("/proc/{child}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(shop.figure("messages"), 1);
}

#[test]
fn programs_get_each_failure_with_the_message_and_the_end_of_the_command() {
    let shop = Shop::new(&["exits", "dies", "good"]);
    let script = "read m; case $m in exits) exit 7;; dies) kill -KILL $$;; esac";
    let outcome = shop.work(&["--all", "--jobs", "2", "--json"], script);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let figures: serde_json::Value = serde_json::from_slice(&outcome.output).unwrap();
    let mut failures = figures["failures"].as_array().unwrap().clone();
    failures.sort_by_key(|failure| failure["id"].as_u64());
    assert_eq!(failures.len(), 2, "{figures}");
    let of = |n: usize, field: &str| failures[n][field].clone();
    assert_eq!(
        (of(0, "exit_code"), of(0, "signal")),
        (json!(7), json!(null))
    );
    assert_eq!(
        (of(1, "exit_code"), of(1, "signal")),
        (json!(null), json!(9))
    );
    assert_eq!(
        (of(0, "priority"), of(0, "deliveries")),
        (json!(7), json!(1))
    );
    let peeked = shop.0.umsg(&["peek", "/jobs", "--json"]).json_lines();
    assert_eq!(
        (&peeked[0]["data"], &peeked[0]["id"]),
        (&json!("exits"), &of(0, "id"))
    );
    for part in ["exit code 7; ", "signal 9 ended the command; "] {
        assert!(outcome.errors.contains(part), "{outcome:?}");
    }
}

#[test]
fn a_command_that_ignores_sigterm_is_killed() {
    let shop = Shop::new(&["deaf"]);
    let outcome = shop.work(
        &["--timeout-per-job", "50ms"],
        "trap '' TERM; while :; do sleep 0.1; done",
    );
    ended(&outcome, 1, "umsg: /jobs: 0 acknowledged, 1 returned");
    assert_eq!(shop.figure("messages"), 1);
}

#[test]
fn a_killed_command_returns_its_message() {
    let shop = Shop::new(&["x"]);
    let outcome = shop.work(&[], "kill -9 $$");
    ended(&outcome, 1, "umsg: /jobs: 0 acknowledged, 1 returned");
    assert!(
        outcome.errors.contains("signal 9 ended the command"),
        "{outcome:?}"
    );
    assert_eq!(shop.0.umsg(&["recv", "/jobs"]).text(), "x\n");
}

#[test]
fn a_killed_umsg_returns_the_messages_and_ends_the_commands() {
    let shop = Shop::new(&["1", "2", "3"]);
    let mut worker = shop.start(
        &["--follow", "--jobs", "2"],
        "echo $$ >> $T; exec sleep 100",
    );
    shop.wait_for_lines(2);
    worker.kill().unwrap();
    worker.wait().unwrap();
    for pid in shop.traced() {
        let start = Instant::now();
        while std::path::Path::new(&format!("/proc/{pid}")).exists() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.contains(") Z ") {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{pid} lives");
            thread::sleep(Duration::from_millis(5));
        }
    }
    let mut left: Vec<String> = Vec::new();
    for _ in 0..3 {
        left.push(
            shop.0
                .umsg(&["recv", "/jobs", "--timeout", "20"])
                .text()
                .trim()
                .to_owned(),
        );
    }
    left.sort();
    assert_eq!(left, ["1", "2", "3"]);
}

#[test]
fn the_first_signal_lets_running_commands_end_and_starts_no_more() {
    for name in ["TERM", "INT"] {
        let shop = Shop::new(&["1", "2"]);
        let worker = shop.start(
            &["--follow"],
            "echo begun >> $T; until [ -e $T.end ]; do sleep 0.05; done; echo done >> $T",
        );
        shop.wait_for_lines(1);
        signal(&worker, name);
        wait_for_no_signal(&worker);
        std::fs::write(shop.end_of_command(), "").unwrap();
        ended(&end(worker), 0, "umsg: /jobs: 1 acknowledged, 0 returned");
        assert_eq!(shop.traced(), ["begun", "done"]);
        assert_eq!(shop.figure("messages"), 1);
    }
}

#[test]
fn a_second_signal_kills_the_commands_and_their_messages_return() {
    let shop = Shop::new(&["1"]);
    let worker = shop.start(&["--follow"], "echo begun >> $T; sleep 100");
    shop.wait_for_lines(1);
    signal(&worker, "TERM");
    // The kernel merges a second signal with a first one that was not read yet.
    wait_for_no_signal(&worker);
    signal(&worker, "TERM");
    let outcome = end(worker);
    ended(&outcome, 1, "umsg: /jobs: 0 acknowledged, 1 returned");
    assert!(
        outcome
            .errors
            .contains("the command was killed; the message is back in the queue"),
        "{outcome:?}"
    );
    assert_eq!(shop.figure("messages"), 1);
}

#[test]
fn a_signal_ends_the_wait_for_a_message() {
    for jobs in ["1", "3"] {
        let shop = Shop::new(&[]);
        let worker = shop.start(&["--follow", "--jobs", jobs], "true");
        shop.0.wait_for("/jobs", "blocked_receivers", 1);
        signal(&worker, "TERM");
        ended(&end(worker), 0, "umsg: /jobs: 0 acknowledged, 0 returned");
    }
}

#[test]
fn an_ignored_sigint_stays_ignored() {
    let shop = Shop::new(&["1"]);
    let umsg = env!("CARGO_BIN_EXE_umsg");
    let script = format!(
        "trap '' INT; exec {umsg} recv /jobs --follow --exec sh -c 'echo begun >> $T; sleep 0.3; echo done >> $T'"
    );
    let mut command = Command::new("bash");
    command
        .args(["-c", &script])
        .env("UMSG_DIR", shop.0.path())
        .env("T", shop.trace());
    let worker = start(&mut command);
    shop.wait_for_lines(1);
    signal(&worker, "INT");
    shop.wait_for_lines(2);
    shop.0.umsg(&["send", "/jobs", "2"]).text();
    shop.wait_for_lines(4);
    signal(&worker, "TERM");
    ended(&end(worker), 0, "umsg: /jobs: 2 acknowledged");
}

#[test]
fn what_can_not_be_an_argument_returns_and_says_why() {
    let shop = Shop::with(&["--message-size", "1M"], &[]);
    shop.0.umsg_with_input(&["send", "/jobs"], b"a\0b").text();
    let outcome = shop.0.umsg(&["recv", "/jobs", "--exec", "echo", "{}"]);
    ended(&outcome, 1, "umsg: /jobs: 0 acknowledged, 1 returned");
    assert!(
        outcome.errors.contains("the message has a NUL byte"),
        "{outcome:?}"
    );
    let outcome = shop.0.umsg(&["recv", "/jobs", "--exec", "cat"]);
    assert_eq!((outcome.code, &outcome.output[..]), (Some(0), &b"a\0b"[..]));
    shop.0
        .umsg_with_input(&["send", "/jobs"], &[b'x'; 1 << 20])
        .text();
    let outcome = shop.0.umsg(&["recv", "/jobs", "--exec", "true", "{}"]);
    ended(&outcome, 1, "umsg: /jobs: 0 acknowledged, 1 returned");
    assert!(
        outcome.errors.contains("too long for an argument"),
        "{outcome:?}"
    );
    let outcome = shop.0.umsg(&["recv", "/jobs", "--exec", "wc", "-c"]);
    assert_eq!(outcome.output, b"1048576\n");
}

#[test]
fn a_command_that_does_not_exist_takes_no_message() {
    let shop = Shop::new(&["x"]);
    for (command, code) in [("no-such-command", 127), ("/dev/null", 126), ("/tmp", 126)] {
        let outcome = shop.0.umsg(&["recv", "/jobs", "--exec", command]);
        outcome.fails(code, &[command]);
    }
    let left = shop.0.umsg(&["recv", "/jobs", "--json"]).json();
    assert_eq!(left["deliveries"], 1);
}

#[test]
fn the_end_of_the_receiving_has_its_code() {
    let shop = Shop::new(&["x"]);
    let outcome = shop.work(&["--count", "2", "--timeout", "0.05"], "true");
    ended(&outcome, 3, "umsg: /jobs: 1 acknowledged, 0 returned");
    let outcome = shop.work(&["--nonblocking", "--quiet"], "true");
    assert_eq!((outcome.code, outcome.errors.as_str()), (Some(3), ""));
    let worker = shop.start(&["--follow"], "true");
    shop.0.wait_for("/jobs", "blocked_receivers", 1);
    shop.0.umsg(&["rm", "/jobs"]).text();
    let outcome = end(worker);
    ended(&outcome, 4, "umsg: /jobs: 0 acknowledged");
    assert!(
        outcome.errors.contains("the queue was removed"),
        "{outcome:?}"
    );
}

#[test]
fn options_of_the_work_need_it_and_those_of_printing_exclude_it() {
    let shop = Shop::new(&["x"]);
    for arguments in [
        &["--jobs", "2"][..],
        &["--timeout-per-job", "2"],
        &["--jobs", "0", "--exec", "true"],
        &["--ack", "--exec", "true"],
        &["--output", "hex", "--exec", "true"],
        &["--exec"],
    ] {
        let outcome = shop.0.umsg(&[&["recv", "/jobs"], arguments].concat());
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
    }
    assert_eq!(shop.figure("messages"), 1);
}

#[test]
fn many_workers_do_each_message_once() {
    let shop = Shop::with(&["--max-messages", "300"], &[]);
    let lines: String = (0..200).map(|n| format!("{n}\n")).collect();
    shop.0
        .umsg_with_input(&["send", "/jobs", "--lines"], lines.as_bytes())
        .text();
    let worker = || {
        shop.start(
            &["--follow", "--jobs", "2", "--timeout", "5"],
            r#"echo "$(cat)" >> $T"#,
        )
    };
    let mut workers = [worker(), worker(), worker()];
    shop.wait_for_lines(40);
    // After the worker is killed by SIGKILL, its messages are redelivered.
    workers[0].kill().unwrap();
    workers[0].wait().unwrap();
    for worker in workers.into_iter().skip(1) {
        let outcome = end(worker);
        assert_eq!(outcome.code, Some(3), "{outcome:?}");
    }
    let mut done: Vec<u32> = shop
        .traced()
        .iter()
        .filter_map(|line| line.parse().ok())
        .collect();
    done.sort_unstable();
    let repeated = done.len();
    done.dedup();
    assert_eq!(done, (0..200).collect::<Vec<u32>>());
    assert!(repeated <= 202, "{repeated}");
}

#[test]
fn the_end_of_the_stream_ends_workers_that_follow() {
    let shop = Shop::new(&["1", "2"]);
    shop.0.umsg(&["close", "/jobs"]).text();
    let outcome = shop.work(&["--follow", "--jobs", "2"], "cat");
    ended(&outcome, 0, "umsg: /jobs: 2 acknowledged, 0 returned");
    assert_eq!(shop.0.umsg(&["recv", "/jobs", "--follow"]).text(), "");
    assert_eq!(shop.0.umsg(&["recv", "/jobs", "--all"]).text(), "");
    let outcome = shop.work(&["--count", "1"], "cat");
    ended(&outcome, 6, "umsg: /jobs: 0 acknowledged, 0 returned");
    assert!(
        outcome.errors.contains("the end of the stream"),
        "{outcome:?}"
    );
    // A worker that already waits for a message also learns that the queue was closed for sending.
    let shop = Shop::new(&[]);
    let worker = shop.start(&["--follow"], "cat");
    shop.0.wait_for("/jobs", "blocked_receivers", 1);
    shop.0.umsg(&["close", "/jobs"]).text();
    ended(&end(worker), 0, "umsg: /jobs: 0 acknowledged, 0 returned");
}

#[test]
fn a_failed_command_ends_the_work_once_the_reader_of_the_output_has_ended() {
    for jobs in ["1", "3"] {
        let shop = Shop::new(&["silent"]);
        // The commands that print are started after the other threads wait for a message.
        let script = "read -r m; echo $m >>$T; [ $m = silent ] || echo output";
        let options = ["--follow", "--jobs", jobs, "--retry-delay", "1h"];
        let mut child = start(&mut shop.command(&options, script, &[]));
        drop(child.stdout.take());
        shop.wait_for_lines(1);
        shop.0.umsg(&["send", "/jobs", "loud"]).text();
        let outcome = end(child);
        let why = "the reader of standard output has ended, and a message went back";
        let says = outcome.errors.contains(why);
        assert!(outcome.code == Some(1) && says, "{jobs} jobs: {outcome:?}");
        assert_eq!(shop.traced(), ["silent", "loud"]);
        assert_eq!(shop.figure("delayed"), 1);
    }
}
