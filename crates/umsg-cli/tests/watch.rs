//! Tests `umsg watch`: copies of messages that pass through a queue.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Stdio};

use serde_json::Value;
use support::patients::Killed;
use support::{Site, start};

/// A running `umsg watch`, and its output.
struct Watcher {
    process: Killed,
    output: BufReader<ChildStdout>,
}

impl Watcher {
    fn start(site: &Site, arguments: &[&str]) -> Watcher {
        let arguments = [&["watch"], arguments].concat();
        let mut process = Killed(start(&mut site.command(&arguments)));
        let output = BufReader::new(process.0.stdout.take().unwrap());
        Watcher { process, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Returns the exit code and the standard error of a command that ends by itself.
    fn end(mut self) -> (Option<i32>, String) {
        let mut errors = String::new();
        let mut stream = self.process.0.stderr.take().unwrap();
        stream.read_to_string(&mut errors).unwrap();
        (self.process.0.wait().unwrap().code(), errors)
    }
}

fn data(line: &str) -> Value {
    serde_json::from_str::<Value>(line).unwrap()["data"].clone()
}

#[test]
fn waiting_and_new_messages_are_shown_once_and_stay_in_the_queue() {
    let site = Site::new();
    for (queue, option) in [("/q", "--priority"), ("key:7", "--type")] {
        site.umsg(&["create", queue, "--mode", "600"]).text();
        site.umsg(&["send", queue, "one"]).text();
        let mut watcher = Watcher::start(&site, &[queue, "--json", "--count", "4"]);
        assert_eq!(data(&watcher.line()), "one");
        site.umsg(&["send", queue, "two", option, "3"]).text();
        assert_eq!(data(&watcher.line()), "two");
        // This message has the same text as the first one, but the watcher must show it as another message.
        site.umsg(&["send", queue, "one"]).text();
        assert_eq!(data(&watcher.line()), "one");
        site.umsg(&["send", queue, "three"]).text();
        assert_eq!(data(&watcher.line()), "three");
        assert_eq!(watcher.end(), (Some(0), String::new()));
        assert_eq!(site.umsg(&["stat", queue, "--json"]).json()["messages"], 4);
    }
}

#[test]
fn a_watched_queue_delivers_every_message_and_the_unseen_ones_are_counted() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "64"]).text();
    let mut watcher = Watcher::start(
        &site,
        &["/q", "--json", "--count", "2", "--rate", "1000000"],
    );
    site.umsg(&["send", "/q", "first"]).text();
    assert_eq!(data(&watcher.line()), "first");
    let lines: String = (0..2000).map(|n| format!("{n}\n")).collect();
    let receiver = Killed(start(&mut site.command(&["recv", "/q", "--count", "2001"])));
    site.umsg_with_input(&["send", "/q", "--lines"], lines.as_bytes())
        .text();
    let received = support::end(take(receiver));
    assert_eq!(received.text(), format!("first\n{lines}"));
    // The watcher prints one more line: for one of the earlier messages, or for this message.
    site.umsg(&["send", "/q", "last"]).text();
    let (code, errors) = watcher.end();
    assert_eq!(code, Some(0));
    assert!(
        errors.is_empty() || errors.contains(" missed, "),
        "{errors}"
    );
}

#[test]
fn each_message_of_a_blocked_sender_is_shown_and_counted() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "1"]).text();
    let mut watcher = Watcher::start(&site, &["/q", "--json", "--count", "5"]);
    let senders = [1, 2, 3, 4, 5].map(|n| {
        let sender = start(&mut site.command(&["send", "/q", &format!("message {n}")]));
        let shown = match n {
            1 => data(&watcher.line()),
            _ => {
                site.wait_for("/q", "blocked_senders", 1);
                let last = site.umsg(&["recv", "/q", "--timeout", "20"]);
                assert_eq!(last.text(), format!("message {}\n", n - 1));
                data(&watcher.line())
            }
        };
        assert_eq!(shown, format!("message {n}"));
        sender
    });
    for sender in senders {
        support::end(sender).text();
    }
    assert_eq!(watcher.end(), (Some(0), String::new()));
    let metrics = site.umsg(&["metrics", "--match", "/q"]);
    let metrics = metrics.text();
    for (name, count) in [("sent_messages", 5), ("sent_bytes", 45)] {
        let line = format!("umsg_queue_{name}_total{{kind=\"posix\",queue=\"/q\"}} {count}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[test]
fn a_delayed_message_and_one_of_a_killed_receiver_are_shown_without_another_call() {
    let site = Site::new();
    for queue in ["/q", "key:9"] {
        site.umsg(&["create", queue]).text();
        site.umsg(&["send", queue, "leased"]).text();
        let mut holder = site.command(&["recv", queue, "--ack"]);
        let mut holder = Killed(start(holder.stdin(Stdio::piped())));
        let mut printed = BufReader::new(holder.0.stdout.take().unwrap());
        printed.read_line(&mut String::new()).unwrap();
        let mut watcher = Watcher::start(&site, &[queue, "--json", "--count", "2"]);
        site.umsg(&["send", queue, "later", "--after", "300ms"])
            .text();
        assert_eq!(data(&watcher.line()), "later");
        drop(holder);
        assert_eq!(data(&watcher.line()), "leased");
        assert_eq!(watcher.end(), (Some(0), String::new()));
    }
}

/// Takes a child process out of its guard, which then does not kill the process.
fn take(killed: Killed) -> std::process::Child {
    let mut killed = std::mem::ManuallyDrop::new(killed);
    std::mem::replace(
        &mut killed.0,
        std::process::Command::new("true").spawn().unwrap(),
    )
}

#[test]
fn messages_over_the_rate_are_counted_and_not_shown() {
    // A watcher that gets no CPU for a third of a second may show the fourth message, too. Then the rate has held back no message.
    let mut rounds = 1;
    while shows_the_fourth_message() {
        rounds += 1;
        assert!(rounds < 100, "the rate holds back no message");
    }
}

/// Watches a queue with more messages than the rate permits. Returns whether the watcher showed the fourth message because the rate permitted it.
fn shows_the_fourth_message() -> bool {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "64"]).text();
    let lines: String = (0..40).map(|n| format!("{n}\n")).collect();
    site.umsg_with_input(&["send", "/q", "--lines"], lines.as_bytes())
        .text();
    let mut watcher = Watcher::start(&site, &["/q", "--json", "--rate", "3", "--count", "4"]);
    let first: Vec<Value> = (0..3).map(|_| data(&watcher.line())).collect();
    assert_eq!(first, ["0", "1", "2"]);
    // A moment later, the rate limit permits a fourth line. The test sends messages until the watcher has printed that line and ended.
    let mut more = 0;
    while watcher.process.0.try_wait().unwrap().is_none() {
        more += 1;
        site.umsg(&["send", "/q", &format!("more {more}")]).text();
        // The receive makes room for the next message.
        site.umsg(&["recv", "/q"]).text();
        assert!(more < 10_000);
    }
    let is_fourth = data(&watcher.line()) == "3";
    let (code, errors) = watcher.end();
    assert_eq!(code, Some(0));
    let is_told = errors.contains("not shown because of --rate");
    assert_eq!(is_told, !is_fourth, "{errors}");
    is_fourth
}

#[test]
fn messages_are_decoded_and_filtered() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    site.umsg(&["send", "/q", "{\"id\":1,\"to\":[\"x\\u001b[2J\"]}"])
        .text();
    let shown = |more: &[&str]| {
        let outcome = site.umsg(&[&["watch", "/q", "--count", "1"], more].concat());
        let text = outcome.text().to_owned();
        assert!(text.contains("  priority 0  28 bytes  process "), "{text}");
        text
    };
    assert!(shown(&[]).ends_with("{\"id\":1,\"to\":[\"x\\u001b[2J\"]}\n"));
    let json = "\n  {\n    \"id\": 1,\n    \"to\": [\n      \"x\\u001b[2J\"\n    ]\n  }\n";
    assert!(shown(&["--as", "json"]).ends_with(json));
    assert!(shown(&["--as", "hex"]).contains("\n  00000000  7b 22 69 64 22 3a 31 2c "));
    let filtered = shown(&["--exec", "tr", "a-z", "A-Z"]);
    assert!(filtered.contains("\n  {\"ID\":1,\"TO\""), "{filtered}");
    let failing = [
        "watch",
        "/q",
        "--count",
        "1",
        "--exec",
        "sh",
        "-c",
        "echo part; exit 3",
    ];
    let outcome = site.umsg(&failing);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.output.ends_with(b"\n  part\n"), "{outcome:?}");
    assert!(outcome.errors.contains("exit status: 3"), "{outcome:?}");
    let missing = ["watch", "/q", "--exec", "no-such-program"];
    site.umsg(&missing).fails(127, &["no-such-program"]);
}

#[test]
fn a_watch_ends_with_its_queue() {
    let site = Site::new();
    for queue in ["/q", "key:7"] {
        site.umsg(&["create", queue]).text();
        site.umsg(&["send", queue, "here"]).text();
        let mut watcher = Watcher::start(&site, &[queue]);
        assert!(watcher.line().ends_with("  here\n"));
        site.umsg(&["rm", queue]).text();
        let (code, errors) = watcher.end();
        assert_eq!(code, Some(4), "{errors}");
        assert!(errors.contains("the queue was removed"), "{errors}");
    }
    site.umsg(&["watch", "/none"]).fails(1, &["/none"]);
    let outcome = site.umsg(&["watch", "/q", "--rate", "0"]);
    assert_eq!(outcome.code, Some(2));
}
