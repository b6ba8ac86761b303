//! Tests `umsg send`, `umsg recv` and `umsg peek`.

mod support;

use std::io::Read;
use std::process::Command;

use serde_json::{Value, json};
use support::{Site, end, finish, start};

fn site_with_queue(attributes: &[&str]) -> Site {
    let site = Site::new();
    site.umsg(&[&["create", "/q"], attributes].concat()).text();
    site
}

#[test]
fn messages_come_by_priority_and_then_in_order() {
    let site = site_with_queue(&[]);
    for (message, priority) in [("a", "0"), ("b", "5"), ("c", "32767"), ("d", "5")] {
        site.umsg(&["send", "q", message, "-p", priority]).text();
    }
    assert_eq!(site.umsg(&["recv", "q"]).text(), "c\n");
    assert_eq!(site.umsg(&["recv", "q", "--all"]).text(), "b\nd\na\n");
    assert_eq!(site.umsg(&["recv", "q", "--all"]).text(), "");
}

#[test]
fn a_closed_queue_takes_no_message_and_gives_those_that_are_left() {
    let site = site_with_queue(&[]);
    site.umsg(&["send", "q", "last"]).text();
    let is_closed = || site.umsg(&["stat", "q", "--json"]).json()["send_closed"] == true;
    for _ in 0..2 {
        site.umsg(&["close", "q"]).text();
        assert!(is_closed());
    }
    site.umsg(&["send", "q", "no"])
        .fails(1, &["/q: ", "closed for sending; `umsg close --reopen /q`"]);
    assert_eq!(site.umsg(&["recv", "q"]).text(), "last\n");
    site.umsg(&["recv", "q"])
        .fails(6, &["/q", "the end of the stream"]);
    let quiet = site.umsg(&["recv", "q", "--quiet"]);
    assert_eq!((quiet.code, quiet.errors.as_str()), (Some(6), ""));
    for to_the_end in ["--all", "--follow"] {
        assert_eq!(site.umsg(&["recv", "q", to_the_end]).text(), "");
    }
    assert!(
        site.umsg(&["stat", "q"])
            .text()
            .contains("sending           closed; ")
    );
    site.umsg(&["close", "q", "--reopen"]).text();
    assert!(!is_closed());
    site.umsg(&["send", "q", "next"]).text();
    site.umsg(&["close", "key:1"]).fails(1, &["key:1"]);
    site.umsg(&["close", "/none"]).fails(1, &["/none"]);
}

#[test]
fn standard_input_is_one_message_and_comes_out_raw_byte_for_byte() {
    let site = site_with_queue(&[]);
    let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
    for dash in [&["send", "/q", "-"][..], &["send", "/q"]] {
        site.umsg_with_input(dash, &bytes).text();
        let received = site.umsg(&["recv", "/q", "--output", "raw"]);
        assert_eq!((received.code, received.output), (Some(0), bytes.clone()));
    }
}

#[test]
fn lines_become_messages_and_messages_lines_again() {
    let site = site_with_queue(&["--max-messages", "100"]);
    let sent = site.umsg_with_input(&["send", "/q", "--lines", "--json"], b"one\n\ntwo\r\nlast");
    assert_eq!(
        sent.json(),
        json!({"queue": "/q", "messages": 4, "bytes": 11})
    );
    assert_eq!(
        site.umsg(&["recv", "/q", "--all"]).output,
        b"one\n\ntwo\r\nlast\n"
    );
}

#[test]
fn programs_get_text_as_text_and_other_bytes_as_base64() {
    let site = site_with_queue(&[]);
    site.umsg(&["send", "/q", "grün", "-p", "3"]).text();
    site.umsg_with_input(&["send", "/q"], b"\xff\x00").text();
    let known = |position: Option<u64>, deliveries: u64, what: Value| {
        let mut known = what;
        let fields = known.as_object_mut().unwrap();
        fields.insert("queue".to_owned(), json!("/q"));
        fields.insert("deliveries".to_owned(), json!(deliveries));
        if let Some(position) = position {
            fields.insert("position".to_owned(), json!(position));
        }
        known
    };
    let messages = [
        json!({"priority": 3, "size": 5, "encoding": "utf-8", "data": "grün"}),
        json!({"priority": 0, "size": 2, "encoding": "base64", "data": "/wA="}),
    ];
    let printed = |command: &[&str]| {
        let mut lines = site.umsg(command).json_lines();
        for line in &mut lines {
            let fields = line.as_object_mut().unwrap();
            assert!(fields.remove("sender_pid").unwrap().as_u64() > Some(0));
            assert!(fields.remove("id").unwrap().as_u64() > Some(0));
            let sent = fields.remove("sent").unwrap();
            assert!(sent.as_str().unwrap().ends_with('Z'));
        }
        lines
    };
    let [text, bytes] = &messages;
    assert_eq!(
        printed(&["peek", "/q", "--json"]),
        [
            known(Some(0), 0, text.clone()),
            known(Some(1), 0, bytes.clone())
        ]
    );
    assert_eq!(
        printed(&["recv", "/q", "--all", "--json"]),
        messages.clone().map(|message| known(None, 1, message))
    );
}

#[test]
fn hexadecimal_digits_are_one_message_a_line() {
    let site = site_with_queue(&[]);
    site.umsg_with_input(&["send", "/q"], b"\x00\xff\n").text();
    site.umsg(&["send", "/q", ""]).text();
    assert_eq!(
        site.umsg(&["recv", "/q", "--count", "2", "--output", "hex"])
            .text(),
        "00ff0a\n\n"
    );
}

#[test]
fn a_message_cant_control_the_terminal_that_shows_it() {
    let site = site_with_queue(&[]);
    site.umsg_with_input(&["send", "/q"], b"\x1b]0;title\x07\xff\nplain")
        .text();
    let umsg = env!("CARGO_BIN_EXE_umsg");
    let mut script = Command::new("script");
    let shown = format!("{umsg} peek /q; {umsg} recv /q");
    script
        .args(["-qec", &shown, "/dev/null"])
        .env("UMSG_DIR", site.path());
    let outcome = finish(&mut script, b"");
    let text = String::from_utf8(outcome.output).unwrap();
    assert!(
        text.contains("\\x1b]0;title\\x07\\xff\\nplain\r\n"),
        "{text:?}"
    );
    assert!(
        text.contains("\\x1b]0;title\\x07\\xff\r\nplain\r\n"),
        "{text:?}"
    );
    assert!(!text.contains('\x1b'), "{text:?}");
}

#[test]
fn peek_shows_what_comes_next_and_leaves_it_there() {
    let site = site_with_queue(&["--max-messages", "20"]);
    let lines: String = (0..15).map(|n| format!("message {n}\n")).collect();
    site.umsg_with_input(&["send", "/q", "--lines"], lines.as_bytes())
        .text();
    site.umsg(&["send", "/q", "urgent", "--priority", "7"])
        .text();
    let printed = site.umsg(&["peek", "/q"]);
    let rows: Vec<&str> = printed.text().lines().collect();
    assert_eq!(rows.len(), 11);
    let heading: Vec<&str> = rows[0].split_whitespace().collect();
    assert_eq!(
        heading,
        [
            "POSITION",
            "ID",
            "PRIORITY",
            "BYTES",
            "SENDER",
            "SENT",
            "DELIVERED",
            "MESSAGE"
        ]
    );
    let first: Vec<&str> = rows[1].split_whitespace().collect();
    assert_eq!(
        (&first[..3], first.last()),
        (&["0", first[1], "7"][..], Some(&"urgent"))
    );
    assert!(first[1].parse::<u64>().is_ok(), "{first:?}");
    assert!(rows[2].ends_with("message 0") && rows[10].ends_with("message 8"));
    assert_eq!(
        site.umsg(&["peek", "/q", "--count", "1", "--json"])
            .json_lines()
            .len(),
        1
    );
    assert_eq!(
        site.umsg(&["peek", "/q", "--count", "99", "--json"])
            .json_lines()
            .len(),
        16
    );
    assert_eq!(site.umsg(&["stat", "/q", "--json"]).json()["messages"], 16);
}

#[test]
fn peek_long_shows_the_events_of_each_message() {
    let site = Site::new();
    let limits = ["--max-deliveries", "2", "--dead-letter", "/dead"];
    let create = ["create", "/q", "--trace-messages"];
    site.umsg(&[&create[..], &limits].concat()).text();
    let stat = site.umsg(&["stat", "/q", "--json"]).json();
    assert_eq!(stat["trace_messages"], true);
    assert!(
        site.umsg(&["stat", "/q"])
            .text()
            .contains("umsg peek --long /q")
    );
    // The command fails, because the existing queue was created without the option.
    site.umsg(&["create", "/dead", "--trace-messages"])
        .fails(1, &["no --trace-messages"]);
    site.umsg(&["create", "key:1", "--trace-messages"])
        .fails(2, &["--trace-messages"]);
    site.umsg(&["send", "/q", "job"]).text();
    for _ in 0..2 {
        site.umsg(&["recv", "/q", "--exec", "false"]);
    }
    let told = site.umsg(&["peek", "/dead", "--json"]).json();
    let events = told["events"].as_array().unwrap();
    let kinds: Vec<&str> = events
        .iter()
        .map(|e| e["event"].as_str().unwrap())
        .collect();
    let delivery = ["delivered", "returned"];
    let wanted = [&["sent"], &delivery[..], &delivery, &["dead-undelivered"]].concat();
    assert_eq!(kinds, wanted);
    let deliveries: Vec<_> = events[1..].iter().map(|e| &e["delivery"]).collect();
    assert_eq!(deliveries, [1, 1, 2, 2, 2].each_ref());
    let printed = site.umsg(&["peek", "/dead", "--long"]);
    let lines: Vec<&str> = printed.text().lines().collect();
    assert_eq!(lines.len(), 2 + events.len(), "{lines:?}");
    assert!(lines[0].starts_with("position 0, ID "), "{lines:?}");
    assert_eq!(lines[1], "  job");
    for (line, event) in lines[2..].iter().zip(events) {
        let (at, pid) = (event["at"].as_str().unwrap(), &event["pid"]);
        assert!(line.starts_with(&format!("  {at}  ")), "{line}");
        assert!(line.contains(&format!("process {pid}")), "{line}");
    }
    assert!(lines[3].contains("delivery 1: leased by "), "{lines:?}");
    // Without `--trace-messages`, `umsg peek --long` still shows which process sent each message.
    site.umsg(&["create", "/plain"]).text();
    site.umsg(&["send", "/plain", "job"]).text();
    let plain = site.umsg(&["peek", "/plain", "--long"]);
    assert!(plain.text().contains("  sent by process "));
    let told = site.umsg(&["peek", "/plain", "--json"]).json();
    assert!(told.get("events").is_none(), "{told}");
}

#[test]
fn peek_lists_delayed_messages_on_request() {
    let site = site_with_queue(&[]);
    site.umsg(&["create", "key:7"]).text();
    for (queue, rank) in [("/q", "priority"), ("key:7", "type")] {
        site.umsg(&["send", queue, "tomorrow", "--after", "1d"])
            .text();
        site.umsg(&["send", queue, "in an hour", "--after", "1h1m"])
            .text();
        site.umsg(&["send", queue, "now"]).text();
        let printed = site.umsg(&["peek", queue, "--delayed"]);
        let rows: Vec<&str> = printed.text().lines().collect();
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert!(rows[0].starts_with("DUE"), "{rows:?}");
        assert!(rows[1].starts_with("in 1h") && rows[1].ends_with("in an hour"));
        assert!(rows[2].starts_with("in 2") && rows[2].ends_with("tomorrow"));
        let lines = site
            .umsg(&["peek", queue, "--delayed", "--count", "1", "--json"])
            .json_lines();
        assert_eq!(lines.len(), 1);
        let line = &lines[0];
        assert_eq!(line["data"], "in an hour");
        assert!(line[rank].is_number() && line["position"].is_null());
        assert!(line["due"].as_str().unwrap() > line["sent"].as_str().unwrap());
        let lines = site.umsg(&["peek", queue, "--json"]).json_lines();
        assert_eq!(lines.len(), 1);
        assert_eq!(
            (&lines[0]["data"], &lines[0]["due"]),
            (&"now".into(), &serde_json::Value::Null)
        );
    }
}

#[test]
fn a_queue_that_is_not_ready_in_time_is_exit_code_3() {
    let site = site_with_queue(&["--max-messages", "1"]);
    site.umsg(&["recv", "/q", "--nonblocking"])
        .fails(3, &["umsg: /q: the queue is empty; "]);
    site.umsg(&["recv", "/q", "--timeout", "0.05"])
        .fails(3, &["umsg: /q: timed out", "; "]);
    site.umsg(&["send", "/q", "x"]).text();
    site.umsg(&["send", "/q", "y", "--nonblocking"])
        .fails(3, &["umsg: /q: the queue is full; "]);
    site.umsg(&["send", "/q", "y", "--timeout", "0.05"])
        .fails(3, &["umsg: /q: timed out", "; "]);
    let two = site.umsg(&["recv", "/q", "--count", "2", "--timeout", "0.05"]);
    two.fails(3, &["timed out"]);
    assert_eq!(two.output, b"x\n");
}

#[test]
fn of_many_lines_the_error_names_the_one_that_was_not_sent() {
    let site = site_with_queue(&["--max-messages", "2", "--message-size", "3"]);
    let send = ["send", "/q", "--lines", "--nonblocking"];
    site.umsg_with_input(&send, b"one\nfour\n")
        .fails(1, &["/q: line 2: ", "3 bytes", "--message-size"]);
    site.umsg_with_input(&send, b"two\n3\n")
        .fails(3, &["/q: line 2: the queue is full"]);
    assert_eq!(site.umsg(&["recv", "/q", "--all"]).text(), "one\ntwo\n");
}

#[test]
fn a_message_that_is_too_long_is_refused_with_the_size() {
    let site = site_with_queue(&["--message-size", "4"]);
    site.umsg(&["send", "/q", "12345"])
        .fails(1, &["/q: ", "5 bytes", "4 bytes", "--message-size"]);
    site.umsg_with_input(&["send", "/q"], &[0; 100_000])
        .fails(1, &["/q: ", "4 bytes", "--message-size"]);
    site.umsg_with_input(&["send", "/q"], b"1234").text();
    assert_eq!(site.umsg(&["recv", "/q"]).text(), "1234\n");
}

#[test]
fn the_longest_message_goes_through_every_command() {
    let site = site_with_queue(&["--message-size", "16M", "--max-messages", "2"]);
    let mut longest = vec![b'x'; 16 << 20];
    site.umsg_with_input(&["send", "/q"], &longest).text();
    let peeked = site.umsg(&["peek", "/q"]);
    assert!(peeked.text().ends_with("xxx\n") && peeked.text().len() > longest.len());
    assert_eq!(site.umsg(&["recv", "/q", "-o", "raw"]).output, longest);
    longest.push(b'x');
    site.umsg_with_input(&["send", "/q"], &longest)
        .fails(1, &["16777216 bytes; no queue takes longer messages"]);
}

#[test]
fn following_a_queue_prints_each_message_as_it_comes() {
    let site = site_with_queue(&[]);
    let mut follower = start(&mut site.command(&["recv", "/q", "--follow", "--timeout", "30"]));
    let output = follower.stdout.as_mut().unwrap();
    for message in ["one", "two"] {
        site.umsg(&["send", "/q", message]).text();
        let mut line = [0; 4];
        output.read_exact(&mut line).unwrap();
        assert_eq!(std::str::from_utf8(&line).unwrap(), format!("{message}\n"));
    }
    follower.kill().unwrap();
    end(follower);
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let site = site_with_queue(&["--max-messages", "10"]);
    for n in 0..2 {
        site.umsg(&["send", "/q", &n.to_string()]).text();
    }
    for arguments in [
        &["ls"][..],
        &["stat", "/q"],
        &["peek", "/q"],
        &["limits"],
        &["man"],
        &["dump", "/q"],
    ] {
        let mut child = start(&mut site.command(arguments));
        drop(child.stdout.take());
        let outcome = end(child);
        assert_eq!(
            (outcome.code, outcome.errors.as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}

#[test]
fn output_that_cant_be_written_is_an_error() {
    let site = site_with_queue(&[]);
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = site.command(&["stat", "/q"]);
    let status = command
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_negative_number_may_be_a_message_but_no_option_and_the_error_says_so() {
    let site = site_with_queue(&[]);
    site.umsg(&["send", "/q", "-5"]).text();
    assert_eq!(site.umsg(&["recv", "/q", "--count", "1"]).text(), "-5\n");
    for (arguments, hint) in [
        (&["send", "/q", "x", "-p", "-1"][..], "from 0 to 32767"),
        (&["send", "/q", "x", "--timeout", "-1"], "from 0 up"),
        (&["recv", "/q", "--timeout", "-0.5"], "from 0 up"),
        (&["recv", "/q", "--count", "-1"], "negative number"),
        (&["peek", "/q", "--count", "-1"], "negative number"),
    ] {
        let outcome = site.umsg(arguments);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.errors.contains(hint), "{outcome:?}");
    }
    // The maximum time-out acts as no limit, and the command does not crash.
    site.umsg(&["send", "/q", "x", "--timeout", "1e19"]).text();
    assert_eq!(
        site.umsg(&["recv", "/q", "--timeout", "1e19"]).text(),
        "x\n"
    );
}

#[test]
fn a_time_that_is_none_is_refused_with_the_reason() {
    let site = site_with_queue(&[]);
    let negative = "the time is negative; give a time from 0 up";
    let units = "the units ms, s, m, h and d";
    for (arguments, hint) in [
        (&["send", "/q", "x", "--after", "-5s"][..], negative),
        (&["send", "/q", "x", "--after", "-5"], negative),
        (&["recv", "/q", "--timeout", "-1m"], negative),
        (&["create", "/r", "--ttl", "-5s"], negative),
        (&["gc", "--older-than", "-7d"], negative),
        (&["create", "/r", "--retry-delay", "-5s..5m"], negative),
        (&["create", "/r", "--retry-delay", "5x"], units),
        (
            &["create", "/r", "--retry-delay", "5x"],
            "written as 1s..5m",
        ),
        (&["send", "/q", "x", "--after", "5x"], units),
    ] {
        let outcome = site.umsg(arguments);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.errors.contains(hint), "{outcome:?}");
        assert!(!outcome.errors.contains("tip:"), "{outcome:?}");
    }
}

#[test]
fn a_priority_can_not_be_selected_and_the_error_says_how_messages_come() {
    let site = site_with_queue(&[]);
    for option in [&["--priority", "5"][..], &["-p", "5"], &["--priority=5"]] {
        let outcome = site.umsg(&[&["recv", "/q"], option].concat());
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        let tip = "tip: a POSIX queue delivers the message of the highest priority first";
        assert!(outcome.errors.contains(tip), "{outcome:?}");
        assert!(outcome.errors.contains("select with --type"), "{outcome:?}");
    }
    let other = site.umsg(&["peek", "/q", "--priority"]);
    assert!(!other.errors.contains("highest"), "{other:?}");
}

#[test]
fn a_message_is_named_by_its_id_from_its_first_delivery_on() {
    let site = site_with_queue(&[]);
    site.umsg(&["send", "/q", "job"]).text();
    let peeked = || site.umsg(&["peek", "/q", "--json"]).json();
    assert_eq!(peeked().get("id"), None);
    let failed = site.umsg(&["recv", "/q", "--exec", "false"]);
    let id = peeked()["id"].to_string();
    assert!(
        failed
            .errors
            .contains(&format!("/q: message {id}, delivery 1: "))
    );
    assert_eq!(
        site.umsg(&["recv", "/q", "--json"]).json()["id"].to_string(),
        id
    );
}

#[test]
fn options_that_contradict_each_other_are_a_usage_error() {
    let site = site_with_queue(&[]);
    for arguments in [
        &["send", "/q", "x", "--lines"][..],
        &["send", "/q", "x", "--timeout", "1", "--nonblocking"],
        &["send", "/q", "x", "--priority", "32768"],
        &["send", "/q", "x", "--timeout", "soon"],
        &["recv", "/q", "--all", "--follow"],
        &["recv", "/q", "--all", "--timeout", "1"],
        &["recv", "/q", "--json", "--output", "hex"],
        &["create", "/q", "--message-size", "1KX"],
        &["create", "/q", "--mode", "rw"],
        &["create", "/q", "--on-full", "explode"],
        &["create", "/q", "--ttl", "0"],
        &["create", "/q", "--max-deliveries", "3"],
        &["redrive", "/q", "--to", "/r"],
        &["frobnicate"],
        &[],
    ] {
        let outcome = site.umsg_with_input(arguments, b"");
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
        assert!(
            outcome.output.is_empty() && !outcome.errors.is_empty(),
            "{arguments:?}"
        );
    }
}
