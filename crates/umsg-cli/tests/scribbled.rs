//! Tests queues whose files were overwritten with arbitrary bytes: the commands list, report and remove these queues.

mod support;

use std::process::Command;

use serde_json::{Value, json};
use support::patients::{Killed, stopped};
use support::{Site, end, start};

const KEY: &str = "key:0x00000007";
/// The key of a second queue.
const OTHER: &str = "key:0x00000008";
/// The offset of the lock of a System V queue. Source: docs/format.md.
const QUEUE_LOCK: u64 = 256;
/// A value above every possible count, size or index in a header.
const LARGE: [u8; 4] = [0xff, 0xff, 0xff, 0x3f];

fn site_with(queues: &[&str]) -> Site {
    let site = Site::new();
    for queue in queues {
        site.umsg(&["create", queue]).text();
        site.umsg(&["send", queue, "kept"]).text();
    }
    site
}

/// A function that changes a header, and whether a repair can restore the previous value.
type Scribble = (fn(&Site), bool);

/// Changes of the header of a System V queue's file.
const HEADERS: [Scribble; 8] = [
    (|site| site.scribble("msg/0", 0, b"X"), true),
    (|site| site.scribble("msg/0", 36, &[9]), true),
    (|site| site.scribble("msg/0", 40, &[1]), true),
    (|site| site.scribble("msg/0", 36, &[0xff; 4]), true),
    // The header of the second queue replaces the header of the first.
    (
        |site| {
            let other = site.header("msg/1");
            site.scribble("msg/0", 0, &other);
        },
        true,
    ),
    (|site| site.scribble("msg/0", 32, &LARGE), false),
    (|site| site.scribble("msg/0", 0, &[0; 64]), false),
    (
        |site| std::fs::write(site.path().join("msg/0"), b"").unwrap(),
        false,
    ),
];

#[test]
fn a_system_v_queue_is_listed_and_described_whatever_its_header_says() {
    for (n, (scribble, is_repairable)) in HEADERS.into_iter().enumerate() {
        let site = site_with(&[KEY, OTHER]);
        scribble(&site);
        let listed = site.umsg(&["ls", "--quiet"]);
        assert_eq!(listed.text(), "id:0\nid:1\n", "{n}");
        let listed = site.umsg(&["gc", "*"]);
        assert!(listed.text().contains("id:0"), "{n}: {listed:?}");
        for subject in [KEY, "id:0", "--all"] {
            let found = site.umsg(&["doctor", subject]);
            assert_ne!(found.code, Some(0), "{n}: {found:?}");
            let text = String::from_utf8(found.output).unwrap() + &found.errors;
            let is_told = text.contains("`umsg doctor QUEUE --repair` rebuilds")
                || text.contains("`umsg rm`");
            assert!(is_told, "{n}: {subject}: {text}");
        }
        let told = match is_repairable {
            true => "`umsg doctor QUEUE --repair` rebuilds",
            false => "`umsg rm` removes the",
        };
        for command in ["send", "recv", "stat", "create"] {
            site.umsg_with_input(&[command, KEY], b"x")
                .fails(1, &[told]);
        }
        let repaired = site.umsg(&["doctor", KEY, "--repair"]);
        assert_eq!(repaired.code == Some(0), is_repairable, "{n}: {repaired:?}");
        if is_repairable {
            let received = site.umsg(&["recv", KEY, "--nonblocking"]);
            assert_eq!(received.text(), "kept\n", "{n}");
        }
    }
}

#[test]
fn a_system_v_queue_is_removed_whatever_its_header_says() {
    let removals = [&["rm", KEY][..], &["rm", "id:0"], &["gc", "*", "--remove"]];
    for (scribble, _) in HEADERS {
        for remove in removals {
            let site = site_with(&[KEY, OTHER]);
            scribble(&site);
            site.umsg(remove).text();
            if remove[0] == "rm" {
                site.umsg(&["recv", OTHER]).text();
                site.umsg(&["rm", OTHER]).text();
            }
            let left = std::fs::read_dir(site.path().join("msg")).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
            assert!(left.is_empty(), "{left:?}");
            site.umsg(&["create", KEY, "--exclusive"]).text();
        }
    }
}

#[test]
fn a_waiter_in_a_scribbled_system_v_queue_learns_of_its_removal() {
    let site = Site::new();
    site.umsg(&["create", KEY]).text();
    let waiting = start(&mut site.command(&["recv", KEY]));
    site.wait_for(KEY, "blocked_receivers", 1);
    site.scribble("msg/0", 0, b"X");
    site.umsg(&["rm", KEY]).text();
    end(waiting).fails(4, &["was removed"]);
}

#[test]
fn a_removal_writes_into_no_file_that_has_a_name_elsewhere() {
    let site = site_with(&[KEY]);
    let (file, elsewhere) = (site.path().join("msg/0"), site.path().join("elsewhere"));
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&elsewhere, [b'Y'; 4096]).unwrap();
    std::fs::hard_link(&elsewhere, &file).unwrap();
    site.umsg(&["rm", KEY]).text();
    assert!(!file.exists());
    let is_unchanged = std::fs::read(&elsewhere).unwrap() == [b'Y'; 4096];
    assert!(is_unchanged);
}

/// Functions that write a process id into the lock of a System V queue, so that this process seems to hold the lock. The lock is never released. Each
/// function returns the process.
const HOLDERS: [fn(&Site) -> Killed; 3] = [
    // The owner is a living process that does not use the queue.
    |site| {
        let stranger = Killed(start(Command::new("sleep").arg("60")));
        site.scribble("msg/0", QUEUE_LOCK, &stranger.0.id().to_le_bytes());
        stranger
    },
    // The owner is a dead process.
    |site| {
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        site.scribble("msg/0", QUEUE_LOCK, &gone.id().to_le_bytes());
        Killed(gone)
    },
    // The owner is a stopped process that uses the queue.
    |site| {
        let user = stopped(site, KEY, "msg/0");
        site.scribble("msg/0", QUEUE_LOCK, &user.0.id().to_le_bytes());
        user
    },
];

/// Checks that `umsg stat` reports the lock of a queue whose lock is never released, and that the command `remove` removes the queue.
fn removed_without_its_lock(hold: fn(&Site) -> Killed, remove: &[&str]) {
    let site = site_with(&[KEY]);
    let _holder = hold(&site);
    // The error names only the lock: a running process must not be reported as stopped.
    let asked = site.umsg(&["stat", KEY]);
    asked.fails(1, &["the lock of the queue"]);
    site.umsg(remove).text();
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
    site.umsg(&["create", KEY, "--exclusive"]).text();
}

#[test]
fn a_system_v_queue_whose_lock_is_never_released_is_removed_without_it() {
    let removals = [
        &["rm", KEY][..],
        &["gc", "*", "--remove"],
        &["gc", "*", "--remove", "--in-use"],
    ];
    // The cases run in parallel, because each removal waits for the lock, some of them for a second.
    std::thread::scope(|scope| {
        for (hold, remove) in HOLDERS.into_iter().zip(removals) {
            scope.spawn(move || removed_without_its_lock(hold, remove));
        }
    });
}

#[test]
fn a_waiter_learns_of_the_removal_of_a_queue_whose_lock_is_never_released() {
    let site = Site::new();
    site.umsg(&["create", KEY]).text();
    let waiting = start(&mut site.command(&["recv", KEY]));
    site.wait_for(KEY, "blocked_receivers", 1);
    let holder = HOLDERS[0](&site);
    site.umsg(&["rm", KEY]).text();
    end(waiting).fails(4, &["was removed"]);
    drop(holder);
}

#[test]
fn what_can_only_be_removed_is_not_said_to_be_repairable() {
    let site = site_with(&["/q", KEY]);
    for (queue, file, offset) in [("/q", "mq/q", 16), (KEY, "msg/0", 32)] {
        site.scribble(file, offset, &LARGE);
        for options in [&[][..], &["--repair"]] {
            let shown = site.umsg(&[&["doctor", queue], options].concat());
            let text = String::from_utf8(shown.output).unwrap();
            assert!(
                text.contains("`umsg rm`") && !text.contains("doctor QUEUE --repair"),
                "{text}"
            );
        }
        let shown = site.umsg(&["doctor", queue, "--json"]);
        let shown: Value = serde_json::from_slice(&shown.output).unwrap();
        let advice = shown["queues"][0]["problems"][0]["advice"].as_str();
        assert!(advice.unwrap().starts_with("`umsg rm`"), "{shown}");
        for command in ["stat", "send", "recv", "peek"] {
            let refused = site.umsg(&[command, queue]);
            refused.fails(1, &["`umsg rm` removes the"]);
            assert!(!refused.errors.contains("doctor"), "{refused:?}");
        }
        let listed = site.umsg(&["ls"]);
        assert!(!listed.text().contains("--repair"), "{listed:?}");
    }
}

#[test]
fn what_differs_in_a_header_of_another_version_is_named() {
    let site = site_with(&["/q", KEY]);
    for (queue, file, version) in [("/q", "mq/q", 3), (KEY, "msg/0", 2)] {
        let differs = format!("format 9, and this umsg reads only format {version}");
        site.scribble(file, 12, &LARGE);
        site.umsg(&["stat", queue])
            .fails(1, &["another layout", "another build of umsg", "`umsg rm`"]);
        site.scribble(file, 8, &[9]);
        site.umsg(&["stat", queue]).fails(
            1,
            &[&differs, "the version of umsg that created", "`umsg rm`"],
        );
    }
}

#[test]
fn what_is_no_queue_is_named_among_all() {
    let site = site_with(&["/q", KEY]);
    let at = |name: &str| site.path().join(name);
    std::os::unix::fs::symlink("q", at("mq/link")).unwrap();
    std::fs::create_dir(at("ring/directory")).unwrap();
    let place = rustix::fs::CWD;
    rustix::fs::mkfifoat(place, at("msg/9"), rustix::fs::Mode::RWXU).unwrap();
    let looked = site.umsg(&["doctor", "--all"]);
    assert_eq!(looked.code, Some(1), "{looked:?}");
    let named: Vec<&str> = looked.errors.lines().collect();
    assert_eq!(named.len(), 3, "{looked:?}");
    for (line, says) in named.iter().zip([
        "mq/link: not a queue, but a symbolic link",
        "msg/9: not a queue, but a FIFO",
        "ring/directory: not a queue, but a directory",
    ]) {
        assert!(line.contains(says), "{line}");
    }
    let shown = site.umsg(&["doctor", "--all", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.output).unwrap();
    assert_eq!(shown["queues"].as_array().unwrap().len(), 5);
    assert_eq!(shown["healthy"], false, "as the exit code says");
}

/// The time-out of a receiver that sleeps while a test overwrites its queue. The receiver looks at the queue again after this time. On a busy
/// machine, the test may need seconds until it has overwritten the queue.
const LATER: &str = "15";

#[test]
fn figures_that_can_not_be_are_damage() {
    let site = site_with(&["/q"]);
    site.umsg(&["recv", "/q"]).text();
    let waiting = start(&mut site.command(&["recv", "/q", "--timeout", LATER]));
    site.wait_for("/q", "blocked_receivers", 1);
    site.scribble("mq/q", 0, &vec![0xff; 100_000]);
    end(waiting).fails(1, &["is corrupted", "`umsg doctor QUEUE --repair`"]);
}

#[test]
fn zeroes_over_a_system_v_queue_are_damage_and_no_removal() {
    let site = Site::new();
    site.umsg(&["create", KEY]).text();
    let waiting = start(&mut site.command(&["recv", KEY, "--timeout", LATER]));
    site.wait_for(KEY, "blocked_receivers", 1);
    site.scribble("msg/0", 0, &vec![0; 100_000]);
    end(waiting).fails(1, &["is corrupted"]);
}

#[test]
fn bits_that_no_mode_has_are_damage_that_a_repair_takes_away() {
    let site = site_with(&["/q", KEY]);
    for (queue, file, offset) in [("/q", "mq/q", 32), (KEY, "msg/0", 128 + 24)] {
        site.scribble(file, offset, &LARGE);
        let found = site.umsg(&["doctor", queue]);
        assert_eq!(found.code, Some(5), "{found:?}");
        let mode = site.umsg(&["stat", queue, "--json"]).json()["mode"].take();
        assert!(mode.as_str().unwrap().len() == 4, "{mode}");
        site.umsg(&["doctor", queue, "--repair"]).text();
        let mode = site.umsg(&["stat", queue, "--json"]).json()["mode"].take();
        assert_eq!(mode, "0600");
        assert_eq!(site.umsg(&["recv", queue]).text(), "kept\n");
    }
}

#[test]
fn damage_that_no_call_has_met_yet_is_damage_to_programs_too() {
    let site = site_with(&["/q"]);
    let healthy = site.umsg(&["doctor", "/q", "--json"]).json();
    assert_eq!(healthy["queues"][0]["damaged"], json!(null));
    site.scribble("mq/q", 536, &[0xff; 4]);
    let shown = site.umsg(&["doctor", "/q", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.output).unwrap();
    let damaged = &shown["queues"][0]["damaged"];
    assert_eq!(damaged, &json!({"found_by": null, "at": null}));
    assert_eq!(shown["healthy"], false);
}
