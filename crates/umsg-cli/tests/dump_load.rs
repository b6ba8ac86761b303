//! Tests `umsg dump` and `umsg load`.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::{Site, finish};
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue};

/// A namespace, and a directory next to it for files.
struct Place {
    site: Site,
    files: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            site: Site::new(),
            files: tempfile::tempdir().unwrap(),
        }
    }

    /// Makes a place with a queue that holds three messages.
    fn with_queue() -> Place {
        let place = Place::new();
        let site = &place.site;
        let create = [
            "create",
            "/q",
            "--max-messages",
            "8",
            "--message-size",
            "99",
        ];
        site.umsg(&create).text();
        for (message, priority) in [("low", "0"), ("high", "9"), ("low too", "0")] {
            site.umsg(&["send", "/q", message, "-p", priority]).text();
        }
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn dump(&self) -> Vec<u8> {
        let dumped = self.site.umsg(&["dump", "/q"]);
        assert_eq!((dumped.code, dumped.errors.as_str()), (Some(0), ""));
        dumped.output
    }

    fn load(&self, bytes: &[u8], name: &str) -> support::Outcome {
        self.site.umsg_with_input(&["load", "-", name], bytes)
    }

    fn peek(&self, name: &str) -> Vec<Value> {
        let count = ["peek", name, "--count", "100000", "--json"];
        let mut messages = self.site.umsg(&count).json_lines();
        for message in &mut messages {
            // The loaded messages have another queue's name and other message numbers, because each queue numbers its own messages.
            for own in ["queue", "id"] {
                message.as_object_mut().unwrap().remove(own);
            }
        }
        messages
    }

    fn queue(&self, name: &str) -> Queue {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .max_messages(10_000)
            .message_size(2000)
            .namespace(&Namespace::at(self.site.path()).unwrap())
            .open(name)
            .unwrap()
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn ten_thousand_messages_come_back_as_they_were() {
    let place = Place::new();
    let queue = place.queue("/q");
    let mut random = 1_u64;
    for number in 0..10_000_u32 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (len, priority) = ((random >> 33) % 2000, (random >> 44) as u32 % 32_768);
        let mut message = number.to_le_bytes().repeat(500);
        message.truncate(len as usize);
        queue.try_send(&message, priority).unwrap();
    }
    let file = place.file("dump");
    place.site.umsg(&["dump", "/q", "-o", path(&file)]).text();
    place.site.umsg(&["load", path(&file), "/copy"]).text();
    let copy = place.queue("/copy");
    let messages = queue.messages(usize::MAX).unwrap();
    assert_eq!(messages.len(), 10_000);
    let mut copied = copy.messages(usize::MAX).unwrap();
    for (copied, message) in copied.iter_mut().zip(&messages) {
        copied.id = message.id;
    }
    assert!(copied == messages);
    for message in messages {
        let received = copy.receive_vec().unwrap();
        assert_eq!(
            (received.data, received.priority),
            (message.data, message.priority)
        );
    }
}

#[test]
fn a_queue_comes_back_under_the_name_that_it_had() {
    let place = Place::with_queue();
    let file = place.file("dump");
    let before = place.peek("/q");
    let summary = place
        .site
        .umsg(&["dump", "q", "--output", path(&file), "--json"]);
    let mut summary = summary.json();
    assert!(summary["taken"].as_str().unwrap().ends_with('Z'));
    let fields = summary.as_object_mut().unwrap();
    fields.remove("taken");
    let wanted = json!({
        "queue": "/q", "messages": 3, "delayed": 0, "bytes": 14,
        "max_messages": 8, "message_size": 99, "mode": "0600",
    });
    assert_eq!(summary, wanted);
    place.site.umsg(&["rm", "/q"]).text();
    let mut loaded = place.site.umsg(&["load", path(&file), "--json"]).json();
    loaded.as_object_mut().unwrap().remove("taken");
    assert_eq!(loaded, wanted);
    assert_eq!(place.peek("/q"), before);
    assert_eq!(
        place.site.umsg(&["recv", "/q", "--all"]).text(),
        "high\nlow\nlow too\n"
    );
}

#[test]
fn a_queue_that_exists_is_only_added_to_when_asked() {
    let place = Place::with_queue();
    let bytes = place.dump();
    place
        .load(&bytes, "/q")
        .fails(1, &["/q: ", "exists already; ", "--into-existing"]);
    let into = ["load", "-", "--into-existing", "--json"];
    let loaded = place.site.umsg_with_input(&into, &bytes);
    assert_eq!(loaded.json()["messages"], 3);
    assert_eq!(place.peek("/q").len(), 6);
    place.site.umsg_with_input(&into, &bytes).fails(
        3,
        &[
            "/q: ",
            "3 messages",
            "room for only 2; ",
            "nothing was sent",
        ],
    );
    place
        .site
        .umsg(&["create", "/narrow", "--message-size", "6"])
        .text();
    let narrow = ["load", "-", "/narrow", "--into-existing"];
    place
        .site
        .umsg_with_input(&narrow, &bytes)
        .fails(1, &["position 2", "7 bytes", "6 bytes"]);
    assert_eq!(place.peek("/narrow"), [] as [Value; 0]);
    let missing = ["load", "-", "/missing", "--into-existing"];
    place
        .site
        .umsg_with_input(&missing, &bytes)
        .fails(1, &["/missing: no queue has this name"]);
}

#[test]
fn a_file_with_any_byte_altered_or_missing_makes_no_queue() {
    let place = Place::with_queue();
    let bytes = place.dump();
    // The library's tests damage every byte of a dump. This test damages some bytes, and loads the dump by the command.
    for at in (0..bytes.len()).step_by(13) {
        let mut altered = bytes.clone();
        altered[at] ^= 0x10;
        place
            .load(&altered, "/copy")
            .fails(1, &["umsg: standard input: ", "snapshot"]);
        place.load(&bytes[..at], "/copy").fails(
            1,
            &[
                &format!("ends too early, at byte {at} in "),
                ": copy the file again",
            ],
        );
    }
    place
        .load(b"no such thing", "/copy")
        .fails(1, &["not a snapshot of a queue; `umsg dump` makes one"]);
    place.site.umsg(&["stat", "/copy"]).fails(1, &["no queue"]);
    place.load(&bytes, "/copy").text();
}

#[test]
fn a_file_of_another_version_is_refused_by_its_number() {
    let place = Place::with_queue();
    let mut bytes = place.dump();
    bytes[8] = 7;
    place
        .load(&bytes, "/copy")
        .fails(1, &["format 7", "the umsg version that wrote it"]);
}

#[test]
fn a_dump_is_readable_by_its_owner_only_and_replaces_a_file_whole() {
    let place = Place::with_queue();
    let (file, link) = (place.file("dump"), place.file("link"));
    fs::write(&file, "older and longer than the new one".repeat(99)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    place.site.umsg(&["dump", "/q", "-o", path(&link)]).text();
    let metadata = fs::symlink_metadata(&file).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    place.site.umsg(&["load", path(&link), "/copy"]).text();
    assert_eq!(fs::read_dir(place.files.path()).unwrap().count(), 2);
}

#[test]
fn a_device_is_written_to_and_not_replaced() {
    let place = Place::with_queue();
    place.site.umsg(&["dump", "/q", "-o", "/dev/null"]).text();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    place
        .site
        .umsg(&["dump", "/q", "-o", "/dev/full"])
        .fails(1, &["umsg: /dev/full: No space left on device", "; "]);
}

#[test]
fn files_that_cant_be_read_or_written_are_named() {
    let place = Place::with_queue();
    let missing = place.file("missing/dump");
    place
        .site
        .umsg(&["dump", "/q", "-o", path(&missing)])
        .fails(
            1,
            &[": No such file or directory (os error 2); choose another file"],
        );
    place
        .site
        .umsg(&["load", path(&missing)])
        .fails(1, &[path(&missing), "; choose another file"]);
    place
        .site
        .umsg(&["load", path(place.files.path())])
        .fails(1, &[": Is a directory", "; choose another file"]);
    place
        .site
        .umsg(&["dump", "/none", "-o", path(&place.file("dump"))])
        .fails(1, &["/none: no queue has this name"]);
    assert_eq!(fs::read_dir(place.files.path()).unwrap().count(), 0);
}

#[test]
fn a_dump_is_not_printed_on_a_terminal() {
    let place = Place::with_queue();
    let mut script = Command::new("script");
    let shown = format!("{} dump /q", env!("CARGO_BIN_EXE_umsg"));
    script
        .args(["-qec", &shown, "/dev/null"])
        .env("UMSG_DIR", place.site.path());
    let outcome = finish(&mut script, b"");
    let text = String::from_utf8(outcome.output).unwrap();
    assert!(text.contains("is a terminal; give a file"), "{text:?}");
    assert_eq!(outcome.code, Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_failure_as_for_other_commands() {
    let place = Place::new();
    let queue = place.queue("/q");
    for _ in 0..200 {
        queue.try_send(&[0; 2000], 0).unwrap();
    }
    let mut child = support::start(&mut place.site.command(&["dump", "/q"]));
    drop(child.stdout.take());
    assert_eq!(support::end(child).text(), "");
}

#[test]
fn a_snapshot_without_a_name_wants_one() {
    let place = Place::with_queue();
    let mut bytes = Vec::new();
    place.queue("/q").snapshot(&mut bytes).unwrap();
    place
        .site
        .umsg_with_input(&["load", "-"], &bytes)
        .fails(2, &["holds no queue name; give a name"]);
    place.load(&bytes, "copy").text();
    assert_eq!(place.peek("/copy"), place.peek("/q"));
}

#[test]
fn a_json_summary_needs_a_file_for_the_dump() {
    let place = Place::with_queue();
    let outcome = place.site.umsg(&["dump", "/q", "--json"]);
    outcome.fails(2, &["the dump needs a file", "--output"]);
}

/// Returns a System V queue that holds three messages of two types.
fn with_typed_queue() -> Place {
    let place = Place::new();
    place
        .site
        .umsg(&["create", "key:0x51", "--qbytes", "4K", "--mode", "0640"])
        .text();
    for (message, mtype) in [("a", "3"), ("b\n", "9223372036854775807"), ("c", "3")] {
        place
            .site
            .umsg(&["send", "0x51", message, "-t", mtype])
            .text();
    }
    place
}

/// Returns the messages of a System V queue, as pairs of type and data.
fn typed(site: &Site, queue: &str) -> Vec<(Value, Value)> {
    let lines = site.umsg(&["peek", queue, "--json"]).json_lines();
    lines
        .iter()
        .map(|line| (line["type"].clone(), line["data"].clone()))
        .collect()
}

#[test]
fn a_system_v_queue_comes_back_with_types_mode_and_size() {
    let place = with_typed_queue();
    let file = place.file("typed.umsg");
    let saved = place
        .site
        .umsg(&["dump", "key:0x51", "--json", "-o", file.to_str().unwrap()])
        .json();
    assert_eq!(
        (&saved["queue"], &saved["messages"], &saved["qbytes"]),
        (&json!("key:0x00000051"), &json!(3), &json!(4096))
    );
    let expected = typed(&place.site, "0x51");
    assert_eq!(expected[1], (json!(i64::MAX), json!("b\n")));
    // The key already has a queue.
    place
        .site
        .umsg(&["load", file.to_str().unwrap()])
        .fails(1, &["key:0x00000051: "]);
    place
        .site
        .umsg(&["load", file.to_str().unwrap(), "key:0x52"])
        .text();
    assert_eq!(typed(&place.site, "0x52"), expected);
    place.site.umsg(&["rm", "0x51"]).text();
    place.site.umsg(&["load", file.to_str().unwrap()]).text();
    assert_eq!(typed(&place.site, "0x51"), expected);
    let state = place.site.umsg(&["stat", "0x51", "--json"]).json();
    assert_eq!(
        (&state["qbytes"], &state["mode"]),
        (&json!(4096), &json!("0640"))
    );
    let nameless = place
        .site
        .umsg(&["load", file.to_str().unwrap(), "key:0", "--json"])
        .json();
    assert_eq!(
        typed(&place.site, nameless["queue"].as_str().unwrap()),
        expected
    );
}

#[test]
fn a_system_v_queue_comes_back_with_its_policies_and_closed() {
    let place = Place::new();
    let site = &place.site;
    let policies = ["--retry-delay", "500ms..1m", "--close-with-last-producer"];
    site.umsg(&[&["create", "key:0x55"][..], &policies].concat())
        .text();
    site.umsg(&["send", "key:0x55", "now", "-t", "3"]).text();
    let namespace = umsg::Namespace::at(site.path()).unwrap();
    let mut options = umsg::sysv::OpenOptions::new();
    let queue = options.namespace(&namespace).open(0x55).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    queue.send_after(3, b"later", hour).unwrap();
    queue.reopen_send().unwrap();
    queue.close_send().unwrap();
    let file = place.file("closed.umsg");
    let file = file.to_str().unwrap();
    site.umsg(&["dump", "key:0x55", "-o", file]).fails(
        0,
        &["key:0x55: the file lacks the leased and delayed messages (1); "],
    );
    site.umsg(&["load", file, "key:0x56"]).text();
    let copy = site.umsg(&["stat", "key:0x56", "--json"]).json();
    let saved = site.umsg(&["stat", "key:0x55", "--json"]).json();
    for same in [
        "retry_delay_seconds",
        "close_with_last_producer",
        "messages",
    ] {
        assert_eq!(copy[same], saved[same], "{same}");
        assert!(!copy[same].is_null(), "{same}: {copy}");
    }
    assert_eq!(copy["send_closed"], true);
    site.umsg(&["send", "key:0x56", "more"])
        .fails(1, &["closed"]);
    // A load into an existing queue leaves the queue open for sending.
    site.umsg(&["create", "key:0x57"]).text();
    site.umsg(&["load", file, "key:0x57", "--into-existing"])
        .text();
    site.umsg(&["send", "key:0x57", "more"]).text();
    assert_eq!(typed(site, "0x57").len(), 2);
}

#[test]
fn messages_of_a_system_v_queue_are_added_to_another_all_or_none() {
    let place = with_typed_queue();
    let dumped = place.site.umsg(&["dump", "0x51"]).output;
    place
        .site
        .umsg(&["create", "key:0x53", "--qbytes", "5"])
        .text();
    let load = ["load", "-", "key:0x53", "--into-existing"];
    place.site.umsg_with_input(&load, &dumped).text();
    assert_eq!(typed(&place.site, "0x53").len(), 3);
    place
        .site
        .umsg_with_input(&load, &dumped)
        .fails(3, &["key:0x53: the queue is full", "nothing was sent"]);
    assert_eq!(typed(&place.site, "0x53").len(), 3);
}

#[test]
fn a_snapshot_of_one_kind_makes_no_queue_of_the_other() {
    let place = with_typed_queue();
    let typed = place.site.umsg(&["dump", "0x51"]).output;
    place.load(&typed, "/name").fails(
        2,
        &[
            "standard input: the file holds a System V queue",
            "give a key",
        ],
    );
    place.site.umsg(&["create", "/q"]).text();
    let plain = place.dump();
    place
        .load(&plain, "key:5")
        .fails(2, &["the file holds a POSIX queue", "give a name"]);
    let mut cut = typed.clone();
    cut.pop();
    place
        .load(&cut, "key:0x54")
        .fails(1, &["standard input: the snapshot ends too early"]);
    assert_eq!(place.site.umsg(&["ls", "-q"]).text(), "/q\nid:0\n");
}
