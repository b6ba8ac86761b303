//! Tests `umsg doctor`: the problems of a queue.

#[path = "../../umsg/tests/support/seccomp.rs"]
#[allow(dead_code, reason = "the filters are those of the library's tests")]
mod seccomp;
mod support;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::patients::{Forked, Killed, stopped};
use support::relays::wait_until;
use support::{Outcome, Site, finish, start};

/// The offsets of the two locks of a POSIX queue, and of the lock of a System V queue. Source: docs/format.md.
const SENDER_LOCK: u64 = 512;
const RECEIVER_LOCK: u64 = 768;
const QUEUE_LOCK: u64 = 256;

/// Returns the report about the only queue, and the exit code.
fn report(site: &Site, arguments: &[&str]) -> (Option<i32>, Value) {
    let all = [&["doctor", "--json"], arguments].concat();
    let Outcome { code, output, .. } = site.umsg(&all);
    let mut report: Value = serde_json::from_slice(&output).unwrap();
    (code, report["queues"][0].take())
}

#[test]
fn a_healthy_queue_is_said_to_be_so() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    site.umsg(&["send", "/q", "four"]).text();
    let shown = site.umsg(&["doctor", "q"]);
    let text = shown.text();
    assert!(
        text.starts_with("/q\n  holds         1 message, 4 bytes\n"),
        "{text}"
    );
    assert!(text.contains("  locks         senders    free\n"), "{text}");
    assert!(
        text.ends_with("  healthy       nothing is wrong\n"),
        "{text}"
    );
}

/// The operations of futex(2) with priority inheritance. Source: linux/futex.h.
const LOCK_PI2: u32 = 13;
const UNLOCK_PI: u32 = 7;

#[test]
fn a_refused_system_call_is_named_with_its_consequence() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let inspect = |operation: Option<u32>, format: &[&str]| {
        let mut command = site.command(&[&["doctor", "/q"], format].concat());
        let filter = move || {
            let argument = operation.map(|operation| (1, operation));
            let call = seccomp::Call {
                number: libc::SYS_futex,
                argument,
            };
            if argument.is_some() {
                seccomp::refuse(&[call], libc::EPERM);
            }
            Ok(())
        };
        // SAFETY: the function changes two settings of the process, and allocates a little memory, which works in a forked child with glibc's malloc.
        unsafe { command.pre_exec(filter) };
        finish(&mut command, b"")
    };
    for (operation, name) in [(LOCK_PI2, "FUTEX_LOCK_PI2"), (UNLOCK_PI, "FUTEX_UNLOCK_PI")] {
        let shown = inspect(Some(operation), &[]);
        let line = format!("\nfutex ({name}): Operation not permitted");
        assert!(shown.text().contains(&line), "{shown:?}");
        assert!(shown.text().contains("real-time policy lends no priority"));
        let report = inspect(Some(operation), &["--json"]).json();
        assert_eq!(report["healthy"], true, "no queue has a problem");
        assert_eq!(report["refused"][0]["call"], format!("futex ({name})"));
        assert_eq!(report["refused"][0]["errno"], libc::EPERM);
        assert!(report["refused"][0]["consequence"].is_string());
    }
    assert!(!inspect(None, &[]).text().contains("futex"));
    let report = inspect(None, &["--json"]).json();
    assert_eq!(report["refused"], json!([]));
}

#[test]
fn all_queues_and_rings_are_looked_at() {
    let site = Site::new();
    for name in ["/one", "/two", "key:0x1234"] {
        site.umsg(&["create", name]).text();
    }
    let namespace = umsg::Namespace::at(site.path()).unwrap();
    let _ring = umsg::ring::Options::new().create_in(&namespace, "/jobs");
    let report = site.umsg(&["doctor", "--all", "--json"]).json();
    let queues = report["queues"].as_array().unwrap().iter();
    let names: Vec<_> = queues
        .map(|queue| queue["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["/one", "/two", "id:0", "ring:/jobs"]);
    assert_eq!(report["healthy"], true);
    assert_eq!(report["queues"][3]["receiver"]["pid"], std::process::id());
}

#[test]
fn a_look_at_all_removes_nothing() {
    let site = Site::new();
    site.umsg(&["create", "/job", "--remove-on-last-close"])
        .text();
    let waiting = Killed(start(&mut site.command(&["recv", "/job"])));
    let file = site.path().join("mq/job/queue");
    site.wait_for("/job", "blocked_receivers", 1);
    drop(waiting);
    for _ in 0..2 {
        site.umsg(&["doctor", "--all"]);
        assert!(file.exists(), "a queue that its killed user has left");
    }
}

#[test]
fn a_blocked_process_is_named_with_what_it_waits_for() {
    let site = Site::new();
    for name in ["/q", "key:7"] {
        site.umsg(&["create", name]).text();
    }
    for (name, arguments, want, mtype) in [
        ("/q", vec!["recv", "/q"], "any", Value::Null),
        (
            "key:7",
            vec!["recv", "key:7", "--type", "5"],
            "exactly",
            json!(5),
        ),
    ] {
        let waiting = Killed(start(&mut site.command(&arguments)));
        site.wait_for(name, "blocked_receivers", 1);
        let (code, queue) = report(&site, &[name]);
        assert_eq!(code, Some(0), "{queue}");
        let blocked = &queue["blocked"][0];
        assert_eq!(blocked["pid"], waiting.0.id(), "{queue}");
        assert_eq!(
            (&blocked["program"], &blocked["life"]),
            (&json!("umsg"), &json!("alive"))
        );
        assert_eq!(
            (&blocked["call"], &blocked["want"]),
            (&json!("receive"), &json!(want))
        );
        assert_eq!(blocked["type"], mtype);
        let shown = site.umsg(&["doctor", name]);
        assert!(
            shown
                .text()
                .contains(&format!("process {} (umsg), receives", waiting.0.id())),
            "{shown:?}"
        );
    }
}

#[test]
fn a_stopped_owner_is_named_with_what_to_do() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let owner = stopped(&site, "/q", "mq/q");
    let pid = owner.0.id();
    site.scribble("mq/q", SENDER_LOCK, &pid.to_le_bytes());
    let shown = site.umsg(&["doctor", "/q"]);
    assert_eq!(shown.code, Some(5));
    let text = String::from_utf8(shown.output).unwrap();
    assert!(
        text.contains(&format!("senders    held by process {pid} (umsg), stopped")),
        "{text}"
    );
    assert!(
        text.contains(&format!("continue it (kill -CONT {pid})")),
        "{text}"
    );
    let (code, queue) = report(&site, &["/q"]);
    assert_eq!(
        (code, &queue["problems"][0]["kind"]),
        (Some(5), &json!("stuck"))
    );
}

#[test]
fn a_call_that_finds_neither_room_nor_messages_reports_the_stopped_owner() {
    let site = Site::new();
    for queue in ["/q", "key:7"] {
        site.umsg(&["create", queue]).text();
        site.umsg(&["send", queue, "here"]).text();
    }
    let owner = stopped(&site, "/q", "mq/q");
    let typed = stopped(&site, "key:7", "msg/0");
    let told_of = |owner: &Killed, code, command: &[&str]| {
        let why = format!("process {} (umsg) is stopped", owner.0.id());
        let says = [&why, "kill -CONT", "see `umsg doctor "];
        site.umsg(command).fails(code, &says);
    };
    let told = |code, command: &[&str]| told_of(&owner, code, command);
    let set = |owner: &Killed, file, offset| {
        site.scribble(file, offset, &owner.0.id().to_le_bytes());
    };
    set(&owner, "mq/q", SENDER_LOCK);
    told(3, &["send", "/q", "x", "--timeout", "50ms"]);
    told(3, &["send", "/q", "x", "--nonblocking"]);
    assert_eq!(
        site.umsg(&["recv", "/q", "--timeout", "50ms"]).text(),
        "here\n"
    );
    // A receiver does not need the senders' lock, so the error does not name the stopped lock owner.
    let none = site.umsg(&["recv", "/q", "--timeout", "50ms"]);
    none.fails(3, &["timed out waiting for a message"]);
    site.scribble("mq/q", SENDER_LOCK, &[0; 4]);
    site.umsg(&["send", "/q", "here"]).text();
    set(&owner, "mq/q", RECEIVER_LOCK);
    told(3, &["recv", "/q", "--timeout", "50ms"]);
    told(3, &["recv", "/q", "--all"]);
    told(1, &["peek", "/q"]);
    set(&typed, "msg/0", QUEUE_LOCK);
    told_of(&typed, 3, &["recv", "key:7", "--timeout", "50ms"]);
    told_of(&typed, 1, &["peek", "key:7"]);
}

#[test]
fn a_lock_that_names_a_process_without_the_queue_is_reported_and_no_process_is_to_be_ended() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let stranger = Killed(start(Command::new("sleep").arg("60")));
    let pid = stranger.0.id();
    site.scribble("mq/q", SENDER_LOCK, &pid.to_le_bytes());
    let shown = site.umsg(&["doctor", "/q"]);
    let text = String::from_utf8(shown.output).unwrap();
    let says = format!("wrong: names process {pid} (sleep), which does not use the queue");
    assert!(text.contains(&says) && !text.contains("kill"), "{text}");
    let (code, queue) = report(&site, &["/q"]);
    let lock = &queue["locks"][0];
    assert_eq!((code, &lock["state"]), (Some(5), &json!("wrong")));
    assert_eq!(
        (&lock["mapped"], &lock["owner"]["pid"]),
        (&json!(false), &json!(pid))
    );
    let (code, queue) = report(&site, &["/q", "--repair"]);
    assert_eq!(
        (code, &queue["locks"][0]["state"]),
        (Some(0), &json!("free"))
    );
}

#[test]
fn a_queue_whose_lock_names_no_thread_is_unwell_and_can_be_used_and_removed() {
    const NOBODY: [u8; 4] = [0xff; 4];
    let site = Site::new();
    for remove in [&["rm", "key:7"][..], &["gc", "id:*", "--remove"]] {
        site.umsg(&["create", "key:7"]).text();
        let listed = site.umsg(&["ls", "--quiet"]);
        let id: u32 = listed.text().trim_end()[3..].parse().unwrap();
        let forge = || site.scribble(&format!("msg/{}", id % 32_768), QUEUE_LOCK, &NOBODY);
        forge();
        let (code, queue) = report(&site, &["key:7"]);
        let lock = &queue["locks"][0];
        assert_eq!(
            (code, &lock["state"]),
            (Some(5), &json!("wrong")),
            "{queue}"
        );
        assert_eq!(lock["word"], u32::MAX);
        site.umsg(&["send", "key:7", "--type", "1", "text"]).text();
        assert_eq!(site.umsg(&["recv", "key:7"]).text(), "text\n");
        forge();
        site.umsg(remove).text();
        assert_eq!(site.umsg(&["doctor", "key:7"]).code, Some(1));
    }
}

#[test]
fn a_waiter_that_died_is_not_listed_as_blocked_and_makes_a_queue_unwell() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let waiting = Killed(start(&mut site.command(&["recv", "/q"])));
    site.wait_for("/q", "blocked_receivers", 1);
    // The test waits until the receiver sleeps: if the thread dies while it is awake, the kernel does not mark its node.
    let state = format!("/proc/{}/stat", waiting.0.id());
    while !std::fs::read_to_string(&state).unwrap().contains(") S ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(waiting);
    let stat = || site.umsg(&["stat", "/q", "--json"]).json();
    assert_eq!(stat()["blocked_receivers"], 0);
    let (code, queue) = report(&site, &["/q"]);
    assert_eq!(
        (code, &queue["problems"][0]["kind"]),
        (Some(5), &json!("died"))
    );
    assert_eq!(queue["blocked"][0]["life"], "dead");
    let (code, queue) = report(&site, &["/q", "--repair"]);
    assert_eq!((code, &queue["blocked"]), (Some(0), &json!([])));
}

#[test]
fn damage_is_reported_with_its_place() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    site.umsg(&["create", "key:7"]).text();
    // The offsets of two fields. In `/q`: `sent`, the number of messages that were ever sent through the ring. In `key:7`: `free`, the first free
    // slot.
    for (name, file, offset) in [("/q", "mq/q", 536), ("key:7", "msg/0", 256 + 16)] {
        site.scribble(file, offset, &[0xff; 6]);
        let (code, queue) = report(&site, &[name]);
        let problem = &queue["problems"][0];
        assert_eq!(
            (code, &queue["healthy"]),
            (Some(5), &json!(false)),
            "{queue}"
        );
        assert_eq!(
            (&problem["kind"], &problem["offset"]),
            (&json!("damaged"), &json!(offset))
        );
        assert_ne!(problem["expected"], problem["found"]);
    }
}

#[test]
fn a_repair_says_what_was_done_and_keeps_the_messages() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    for message in ["one", "two"] {
        site.umsg(&["send", "/q", message]).text();
    }
    site.scribble("mq/q", 536, &[0xff; 4]);
    let shown = site.umsg(&["doctor", "/q", "--repair"]);
    let text = shown.text();
    assert!(
        text.contains("intact messages: 2 kept, 0 corrupted and dropped"),
        "{text}"
    );
    assert!(
        text.ends_with("  healthy       nothing is wrong\n"),
        "{text}"
    );
    assert_eq!(site.umsg(&["recv", "/q"]).text(), "one\n");
    let (code, queue) = report(&site, &["/q", "--repair"]);
    assert_eq!((code, &queue["repair"]["done"]), (Some(0), &json!([])));
    site.scribble("mq/q", 0, b"nonsense");
    let (code, queue) = report(&site, &["/q", "--repair"]);
    assert_eq!(
        (code, &queue["healthy"]),
        (Some(0), &json!(true)),
        "{queue}"
    );
    assert_eq!(site.umsg(&["recv", "/q"]).text(), "two\n");
}

/// Makes a queue's file shorter.
fn cut(site: &Site, file: &str, len: u64) {
    let path = site.path().join(file);
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

#[test]
fn a_cut_file_is_said_to_be_one_that_the_doctor_repairs() {
    let site = Site::new();
    for name in ["/q", "key:7"] {
        site.umsg(&["create", name]).text();
        site.umsg(&["send", name, "kept"]).text();
    }
    for (name, file) in [("/q", "mq/q"), ("key:7", "msg/0")] {
        let len = site.path().join(file).metadata().unwrap().len();
        // The removed byte at the end of the file was never used.
        cut(&site, file, len - 1);
        for command in ["send", "recv", "peek", "stat"] {
            let says = ["is corrupted", "`umsg doctor QUEUE --repair`", "`umsg rm`"];
            site.umsg(&[command, name]).fails(1, &says);
        }
        assert_eq!(
            site.umsg(&["doctor", name, "--repair"]).code,
            Some(0),
            "{name}"
        );
        assert_eq!(site.umsg(&["recv", name, "--nonblocking"]).text(), "kept\n");
    }
    cut(&site, "mq/q", 0);
    for command in ["send", "doctor"] {
        let says = [
            "/q: ",
            "shorter than a header",
            "`umsg rm` removes the file",
        ];
        site.umsg(&[command, "/q"]).fails(1, &says);
    }
    site.umsg(&["rm", "/q"]).text();
}

#[test]
fn damage_of_one_kind_is_reported_once_with_a_count() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    for message in ["one", "two"] {
        site.umsg(&["send", "/q", message]).text();
    }
    // The cut file ends between the header and the ring.
    cut(&site, "mq/q", 5000);
    let shown = site.umsg(&["doctor", "/q"]);
    assert_eq!((shown.code, shown.errors.as_str()), (Some(5), ""));
    let text = String::from_utf8(shown.output).unwrap();
    let of = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!(of("a slot is in one place only"), 1, "{text}");
    assert_eq!(
        of("the same problem at 30 more places, the last at byte"),
        1
    );
    assert_eq!((of("  wrong "), of("    to do ")), (3, 1), "{text}");
    let (_, queue) = report(&site, &["/q"]);
    assert_eq!(queue["problems"].as_array().unwrap().len(), 33);
}

#[test]
fn a_registered_process_that_has_ended_is_said_to_have_ended() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let namespace = umsg::Namespace::at(site.path()).unwrap();
    let open = || {
        let mut options = umsg::posix::OpenOptions::new();
        let queue = options.read(true).write(true).namespace(&namespace);
        queue.open("/q").unwrap()
    };
    let child = Forked::after(|| {
        let queue = open();
        let registration = queue.notify(umsg::posix::Notify::signal(libc::SIGURG));
        std::mem::forget(registration.unwrap());
        std::mem::forget(queue);
    });
    let queue = open();
    wait_until("a registration", || queue.registered().is_some());
    let text = || site.umsg(&["doctor", "/q"]).text().to_owned();
    let (before, ended) = (text(), "a process that has ended, by signal");
    assert!(!before.contains(ended), "{before}");
    let pid = child.id();
    drop(child);
    let line = format!("notifies      process {pid}, {ended} 23; a later registration");
    let after = text();
    assert!(after.contains(&line), "{after}");
    // The first message fires the registration. The dead process never reacts.
    queue.send(b"fires", 0).unwrap();
    let fired = text();
    assert!(
        fired.contains(&line) && !fired.contains("has not reacted yet"),
        "{fired}"
    );
    drop(
        queue
            .notify(umsg::posix::Notify::signal(libc::SIGURG))
            .unwrap(),
    );
}

#[test]
fn a_ring_with_a_stopped_receiver_has_a_problem_with_a_remedy() {
    let site = Site::new();
    let namespace = umsg::Namespace::at(site.path()).unwrap();
    let receiver = Forked::after(|| {
        let ring = umsg::ring::Options::new().create_in(&namespace, "/jobs");
        std::mem::forget(ring.unwrap());
    });
    wait_until("a ring", || umsg::ring::find(&namespace, "/jobs").is_ok());
    receiver.stop();
    let shown = site.umsg(&["doctor", "ring:/jobs"]);
    let text = String::from_utf8(shown.output).unwrap();
    let (code, found) = report(&site, &["ring:/jobs"]);
    for part in [
        ", stopped\n",
        "the receiver of this ring, is stopped: messages wait",
        &format!("kill -CONT {}", receiver.id()),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("nothing is wrong"), "{text}");
    assert_eq!(
        (code, &found["problems"][0]["kind"]),
        (Some(5), &json!("stopped"))
    );
}

#[test]
fn the_bytes_of_a_ring_are_those_of_its_payloads() {
    let site = Site::new();
    let namespace = umsg::Namespace::at(site.path()).unwrap();
    let ring = umsg::ring::Options::new().create_in(&namespace, "/jobs");
    let ring = ring.unwrap();
    let sender = ring.sender();
    for payload in [&b"four"[..], b""] {
        let post = umsg::ring::Post::new(1).payload(payload);
        sender.send(&post).unwrap();
    }
    let (_, found) = report(&site, &["ring:/jobs"]);
    assert_eq!(
        (&found["messages"], &found["bytes"]),
        (&json!(2), &json!(4))
    );
}

#[test]
fn another_user_looks_at_a_queue_that_goes_with_its_last_user_if_its_mode_lets_him() {
    let site = Site::new();
    let create = ["create", "/goes", "--remove-on-last-close", "--mode"];
    site.umsg(&[&create[..], &["0666"]].concat()).text();
    support::set_mode(site.path(), 0o1777);
    let Some(looked) = site.umsg_as_nobody(&["doctor", "--all"]) else {
        return;
    };
    assert!(looked.text().starts_with("/goes\n"), "{looked:?}");
}

#[test]
fn what_can_not_be_looked_at_is_an_error() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    for (name, says) in [
        ("/none", "no queue has this name"),
        ("key:9", "no queue has this key"),
        ("ring:/none", ""),
    ] {
        let outcome = site.umsg(&["doctor", name]);
        outcome.fails(1, &[says]);
        // The reason is on standard error only, so the output is empty.
        assert!(outcome.output.is_empty(), "{outcome:?}");
    }
    std::fs::write(site.path().join("mq/letter"), "Dear Sir").unwrap();
    let outcome = site.umsg(&["doctor", "--all"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.errors.contains("/letter: "), "{outcome:?}");
    // The exit code reports the corruption of `/q`, although `/letter` can't be inspected.
    site.scribble("mq/q", 536, &[0xff; 4]);
    let outcome = site.umsg(&["doctor", "--all"]);
    outcome.fails(5, &["/letter: "]);
}

#[test]
fn a_queue_whose_file_was_cut_off_is_not_said_to_be_in_use() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    site.umsg(&["send", "/q", "lost"]).text();
    let file = std::fs::File::options()
        .write(true)
        .open(site.path().join("mq/q"));
    file.unwrap().set_len(100).unwrap();
    let report = site.umsg(&["doctor", "/q", "--json"]);
    assert_eq!(report.code, Some(5), "{report:?}");
    let report: serde_json::Value = serde_json::from_slice(&report.output).unwrap();
    let report = &report["queues"][0];
    assert_eq!(
        (&report["busy"], &report["healthy"]),
        (&json!(false), &json!(false))
    );
}
