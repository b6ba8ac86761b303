//! Tests `recv --follow` into pipes, the answers of `--ack`, and the formats of several messages in one stream.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use serde_json::json;
use support::{Site, end, finish, start};

const UMSG: &str = env!("CARGO_BIN_EXE_umsg");

fn site_with(messages: &[&str]) -> Site {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "1000"])
        .text();
    for message in messages {
        site.umsg(&["send", "/q", message]).text();
    }
    site
}

fn line(child: &mut Child) -> String {
    // The test reads one byte at a time, as `read` of a shell does, so it reads no later message.
    let output = child.stdout.as_mut().unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        output.read_exact(&mut byte).unwrap();
        match byte[0] {
            b'\n' => return String::from_utf8(line).unwrap(),
            byte => line.push(byte),
        }
    }
}

fn answer(child: &mut Child, text: &str) {
    child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
}

#[test]
fn a_follower_does_not_run_ahead_of_its_reader() {
    let site = site_with(&["a", "b", "c", "d"]);
    let mut follower = start(&mut site.command(&["recv", "/q", "--follow"]));
    assert_eq!(line(&mut follower), "a");
    // The follower acknowledges `a`, and then leases `b`.
    site.wait_for("/q", "messages", 2);
    site.wait_for("/q", "leased", 1);
    thread::sleep(Duration::from_millis(50));
    // `b` is in the pipe, and is still leased; `c` and `d` are in the queue.
    let state = site.umsg(&["stat", "/q", "--json"]).json();
    assert_eq!(
        (&state["messages"], &state["leased"]),
        (&json!(2), &json!(1))
    );
    // The reader ends before it has read `b`.
    drop(follower.stdout.take());
    end(follower).fails(1, &["the message is back in the queue"]);
    assert_eq!(site.umsg(&["recv", "/q", "--all"]).text(), "b\nc\nd\n");
}

#[test]
fn a_follower_may_be_told_to_run_ahead() {
    let site = site_with(&["a", "b", "c"]);
    let follower =
        start(&mut site.command(&["recv", "/q", "--follow", "--ahead", "--timeout", "0.2"]));
    site.wait_for("/q", "messages", 0);
    let outcome = end(follower);
    assert_eq!(
        (outcome.code, &outcome.output[..]),
        (Some(3), &b"a\nb\nc\n"[..])
    );
}

#[test]
fn workers_of_the_shell_share_the_messages_and_a_killed_one_loses_one_at_most() {
    let site = site_with(&[]);
    let lines: String = (0..400).map(|n| format!("{n}\n")).collect();
    site.umsg_with_input(&["send", "/q", "--lines"], lines.as_bytes())
        .text();
    // After its share of messages, each worker waits until the test lets it go on. So no worker takes the messages of a worker that gets no CPU.
    const SHARE: usize = 40;
    let script = format!(
        "exec 3<&0; n=0
         while read -r m; do echo $m; sleep 0.002; n=$((n + 1)); [ $n -ne {SHARE} ] || read -r go <&3; done \
            < <({UMSG} recv /q --follow --timeout 2 --quiet)"
    );
    let worker = || {
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("UMSG_DIR", site.path());
        start(&mut command)
    };
    let mut killed = worker();
    for _ in 0..10 {
        line(&mut killed);
    }
    killed.kill().unwrap();
    let mut rest = String::new();
    killed
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut rest)
        .unwrap();
    killed.wait().unwrap();
    let done = 10 + rest.lines().count();
    let mut workers: Vec<Child> = (0..3).map(|_| worker()).collect();
    for worker in &mut workers {
        for _ in 0..SHARE {
            line(worker);
        }
    }
    for worker in &mut workers {
        answer(worker, "go\n");
    }
    let shares: Vec<usize> = workers
        .into_iter()
        .map(|worker| {
            end(worker)
                .output
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count()
        })
        .collect();
    let all: usize = done + 3 * SHARE + shares.iter().sum::<usize>();
    assert!((399..=400).contains(&all), "{done} {shares:?}");
}

#[test]
fn an_answer_removes_or_returns_the_message() {
    let site = site_with(&["a", "b", "c"]);
    let mut worker = start(&mut site.command(&["recv", "/q", "--follow", "--ack"]));
    for (message, says) in [("a", "ok\n"), ("b", "retry\n"), ("b", "\n")] {
        assert_eq!(line(&mut worker), message);
        let state = site.umsg(&["stat", "/q", "--json"]).json();
        assert_eq!(state["leased"], 1);
        answer(&mut worker, says);
    }
    assert_eq!(line(&mut worker), "c");
    // The worker ends without an answer, so the message returns to the queue.
    end(worker).fails(
        1,
        &[
            "standard input ended before an answer",
            "is back in the queue",
        ],
    );
    let left = site.umsg(&["recv", "/q", "--json"]).json();
    assert_eq!(
        (&left["data"], &left["deliveries"]),
        (&json!("c"), &json!(2))
    );
}

#[test]
fn an_answer_that_is_none_returns_the_message() {
    let site = site_with(&["a"]);
    let outcome = site.umsg_with_input(&["recv", "/q", "--ack"], b"yes\n");
    outcome.fails(
        1,
        &[
            "the answer \"yes\" is neither ok, retry nor an empty line",
            "is back",
        ],
    );
    assert_eq!(outcome.output, b"a\n");
    assert_eq!(
        site.umsg_with_input(&["recv", "/q", "--ack"], b"ok\n")
            .text(),
        "a\n"
    );
}

#[test]
fn a_killed_umsg_or_an_absent_reader_returns_a_message_without_answer() {
    let site = site_with(&["a"]);
    let mut worker = start(&mut site.command(&["recv", "/q", "--ack"]));
    assert_eq!(line(&mut worker), "a");
    worker.kill().unwrap();
    worker.wait().unwrap();
    let mut worker = start(&mut site.command(&["recv", "/q", "--ack", "--timeout", "20"]));
    assert_eq!(line(&mut worker), "a");
    // Standard input stays open, although standard output is closed.
    let input = worker.stdin.take();
    drop(worker.stdout.take());
    end(worker).fails(1, &["the reader of standard output ended", "is back"]);
    drop(input);
    assert_eq!(site.umsg(&["recv", "/q"]).text(), "a\n");
}

#[test]
fn a_coprocess_of_the_shell_answers() {
    let site = site_with(&["1", "2", "3"]);
    let script = format!(
        "coproc W {{ {UMSG} recv /q --follow --ack --timeout 0.5 --quiet; }}
         while read -r job <&${{W[0]}}; do echo \"did $job\"; echo ok >&${{W[1]}}; done; exit 0"
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]).env("UMSG_DIR", site.path());
    assert_eq!(finish(&mut command, b"").output, b"did 1\ndid 2\ndid 3\n");
    assert_eq!(site.umsg(&["recv", "/q", "--all"]).text(), "");
}

#[test]
fn parts_that_end_with_nul_are_messages_and_messages_such_parts() {
    let site = site_with(&[]);
    let bytes = b"one\ntwo\0\0three";
    let sent = site.umsg_with_input(&["send", "/q", "-0", "--json"], bytes);
    assert_eq!(
        sent.json(),
        json!({"queue": "/q", "messages": 3, "bytes": 12})
    );
    let received = site.umsg(&["recv", "/q", "--all", "--null"]);
    assert_eq!(received.output, b"one\ntwo\0\0three\0");
    site.umsg(&["send", "/q", "x\n"]).text();
    assert_eq!(site.umsg(&["recv", "/q", "-0"]).output, b"x\n\0");
    for options in [&["send", "-0", "/q"][..], &["send", "/q", "--null"]] {
        site.umsg_with_input(options, b"a\0b\0").text();
        assert_eq!(
            site.umsg(&["recv", "/q", "--all", "--null"]).output,
            b"a\0b\0"
        );
    }
}

#[test]
fn the_line_feed_of_echo_gives_no_empty_line_and_can_be_left_out() {
    let site = site_with(&[]);
    let sizes = |arguments: &[&str], input: &[u8]| {
        site.umsg_with_input(&[&["send", "/q"], arguments].concat(), input)
            .text();
        let received = site.umsg(&["recv", "/q", "--all", "--json"]);
        received
            .json_lines()
            .iter()
            .map(|line| line["size"].as_u64().unwrap())
            .collect::<Vec<u64>>()
    };
    assert_eq!(sizes(&[], b"hi\n"), [3]);
    assert_eq!(sizes(&["--keep-newline"], b"hi\n"), [3]);
    assert_eq!(sizes(&["--strip-newline"], b"hi\n"), [2]);
    assert_eq!(sizes(&["--strip-newline"], b"hi\n\n"), [3]);
    assert_eq!(sizes(&["--strip-newline", "--keep-newline"], b"hi\n"), [3]);
    assert_eq!(sizes(&["--lines", "--keep-newline"], b"a\nb"), [2, 1]);
    assert_eq!(sizes(&["--lines"], b"a\n\nb"), [1, 0, 1]);
    site.umsg_with_input(&["send", "/q"], b"hi\n").text();
    site.umsg(&["send", "/q", "there"]).text();
    assert_eq!(site.umsg(&["recv", "/q", "--all"]).text(), "hi\nthere\n");
    let longest = vec![b'x'; 8192];
    let with_end = [&longest[..], b"\n"].concat();
    site.umsg_with_input(&["send", "/q", "--strip-newline"], &with_end)
        .text();
    site.umsg_with_input(&["send", "/q"], &with_end)
        .fails(1, &["too long"]);
    site.umsg(&["send", "/q", "x", "--strip-newline"])
        .fails(2, &["--strip-newline reads standard input"]);
}

#[test]
fn json_that_recv_printed_is_sent_as_it_was() {
    let site = site_with(&[]);
    site.umsg(&["create", "/copy"]).text();
    site.umsg(&["send", "/q", "grün\n", "-p", "5"]).text();
    site.umsg_with_input(&["send", "/q"], b"\xff\0").text();
    let printed = site.umsg(&["recv", "/q", "--all", "--json"]);
    let copied = site.umsg_with_input(&["send", "/copy", "--from-json"], &printed.output);
    copied.text();
    let again = site
        .umsg(&["recv", "/copy", "--all", "--json"])
        .json_lines();
    for (one, other) in printed.json_lines().iter().zip(&again) {
        for field in ["priority", "size", "encoding", "data"] {
            assert_eq!(one[field], other[field]);
        }
    }
    assert_eq!(again.len(), 2);
    // The input is JSON that was written by hand.
    site.umsg_with_input(
        &["send", "/q", "--from-json"],
        b"{\"data\":\"x\"}\n{\"data\":1}\n",
    )
    .fails(1, &["/q: line 2: not a message of `umsg recv --json`"]);
    site.umsg(&["create", "key:0x9"]).text();
    site.umsg_with_input(&["send", "0x9", "--from-json"], &printed.output)
        .fails(1, &["line 1: a System V queue has no priorities", "--type"]);
    site.umsg_with_input(
        &["send", "0x9", "--from-json", "--type", "4"],
        &printed.output,
    )
    .text();
    let typed = site.umsg(&["recv", "0x9", "--all", "--json"]);
    assert!(typed.json_lines().iter().all(|line| line["type"] == 4));
    site.umsg_with_input(&["send", "/q", "--from-json"], &typed.output)
        .fails(1, &["a POSIX queue has no types"]);
    let cut = site.umsg(&["recv", "/q", "--json", "--truncate", "0"]);
    site.umsg_with_input(&["send", "/q", "--from-json"], &cut.output)
        .fails(1, &["\"size\" is 1, but \"data\" has 0 bytes"]);
}

#[test]
fn quiet_says_nothing_of_an_empty_or_full_queue() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "1"]).text();
    let quiet = |arguments: &[&str]| {
        let outcome = site.umsg(arguments);
        assert_eq!(
            (outcome.code, outcome.errors.as_str()),
            (Some(3), ""),
            "{arguments:?}"
        );
    };
    quiet(&["recv", "/q", "--nonblocking", "--quiet"]);
    quiet(&["recv", "/q", "--timeout", "0.01", "-q"]);
    site.umsg(&["send", "/q", "x"]).text();
    quiet(&["send", "/q", "y", "--nonblocking", "-q"]);
    site.umsg(&["recv", "/none", "-q"]).fails(1, &["no queue"]);
    assert_eq!(
        site.umsg(&["recv", "/q", "--all", "--nonblocking"]).text(),
        "x\n"
    );
}

#[test]
fn a_buffered_reader_gets_each_message_at_once() {
    let site = site_with(&["a", "b"]);
    let mut follower = start(&mut site.command(&["recv", "/q", "--follow"]));
    let mut output = BufReader::new(follower.stdout.take().unwrap());
    for message in ["a\n", "b\n"] {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, message);
    }
    drop(output);
    end(follower).fails(1, &["the reader of standard output has ended"]);
}
