//! Tests System V queues: `create`, `rm`, `ls`, `stat`, `send`, `recv`, `peek` and `limits`.

#[path = "sysv/administration.rs"]
mod administration;
#[path = "sysv/messages.rs"]
mod messages;
mod support;

use serde_json::{Value, json};
use support::Site;

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
        site.umsg(&[command, "key:0"])
            .fails(1, &["key:0: ", "`umsg ls` shows the identifiers"]);
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
            &["key:0x00001234: the queue exists with --qbytes 16384 and --mode 0600; remove it first with `umsg rm`"],
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
        "no --max-messages or --message-size; use --qbytes",
    );
    refused(&["create", "key:1", "--on-full", "fail"], "--on-full");
    refused(&["create", "id:1"], "umsg assigns the identifiers");
    refused(
        &["create", "/new", "--qbytes", "5"],
        "a POSIX queue has no --qbytes",
    );
    refused(
        &["send", KEY, "x", "-p", "1"],
        "a System V queue has no --priority; use --type",
    );
    refused(
        &["send", "/q", "x", "--type", "1"],
        "a POSIX queue has no --type; use --priority",
    );
    refused(
        &["recv", "/q", "--lowest", "1"],
        "/q: a POSIX queue has no types",
    );
    let outcome = site.umsg(&["create", "/d", "--dead-letter", "0x1"]);
    assert!(
        outcome.code == Some(2) && outcome.errors.contains("a POSIX queue is required here"),
        "{outcome:?}"
    );
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
        .fails(1, &["key:1: no queue has this key"]);
    let wrong = site.umsg(&["stat", "key:x"]);
    assert!(
        wrong.code == Some(2) && wrong.errors.contains("key:0x1234"),
        "{wrong:?}"
    );
}
