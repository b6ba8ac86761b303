//! System V queues: create, rm, ls, stat, send, recv, peek and limits.

mod support;

use serde_json::{Value, json};
use support::{NOBODY, Site, end, is_root, set_mode, start};

const KEY: &str = "key:0x00001234";

fn site_with_queue() -> Site {
    let site = Site::new();
    site.umsg(&["create", KEY]).text();
    site
}

fn send(site: &Site, message: &str, mtype: &str) {
    site.umsg(&["send", KEY, message, "-t", mtype]).text();
}

#[test]
fn a_queue_is_created_by_its_key_with_what_was_asked_for() {
    let site = Site::new();
    let create = ["create", "key:4660", "--qbytes", "1M", "--mode", "0622"];
    assert_eq!(site.umsg(&create).text(), "");
    let found = site.umsg(&["stat", "0x1234", "--json"]).json();
    assert_eq!(
        (&found["key"], &found["mode"]),
        (&json!("0x00001234"), &json!("0622"))
    );
    assert_eq!(
        (&found["qbytes"], &found["messages"], &found["damaged"]),
        (&json!(1 << 20), &json!(0), &json!(false))
    );
    let id = format!("id:{}", found["id"]);
    assert_eq!(site.umsg(&["stat", &id, "--json"]).json(), found);
}

#[test]
fn a_queue_without_a_key_is_known_by_its_identifier_which_is_printed() {
    let site = Site::new();
    let (one, other) = (
        site.umsg(&["create", "key:0"]),
        site.umsg(&["create", "key:0"]),
    );
    let (one, other) = (one.text().trim_end(), other.text().trim_end());
    assert!(one.starts_with("id:") && one != other, "{one} {other}");
    site.umsg(&["send", one, "found"]).text();
    assert_eq!(site.umsg(&["recv", one]).text(), "found\n");
    let found = site.umsg(&["stat", other, "--json"]).json();
    assert_eq!(
        (&found["key"], &found["last_send"]),
        (&json!(null), &json!(null))
    );
    for command in ["stat", "send", "recv", "peek", "rm"] {
        site.umsg(&[command, "key:0"]).fails(
            1,
            &["key:0x00000000: ", "`umsg ls` shows their identifiers"],
        );
    }
}

#[test]
fn creating_an_existing_queue_is_fine_unless_another_is_wanted() {
    let site = site_with_queue();
    send(&site, "stays", "1");
    site.umsg(&["create", KEY, "--mode", "600", "--qbytes", "16K"])
        .text();
    site.umsg(&["create", KEY, "--mode", "640", "--qbytes", "1K"])
        .fails(
            1,
            &["key:0x00001234: exists already, with --qbytes 16384 and --mode 0600; `umsg rm`"],
        );
    site.umsg(&["create", KEY, "--exclusive"])
        .fails(1, &["a queue of this key exists already; "]);
    let created = site.umsg(&["create", KEY, "--json"]).json();
    assert_eq!(
        (&created["messages"], &created["readable"]),
        (&json!(1), &json!(true))
    );
}

#[test]
fn what_belongs_to_the_other_kind_of_queue_is_refused() {
    let site = site_with_queue();
    site.umsg(&["create", "/q"]).text();
    let refused = |command: &[&str], part: &str| site.umsg(command).fails(2, &[part]);
    refused(
        &["create", "key:1", "--max-messages", "5"],
        "no --max-messages and --message-size, but --qbytes",
    );
    refused(&["create", "key:1", "--on-full", "fail"], "--on-full");
    refused(&["create", "id:1"], "identifiers are given by umsg");
    refused(
        &["create", "/new", "--qbytes", "5"],
        "a POSIX queue has no --qbytes",
    );
    refused(
        &["send", KEY, "x", "-p", "1"],
        "a System V queue has no --priority, but --type",
    );
    refused(
        &["send", "/q", "x", "--type", "1"],
        "a POSIX queue has no --type, but --priority",
    );
    refused(
        &["recv", "/q", "--lowest", "1"],
        "/q: a POSIX queue has no types to receive by",
    );
    for command in [
        &["dump", KEY][..],
        &["load", "-", "id:1"],
        &["create", "/d", "--dead-letter", "0x1"],
    ] {
        let outcome = site.umsg(command);
        assert!(
            outcome.code == Some(2) && outcome.errors.contains("this is for POSIX queues"),
            "{outcome:?}"
        );
    }
    assert_eq!(
        site.umsg(&["ls", "--json"]).json()["queues"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[test]
fn what_looks_like_a_key_is_a_name_if_its_slash_is_written() {
    let site = Site::new();
    for name in ["/key:1", "/id:1", "/0x1"] {
        site.umsg(&["create", name]).text();
        site.umsg(&["send", name, "by name"]).text();
        assert_eq!(site.umsg(&["recv", name]).text(), "by name\n");
    }
    site.umsg(&["stat", "key:1"])
        .fails(1, &["key:0x00000001: no queue of this key"]);
    let wrong = site.umsg(&["stat", "key:x"]);
    assert!(
        wrong.code == Some(2) && wrong.errors.contains("key:0x1234"),
        "{wrong:?}"
    );
}

#[test]
fn messages_are_received_in_order_of_arrival_or_by_type() {
    let site = site_with_queue();
    for (message, mtype) in [("a", "5"), ("b", "3"), ("c", "9"), ("d", "3"), ("e", "5")] {
        send(&site, message, mtype);
    }
    let receive = |options: &[&str]| {
        site.umsg(&[&["recv", KEY], options].concat())
            .text()
            .to_owned()
    };
    assert_eq!(receive(&[]), "a\n");
    assert_eq!(receive(&["-t", "9"]), "c\n");
    assert_eq!(receive(&["--except", "3"]), "e\n");
    assert_eq!(receive(&["--lowest", "9"]), "b\n");
    assert_eq!(receive(&["--type", "4", "--all"]), "");
    assert_eq!(receive(&["--all"]), "d\n");
}

#[test]
fn a_message_of_no_type_that_is_wanted_is_waited_for_in_vain() {
    let site = site_with_queue();
    send(&site, "other", "1");
    let receive = |more: &[&str]| site.umsg(&[&["recv", KEY, "--type", "2"], more].concat());
    receive(&["--nonblocking"]).fails(
        3,
        &["there is no such message in the queue; send one first"],
    );
    receive(&["--timeout", "20ms"]).fails(3, &["timed out waiting for a message"]);
    let none = site.umsg(&["recv", KEY, "--type", "0"]);
    assert!(
        none.code == Some(2) && none.errors.contains("a number from 1 up"),
        "{none:?}"
    );
    assert_eq!(site.umsg(&["recv", KEY]).text(), "other\n");
}

#[test]
fn who_waits_for_a_type_gets_it_when_it_is_sent() {
    let site = site_with_queue();
    let waiting = start(&mut site.command(&["recv", KEY, "--type", "2"]));
    site.wait_for(KEY, "blocked_receivers", 1);
    send(&site, "not this", "1");
    send(&site, "this", "2");
    assert_eq!(end(waiting).text(), "this\n");
    assert_eq!(site.umsg(&["recv", KEY]).text(), "not this\n");
}

#[test]
fn a_full_queue_is_waited_for_and_a_long_message_refused() {
    let site = Site::new();
    site.umsg(&["create", KEY, "--qbytes", "10"]).text();
    send(&site, "0123456789", "1");
    site.umsg(&["send", KEY, "x", "--nonblocking"])
        .fails(3, &["the queue is full; receive from it first"]);
    site.umsg(&["send", KEY, "x", "--timeout", "20ms"])
        .fails(3, &["timed out"]);
    let waiting = start(&mut site.command(&["send", KEY, "x", "--json"]));
    site.wait_for(KEY, "blocked_senders", 1);
    assert_eq!(site.umsg(&["recv", KEY]).text(), "0123456789\n");
    assert_eq!(
        end(waiting).json(),
        json!({"queue": KEY, "messages": 1, "bytes": 1})
    );
    let long = vec![b'x'; 8193];
    site.umsg_with_input(&["send", KEY], &long).fails(
        1,
        &["its msgmax is 8192 bytes; raise it with `umsg limits --msgmax`"],
    );
}

#[test]
fn who_waits_is_told_that_the_queue_was_removed() {
    let site = site_with_queue();
    let waiting = start(&mut site.command(&["recv", KEY]));
    site.wait_for(KEY, "blocked_receivers", 1);
    site.umsg(&["rm", KEY]).text();
    end(waiting).fails(4, &["key:0x00001234: the queue was removed"]);
}

#[test]
fn lines_and_raw_bytes_go_through() {
    let site = site_with_queue();
    site.umsg_with_input(&["send", KEY, "--lines", "--type", "4"], b"one\n\ntwo")
        .text();
    assert_eq!(
        site.umsg(&["recv", KEY, "--count", "3"]).text(),
        "one\n\ntwo\n"
    );
    let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
    site.umsg_with_input(&["send", KEY], &bytes).text();
    let received = site.umsg(&["recv", KEY, "--output", "raw"]);
    assert_eq!((received.code, received.output), (Some(0), bytes));
}

/// Without what differs from run to run.
fn known(mut message: Value) -> Value {
    let fields = message.as_object_mut().unwrap();
    assert!(fields.remove("sender_pid").unwrap().as_u64() > Some(0));
    assert!(
        fields
            .remove("sent")
            .unwrap()
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    message
}

#[test]
fn peek_shows_messages_in_order_of_arrival_and_leaves_them() {
    let site = site_with_queue();
    send(&site, "first", "9");
    send(&site, "second", "1");
    let printed = site.umsg(&["peek", KEY]);
    let rows: Vec<Vec<&str>> = printed
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0][..3], ["POSITION", "TYPE", "BYTES"]);
    assert_eq!(
        (rows[1][..3].to_vec(), rows[1].last()),
        (vec!["0", "9", "5"], Some(&"first"))
    );
    assert_eq!(
        (rows[2][..3].to_vec(), rows.len()),
        (vec!["1", "1", "6"], 3)
    );
    let one = site.umsg(&["peek", KEY, "--count", "1", "--json"]).json();
    let expected = json!({"queue": KEY, "position": 0, "type": 9, "size": 5, "deliveries": 0, "encoding": "utf-8", "data": "first"});
    assert_eq!(known(one), expected);
    assert_eq!(site.umsg(&["stat", KEY, "--json"]).json()["messages"], 2);
}

#[test]
fn a_message_may_be_cut() {
    let site = site_with_queue();
    send(&site, "123456", "7");
    send(&site, "123456", "7");
    assert_eq!(site.umsg(&["recv", KEY, "--truncate", "3"]).text(), "123\n");
    let cut = site
        .umsg(&["recv", KEY, "--truncate", "2", "--json"])
        .json();
    let expected = json!({"queue": KEY, "type": 7, "size": 6, "deliveries": 1, "encoding": "utf-8", "data": "12"});
    assert_eq!(known(cut), expected);
    site.umsg(&["recv", KEY, "--nonblocking"])
        .fails(3, &["no such message"]);
}

#[test]
fn a_message_that_cant_be_printed_stays() {
    let site = site_with_queue();
    send(&site, "kept", "7");
    let outcome = site.umsg_into_full_disk(&["recv", KEY]);
    outcome.fails(
        1,
        &[
            "standard output: ",
            "the message is back in the queue, the first of its type (7)",
        ],
    );
    let again = site.umsg(&["recv", KEY, "--json"]).json();
    assert_eq!(
        (&again["data"], &again["deliveries"]),
        (&json!("kept"), &json!(2))
    );
}

#[test]
fn stat_shows_everything() {
    let site = site_with_queue();
    send(&site, "12345", "2");
    send(&site, "678", "2");
    send(&site, "9", "1");
    site.umsg(&["recv", KEY]).text();
    let printed = site.umsg(&["stat", KEY]);
    let line = |title: &str| {
        let mut lines = printed.text().lines();
        let line = lines.find(|line| line.starts_with(&format!("{title} ")));
        line.unwrap_or_else(|| panic!("no {title} in {printed:?}"))[18..].to_owned()
    };
    assert_eq!(
        (line("key"), line("messages")),
        ("0x00001234".into(), "2".into())
    );
    assert_eq!(
        (line("types"), line("bytes")),
        ("1 (1), 2 (1)".into(), "4 of 16384".into())
    );
    assert_eq!(
        (line("message size"), line("mode")),
        ("at most 8192 bytes".into(), "0600".into())
    );
    assert!(
        line("last send").contains(" by process ") && line("last receive").contains(" by process ")
    );
    let found = site.umsg(&["stat", KEY, "--json"]).json();
    assert_eq!(
        found["types"],
        json!([{"type": 1, "messages": 1}, {"type": 2, "messages": 1}])
    );
    let me = rustix::process::geteuid().as_raw();
    assert_eq!(
        (&found["uid"], &found["creator_uid"]),
        (&json!(me), &json!(me))
    );
    assert_eq!((&found["bytes"], &found["leased"]), (&json!(4), &json!(0)));
    assert_eq!(found["statistics"]["sends_blocked"], 0);
    assert!(found["last_sender_pid"].as_u64() > Some(0) && found["changed"].is_string());
}

#[test]
fn ls_shows_both_kinds_or_one() {
    let site = site_with_queue();
    site.umsg(&["create", "/q"]).text();
    let private = site.umsg(&["create", "key:0", "--mode", "640"]);
    let private = private.text().trim_end();
    send(&site, "12345", "1");
    let printed = site.umsg(&["ls"]);
    let tables: Vec<&str> = printed.text().split("\n\n").collect();
    assert_eq!(tables.len(), 2, "{printed:?}");
    assert!(
        tables[0].contains("\n/q ") && !tables[0].contains("0x0000"),
        "{printed:?}"
    );
    let rows: Vec<Vec<&str>> = tables[1]
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0][..5], ["KEY", "ID", "MESSAGES", "BYTES", "QBYTES"]);
    assert_eq!(
        (rows[1][0], &rows[1][2..6]),
        ("0x00001234", &["1", "5", "16384", "0600"][..])
    );
    assert_eq!((rows[2][0], rows[2][5]), ("0x00000000", "0640"));
    assert_eq!(format!("id:{}", rows[2][1]), private);
    let only = |kind| site.umsg(&["ls", "--kind", kind]).text().to_owned();
    assert!(only("mq").contains("/q") && !only("mq").contains("KEY"));
    assert!(!only("sysv").contains("/q") && only("sysv").contains("0x00001234"));
    let listed = site.umsg(&["ls", "--json"]).json();
    assert_eq!(
        (
            listed["queues"].as_array().map(Vec::len),
            &listed["sysv"][0]["key"]
        ),
        (Some(1), &json!("0x00001234"))
    );
    assert_eq!(listed["sysv"][1]["blocked_senders"], 0);
    let stat = site.umsg(&["ls", "--kind", "mq", "--json"]).json();
    assert_eq!(
        (
            stat["sysv"].as_array().map(Vec::len),
            &stat["queues"][0]["name"]
        ),
        (Some(0), &json!("/q"))
    );
}

#[test]
fn what_ls_names_can_be_removed() {
    let site = site_with_queue();
    site.umsg(&["create", "/q"]).text();
    site.umsg(&["create", "key:0"]).text();
    let names = site.umsg(&["ls", "--null"]);
    let names: Vec<&str> = names.text().split_terminator('\0').collect();
    assert_eq!((names.len(), names[0]), (3, "/q"));
    assert!(
        names[1..].iter().all(|name| name.starts_with("id:")),
        "{names:?}"
    );
    site.umsg(&[&["rm"], &names[..]].concat()).text();
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
}

#[test]
fn rm_removes_by_key_and_by_identifier_and_says_what_it_could_not() {
    let site = site_with_queue();
    let private = site.umsg(&["create", "key:0"]);
    let private = private.text().trim_end();
    let outcome = site.umsg(&["rm", "key:77", KEY, "id:2000000000", private, "--json"]);
    assert_eq!(outcome.code, Some(1));
    let errors: Vec<&str> = outcome.errors.lines().collect();
    assert!(
        errors[0].starts_with("umsg: key:0x0000004d: no queue of this key"),
        "{errors:?}"
    );
    assert!(
        errors[1].starts_with("umsg: id:2000000000: no queue has this identifier"),
        "{errors:?}"
    );
    let removed: Value = serde_json::from_slice(&outcome.output).unwrap();
    assert_eq!(removed, json!({"removed": [KEY, private]}));
    // A new queue of the key has another identifier: the old one leads nowhere.
    site.umsg(&["create", KEY]).text();
    site.umsg(&["stat", private])
        .fails(1, &["no queue has this identifier"]);
}

#[test]
fn limits_of_system_v_are_shown_set_and_hold() {
    let site = site_with_queue();
    let found = site.umsg(&["limits", "--json"]).json();
    let of = |limits: &Value| {
        ["msgmax", "msgmnb", "msgmni", "max_qbytes"].map(|limit| limits[limit].as_u64().unwrap())
    };
    assert_eq!(of(&found), [8192, 16_384, 32_000, 1 << 30]);
    let set = [
        "limits",
        "--msgmax",
        "64K",
        "--msgmnb",
        "1M",
        "--msgmni",
        "2",
        "--max-qbytes",
        "2M",
        "--json",
    ];
    assert_eq!(of(&site.umsg(&set).json()), [65_536, 1 << 20, 2, 2 << 20]);
    assert!(
        site.umsg(&["limits"])
            .text()
            .lines()
            .any(|line| line.split_whitespace().take(2).eq(["msgmni", "2"]))
    );
    site.umsg(&["create", "key:1", "--qbytes", "3M"]).fails(
        1,
        &[
            "--qbytes is 3145728: choose at most 2097152",
            "`umsg limits --max-qbytes` raises",
        ],
    );
    let made = site.umsg(&["create", "key:1", "--json"]).json();
    assert_eq!(
        (&made["qbytes"], &made["msgmax"]),
        (&json!(1 << 20), &json!(65_536))
    );
    site.umsg(&["create", "key:2"]).fails(
        1,
        &["2 System V queues, its limit msgmni; `umsg limits` raises it"],
    );
    site.umsg(&["limits", "--msgmni", "1"])
        .fails(0, &["there are 2 System V queues already", "fewer than 1"]);
    site.umsg(&["limits", "--msgmax", "17M"])
        .fails(2, &["--msgmax is 17825792: choose between 0 and 16777216"]);
}

/// Overwrites the file of a queue from a byte on.
fn damage(site: &Site, id: &Value, at: u64) {
    let path = site.path().join(format!("msg/{id}"));
    let file = std::fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 4], at).unwrap();
}

#[test]
fn a_damaged_queue_and_one_of_another_version_are_listed_and_can_be_removed() {
    let site = Site::new();
    set_mode(site.path(), 0o1777);
    for (key, at, why) in [
        ("key:1", 16, "damaged"),
        ("key:2", 8, "another version of umsg"),
    ] {
        for by_key in [true, false] {
            site.umsg(&["create", key]).text();
            let found = site.umsg(&["stat", key, "--json"]).json();
            let id = format!("id:{}", found["id"]);
            damage(&site, &json!(found["id"].as_u64().unwrap() % 32_768), at);
            for command in ["stat", "send", "recv", "create"] {
                let outcome = site.umsg_with_input(&[command, key], b"");
                outcome.fails(1, &[why, "`umsg rm`"]);
            }
            let listed = site.umsg(&["ls", "--kind", "sysv"]);
            let line = listed.text().lines().last().unwrap();
            assert!(
                line.contains(why) && line.contains("root") == is_root(),
                "{line}"
            );
            if let Some(others) = site.umsg_as_nobody(&["rm", key]) {
                others.fails(1, &["only the queue's owner"]);
            }
            site.umsg(&["rm", if by_key { key } else { &id }]).text();
            assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
        }
        site.umsg(&["create", key, "--exclusive"]).text();
        site.umsg(&["rm", key]).text();
    }
}

#[test]
fn another_users_queue_is_listed_and_neither_read_nor_removed() {
    if !is_root() {
        return;
    }
    let site = Site::new();
    set_mode(site.path(), 0o1777);
    site.umsg(&["create", KEY]).text();
    site.umsg(&["create", "key:2", "--mode", "622"]).text();
    let as_nobody = |arguments: &[&str]| site.umsg_as_nobody(arguments).unwrap();
    let listed = as_nobody(&["ls", "--json"]).json();
    let row = |key: &str| {
        let rows = listed["sysv"].as_array().unwrap();
        rows.iter().find(|row| row["key"] == key).cloned().unwrap()
    };
    assert_eq!(
        (
            &row("0x00001234")["readable"],
            &row("0x00000002")["readable"]
        ),
        (&json!(false), &json!(true))
    );
    let printed = as_nobody(&["ls", "--kind", "sysv"]);
    assert_eq!(
        printed.text().matches("permission denied").count(),
        2,
        "{printed:?}"
    );
    as_nobody(&["stat", KEY]).fails(
        1,
        &["permission denied by the queue's mode; run this as the queue's owner or as root"],
    );
    as_nobody(&["recv", "key:2"]).fails(
        1,
        &["does not let you receive; run this as the queue's owner"],
    );
    as_nobody(&["send", "key:2", "let in"]).text();
    as_nobody(&["rm", "key:2"]).fails(
        1,
        &["only the queue's owner, its creator or root may do this"],
    );
    let id = format!("id:{}", row("0x00001234")["id"]);
    as_nobody(&["rm", &id]).fails(
        1,
        &["only the queue's owner, its creator or root may do this"],
    );
    assert_eq!(site.umsg(&["recv", "key:2"]).text(), "let in\n");
    let owner = site.umsg(&["stat", KEY, "--json"]).json();
    assert!(owner["uid"] != NOBODY);
}
