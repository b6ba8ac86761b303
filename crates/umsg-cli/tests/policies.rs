//! Tests the policies that `create` sets for messages that a queue can't accept, keep or deliver.

mod support;

use std::thread::sleep;
use std::time::Duration;

use serde_json::json;
use support::Site;

#[test]
fn a_policy_is_shown_to_people_and_programs() {
    let site = Site::new();
    let create = [
        "create",
        "/jobs",
        "--on-full",
        "fail",
        "--ttl",
        "90s",
        "--max-deliveries",
        "3",
        "--dead-letter",
        "failed",
        "--priorities",
        "fair:4",
    ];
    site.umsg(&create).text();
    let shown = site.umsg(&["stat", "/jobs", "--json"]).json();
    // The list begins with the dead-letter queue, which was created together with `/jobs`.
    let listed = &site.umsg(&["ls", "--json"]).json()["queues"][1];
    for queue in [&shown, listed] {
        assert_eq!(queue["on_full"], "fail");
        assert_eq!(queue["ttl_seconds"], 90.0);
        assert_eq!(queue["max_deliveries"], 3);
        assert_eq!(queue["dead_letter"], "/failed");
        assert_eq!(queue["priorities"], "fair:4");
        for none in ["reserved", "leased", "set_aside"] {
            assert_eq!(queue[none], 0, "{none}");
        }
        for none in ["returned", "dropped", "expired", "dead_lettered"] {
            assert_eq!(queue["statistics"][none], 0, "{none}");
        }
    }
    let text = site.umsg(&["stat", "/jobs"]).text().to_owned();
    for line in [
        "held              0 leased, 0 reserved, 0 set aside, 0 delayed\n",
        "on full           fail\n",
        "kept              1m30s\n",
        "deliveries        at most 3\n",
        "priorities        fair:4\n",
        "dead letters      /failed\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_queue_without_a_policy_says_so() {
    let site = Site::new();
    let found = site.umsg(&["create", "/q", "--json"]).json();
    assert_eq!(found["on_full"], "block");
    assert_eq!(found["priorities"], "strict");
    for none in ["ttl_seconds", "max_deliveries", "dead_letter"] {
        assert_eq!(found[none], json!(null), "{none}");
    }
    let text = site.umsg(&["stat", "/q"]).text().to_owned();
    for line in [
        "on full           block\n",
        "kept              for ever\n",
        "deliveries        any number\n",
        "priorities        strict\n",
        "dead letters      none\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_queue_that_goes_with_its_last_user_waits_for_the_first_and_says_so() {
    let site = Site::new();
    let shown = |name: &str| site.umsg(&["stat", name, "--json"]).json();
    let create = ["create", "/answers", "--remove-on-last-close", "--json"];
    for _ in 0..2 {
        let made = site.umsg(&create).json();
        assert_eq!(made["remove_on_last_close"], true);
    }
    site.umsg(&["create", "/stays"]).text();
    assert_eq!(shown("/stays")["remove_on_last_close"], false);
    assert_eq!(shown("/answers")["remove_on_last_close"], true);
    let text = |name: &str| site.umsg(&["stat", name]).text().to_owned();
    assert!(text("/answers").contains("removed           when no process has the queue open\n"));
    assert!(text("/stays").contains("removed           by hand: `umsg rm`\n"));
    let listed = &site.umsg(&["ls", "--json"]).json()["queues"];
    assert_eq!(listed[0]["remove_on_last_close"], true);
    site.umsg(&["peek", "/answers"]).text();
    let other = site.umsg(&["create", "/stays", "--remove-on-last-close"]);
    other.fails(1, &["no --remove-on-last-close"]);
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "/answers\n/stays\n");
    // `umsg send` is the only user of the queue, so its end removes the queue.
    site.umsg(&["send", "/answers", "x"]).text();
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "/stays\n");
}

#[test]
fn retry_delays_and_producers_are_shown_for_both_kinds_of_queues() {
    let site = Site::new();
    for name in ["/jobs", "key:0x77"] {
        let options = ["--retry-delay", "500ms..1m", "--close-with-last-producer"];
        site.umsg(&[&["create", name], &options[..]].concat())
            .text();
        // A second creation with the same option finds the existing queue.
        site.umsg(&["create", name, "--retry-delay", "500ms..1m"])
            .text();
        let other = site.umsg(&["create", name, "--retry-delay", "2s"]);
        let why = format!("{name}: the queue exists with --retry-delay 500ms..1m; ");
        other.fails(1, &[&why]);
        let shown = site.umsg(&["stat", name, "--json"]).json();
        assert_eq!(shown["retry_delay_seconds"], 0.5, "{name}");
        assert_eq!(shown["retry_delay_limit_seconds"], 60.0, "{name}");
        assert_eq!(shown["close_with_last_producer"], true, "{name}");
        assert_eq!(
            (&shown["producers"], &shown["send_closed"]),
            (&json!(0), &json!(false))
        );
        let text = site.umsg(&["stat", name]).text().to_owned();
        for line in [
            "retry delay       500ms, doubling up to 1m\n",
            "sending           open\n",
            "closes            with its last producer; there are 0\n",
        ] {
            assert!(text.contains(line), "{name}: {line}: {text}");
        }
    }
    for name in ["/plain", "key:0x78"] {
        site.umsg(&["create", name]).text();
        let found = site.umsg(&["stat", name, "--json"]).json();
        assert_eq!(found["retry_delay_seconds"], json!(null));
        let other = site.umsg(&[
            "create",
            name,
            "--close-with-last-producer",
            "--retry-delay",
            "1s",
        ]);
        let why = format!("{name}: the queue exists with ");
        other.fails(1, &[&why]);
        assert!(other.errors.contains("no --retry-delay"), "{other:?}");
        assert!(
            other.errors.contains("no --close-with-last-producer"),
            "{other:?}"
        );
    }
}

#[test]
fn a_message_is_sent_for_later_to_both_kinds_of_queues() {
    let site = Site::new();
    for name in ["/later", "key:0x77"] {
        site.umsg(&["create", name]).text();
        let tomorrow = std::time::SystemTime::now() + Duration::from_secs(86_400);
        let tomorrow = tomorrow
            .duration_since(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        let at = format!("@{}", tomorrow.as_secs());
        site.umsg(&["send", name, "tomorrow", "--at", &at]).text();
        let shown = site.umsg(&["stat", name, "--json"]).json();
        assert_eq!(
            (&shown["delayed"], &shown["messages"]),
            (&json!(1), &json!(0))
        );
        let peeked = site.umsg(&["peek", name]);
        let hidden = format!("umsg: {name}: not shown: 1 delayed, and not yet due\n");
        assert_eq!((peeked.code, peeked.errors), (Some(0), hidden));
        let past = "2020-01-01T00:00:00Z";
        site.umsg(&["send", name, "now", "--at", past]).text();
        site.umsg(&["send", name, "soon", "--after", "80ms"]).text();
        assert_eq!(
            site.umsg(&["recv", name, "--timeout", "10"]).text(),
            "now\n"
        );
        assert_eq!(
            site.umsg(&["recv", name, "--timeout", "10"]).text(),
            "soon\n"
        );
        let none = site.umsg(&["recv", name, "--nonblocking", "--quiet"]);
        assert_eq!((none.code, none.errors.as_str()), (Some(3), ""));
        let wrong = site.umsg(&["send", name, "x", "--at", "12:00"]);
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        assert!(wrong.errors.contains("2026-01-31T12:00:00Z"), "{wrong:?}");
    }
}

#[test]
fn a_pipeline_ends_with_its_last_producer() {
    let site = Site::new();
    for name in ["/lines", "key:0x77"] {
        site.umsg(&["create", name, "--close-with-last-producer"])
            .text();
        let reader = support::start(&mut site.command(&["recv", name, "--follow"]));

        let send = ["send", name, "--lines", "--producer"];
        let sent = site.umsg_with_input(&send, b"one\ntwo\n");
        assert_eq!(sent.code, Some(0), "{sent:?}");
        let read = support::end(reader);
        assert_eq!((read.code, &read.output[..]), (Some(0), &b"one\ntwo\n"[..]));
        site.umsg(&["send", name, "late"])
            .fails(1, &[name, "the queue is closed for sending"]);
        site.umsg(&["recv", name])
            .fails(6, &[name, "the end of the stream"]);
        site.umsg(&["close", name, "--reopen"]).text();
        site.umsg(&["send", name, "again"]).text();
        site.umsg(&["close", name]).text();
        let text = site.umsg(&["stat", name]).text().to_owned();
        assert!(
            text.contains("sending           closed; `umsg close --reopen` opens it again\n"),
            "{text}"
        );
        assert_eq!(site.umsg(&["recv", name, "--all"]).text(), "again\n");
    }
}

#[test]
fn creating_an_existing_queue_with_another_policy_says_which_it_has() {
    let site = Site::new();
    let policy = ["--ttl", "1500ms", "--on-full", "drop-oldest"];
    let create = |options: &[&str]| site.umsg(&[&["create", "/q"], options].concat());
    create(&policy).text();
    create(&policy).text();
    create(&["--ttl", "1.5"]).text();
    create(&["--ttl", "2s", "--on-full", "block"]).fails(
        1,
        &["/q: the queue exists with --on-full drop-oldest and --ttl 1s500ms; "],
    );
    create(&["--priorities", "fair:4"]).fails(1, &["with --priorities strict; "]);
    create(&["--dead-letter", "/dead", "--max-deliveries", "3"])
        .fails(1, &["with no --max-deliveries and no --dead-letter; "]);
    site.umsg(&["create", "/other", "--dead-letter", "/dead"])
        .text();
    site.umsg(&["create", "/other", "--dead-letter", "dead"])
        .text();
    site.umsg(&["create", "/other", "--dead-letter", "/grave"])
        .fails(1, &["with --dead-letter /dead; "]);
}

#[test]
fn a_full_queue_fails_or_drops_the_oldest_if_it_was_created_so() {
    let site = Site::new();
    for (name, on_full) in [("/fail", "fail"), ("/drop", "drop-oldest")] {
        site.umsg(&["create", name, "--max-messages", "1", "--on-full", on_full])
            .text();
        site.umsg(&["send", name, "old"]).text();
    }
    site.umsg(&["send", "/fail", "new"])
        .fails(3, &["/fail: the queue is full; "]);
    site.umsg(&["send", "/drop", "new"]).text();
    assert_eq!(site.umsg(&["recv", "/fail", "--all"]).text(), "old\n");
    assert_eq!(site.umsg(&["recv", "/drop", "--all"]).text(), "new\n");
    let counted = &site.umsg(&["stat", "/drop", "--json"]).json()["statistics"];
    assert_eq!(counted["dropped"], 1);
}

#[test]
fn what_is_too_old_is_not_received_and_goes_to_the_queue_for_dead_letters() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--ttl", "50ms", "--dead-letter", "/dead"])
        .text();
    site.umsg(&["send", "/q", "old news", "-p", "2"]).text();
    sleep(Duration::from_millis(200));
    site.umsg(&["recv", "/q", "--nonblocking"])
        .fails(3, &["the queue is empty"]);
    assert_eq!(site.umsg(&["recv", "/dead"]).text(), "old news\n");
    let counted = &site.umsg(&["stat", "/q", "--json"]).json()["statistics"];
    assert_eq!(
        (&counted["expired"], &counted["dead_lettered"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn a_queue_for_dead_letters_is_made_along_and_stays() {
    let site = Site::new();
    let create = ["create", "/q", "--ttl", "5m", "--dead-letter", "/dead"];
    let goes = ["--remove-on-last-close", "--max-messages", "3"];
    site.umsg(&[&create[..], &goes].concat()).text();
    let dead = site.umsg(&["stat", "/dead", "--json"]).json();
    assert_eq!(
        (&dead["max_messages"], &dead["ttl_seconds"]),
        (&json!(3), &json!(null))
    );
    // `umsg send` is the only user of the queue, so its end removes the queue.
    site.umsg(&["send", "/q", "x"]).text();
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/dead\n");
    let help = site.umsg(&["create", "--help"]);
    let words: Vec<&str> = help.text().split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("it is created with the queue's --max-messages, --message-size and mode")
    );
}

#[test]
fn a_message_set_aside_takes_no_room_and_one_sent_back_is_no_dead_letter() {
    let site = Site::new();
    let create = ["create", "/q", "--max-messages", "1", "--ttl", "1ms"];
    let create = [&create[..], &["--dead-letter", "/dead"]].concat();
    site.umsg(&create).text();
    let fill = || {
        let top = site.umsg(&["top", "--json", "-n", "1"]).json();
        let rows = top["queues"].as_array().unwrap().clone();
        let row = rows.iter().find(|row| row["queue"] == "/q").unwrap();
        (
            row["fill"].as_f64().unwrap(),
            row["set_aside"].as_u64().unwrap(),
        )
    };
    site.umsg(&["send", "/q", "old"]).text();
    assert_eq!(fill(), (1.0, 0));
    std::thread::sleep(std::time::Duration::from_millis(20));
    site.umsg(&["send", "/q", "older", "--nonblocking"]).text();
    assert_eq!(fill(), (1.0, 1));
    std::thread::sleep(std::time::Duration::from_millis(20));
    site.umsg(&["recv", "/q", "--nonblocking"]).fails(3, &[]);
    assert_eq!(fill(), (0.0, 1), "the dead-letter queue has room for one");
    site.umsg(&["redrive", "/dead", "--all"]).text();
    let letters = |queue| site.umsg(&["redrive", queue, "--json"]).json_lines().len();
    assert_eq!((letters("/q"), letters("/dead")), (0, 0));
    let stat = site.umsg(&["stat", "/q", "--json"]).json();
    assert_eq!(stat["dead_letters"], json!(null));
}

#[test]
fn a_missing_dead_letter_queue_of_an_existing_queue_is_created() {
    let site = Site::new();
    let mode = ["--mode", "620", "--message-size", "100"];
    let create = ["create", "/q", "--ttl", "1ms", "--dead-letter", "/dead"];
    let create = [&create[..], &mode].concat();
    site.umsg(&create).text();
    site.umsg(&["send", "/q", "old"]).text();
    site.umsg(&["rm", "/dead"]).text();
    site.umsg(&create).text();
    let dead = site.umsg(&["stat", "/dead", "--json"]).json();
    assert_eq!(
        (&dead["mode"], &dead["message_size"]),
        (&json!("0620"), &json!(100))
    );
    std::thread::sleep(std::time::Duration::from_millis(20));
    site.umsg(&["recv", "/q", "--nonblocking"]).fails(3, &[]);
    assert_eq!(site.umsg(&["recv", "/dead"]).text(), "old\n");
    // A command without the option creates no queue, and --exclusive refuses the existing queue first.
    site.umsg(&["rm", "/dead"]).text();
    site.umsg(&["create", "/q"]).text();
    let exclusive = [&create[..], &["--exclusive"]].concat();
    site.umsg(&exclusive).fails(1, &["/q"]);
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/q\n");
}

#[test]
fn a_queue_for_dead_letters_that_cant_be_one_is_refused() {
    let site = Site::new();
    let create = |dead_letter: &str| site.umsg(&["create", "/q", "--dead-letter", dead_letter]);
    create("/q").fails(1, &["umsg: --dead-letter /q is the queue itself; "]);
    create("a/b").fails(
        1,
        &["umsg: --dead-letter /a/b: ", "no slash except the first"],
    );
    create("").fails(1, &["umsg: --dead-letter \"\": ", "such as /orders"]);
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "");
}

#[test]
fn a_queue_for_dead_letters_that_is_too_small_is_refused_or_named_as_the_reason() {
    let site = Site::new();
    site.umsg(&["create", "/dead", "--message-size", "4"])
        .text();
    let policy = ["--max-deliveries", "1", "--dead-letter", "/dead"];
    let create = [&["create", "/q", "--max-messages", "1"][..], &policy].concat();
    site.umsg(&create).fails(1, &["message size is smaller"]);
    site.umsg(&["rm", "/dead"]).text();
    site.umsg(&create).text();
    site.umsg(&["rm", "/dead"]).text();
    site.umsg(&["create", "/dead", "--message-size", "4"])
        .text();
    site.umsg(&["send", "/q", "longer"]).text();
    site.umsg_into_full_disk(&["recv", "/q"])
        .fails(1, &["goes to the dead-letter queue"]);
    assert!(site.umsg(&["ls"]).text().ends_with("1 set aside\n"));
    let dump = site.umsg(&["dump", "/q", "-o", "/dev/null"]);
    dump.fails(
        0,
        &["/q: the file lacks the leased and set-aside messages (1); "],
    );
}

#[test]
fn a_delayed_message_is_shown_dumped_and_loaded() {
    let site = Site::new();
    let namespace = umsg::Namespace::at(site.path()).unwrap();
    let mut options = umsg::posix::OpenOptions::new();
    options.read(true).write(true).create(true);
    let queue = options.namespace(&namespace).open("/q").unwrap();
    queue
        .send_after(b"later", 0, Duration::from_secs(3600))
        .unwrap();
    assert!(site.umsg(&["ls"]).text().ends_with("1 delayed\n"));
    let text = site.umsg(&["stat", "/q"]).text().to_owned();
    assert!(text.contains("0 set aside, 1 delayed\n"), "{text}");
    queue.close_send().unwrap();
    let file = site.path().join("saved");
    let file = file.to_str().unwrap();
    let dump = site.umsg(&["dump", "/q", "-o", file, "--json"]).json();
    assert_eq!(
        (&dump["messages"], &dump["delayed"]),
        (&json!(1), &json!(1))
    );
    site.umsg(&["load", file, "/copy"]).text();
    let copy = site.umsg(&["stat", "/copy", "--json"]).json();
    assert_eq!(
        (&copy["messages"], &copy["delayed"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(copy["send_closed"], true);
}

/// Sends a message, and lets its delivery fail.
fn fail(site: &Site, queue: &str, message: &str) {
    site.umsg(&["send", queue, message]).text();
    let failed = site.umsg(&["recv", queue, "--exec", "false"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
}

#[test]
fn dead_letters_are_looked_at_and_sent_back() {
    let site = Site::new();
    let create = [
        "create",
        "/jobs",
        "--max-deliveries",
        "1",
        "--dead-letter",
        "/failed",
    ];
    site.umsg(&create).text();
    for job in ["one", "two", "three", "four"] {
        fail(&site, "/jobs", job);
    }
    let peeked = site
        .umsg(&["peek", "/failed", "--json", "--count", "1"])
        .json();
    let history = &peeked["history"];
    assert_eq!(peeked["data"], "one");
    assert_eq!(
        (&history["source"], &history["reason"]),
        (&json!("/jobs"), &json!("undelivered"))
    );
    assert_eq!(
        (&history["deliveries"], &history["redrives"]),
        (&json!(1), &json!(0))
    );
    for time in ["sent", "first_delivery", "last_delivery", "dead"] {
        assert!(
            history[time].as_str().unwrap().ends_with('Z'),
            "{time}: {history}"
        );
    }
    let listed = site.umsg(&["redrive", "/failed"]).text().to_owned();
    assert_eq!(listed.lines().count(), 5, "{listed}");
    assert!(listed.contains("/jobs  undelivered"), "{listed}");
    assert!(
        listed.lines().nth(1).unwrap().ends_with("  one"),
        "{listed}"
    );
    let letters = site.umsg(&["redrive", "/failed", "--json"]).json_lines();
    assert_eq!(
        (
            &letters[0]["data"],
            &letters[0]["size"],
            &letters[0]["source"]
        ),
        (&json!("one"), &json!(3), &json!("/jobs"))
    );
    assert_eq!(letters[0]["id"], peeked["id"]);
    // `--reason` and `--from` also select messages when `umsg redrive` only lists messages, and sends none.
    let none = site.umsg(&["redrive", "/failed", "--reason", "expired"]);
    assert_eq!(none.text().lines().count(), 1);
    let all = site.umsg(&["redrive", "/failed", "--from", "jobs", "--json"]);
    assert_eq!(all.json_lines().len(), 4);
    let of_source = site.umsg(&["redrive", "/jobs", "--all"]);
    assert_eq!(of_source.code, Some(0));
    assert!(
        of_source
            .errors
            .contains("those of this queue are in /failed")
    );
    site.umsg(&["redrive", "/failed", "--to", "/slow"])
        .fails(2, &["--to /slow", "--all"]);
    let stat = site.umsg(&["stat", "/failed"]).text().to_owned();
    assert!(
        stat.contains("from other queues 0 too old, 4 not delivered, 0 dropped when full"),
        "{stat}"
    );
    let stat = site.umsg(&["stat", "/failed", "--json"]).json();
    assert_eq!(stat["dead_letters"]["undelivered"], 4);

    let id = history["id"].to_string();
    let done = site.umsg(&["redrive", "/failed", "--id", &id]);
    assert_eq!(done.text(), "1 message sent back\n");
    let received = site.umsg(&["recv", "/jobs", "--json"]).json();
    assert_eq!(
        (&received["data"], &received["history"]["redrives"]),
        (&json!("one"), &json!(1))
    );
    site.umsg(&["redrive", "/failed", "--id", &id])
        .fails(1, &["no dead letter"]);
    site.umsg(&["redrive", "/failed", "--all", "--reason", "expired"])
        .text();
    let first = site
        .umsg(&["redrive", "/failed", "--first", "--json"])
        .json();
    assert_eq!(
        first,
        json!({"queue": "/failed", "redriven": 1, "refused": []})
    );
    site.umsg(&["create", "/slow"]).text();
    let slow = [
        "redrive", "/failed", "--count", "1", "--to", "slow", "--from", "jobs",
    ];
    site.umsg(&slow).text();
    assert_eq!(site.umsg(&["recv", "/slow"]).text(), "three\n");
    site.umsg(&["redrive", "/failed", "--all"]).text();
    assert_eq!(site.umsg(&["recv", "/jobs", "--all"]).text(), "two\nfour\n");
}

#[test]
fn dead_letters_that_can_not_be_sent_back_stay_and_the_command_says_why() {
    let site = Site::new();
    let create = [
        "create",
        "/jobs",
        "--max-messages",
        "1",
        "--max-deliveries",
        "1",
        "--dead-letter",
        "/failed",
    ];
    site.umsg(&create).text();
    fail(&site, "/jobs", "poison");
    site.umsg(&["send", "/jobs", "other"]).text();
    let all = ["redrive", "/failed", "--all"];
    let full = site.umsg(&all);
    full.fails(1, &["/jobs: ", "full", "1 message stayed in /failed"]);
    assert!(!full.errors.contains("--timeout"), "{full:?}");
    site.umsg(&["close", "/jobs"]).text();
    site.umsg(&all)
        .fails(1, &["/jobs: ", "`umsg close --reopen /jobs`", "stayed in"]);
    site.umsg(&["close", "/jobs", "--reopen"]).text();
    site.umsg(&["create", "/short", "--message-size", "2"])
        .text();
    site.umsg(&["redrive", "/failed", "--all", "--to", "/short"])
        .fails(1, &["/short: ", "too long", "stayed in /failed"]);
    site.umsg(&["redrive", "/failed", "--all", "--to", "/failed"])
        .fails(1, &["/failed: ", "stayed in /failed"]);
    site.umsg(&["rm", "/jobs"]).text();
    site.umsg(&all).fails(
        1,
        &[
            "/jobs: no queue has this name in /dev/shm/",
            "name another queue with --to",
        ],
    );
    site.umsg(&["create", "/jobs"]).text();
    site.umsg(&all)
        .fails(1, &["/jobs: ", "dead-letter queue", "--to names"]);
    site.umsg(&["redrive", "/failed", "--all", "--json"])
        .fails(1, &["stayed in /failed"]);
    site.umsg(&["redrive", "/failed", "--all", "--to", "/jobs"])
        .text();
    site.umsg(&["redrive", "key:1"]).fails(2, &["System V"]);
    site.umsg(&["redrive", "/none", "--all"])
        .fails(1, &["/none"]);
}
