//! Tests `umsg create`, `umsg rm`, `umsg ls` and `umsg stat`.

mod support;

use std::process::Command;
use umsg_testkit::users::is_root;

use serde_json::json;
use support::{NOBODY, Site, end, finish, give_to, set_mode, start};

#[test]
fn a_queue_is_created_with_what_was_asked_for_whatever_the_umask() {
    let site = Site::new();
    let create = [
        "create",
        "/q",
        "--max-messages",
        "64K",
        "--message-size",
        "1K",
        "--mode",
        "0622",
    ];
    assert_eq!(site.umsg(&create).text(), "");
    let found = site.umsg(&["stat", "/q", "--json"]).json();
    assert_eq!(found["name"], "/q");
    assert_eq!(
        (&found["max_messages"], &found["message_size"]),
        (&json!(65_536), &json!(1024))
    );
    assert_eq!(found["mode"], "0622");
    assert_eq!(
        (&found["messages"], &found["bytes"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(
        (&found["last_activity"], &found["damaged"]),
        (&json!(null), &json!(false))
    );
}

#[test]
fn create_prints_the_queue_for_programs() {
    let site = Site::new();
    let created = site.umsg(&["create", "q", "--json"]).json();
    assert_eq!(
        (&created["name"], &created["mode"]),
        (&json!("/q"), &json!("0600"))
    );
    assert_eq!(created, site.umsg(&["stat", "q", "--json"]).json());
}

#[test]
fn creating_an_existing_queue_is_fine_unless_other_attributes_are_wanted() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "5"]).text();
    site.umsg(&["create", "/q"]).text();
    site.umsg(&[
        "create",
        "/q",
        "--max-messages",
        "5",
        "--message-size",
        "8K",
    ])
    .text();
    let other = site.umsg(&["create", "/q", "--max-messages", "6"]);
    other.fails(
        1,
        &["/q: the queue exists with --max-messages 5; remove it first with `umsg rm`"],
    );
    let other = site.umsg(&["create", "/q", "--mode", "644", "--message-size", "1"]);
    other.fails(
        1,
        &["with --message-size 8192 and --mode 0600; remove it first with `umsg rm`"],
    );
    site.umsg(&["create", "/q", "--mode", "600"]).text();
    site.umsg(&["create", "/q", "--exclusive"])
        .fails(1, &["/q: ", "exists already; "]);
}

#[test]
fn a_name_that_cant_be_one_is_refused_with_a_reason() {
    let site = Site::new();
    site.umsg(&["create", "a/b"])
        .fails(1, &["umsg: /a/b: ", "no slash except the first"]);
    for command in ["create", "rm", "stat", "send", "recv", "peek"] {
        site.umsg(&[command, "/"]).fails(
            1,
            &["umsg: /: a queue's name must be a slash followed by 1 to 255 bytes"],
        );
    }
    site.umsg(&["create", ""])
        .fails(1, &["umsg: \"\": ", "such as /orders"]);
    site.umsg(&["create", &"x".repeat(256)])
        .fails(1, &["at most 255 bytes"]);
    site.umsg(&["stat", "\x1b[31m"])
        .fails(1, &["umsg: /\\x1b[31m: no queue has this name"]);
}

#[test]
fn attributes_beyond_the_limits_are_refused_with_the_limit() {
    let site = Site::new();
    let refused = |code, option, value, line: &str| {
        let outcome = site.umsg(&["create", "/q", option, value]);
        outcome.fails(code, &[line]);
    };
    let line =
        "/q: --max-messages must be from 1 to 1048576, not 2097152; no queue can have more\n";
    refused(2, "--max-messages", "2M", line);
    let line =
        "/q: --message-size must be from 1 to 16777216, not 17825792; no queue can have more\n";
    refused(2, "--message-size", "17M", line);
    let line = "/q: --message-size must be from 1 to 16777216, not 0\n";
    refused(2, "--message-size", "0", line);
    site.umsg(&["limits", "--max-messages", "20"]).text();
    let line = "must be from 1 to 20, not 21; 20 is the namespace's limit, and `umsg limits --max-messages` raises it";
    refused(1, "--max-messages", "21", line);
    for value in ["-1", "x", "5G"] {
        let outcome = site.umsg(&["create", "/q", "--max-messages", value]);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        let parts = [
            &format!("invalid value '{value}' for '--max-messages <N>': ")[..],
            "number",
        ];
        assert!(
            parts.iter().all(|part| outcome.errors.contains(part)),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_user_without_all_permissions_may_still_find_the_queue_that_is_asked_for() {
    umsg_testkit::needs_root!();
    let site = Site::new();
    set_mode(site.path(), 0o1777);
    site.umsg(&["create", "/letterbox", "--mode", "622"]).text();
    site.umsg(&["create", "/private"]).text();
    let create = |arguments: &[&str]| {
        site.umsg_as_nobody(&[&["create"], arguments].concat())
            .unwrap()
    };
    create(&["/letterbox", "--mode", "622"]).text();
    create(&["/letterbox", "--mode", "600"]).fails(1, &["the queue exists with --mode 0622"]);
    create(&["/private"]).fails(1, &["/private: permission denied"]);
}

#[test]
fn rm_removes_what_it_can_and_says_what_it_could_not() {
    let site = Site::new();
    site.umsg(&["create", "/a"]).text();
    site.umsg(&["create", "/b"]).text();
    let outcome = site.umsg(&["rm", "a", "/missing", "/b", "--json"]);
    outcome.fails(
        1,
        &["umsg: /missing: no queue has this name in ", "; `umsg ls`"],
    );
    assert_eq!(outcome.output, b"{\"removed\":[\"/a\",\"/b\"]}\n");
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
}

#[test]
fn ls_shows_the_namespace_and_all_about_each_queue() {
    let site = Site::new();
    site.umsg(&[
        "create",
        "/orders",
        "--max-messages",
        "4",
        "--message-size",
        "100",
    ])
    .text();
    site.umsg(&["create", "/log", "--mode", "644"]).text();
    site.umsg(&["send", "/orders", "twelve bytes"]).text();
    let printed = site.umsg(&["ls"]);
    let lines: Vec<Vec<&str>> = printed
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let path = site.path().to_str().unwrap();
    assert_eq!(lines[0], ["namespace", path, "(chosen", "by", "UMSG_DIR)"]);
    assert_eq!(
        lines[1],
        [
            "NAME",
            "MESSAGES",
            "BYTES",
            "DEPTH",
            "SIZE",
            "MODE",
            "OWNER",
            "WAIT-SEND",
            "WAIT-RECV",
            "ACTIVITY"
        ]
    );
    assert_eq!(lines[2][..6], ["/log", "0", "0", "10", "8192", "0644"]);
    assert_eq!(lines[2][7..], ["0", "0", "never"]);
    assert_eq!(lines[3][..6], ["/orders", "1", "12", "4", "100", "0600"]);
    assert_eq!(lines[3].last(), Some(&"ago"));
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "/log\n/orders\n");
}

#[test]
fn names_in_a_pipe_are_those_that_the_queues_have() {
    let site = Site::new();
    let odd = ["/\x1b[31m", "/a\nb", "/a b", "/it's"];
    for name in odd {
        site.umsg(&["create", name]).text();
    }
    assert_eq!(site.umsg(&["ls", "-q"]).text(), odd.join("\n") + "\n");
    for null in [&["ls", "-0"][..], &["ls", "--quiet", "--null"]] {
        assert_eq!(site.umsg(null).text(), odd.join("\0") + "\0");
    }
    let mut script = Command::new("script");
    let list = format!("{} ls -q", env!("CARGO_BIN_EXE_umsg"));
    script
        .args(["-qec", &list, "/dev/null"])
        .env("UMSG_DIR", site.path());
    let on_terminal = finish(&mut script, b"");
    assert!(on_terminal.text().contains("/\\x1b[31m\r\n"));
    let stat = site.umsg(&["stat", odd[1], "--json"]).json();
    assert_eq!(stat["name"], odd[1]);
    let mut remove = Command::new("bash");
    let line = r#""$0" ls -0 | xargs -0 -r "$0" rm"#;
    remove.args(["-c", line, env!("CARGO_BIN_EXE_umsg")]);
    assert_eq!(finish(remove.env("UMSG_DIR", site.path()), b"").text(), "");
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "");
}

#[test]
fn ls_and_stat_give_programs_the_same_fields() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    site.umsg(&["send", "/q", "x"]).text();
    let list = site.umsg(&["ls", "--json"]).json();
    assert_eq!(
        list["namespace"],
        json!({"path": site.path(), "kind": "chosen"})
    );
    assert_eq!(
        list["queues"],
        json!([site.umsg(&["stat", "q", "--json"]).json()])
    );
    let sent = list["queues"][0]["last_activity"].as_str().unwrap();
    assert_eq!((sent.len(), &sent[10..11], &sent[23..]), (24, "T", "Z"));
}

#[test]
fn ls_shows_blocked_processes() {
    let site = Site::new();
    site.umsg(&["create", "/empty"]).text();
    site.umsg(&["create", "/full", "--max-messages", "1"])
        .text();
    site.umsg(&["send", "/full", "first"]).text();
    let receiver = start(&mut site.command(&["recv", "/empty"]));
    let sender = start(&mut site.command(&["send", "/full", "second"]));
    site.wait_for("/empty", "blocked_receivers", 1);
    site.wait_for("/full", "blocked_senders", 1);
    let printed = site.umsg(&["ls"]);
    let columns = |name: &str| -> Vec<String> {
        let line = printed
            .text()
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap();
        line.split_whitespace()
            .skip(7)
            .take(2)
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        (columns("/empty"), columns("/full")),
        (vec!["0".into(), "1".into()], vec!["1".into(), "0".into()])
    );
    site.umsg(&["send", "/empty", "x"]).text();
    assert_eq!(end(receiver).text(), "x\n");
    assert_eq!(
        site.umsg(&["recv", "/full", "--count", "2"]).text(),
        "first\nsecond\n"
    );
    assert_eq!(end(sender).text(), "");
}

#[test]
fn a_file_that_is_no_queue_is_listed_with_the_reason() {
    let site = Site::new();
    site.umsg(&["create", "/good"]).text();
    std::fs::write(site.path().join("mq/bad"), b"nonsense").unwrap();
    let printed = site.umsg(&["ls"]);
    let line = printed
        .text()
        .lines()
        .find(|line| line.starts_with("/bad"))
        .unwrap();
    assert!(line.contains("not a queue of the expected kind"), "{line}");
    let list = site.umsg(&["ls", "--json"]).json();
    assert_eq!(list["queues"][0]["name"], "/bad");
    assert!(list["queues"][0]["error"].is_string());
    site.umsg(&["stat", "/bad"])
        .fails(1, &["umsg: /bad: ", "not a queue of the expected kind"]);
    site.umsg(&["rm", "/bad"]).text();
    std::fs::create_dir(site.path().join("mq/directory")).unwrap();
    for goes in [&[][..], &["--remove-on-last-close"]] {
        site.umsg(&[&["create", "/directory"], goes].concat())
            .fails(
                1,
                &["/directory: the file is not a queue of the expected kind (a directory); remove the directory"],
            );
    }
    site.umsg(&["ls"]).text();
    std::fs::write(site.path().join("mq/directory/letter"), b"").unwrap();
    site.umsg(&["rm", "/directory"]).fails(
        1,
        &[
            "/directory: ",
            "Is a directory",
            "; remove the file by hand",
        ],
    );
}

#[test]
fn a_queue_that_one_may_only_send_to_shows_its_status_and_one_without_permission_only_its_name() {
    umsg_testkit::needs_root!();
    let site = Site::new();
    set_mode(site.path(), 0o1777);
    site.umsg(&["create", "/letterbox", "--mode", "622"]).text();
    site.umsg(&["create", "/private"]).text();
    let list = site.umsg_as_nobody(&["ls", "--json"]).unwrap().json();
    assert_eq!(list["queues"][0]["mode"], "0622");
    assert_eq!(list["queues"][1]["name"], "/private");
    assert!(
        list["queues"][1]["error"]
            .as_str()
            .unwrap()
            .contains("permission denied")
    );
    let stat = site.umsg_as_nobody(&["stat", "/letterbox"]).unwrap();
    assert!(stat.text().contains("0622"));
    let refused = site
        .umsg_as_nobody(&["recv", "/letterbox", "--nonblocking"])
        .unwrap();
    refused.fails(
        1,
        &[
            "umsg: /letterbox: permission denied: mode 0622",
            "only send to the queue; ",
        ],
    );
    site.umsg_as_nobody(&["recv", "/private"]).unwrap().fails(
        1,
        &["umsg: /private: permission denied", "; run the command as"],
    );
    let refused = site.umsg_as_nobody(&["rm", "/letterbox"]).unwrap();
    refused.fails(1, &["umsg: /letterbox: only the queue's owner"]);
}

#[test]
fn dir_comes_before_the_variable_and_may_stand_before_or_behind_the_command() {
    let (site, other) = (Site::new(), Site::new());
    let dir = other.path().to_str().unwrap();
    site.umsg(&["create", "/mine"]).text();
    site.umsg(&["--dir", dir, "create", "/q"]).text();
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "/mine\n");
    assert_eq!(site.umsg(&["ls", "-q", "--dir", dir]).text(), "/q\n");
    assert!(
        site.umsg(&["ls", "--dir", dir])
            .text()
            .contains("(chosen by --dir)")
    );
}

#[test]
fn a_namespace_that_is_missing_or_not_to_be_trusted_is_refused_with_what_to_do() {
    let site = Site::new();
    let missing = site.path().join("missing");
    let mut command = site.command(&["ls"]);
    finish(command.env("UMSG_DIR", &missing), b"").fails(1, &["does not exist", "mkdir"]);
    let in_dir = |dir: &str, parts: &[&str]| site.umsg(&["ls", "--dir", dir]).fails(1, parts);
    in_dir(
        "/no/such",
        &["/no/such does not exist", "or give --dir another directory"],
    );
    in_dir(
        "/dev/null",
        &[
            "umsg: /dev/null is not a directory, or a parent of it is a file: give --dir a directory",
        ],
    );
    in_dir(
        "/dev/null/x",
        &["umsg: /dev/null/x is not a directory, or a parent of it is a file: give"],
    );
    in_dir(
        "/proc",
        &[
            "umsg: /proc is not a namespace: ",
            "give --dir the namespace's directory",
        ],
    );
    set_mode(site.path(), 0o777);
    site.umsg(&["ls"]).fails(1, &["chmod +t"]);
    if is_root() {
        set_mode(site.path(), 0o700);
        give_to(site.path(), NOBODY);
        site.umsg(&["recv", "/q"])
            .fails(1, &["belongs to user 65534", "--as-owner"]);
    }
}

#[test]
fn stat_explains_a_queue_to_people() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "3"]).text();
    site.umsg(&["send", "/q", "hello"]).text();
    let printed = site.umsg(&["stat", "/q"]);
    for line in [
        "name              /q",
        "messages          1 of 3",
        "bytes             5",
        "last receive      never",
    ] {
        assert!(
            printed.text().lines().any(|printed| printed == line),
            "{line}"
        );
    }
}

#[test]
fn stat_names_the_process_that_the_next_message_notifies() {
    use umsg::posix::{Notify, OpenOptions};
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    assert_eq!(
        site.umsg(&["stat", "/q", "--json"]).json()["registered"],
        json!(null)
    );
    let namespace = umsg::Namespace::at(site.path()).unwrap();
    let queue = OpenOptions::new()
        .read(true)
        .write(true)
        .namespace(&namespace)
        .open("/q")
        .unwrap();
    let registration = queue.notify(Notify::signal(10)).unwrap();
    let pid = std::process::id();
    assert_eq!(
        site.umsg(&["stat", "/q", "--json"]).json()["registered"],
        json!({"pid": pid, "by": "signal", "signal": 10})
    );
    let told = site.umsg(&["stat", "/q"]).text().to_owned();
    assert!(
        told.contains(&format!("process {pid}, by signal 10")),
        "{told}"
    );
    drop(registration);
    let told = site.umsg(&["stat", "/q"]).text().to_owned();
    assert!(told.contains("notifies          no process"), "{told}");
}
