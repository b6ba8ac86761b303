//! Tests rings: `umsg ls`, `stat`, `rm` and `limits`.

mod support;

use std::os::fd::AsFd;
use std::time::Duration;

use serde_json::json;
use support::patients::Forked;
use support::relays::wait_until;
use support::{Site, set_mode};
use umsg::Namespace;
use umsg::ring::{Options, Post, Ring, Sender, Until};

fn make(site: &Site, name: &str) -> Ring {
    let namespace = Namespace::at(site.path()).unwrap();
    let mut options = Options::new();
    options.entries(2).overflow(6).mode(0o622);
    options.create_in(&namespace, name).unwrap()
}

/// Makes a ring whose owner was killed.
fn leave(site: &Site, name: &str) {
    let owner = Forked::after(|| std::mem::forget(make(site, name)));
    let namespace = Namespace::at(site.path()).unwrap();
    wait_until("a ring", || Sender::open_in(&namespace, name).is_ok());
    drop(owner);
}

#[test]
fn rings_are_listed_behind_queues_of_both_kinds() {
    let site = Site::new();
    site.umsg(&["create", "/orders"]).text();
    site.umsg(&["create", "key:0x1234"]).text();
    let ring = make(&site, "/jobs");
    let sender = ring.sender();
    (0..3).for_each(|n| sender.send(&Post::new(n)).unwrap());
    leave(&site, "/left");
    let listing = site.umsg(&["ls"]);
    let lines: Vec<Vec<&str>> = listing
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let heading = "RING MESSAGES ENTRIES OVERFLOW MODE OWNER PID STATE WAIT-SEND";
    let at = lines.iter().position(|line| line.join(" ") == heading);
    let (jobs, left) = (&lines[at.unwrap() + 1], &lines[at.unwrap() + 2]);
    assert_eq!(jobs[..4], ["ring:/jobs", "3", "2", "1"]);
    assert_eq!(jobs[6], std::process::id().to_string());
    assert_eq!((jobs[7], left[0], left[7]), ("open", "ring:/left", "dead"));
    let all = site.umsg(&["ls", "--json"]).json();
    assert_eq!(
        ["queues", "sysv", "rings"].map(|kind| all[kind].as_array().unwrap().len()),
        [1, 1, 2]
    );
    let only = site.umsg(&["ls", "--kind", "ring", "--json"]).json();
    assert_eq!(only["rings"], all["rings"]);
    assert_eq!((&only["queues"], &only["sysv"]), (&json!([]), &json!([])));
    let names = site.umsg(&["ls", "--kind", "ring", "--quiet"]);
    assert_eq!(names.text(), "ring:/jobs\nring:/left\n");
}

#[test]
fn a_user_that_may_not_send_sees_only_that_there_is_a_ring() {
    let site = Site::new();
    let ring = make(&site, "/jobs");
    set_mode(site.path(), 0o755);
    set_mode(&site.path().join("ring"), 0o755);
    let Some(listing) = site.umsg_as_nobody(&["ls", "--kind", "ring"]) else {
        return;
    };
    let line = listing.text().lines().last().unwrap();
    assert!(line.starts_with("ring:/jobs "), "{line}");
    assert!(line.ends_with(" permission denied"), "{line}");
    for command in ["stat", "rm"] {
        let outcome = site.umsg_as_nobody(&[command, "ring:/jobs"]).unwrap();
        outcome.fails(1, &["ring:/jobs: permission denied"]);
    }
    drop(ring);
}

#[test]
fn what_a_ring_says_of_itself_is_shown() {
    let site = Site::new();
    let mut ring = make(&site, "/jobs");
    ring.set_waiting(umsg::ring::Waiting::Spinning);
    ring.receive_timeout(Duration::from_millis(20)).unwrap_err();
    let sender = ring.sender();
    (0..8).for_each(|n| sender.send(&Post::new(n)).unwrap());
    assert!(!sender.send_or_drop(&Post::new(9)).unwrap());
    let found = site.umsg(&["stat", "ring:/jobs", "--json"]).json();
    let field = |name: &str| found[name].clone();
    assert_eq!(
        ["messages", "entries", "overflow", "overflowing", "senders"].map(field),
        [8, 2, 6, 6, 1].map(|number| json!(number))
    );
    assert_eq!(
        ["state", "enabled", "closed", "owner_alive", "mode", "name"].map(field),
        [
            json!("open"),
            json!(true),
            json!(false),
            json!(true),
            json!("0600"),
            json!("/jobs")
        ]
    );
    assert_eq!(found["owner_pid"], json!(std::process::id()));
    let counted = &found["statistics"];
    assert_eq!(counted["dropped"], json!(1));
    assert!(counted["spun_seconds"].as_f64().unwrap() > 0.0, "{counted}");
    let shown = site.umsg(&["stat", "ring:jobs"]);
    let process = format!("receiver          process {}, alive\n", std::process::id());
    for line in [
        "name              ring:/jobs\n",
        "state             open\n",
        &process,
        "messages          8 of 2\n",
        "overflow          6 of 6\n",
        "not delivered     1 dropped when full\n",
    ] {
        assert!(shown.text().contains(line), "{line}: {}", shown.text());
    }
    ring.close();
    let found = site.umsg(&["stat", "ring:/jobs", "--json"]).json();
    assert_eq!(found["state"], json!("closed"));
}

#[test]
fn a_ring_is_removed_when_its_owner_is_dead_and_else_by_force() {
    let site = Site::new();
    leave(&site, "/left");
    assert_eq!(site.umsg(&["rm", "ring:/left"]).text(), "");
    let mut ring = make(&site, "/jobs");
    let sender = ring.sender();
    site.umsg(&["rm", "ring:/jobs"]).fails(
        1,
        &[
            "ring:/jobs: process ",
            "receives from the ring; ",
            "--force",
        ],
    );
    let removed = site.umsg(&["rm", "--force", "ring:/jobs", "--json"]).json();
    assert_eq!(removed["removed"], json!(["ring:/jobs"]));
    // The removed ring stays usable for its owner and its senders.
    sender.send(&Post::new(7)).unwrap();
    assert_eq!(ring.try_receive().unwrap().user_data, 7);
    for command in ["stat", "rm"] {
        site.umsg(&[command, "ring:/jobs"])
            .fails(1, &["ring:/jobs: no ring has this name"]);
    }
    drop(ring);
    let left = std::fs::read_dir(site.path().join("ring")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn a_ring_whose_owner_is_dead_is_found_by_gc() {
    let site = Site::new();
    let ring = make(&site, "/jobs");
    leave(&site, "/left");
    let found = site.umsg(&["gc", "--dead-creator", "--remove", "--json"]);
    let found = &found.json()["queues"];
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(
        (&found[0]["name"], &found[0]["fate"]),
        (&json!("ring:/left"), &json!("removed"))
    );
    let names = site.umsg(&["ls", "--quiet"]);
    assert_eq!(names.text(), "ring:/jobs\n");
    drop(ring);
}

#[test]
fn the_socket_of_an_owner_that_is_killed_after_the_removal_by_force_is_found_by_gc() {
    let site = Site::new();
    let owner = Forked::after(|| std::mem::forget(make(&site, "/jobs")));
    let entries = || std::fs::read_dir(site.path().join("ring")).unwrap().count();
    let namespace = Namespace::at(site.path()).unwrap();
    let is_reached = || {
        let file = std::fs::File::open("/dev/null").unwrap();
        let sender = Sender::open_in(&namespace, "/jobs");
        sender.is_ok_and(|sender| {
            sender
                .send_fd(&Post::new(1), file.as_fd(), Until::Now)
                .is_ok()
        })
    };
    wait_until("a descriptor for the ring", is_reached);
    site.umsg(&["rm", "--force", "ring:/jobs"]).text();
    // The socket of a living owner stays.
    let sweep = || {
        site.umsg(&["gc", "--leftovers", "--remove"])
            .text()
            .to_owned()
    };
    assert_eq!((sweep().as_str(), entries()), ("no stale files\n", 1));
    drop(owner);
    // The killed process may leave other files, too.
    let listed = site.umsg(&["gc", "--leftovers"]);
    assert!(listed.text().contains("would be removed"), "{listed:?}");
    assert_eq!(entries(), 1);
    assert!(sweep().contains("removed"));
    assert_eq!((sweep().as_str(), entries()), ("no stale files\n", 0));
}

#[test]
fn commands_that_are_for_queues_say_so() {
    let site = Site::new();
    for command in ["create", "send", "recv", "peek", "dump"] {
        let outcome = site.umsg(&[command, "ring:/jobs"]);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(
            outcome.errors.contains("does not work with rings"),
            "{outcome:?}"
        );
    }
    site.umsg(&["create", "/ring:jobs"]).text();
    assert_eq!(site.umsg(&["ls", "-q"]).text(), "/ring:jobs\n");
}

#[test]
fn rings_count_for_the_limit_of_bytes() {
    let site = Site::new();
    let rings = [make(&site, "/jobs"), make(&site, "/others")];
    let outcome = site.umsg(&["limits", "--max-bytes", "36K"]);
    outcome.fails(0, &["queues and rings already take", "can't grow"]);
    site.umsg(&["create", "/orders"]).fails(
        1,
        &[
            "the namespace has reached its limit of bytes",
            "umsg limits",
        ],
    );
    drop(rings);
    site.umsg(&["create", "/orders"]).text();
}

#[test]
fn a_search_for_a_queue_where_there_is_a_ring_says_how_a_ring_is_written() {
    let site = Site::new();
    let _ring = make(&site, "/live");
    for command in ["stat", "rm", "send", "recv"] {
        let mut arguments = vec![command, "/live"];
        arguments.extend((command == "send").then_some("text"));
        site.umsg(&arguments).fails(
            1,
            &["/live: this is the name of a ring, not of a queue; write ring:/live"],
        );
    }
    site.umsg(&["stat", "/dead"]).fails(1, &["umsg ls"]);
}

#[test]
fn what_is_wrong_with_a_ring_does_not_speak_of_queues() {
    let site = Site::new();
    let _ring = make(&site, "/live");
    std::fs::write(site.path().join("ring/bad"), b"x").unwrap();
    for name in ["ring:/bad", "ring:/none", "ring:/a/b"] {
        let outcome = site.umsg(&["stat", name]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.errors.contains("ring"), "{outcome:?}");
        assert!(!outcome.errors.contains("queue"), "{outcome:?}");
    }
}
