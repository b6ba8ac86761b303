//! Tests `umsg gc`: queues and files that no process needs any more.
//!
//! The tests run one at a time: the process of the tests has queues open, and each child that another test forks inherits them until it executes the
//! command.

mod support;

use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use support::Site;
use umsg::Namespace;
use umsg::posix::OpenOptions;

/// Waits until no other test runs. No other test runs as long as the caller has the returned guard.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name of each queue in a report, and whether the queue was removed or kept.
fn fates(report: &Value) -> Vec<(&str, &str)> {
    let rows = report["queues"].as_array().unwrap().iter();
    rows.map(|row| (row["name"].as_str().unwrap(), row["fate"].as_str().unwrap()))
        .collect()
}

#[test]
fn nothing_is_removed_unless_that_is_said() {
    let _turn = turn();
    let site = Site::new();
    for name in ["/test-1", "/test-2", "/orders"] {
        site.umsg(&["create", name]).text();
    }
    let shown = site.umsg(&["gc", "/test-*"]);
    let lines: Vec<&str> = shown.text().lines().collect();
    assert!(lines[0].starts_with("NAME"), "{lines:?}");
    assert!(lines[1].starts_with("/test-1 "), "{lines:?}");
    assert_eq!(lines[3], "2 would be removed with --remove");
    let shown = site.umsg(&["gc", "/none"]);
    assert!(shown.text().ends_with("\nnothing would be removed\n"));
    let removed = site.umsg(&["gc", "/test-*", "--remove"]);
    assert!(
        removed.text().ends_with("\n2 removed\n"),
        "{}",
        removed.text()
    );
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/orders\n");
}

#[test]
fn a_condition_has_to_be_given() {
    let _turn = turn();
    let site = Site::new();
    for arguments in [["gc", "--remove"], ["gc", "--older-than"]] {
        let outcome = site.command(&arguments).output().unwrap();
        assert_eq!(outcome.status.code(), Some(2));
        assert!(outcome.stderr.starts_with(b"error: "));
    }
}

#[test]
fn all_conditions_have_to_hold() {
    let _turn = turn();
    let site = Site::new();
    for name in ["/empty", "/full", "key:0x1234"] {
        site.umsg(&["create", name]).text();
    }
    site.umsg(&["send", "/full", "x"]).text();
    let report = |arguments: &[&str]| {
        let all = [&["gc", "--json"], arguments].concat();
        site.umsg(&all).json()
    };
    // The creators of the queues, which were commands, have ended.
    let dead = report(&["--dead-creator"]);
    assert_eq!(dead["queues"].as_array().unwrap().len(), 3);
    assert_eq!(dead["queues"][0]["creator_alive"], Value::Bool(false));
    // If the queue was created in another PID namespace, the process id of its creator is ignored. Source: docs/format.md, `home`.
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(std::path::Path::new(site.path()).join("mq/empty"))
        .unwrap();
    let mut home = [0; 8];
    file.read_exact_at(&mut home, 64).unwrap();
    file.write_all_at(&1_u64.to_le_bytes(), 64).unwrap();
    let dead = report(&["--dead-creator", "--kind", "mq"]);
    assert_eq!(fates(&dead), [("/full", "stale")]);
    file.write_all_at(&home, 64).unwrap();
    let empty = report(&["--dead-creator", "--empty", "--kind", "mq"]);
    assert_eq!(fates(&empty), [("/empty", "stale")]);
    assert!(fates(&report(&["--older-than", "1h"])).is_empty());
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(
        fates(&report(&["--older-than", "10ms", "/f*"])),
        [("/full", "stale")]
    );
    let typed = report(&["id:*", "--remove"]);
    assert_eq!(fates(&typed)[0].1, "removed");
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/empty\n/full\n");
}

#[test]
fn a_queue_whose_messages_are_delayed_or_set_aside_is_not_empty() {
    let _turn = turn();
    let site = Site::new();
    for name in ["/delayed", "key:0x1234"] {
        site.umsg(&["create", name]).text();
        site.umsg(&["send", name, "later", "--after", "1h"]).text();
    }
    let policy = ["--on-full", "drop-oldest", "--dead-letter", "/dead"];
    site.umsg(&[&["create", "/aside", "--max-messages", "1"], &policy[..]].concat())
        .text();
    site.umsg(&["rm", "/dead"]).text();
    for message in ["first", "second"] {
        site.umsg(&["send", "/aside", message]).text();
    }
    site.umsg(&["recv", "/aside"]).text();
    site.umsg(&["create", "/empty"]).text();
    let report = site.umsg(&["gc", "--empty", "--remove", "--json"]).json();
    assert_eq!(fates(&report), [("/empty", "removed")]);
    let due = site.umsg(&["peek", "/delayed", "--delayed"]);
    assert!(due.text().contains("later"), "{}", due.text());
}

#[test]
fn what_a_process_has_open_is_kept_unless_that_is_said() {
    let _turn = turn();
    let site = Site::new();
    let namespace = Namespace::at(site.path()).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let queue = options.namespace(&namespace).open("/mine").unwrap();
    site.umsg(&["create", "/left"]).text();
    let report = site.umsg(&["gc", "--empty", "--remove", "--json"]).json();
    assert_eq!(fates(&report), [("/left", "removed"), ("/mine", "kept")]);
    let users = report["queues"][1]["used_by"].as_array().unwrap();
    assert_eq!(*users, [std::process::id()]);
    assert_eq!(report["queues"][1]["creator_alive"], Value::Bool(true));
    let text = site.umsg(&["gc", "*"]);
    let says = format!("in use by process {}\n", std::process::id());
    assert!(text.text().contains(&says), "{}", text.text());
    assert!(
        text.text()
            .ends_with("nothing would be removed; 1 in use, kept\n")
    );
    site.umsg(&["gc", "*", "--in-use", "--remove"]).text();
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
    queue.send(b"still mine", 0).unwrap();
}

/// Returns the directory of a queue whose creator was killed before the queue was complete.
fn half_made(site: &Site) -> std::path::PathBuf {
    use std::os::unix::fs::MetadataExt;
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    // The kernel gives this process id to no new process for a long time.
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let name = format!(".tmp-{namespace}-{}-1-0", child.id());
    let path = site.path().join(name);
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("queue"), b"").unwrap();
    path
}

#[test]
fn what_was_to_go_by_itself_is_listed_in_any_case_and_removed_if_that_is_said() {
    let _turn = turn();
    let site = Site::new();
    let namespace = Namespace::at(site.path()).unwrap();
    for name in ["/stays", "/waits"] {
        site.umsg(&["create", name]).text();
    }
    let create = ["create", "/made", "--remove-on-last-close"];
    site.umsg(&create).text();
    let mut options = OpenOptions::new();
    options.read(true).create(true).remove_on_last_close(true);
    let mine = options.namespace(&namespace).open("/mine").unwrap();
    let place = rustix::fs::CWD;
    let bell = site.path().join("bell/0000000000000001-00000000000000ff");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(place, &bell, mode).unwrap();
    // This queue's only user was killed.
    let killed = site.path().join("mq/killed");
    std::fs::create_dir(&killed).unwrap();
    std::fs::copy(site.path().join("mq/mine/queue"), killed.join("queue")).unwrap();
    let half = half_made(&site);
    for _ in 0..2 {
        let left = site.umsg(&["gc", "--leftovers"]);
        let expected =
            "stale files: /killed, 1 poll FIFOs, 1 other files; would be removed with --remove\n";
        assert_eq!(left.text(), expected);
        let report = site.umsg(&["gc", "/k*", "/w*", "--json"]).json();
        assert_eq!(fates(&report), [("/waits", "stale")]);
        assert_eq!(
            report["stale_files"]["queues"],
            serde_json::json!(["/killed"])
        );
        assert_eq!(report["stale_files"]["poll_fifos"], 1);
        assert_eq!(report["stale_files"]["incomplete"], 1);
        assert_eq!(report["stale_files"]["fate"], "stale");
        assert!(killed.join("queue").exists() && bell.exists() && half.exists());
    }
    let report = site.umsg(&["gc", "/none", "--remove", "--json"]).json();
    assert_eq!(
        report["stale_files"]["queues"],
        serde_json::json!(["/killed"])
    );
    assert_eq!(report["stale_files"]["fate"], "removed");
    assert!(!killed.exists() && !bell.exists() && !half.exists());
    let nothing = site.umsg(&["gc", "--leftovers", "--remove"]);
    assert_eq!(nothing.text(), "no stale files\n");
    assert_eq!(
        site.umsg(&["ls", "-q"]).text(),
        "/made\n/mine\n/stays\n/waits\n"
    );
    // `umsg gc` sees which queues are in use, and keeps them. `umsg rm` still removes such a queue.
    let report = site.umsg(&["gc", "/m*", "--remove", "--json"]).json();
    assert_eq!(fates(&report), [("/made", "removed"), ("/mine", "kept")]);
    site.umsg(&["rm", "/mine"]).text();
    drop(mine);
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "/stays\n/waits\n");
}

#[test]
fn what_may_not_be_looked_at_is_not_known_to_be_stale() {
    let _turn = turn();
    let site = Site::new();
    site.umsg(&["create", "/secret", "--mode", "0600"]).text();
    support::set_mode(site.path(), 0o755);
    support::set_mode(&site.path().join("mq"), 0o755);
    let Some(empty) = site.umsg_as_nobody(&["gc", "--empty", "--json"]) else {
        return;
    };
    assert!(fates(&empty.json()).is_empty());
    let outcome = site.umsg_as_nobody(&["gc", "/s*", "--remove"]).unwrap();
    outcome.fails(1, &["/secret: "]);
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/secret\n");
}

#[test]
fn a_name_that_is_no_text_is_shown_as_ls_shows_it_and_kept_while_it_is_in_use() {
    use std::os::unix::ffi::OsStrExt;
    let _turn = turn();
    let site = Site::new();
    let name = std::ffi::OsStr::from_bytes(b"/odd-\xff\xfe");
    let queue = OpenOptions::new()
        .read(true)
        .create(true)
        .namespace(&Namespace::at(site.path()).unwrap())
        .open(name)
        .unwrap();
    let listed = site.umsg(&["ls"]);
    assert!(listed.text().contains("/odd-\\xff\\xfe "), "{listed:?}");
    let outcome = site.umsg(&["gc", "/odd*", "--remove"]);
    assert!(outcome.text().contains("/odd-\\xff\\xfe "), "{outcome:?}");
    assert!(outcome.text().contains("in use by process"), "{outcome:?}");
    drop(queue);
    let outcome = site.umsg(&["gc", "/odd*", "--remove"]);
    assert!(outcome.text().ends_with("\n1 removed\n"), "{outcome:?}");
}

#[test]
fn brackets_in_a_name_mean_themselves() {
    let _turn = turn();
    let site = Site::new();
    for name in ["/a[1]", "/a1", "/b"] {
        site.umsg(&["create", name]).text();
    }
    site.umsg(&["gc", "/a[1]", "--remove"]).text();
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/a1\n/b\n");
    site.umsg(&["gc", "/**1", "--remove"]).text();
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/b\n");
}
