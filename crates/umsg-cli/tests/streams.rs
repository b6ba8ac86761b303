//! Tests standard streams that are closed, full or without a reader, and queues that are removed while a command waits.

mod support;

use std::io::Read;
use std::process::Command;

use support::{Outcome, Site, end, finish, start};

const UMSG: &str = env!("CARGO_BIN_EXE_umsg");

fn site_with(messages: &[&str]) -> Site {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    for message in messages {
        site.umsg(&["send", "/q", message, "-p", "7"]).text();
    }
    site
}

/// Runs a line of shell script, in which `umsg` is the command.
fn shell(site: &Site, line: &str) -> Outcome {
    let mut command = Command::new("bash");
    let line = format!("umsg() {{ {UMSG} \"$@\"; }}; {line}");
    command.args(["-c", &line]).env("UMSG_DIR", site.path());
    finish(&mut command, b"")
}

fn messages(site: &Site) -> String {
    site.umsg(&["recv", "/q", "--all"]).text().to_owned()
}

#[test]
fn a_closed_output_is_an_error_and_takes_no_message() {
    let site = site_with(&["a", "b"]);
    for command in ["recv /q", "recv /q --all", "recv /q --follow"] {
        shell(&site, &format!("umsg {command} >&-"))
            .fails(1, &["umsg: standard output: the stream is closed; "]);
        shell(&site, &format!("umsg {command} 1< /dev/null")).fails(
            1,
            &["standard output: the stream is open for reading only; "],
        );
    }
    for command in [
        "ls",
        "stat q",
        "peek q",
        "limits",
        "man",
        "create new --json",
    ] {
        shell(&site, &format!("umsg {command} >&-"))
            .fails(1, &["standard output: the stream is closed"]);
    }
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "/q\n");
    assert_eq!(messages(&site), "a\nb\n");
}

#[test]
fn what_is_reported_once_only_is_not_done_where_the_report_can_not_be_written() {
    let site = site_with(&[]);
    let full = "standard output: No space left";
    let closed = "standard output: the stream is closed";
    for (redirection, says) in [(">&-", closed), ("> /dev/full", full)] {
        // The command must fail: no process could find a queue whose identifier was not printed.
        for json in ["", "--json"] {
            let line = format!("umsg create key:0 {json} {redirection}");
            shell(&site, &line).fails(1, &[says]);
        }
        // The caller already knows the key, so the command succeeds.
        shell(&site, &format!("umsg create key:7 {redirection}")).text();
    }
    shell(&site, "umsg gc '*' --remove >&-").fails(1, &[closed]);
    shell(&site, "umsg doctor --all --repair >&-").fails(1, &[closed]);
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/q\nid:0\n");
}

#[test]
fn output_to_the_null_device_is_no_closed_output() {
    let site = site_with(&["a", "b", "c"]);
    for redirection in [">", "<>"] {
        let line = format!("umsg recv /q 1{redirection} /dev/null");
        assert_eq!(shell(&site, &line).text(), "");
    }
    assert_eq!(messages(&site), "c\n");
}

#[test]
fn a_message_that_a_full_disk_has_no_room_for_goes_back_with_its_priority() {
    let site = site_with(&["a", "b"]);
    for arguments in [&["recv", "/q"][..], &["recv", "/q", "--all"]] {
        let outcome = site.umsg_into_full_disk(arguments);
        let parts = [
            "umsg: /q: standard output: No space left",
            "back in the queue, the first of its priority (7)",
        ];
        outcome.fails(1, &parts);
    }
    let next = site.umsg(&["recv", "/q", "--json"]).json();
    assert_eq!((&next["data"], &next["priority"]), (&"a".into(), &7.into()));
    assert_eq!(next["deliveries"], 3);
    assert_eq!(messages(&site), "b\n");
}

#[test]
fn a_message_that_would_exceed_the_file_size_limit_goes_back() {
    let site = site_with(&["a"]);
    let outcome = shell(&site, "ulimit -f 0; umsg recv /q > \"$UMSG_DIR/out\"");
    outcome.fails(1, &["standard output: File too large", "back in the queue"]);
    assert_eq!(messages(&site), "a\n");
}

#[test]
fn a_message_that_cant_be_printed_keeps_its_room_in_a_full_queue() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "1"]).text();
    site.umsg(&["send", "/q", "lost?", "-p", "3"]).text();
    // This sender is blocked until the message "lost?" is received: the failed receive must not make room.
    let sender = start(&mut site.command(&["send", "/q", "next"]));
    site.wait_for("/q", "blocked_senders", 1);
    shell(&site, "umsg recv /q > /dev/full").fails(1, &["is back in the queue"]);
    assert_eq!(site.umsg(&["recv", "/q"]).text(), "lost?\n");
    end(sender).text();
    assert_eq!(messages(&site), "next\n");
}

#[test]
fn a_receiver_that_is_killed_before_all_is_printed_leaves_the_message() {
    let site = Site::new();
    let create = ["create", "/q", "--message-size", "1M"];
    site.umsg(&create).text();
    let longer_than_a_pipe = vec![b'x'; 1 << 20];
    site.umsg_with_input(&["send", "/q", "-p", "9"], &longer_than_a_pipe)
        .text();
    let mut receiver = start(&mut site.command(&["recv", "/q"]));
    site.wait_for("/q", "leased", 1);
    assert!(site.umsg(&["ls"]).text().ends_with("1 leased\n"));
    site.umsg(&["recv", "/q", "--nonblocking"])
        .fails(3, &["/q: the queue is empty; leased messages (1) return"]);
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    let next = site.umsg(&["recv", "/q", "--json"]).json();
    assert_eq!(
        (&next["size"], &next["deliveries"]),
        (&(1 << 20).into(), &2.into())
    );
    assert_eq!(messages(&site), "");
    let found = site.umsg(&["stat", "/q", "--json"]).json();
    assert_eq!(
        (&found["leased"], &found["statistics"]["returned"]),
        (&0.into(), &1.into())
    );
}

#[test]
fn a_message_that_cant_be_printed_too_often_goes_to_the_queue_for_dead_letters() {
    let site = Site::new();
    let policy = ["--max-deliveries", "2", "--dead-letter", "dead"];
    site.umsg(&[&["create", "/q"][..], &policy].concat()).text();
    site.umsg(&["send", "/q", "poison", "-p", "5"]).text();
    let attempt = || shell(&site, "umsg recv /q > /dev/full");
    attempt().fails(1, &["is back in the queue"]);
    let peeked = site.umsg(&["peek", "/q", "--json"]).json();
    assert_eq!(peeked["deliveries"], 1);
    attempt().fails(1, &["as often as the queue allows", "dead-letter queue"]);
    assert_eq!(messages(&site), "");
    let dead = site.umsg(&["recv", "/dead", "--json"]).json();
    assert_eq!(
        (&dead["data"], &dead["priority"]),
        (&"poison".into(), &5.into())
    );
    let counted = &site.umsg(&["stat", "/q", "--json"]).json()["statistics"];
    assert_eq!(counted["dead_lettered"], 1);
}

#[test]
fn a_reader_that_goes_ends_recv_and_leaves_the_messages() {
    let site = site_with(&["a", "b"]);
    for command in ["recv /q", "recv /q --follow", "recv /q --all"] {
        let line = format!("exec 3> >(true); wait $!; umsg {command} >&3");
        shell(&site, &line).fails(1, &["/q: the reader of standard output has ended; "]);
    }
    assert_eq!(messages(&site), "a\nb\n");
}

#[test]
fn a_follower_whose_reader_goes_while_it_waits_ends_without_a_message() {
    let site = site_with(&["a"]);
    let mut follower = start(&mut site.command(&["recv", "/q", "--follow"]));
    follower
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0; 2])
        .unwrap();
    drop(follower.stdout.take());
    end(follower).fails(1, &["/q: the reader of standard output has ended"]);
}

#[test]
fn send_without_a_readable_input_is_an_error_and_no_empty_message() {
    let site = site_with(&[]);
    shell(&site, "umsg send /q <&-")
        .fails(1, &["/q: no message is given", "the stream is closed; "]);
    shell(&site, "umsg send /q --lines <&-").fails(1, &["/q: no message is given"]);
    shell(&site, "umsg send /q 0> /dev/null").fails(1, &["open for writing only; "]);
    assert_eq!(site.umsg(&["stat", "/q", "--json"]).json()["messages"], 0);
    // An empty but readable input is no error.
    shell(&site, "umsg send /q < /dev/null").text();
    shell(&site, "umsg send /q x <&-").text();
    assert_eq!(messages(&site), "\nx\n");
}

#[test]
fn a_waiter_in_a_queue_that_is_removed_ends_with_code_4() {
    for arguments in [
        &["recv", "/q"][..],
        &["recv", "/q", "--follow"],
        &["recv", "/q", "--timeout", "50"],
    ] {
        let site = site_with(&[]);
        let waiting = start(&mut site.command(arguments));
        site.wait_for("/q", "blocked_receivers", 1);
        site.umsg(&["rm", "/q"]).text();
        end(waiting).fails(4, &["umsg: /q: the queue was removed; "]);
    }
}

#[test]
fn a_waiter_learns_that_its_queue_was_replaced() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "1"]).text();
    site.umsg(&["send", "/q", "first"]).text();
    let sender = start(&mut site.command(&["send", "/q", "second"]));
    site.wait_for("/q", "blocked_senders", 1);
    site.umsg(&["rm", "/q"]).text();
    site.umsg(&["create", "/q"]).text();
    end(sender).fails(
        4,
        &["/q: the queue was removed, and a new queue has its name; "],
    );
    assert_eq!(messages(&site), "");
}

#[test]
fn a_queue_that_could_not_be_shown_is_taken_back_if_it_is_new() {
    let site = site_with(&["kept"]);
    for queue in ["/new", "key:5", "key:0"] {
        let outcome = site.umsg_into_full_disk(&["create", queue, "--json"]);
        outcome.fails(1, &["standard output: No space left", "was removed"]);
        assert_eq!(site.umsg(&["ls", "-q"]).text(), "/q\n");
    }
    let outcome = site.umsg_into_full_disk(&["create", "/q", "--json"]);
    outcome.fails(1, &["standard output: No space left"]);
    assert!(!outcome.errors.contains("removed again"), "{outcome:?}");
    assert_eq!(messages(&site), "kept\n");
}

#[test]
fn help_that_can_not_be_written_is_no_success() {
    let site = Site::new();
    for command in ["help", "--version", "help ls", "ls --help"] {
        shell(&site, &format!("umsg {command} > /dev/full"))
            .fails(1, &["standard output: No space left"]);
        shell(&site, &format!("umsg {command} >&-"))
            .fails(1, &["standard output: the stream is closed"]);
        assert!(!shell(&site, &format!("umsg {command}")).text().is_empty());
        shell(&site, &format!("umsg {command} | true")).text();
    }
}
