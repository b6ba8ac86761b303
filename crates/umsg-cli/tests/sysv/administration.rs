//! Tests the administration of System V queues: reports, the permission to remove a queue, limits.

use super::*;
use support::{NOBODY, set_mode};
use umsg_testkit::users::is_root;

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
        errors[0].starts_with("umsg: key:77: no queue has this key in "),
        "{errors:?}"
    );
    assert!(
        errors[1].starts_with("umsg: id:2000000000: no queue has this identifier"),
        "{errors:?}"
    );
    let removed: Value = serde_json::from_slice(&outcome.output).unwrap();
    assert_eq!(removed, json!({"removed": [KEY, private]}));
    // The new queue of the key has another identifier, so the old identifier finds no queue.
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
            "--qbytes is 3145728, and must be at most 2097152",
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
        &[
            "its limit of 2 System V queues",
            "raise the limit with `umsg limits --msgmni`",
        ],
    );
    site.umsg(&["limits", "--msgmni", "1"])
        .fails(0, &["there are already 2 System V queues", "fewer than 1"]);
    site.umsg(&["limits", "--msgmax", "17M"])
        .fails(2, &["--msgmax must be from 0 to 16777216, not 17825792"]);
}

/// Overwrites 4 bytes of a queue's file at an offset.
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
        ("key:1", 16, "corrupted"),
        ("key:2", 8, "this umsg reads only format"),
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
    umsg_testkit::needs_root!();
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
        &["permission denied (mode 0600, owner root); run the command as root"],
    );
    as_nobody(&["recv", "key:2"]).fails(
        1,
        &["permission denied (mode 0622, owner root); run the command as root"],
    );
    as_nobody(&["send", "key:2", "let in"]).text();
    as_nobody(&["rm", "key:2"]).fails(
        1,
        &["only the queue's owner, its creator or root can change or remove the queue"],
    );
    let id = format!("id:{}", row("0x00001234")["id"]);
    as_nobody(&["rm", &id]).fails(
        1,
        &["only the queue's owner, its creator or root can change or remove the queue"],
    );
    assert_eq!(site.umsg(&["recv", "key:2"]).text(), "let in\n");
    let owner = site.umsg(&["stat", KEY, "--json"]).json();
    assert!(owner["uid"] != NOBODY);
}
