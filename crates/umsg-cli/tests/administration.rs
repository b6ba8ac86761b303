//! Tests `umsg limits` and `umsg setup`.

mod support;

use serde_json::json;
use support::{NOBODY, Site, finish, give_to, set_mode};
use umsg_testkit::users::is_root;

#[test]
fn a_namespace_can_refuse_modes_that_only_the_library_enforces() {
    let site = Site::new();
    let create = |name, mode| site.umsg(&["create", name, "--mode", mode]);
    create("/before", "0644").text();
    let set = site.umsg(&["limits", "--enforced-modes", "true", "--json"]);
    assert_eq!(set.json()["enforced_modes"], true);
    for (name, mode) in [("/q", "0644"), ("/q", "0622"), ("key:7", "0640")] {
        create(name, mode).fails(1, &[mode, "umsg limits --enforced-modes"]);
    }
    for (name, mode) in [("/q", "0600"), ("/q2", "0666"), ("key:7", "0660")] {
        create(name, mode).text();
    }
    site.umsg(&["send", "/before", "x"]).text();
    site.umsg(&["limits", "--enforced-modes", "false"]).text();
    create("/later", "0644").text();
}

#[test]
fn limits_are_shown_and_set_one_by_one() {
    let site = Site::new();
    site.umsg(&["create", "/first"]).text();
    let printed = site.umsg(&["limits"]);
    assert!(
        printed
            .text()
            .starts_with(&format!("namespace {} ", site.path().display()))
    );
    assert!(
        printed
            .text()
            .lines()
            .any(|line| line.split_whitespace().take(2).eq(["max-queues", "65536"]))
    );
    let set = site
        .umsg(&[
            "limits",
            "--default-messages",
            "1K",
            "--max-bytes",
            "4G",
            "--json",
        ])
        .json();
    let expected = json!({
        "namespace": site.path(), "max_queues": 65_536, "max_messages": 1_048_576, "max_message_size": 16 << 20,
        "default_messages": 1024, "default_message_size": 8192, "max_bytes": 4u64 << 30,
        "enforced_modes": false,
        "rlimit_msgqueue": false,
        "msgmax": 8192, "msgmnb": 16_384, "msgmni": 32_000, "max_qbytes": 1 << 30,
    });
    assert_eq!(set, expected);
    assert_eq!(site.umsg(&["limits", "--json"]).json(), expected);
    site.umsg(&["limits", "--max-bytes", "none"]).text();
    let found = site.umsg(&["limits", "--json"]).json();
    assert_eq!(found["max_bytes"], json!(null));
    assert_eq!(
        site.umsg(&["create", "/q", "--json"]).json()["max_messages"],
        1024
    );
}

#[test]
fn a_limit_out_of_range_is_refused_by_the_name_of_its_option() {
    let site = Site::new();
    site.umsg(&["limits", "--max-messages", "5"]).fails(
        1,
        &["umsg: --default-messages is 10, more than --max-messages allows (5): lower the first, or raise the second"],
    );
    site.umsg(&["limits", "--max-message-size", "17M"]).fails(
        2,
        &["--max-message-size must be from 1 to 16777216, not 17825792"],
    );
    site.umsg(&["limits", "--max-messages", "0"])
        .fails(2, &["--max-messages must be from 1 to 1048576, not 0"]);
    site.umsg(&["limits", "--max-queues", "65537"])
        .fails(2, &["--max-queues must be from 0 to 65536, not 65537"]);
    site.umsg(&["limits", "--max-bytes", "32767"]).fails(
        2,
        &[
            "--max-bytes is 32767: choose at least 36864",
            "--max-queues 0",
        ],
    );
    for option in [
        "--max-queues",
        "--max-messages",
        "--max-bytes",
        "--default-message-size",
    ] {
        let outcome = site.umsg(&["limits", option, "-1"]);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.errors.contains("negative number"), "{outcome:?}");
    }
    let found = site.umsg(&["limits", "--json"]).json();
    assert_eq!(
        (&found["max_messages"], &found["max_bytes"]),
        (&json!(1_048_576), &json!(null))
    );
}

#[test]
fn the_least_limit_of_bytes_has_room_for_a_queue_and_a_short_message() {
    let site = Site::new();
    site.umsg(&["limits", "--max-bytes", "36K"]).text();
    site.umsg(&["create", "/q"]).text();
    site.umsg(&["send", "/q", "short"]).text();
    site.umsg(&["send", "/q", &"long".repeat(100)]).fails(
        1,
        &[
            "/q: the namespace has reached its limit of bytes",
            "umsg limits",
        ],
    );
}

#[test]
fn limits_that_are_reached_already_are_set_with_a_warning() {
    let site = Site::new();
    for name in ["/a", "/b", "/c"] {
        site.umsg(&["create", name]).text();
    }
    let outcome = site.umsg(&["limits", "--max-queues", "2"]);
    outcome.fails(0, &["there are already 3 queues", "fewer than 2"]);
    let outcome = site.umsg(&["limits", "--max-bytes", "36K"]);
    outcome.fails(0, &["already take", "can't grow"]);
    site.umsg(&["limits", "--max-queues", "4", "--max-bytes", "1M"])
        .text();
}

#[test]
fn only_what_needs_a_namespace_makes_one_of_an_empty_directory() {
    let site = Site::new();
    let is_empty = || std::fs::read_dir(site.path()).unwrap().next().is_none();
    for command in [
        &["ls"][..],
        &["limits"],
        &["stat", "/q"],
        &["send", "/q", "x"],
        &["recv", "/q"],
        &["peek", "/q"],
        &["dump", "/q", "-o", "/dev/null"],
        &["rm", "/q"],
    ] {
        site.umsg(command).fails(
            1,
            &["is not a namespace: ", "create a first queue", "UMSG_DIR"],
        );
        assert!(is_empty(), "{command:?}");
    }
    site.umsg(&["limits", "--max-queues", "3"]).text();
    assert!(!is_empty());
}

#[test]
fn no_namespace_is_made_between_other_files() {
    let site = Site::new();
    std::fs::write(site.path().join("\x1bletter"), b"").unwrap();
    let dir = site.path().to_str().unwrap();
    site.umsg(&["--dir", dir, "create", "/q"]).fails(
        1,
        &[
            "holds other files, such as \"\\u{1b}letter\"",
            "Give --dir an empty directory",
        ],
    );
    site.umsg(&["ls"])
        .fails(1, &["is not a namespace: ", "set UMSG_DIR to"]);
    site.umsg(&["run", "true"])
        .fails(125, &["holds other files, such as", ". Set UMSG_DIR to"]);
    assert_eq!(std::fs::read_dir(site.path()).unwrap().count(), 1);
}

#[test]
fn limits_hold() {
    let site = Site::new();
    site.umsg(&["limits", "--max-queues", "1"]).text();
    site.umsg(&["create", "/one"]).text();
    site.umsg(&["create", "/two"])
        .fails(1, &["umsg: /two: ", "1 queues", "umsg limits", "umsg rm"]);
}

#[test]
fn the_lines_for_tmpfiles_are_those_of_the_library() {
    assert_eq!(
        Site::new().umsg(&["setup", "--print-tmpfiles"]).text(),
        umsg::TMPFILES
    );
}

#[test]
fn the_lines_for_tmpfiles_name_the_directory_that_is_given() {
    let site = Site::new();
    let lines = site.umsg(&["setup", "--print-tmpfiles", "--dir", "/dev/shm/test"]);
    assert!(
        lines
            .text()
            .contains("\nd /dev/shm/test      1777 root root -\n")
    );
    assert!(
        lines
            .text()
            .contains("\nd /dev/shm/test/mq   1777 root root -\n")
    );
    site.umsg(&["setup", "--print-tmpfiles", "--dir", "/dev/shm/%h x"])
        .fails(1, &["/dev/shm/%h x: ", "--dir"]);
}

#[test]
fn setup_says_what_is_wrong_with_the_place() {
    umsg_testkit::needs_root!();
    let site = Site::new();
    let setup = |dir: &str, parts: &[&str]| site.umsg(&["setup", "--dir", dir]).fails(1, parts);
    setup(
        "/dev/null",
        &["umsg: /dev/null is not a directory; choose another place with --dir"],
    );
    let full = site.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("letter"), b"").unwrap();
    setup(
        full.to_str().unwrap(),
        &["holds other files, such as letter, and would be open to all users; "],
    );
    let mode = std::os::unix::fs::MetadataExt::mode(&full.metadata().unwrap());
    assert_eq!(mode & 0o7022, 0);
    set_mode(&full, 0o1777);
    setup(
        full.to_str().unwrap(),
        &["holds other files; give --dir a directory that is empty or does not exist"],
    );
    assert!(!full.join("mq").exists());
    setup("/no/such", &["umsg: /no does not exist; create it first"]);
    setup(
        "/proc/new",
        &["umsg: /proc can't hold queues, because no files can be created there; choose another"],
    );
}

#[test]
fn setup_makes_a_shared_namespace_and_leaves_it_alone_the_next_time() {
    umsg_testkit::needs_root!();
    let site = Site::new();
    let shared = site.path().join("umsg");
    let dir = shared.to_str().unwrap();
    let made = site.umsg(&["setup", "--dir", dir]);
    assert!(
        made.text()
            .starts_with(&format!("{dir}: created, for all users\n")),
        "{made:?}"
    );
    let again = site.umsg(&["setup", "--dir", dir]);
    assert!(
        again
            .text()
            .starts_with(&format!("{dir}: already complete\n")),
        "{again:?}"
    );
    set_mode(&shared, 0o755);
    let report = site.umsg(&["setup", "--dir", dir, "--json"]).json();
    assert_eq!(
        report,
        json!({
            "path": dir, "directory_made": false, "mode_changed": true, "queues_directory_made": false,
            "record_written": false, "out_of_sight": [],
        })
    );
}

#[test]
fn setup_warns_of_queues_that_fall_out_of_sight() {
    umsg_testkit::needs_root!();
    let site = Site::new();
    let users = site.path().join(format!("umsg-{NOBODY}"));
    std::fs::create_dir(&users).unwrap();
    set_mode(&users, 0o700);
    let shared = site.path().join("umsg");
    finish(site.command(&["create", "/q"]).env("UMSG_DIR", &users), b"").text();
    give_to(&users, NOBODY);
    let outcome = site.umsg(&["setup", "--dir", shared.to_str().unwrap()]);
    outcome.fails(
        0,
        &[
            "new programs no longer find the 1 queue of",
            &format!("UMSG_DIR={}", users.display()),
        ],
    );
    let report = site
        .umsg(&["setup", "--json", "--dir", shared.to_str().unwrap()])
        .json();
    assert_eq!(
        report["out_of_sight"],
        json!([{"path": users, "uid": NOBODY, "queues": 1}])
    );
}

#[test]
fn only_root_may_set_up_and_only_the_owner_may_set_limits() {
    umsg_testkit::needs_root!();
    let site = Site::new();
    set_mode(site.path(), 0o1777);
    site.umsg(&["create", "/q"]).text();
    let dir = site.path().join("umsg");
    let setup = site
        .umsg_as_nobody(&["setup", "--dir", dir.to_str().unwrap()])
        .unwrap();
    setup.fails(1, &["only root may set up"]);
    let limits = site
        .umsg_as_nobody(&["limits", "--max-queues", "1"])
        .unwrap();
    limits.fails(
        1,
        &["only the namespace's owner or root may set the limits of"],
    );
    assert_eq!(
        site.umsg_as_nobody(&["limits", "--json"]).unwrap().json()["max_queues"],
        65_536
    );
}

#[test]
fn a_limit_of_zero_is_reported_as_a_limit_and_not_as_a_full_namespace() {
    let site = Site::new();
    for name in ["/q", "key:7"] {
        site.umsg(&["create", name]).text();
    }
    let set = site.umsg(&["limits", "--max-queues", "0", "--msgmni", "0"]);
    assert_eq!(set.code, Some(0));
    let warned: Vec<&str> = set.errors.lines().collect();
    assert_eq!(warned.len(), 2, "{warned:?}");
    for line in warned {
        assert!(
            line.ends_with("queues: they stay, and no new queues can be created"),
            "{line}"
        );
    }
    let none = |name, limit| {
        let says = [limit, "allows no "];
        site.umsg(&["create", name]).fails(1, &says);
    };
    none("/new", "--max-queues");
    none("key:8", "--msgmni");
}

#[test]
fn an_error_in_the_users_own_directory_names_the_file_that_forbids_the_step() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let (queues, record) = (site.path().join("mq"), site.path().join(".namespace"));
    for path in [
        site.path(),
        &queues,
        &record,
        &queues.join("q"),
        &site.path().join("msg"),
        &site.path().join("ring"),
    ] {
        if is_root() {
            give_to(path, NOBODY);
        }
    }
    set_mode(site.path(), 0o500);
    let as_owner = |arguments: &[&str]| site.umsg_as_nobody(arguments);
    if let Some(refused) = as_owner(&["rm", "/q"]) {
        refused.fails(
            1,
            &["/q: ", "/mq: this user can't remove files", "chmod u+w"],
        );
        set_mode(site.path(), 0o700);
        set_mode(&record, 0);
        for command in ["ls", "limits"] {
            let says = ["/.namespace", "chmod 644"];
            as_owner(&[command]).unwrap().fails(1, &says);
        }
        set_mode(&record, 0o644);
        as_owner(&["rm", "/q"]).unwrap().text();
    }
}
