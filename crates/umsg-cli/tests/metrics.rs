//! Tests `umsg metrics`: what the command prints, writes and serves.

#[path = "metrics/exporter.rs"]
mod exporter;
#[path = "metrics/prometheus.rs"]
mod prometheus;
mod support;

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use exporter::{Exporter, until};
use support::patients::{Killed, stopped};
use support::{NOBODY, Site, finish, give_to, set_mode, start};
use umsg::Namespace;
use umsg::ring::{self, Post};

/// The offsets of the two locks of a POSIX queue, and of the lock of a System V queue. Source: docs/format.md.
const SENDER_LOCK: u64 = 512;
const RECEIVER_LOCK: u64 = 768;
const QUEUE_LOCK: u64 = 256;

/// Returns the values of a metrics text, each by its metric's name and labels.
#[track_caller]
fn values(text: &str) -> HashMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let values: HashMap<_, _> = lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name, value.parse().unwrap())
        })
        .collect();
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(values.len(), lines, "a series is there twice: {text}");
    values
}

/// Returns the value of a metric that has only the labels of a queue.
#[track_caller]
fn value(text: &str, metric: &str, kind: &str, queue: &str) -> f64 {
    let series = format!("{metric}{{kind=\"{kind}\",queue=\"{queue}\"}}");
    let values = values(text);
    let value = values.get(series.as_str());
    *value.unwrap_or_else(|| panic!("{series} is not in {text}"))
}

#[track_caller]
fn left_out(text: &str, kind: &str, reason: &str) -> f64 {
    values(text)[format!("umsg_queues_left_out{{kind=\"{kind}\",reason=\"{reason}\"}}").as_str()]
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs_f64()
}

/// Returns a namespace with a queue of each kind. This process owns the ring.
fn with_all_kinds() -> (Site, ring::Ring) {
    let site = Site::new();
    let create = |more: &[&str]| site.umsg(&[&["create"], more].concat()).text().len();
    create(&["/orders", "--max-messages", "4"]);
    create(&["key:0x12"]);
    for message in ["one", "three"] {
        site.umsg(&["send", "/orders", message]).text();
        site.umsg(&["send", "key:0x12", message]).text();
    }
    site.umsg(&["recv", "/orders"]).text();
    let namespace = Namespace::existing(site.path()).unwrap();
    let options = ring::Options::new().entries(8).to_owned();
    let mut ring = options.create_in(&namespace, "/jobs").unwrap();
    for tag in 0..3 {
        ring.sender().send(&Post::new(tag)).unwrap();
    }
    ring.receive().unwrap();
    (site, ring)
}

#[test]
fn queues_and_rings_show_their_contents_and_what_passed_through_them() {
    let (site, _ring) = with_all_kinds();
    let outcome = site.umsg(&["metrics"]);
    let text = outcome.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    for (metric, kind, queue, wanted) in [
        ("umsg_queue_messages", "posix", "/orders", 1.0),
        ("umsg_queue_size_bytes", "posix", "/orders", 5.0),
        ("umsg_queue_capacity_messages", "posix", "/orders", 4.0),
        ("umsg_queue_fill_ratio", "posix", "/orders", 0.25),
        ("umsg_queue_sent_messages_total", "posix", "/orders", 2.0),
        ("umsg_queue_sent_bytes_total", "posix", "/orders", 8.0),
        ("umsg_queue_removed_messages_total", "posix", "/orders", 1.0),
        ("umsg_queue_removed_bytes_total", "posix", "/orders", 3.0),
        ("umsg_queue_messages", "sysv", "key:0x00000012", 2.0),
        ("umsg_queue_size_bytes", "sysv", "key:0x00000012", 8.0),
        (
            "umsg_queue_sent_messages_total",
            "sysv",
            "key:0x00000012",
            2.0,
        ),
        (
            "umsg_queue_removed_messages_total",
            "sysv",
            "key:0x00000012",
            0.0,
        ),
        ("umsg_queue_messages", "ring", "ring:/jobs", 2.0),
        ("umsg_queue_sent_messages_total", "ring", "ring:/jobs", 3.0),
        (
            "umsg_queue_removed_messages_total",
            "ring",
            "ring:/jobs",
            1.0,
        ),
        ("umsg_queue_receiver_alive", "ring", "ring:/jobs", 1.0),
        ("umsg_queue_corrupted", "posix", "/orders", 0.0),
    ] {
        assert_eq!(value(text, metric, kind, queue), wanted, "{metric} {queue}");
    }
    for (kind, queue) in [
        ("posix", "/orders"),
        ("sysv", "key:0x00000012"),
        ("ring", "ring:/jobs"),
    ] {
        let oldest = value(
            text,
            "umsg_queue_oldest_message_timestamp_seconds",
            kind,
            queue,
        );
        assert!((now() - oldest).abs() < 3600.0, "{queue}: {oldest}");
        let found = format!("umsg_queues{{kind=\"{kind}\"}}");
        assert_eq!(values(text)[found.as_str()], 1.0);
    }
    // The counters are in the queue's segment, so the next command adds to the same counters.
    site.umsg(&["send", "/orders", "more"]).text();
    let later = site.umsg(&["metrics"]);
    let sent = value(
        later.text(),
        "umsg_queue_sent_messages_total",
        "posix",
        "/orders",
    );
    assert_eq!(sent, 3.0);
}

#[test]
fn patterns_and_a_limit_bound_the_series() {
    let (site, _ring) = with_all_kinds();
    for n in 0..5 {
        site.umsg(&["create", &format!("/q{n}")]).text();
    }
    let some = site.umsg(&["metrics", "--match", "/q?", "--match", "ring:*"]);
    let text = some.text();
    assert!(
        !text.contains("/orders") && !text.contains("key:"),
        "{text}"
    );
    assert!(
        text.contains("\"ring:/jobs\"") && text.contains("\"/q4\""),
        "{text}"
    );
    assert_eq!(values(text)["umsg_queues{kind=\"posix\"}"], 5.0);
    let few = site.umsg(&["metrics", "--max-queues", "3", "--match", "*"]);
    let text = few.text();
    for (kind, count) in [("posix", 3.0), ("sysv", 1.0), ("ring", 1.0)] {
        assert_eq!(left_out(text, kind, "limit"), count, "{kind}");
    }
    assert_eq!(text.matches("umsg_queue_messages{").count(), 3);
    assert_eq!(values(text)["umsg_queues{kind=\"posix\"}"], 6.0);
}

#[test]
fn names_with_any_bytes_give_a_valid_text() {
    let site = Site::new();
    let names: [&[u8]; 4] = [
        b"/a\"b\\c",
        b"/line\nfeed",
        "/grün".as_bytes(),
        b"/\xff\xfe",
    ];
    for name in names {
        let name = std::ffi::OsStr::from_bytes(name);
        site.umsg(&[std::ffi::OsStr::new("create"), name]).text();
    }
    let outcome = site.umsg(&["metrics"]);
    let text = outcome.text();
    for shown in [r#"/a\"b\\c"#, r"/line\nfeed", "/grün"] {
        assert_eq!(value(text, "umsg_queue_messages", "posix", shown), 0.0);
    }
    assert_eq!(left_out(text, "posix", "name"), 1.0);
    prometheus::check_metrics(&site);
}

#[test]
fn a_scrape_takes_no_lock_and_changes_no_byte_of_a_queue() {
    let site = Site::new();
    for queue in ["/q", "key:7"] {
        site.umsg(&["create", queue]).text();
        site.umsg(&["send", queue, "here"]).text();
    }
    let owners = [
        stopped(&site, "/q", "mq/q"),
        stopped(&site, "key:7", "msg/0"),
    ];
    let own = |owner: &Killed, file, offset| {
        site.scribble(file, offset, &owner.0.id().to_le_bytes());
    };
    own(&owners[0], "mq/q", SENDER_LOCK);
    own(&owners[0], "mq/q", RECEIVER_LOCK);
    own(&owners[1], "msg/0", QUEUE_LOCK);
    // The command waits in vain for the lock.
    site.umsg(&["peek", "/q"]).fails(1, &["is stopped"]);
    site.umsg(&["stat", "key:7"]).fails(1, &["is stopped"]);
    let pages = || ["mq/q", "msg/0"].map(|file| site.pages(file));
    let before = pages();
    assert!(before.iter().all(|pages| pages.contains_key(&0)));
    let outcome = site.umsg(&["metrics"]);
    let text = outcome.text();
    assert_eq!(value(text, "umsg_queue_messages", "posix", "/q"), 1.0);
    assert_eq!(
        value(text, "umsg_queue_messages", "sysv", "key:0x00000007"),
        1.0
    );
    assert!(before == pages(), "a scrape has changed a queue");
}

#[test]
fn queues_without_permission_and_corrupted_ones_are_counted() {
    let site = Site::new();
    for queue in ["/q", "/private", "/letterbox", "/bad", "key:7", "key:8"] {
        site.umsg(&["create", queue]).text();
    }
    site.umsg(&["send", "/q", "here"]).text();
    site.scribble("mq/bad", 0, &[0x55; 64]);
    site.scribble("msg/1", 0, &[0x55; 64]);
    fs::write(site.path().join("mq/short"), b"no queue").unwrap();
    let outcome = site.umsg(&["metrics"]);
    let text = outcome.text();
    let without = |kind| ["corrupted", "unusable"].map(|why| left_out(text, kind, why));
    assert_eq!(without("posix").iter().sum::<f64>(), 2.0, "{text}");
    assert_eq!(without("sysv").iter().sum::<f64>(), 1.0, "{text}");
    assert_eq!(value(text, "umsg_queue_messages", "posix", "/q"), 1.0);
    umsg_testkit::needs_root!();
    set_mode(site.path(), 0o1777);
    for (file, mode) in [("mq/q", 0o644), ("mq/letterbox", 0o622)] {
        set_mode(&site.path().join(file), mode);
    }
    give_to(&site.path().join("mq/letterbox"), NOBODY);
    let outcome = site.umsg_as_nobody(&["metrics"]).unwrap();
    let text = outcome.text();
    assert!(left_out(text, "posix", "permission") >= 1.0, "{text}");
    assert_eq!(left_out(text, "sysv", "permission"), 2.0, "{text}");
    assert!(!text.contains("\"/private\""), "{text}");
}

#[test]
fn a_server_notices_new_removed_replaced_and_corrupted_queues_and_opens_none_twice() {
    let (site, ring) = with_all_kinds();
    let exporter = Exporter::start(&site, &[]);
    let text = exporter.metrics();
    assert_eq!(value(&text, "umsg_queue_messages", "posix", "/orders"), 1.0);
    let first = exporter.mappings(&site);
    assert!(
        ["mq/orders", "msg/0", "ring/jobs"]
            .iter()
            .all(|file| first.contains(file))
    );
    site.umsg(&["send", "/orders", "x"]).text();
    let text = exporter.metrics();
    assert_eq!(value(&text, "umsg_queue_messages", "posix", "/orders"), 2.0);
    assert_eq!(exporter.mappings(&site), first, "a queue was mapped again");

    // The test replaces one queue, adds one, and removes one.
    site.umsg(&["rm", "/orders"]).text();
    site.umsg(&["create", "/orders"]).text();
    site.umsg(&["rm", "key:0x12"]).text();
    site.umsg(&["create", "key:0x12"]).text();
    site.umsg(&["create", "/new"]).text();
    drop(ring);
    let text = exporter.metrics();
    assert_eq!(
        value(&text, "umsg_queue_sent_messages_total", "posix", "/orders"),
        0.0
    );
    assert_eq!(
        value(&text, "umsg_queue_messages", "sysv", "key:0x00000012"),
        0.0
    );
    assert_eq!(value(&text, "umsg_queue_messages", "posix", "/new"), 0.0);
    assert_eq!(values(&text)["umsg_queues{kind=\"ring\"}"], 0.0);
    let mappings = exporter.mappings(&site);
    assert!(!mappings.contains("(deleted)"), "{mappings}");

    // The test truncates and overwrites the file while the exporter maps it.
    let file = fs::File::options()
        .write(true)
        .open(site.path().join("mq/new"));
    file.unwrap().set_len(0).unwrap();
    for offset in (0..16_384).step_by(512) {
        site.scribble("mq/orders", offset, &[0xa5; 512]);
    }
    let text = exporter.metrics();
    assert_eq!(values(&text)["umsg_queues{kind=\"posix\"}"], 2.0);
    assert_eq!(
        value(&text, "umsg_queue_messages", "sysv", "key:0x00000012"),
        0.0
    );

    // The test removes the whole namespace, and makes it again.
    fs::remove_dir_all(site.path()).unwrap();
    let gone = exporter.get("GET", "/metrics", "");
    assert!(gone.starts_with("HTTP/1.1 503"), "{gone}");
    fs::create_dir(site.path()).unwrap();
    site.umsg(&["create", "/back"]).text();
    let text = exporter.metrics();
    assert_eq!(value(&text, "umsg_queue_messages", "posix", "/back"), 0.0);
}

#[test]
fn a_server_answers_as_http_has_it() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let exporter = Exporter::start(&site, &["--match", "/q"]);
    let accept = "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n";
    for (method, path, headers, status, kind, end) in [
        (
            "GET",
            "/metrics",
            accept,
            "200",
            "application/openmetrics-text; version=1.0.0",
            "# EOF\n",
        ),
        (
            "GET",
            "/metrics?x=1",
            "",
            "200",
            "text/plain; version=0.0.4",
            "} 0\n",
        ),
        // The exporter knows the length of the text, so it sends no chunks, even if the client permits them.
        (
            "GET",
            "/metrics",
            "TE: chunked\r\n",
            "200",
            "text/plain; version=0.0.4",
            "} 0\n",
        ),
        (
            "HEAD",
            "/metrics",
            "",
            "200",
            "text/plain; version=0.0.4",
            "\r\n\r\n",
        ),
        ("GET", "/", "", "200", "text/plain", "/metrics.\n"),
        ("GET", "/other", "", "404", "text/plain", "/metrics.\n"),
        ("POST", "/metrics", "", "405", "text/plain", "Use GET.\n"),
    ] {
        let answer = exporter.get(method, path, headers);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(
            answer.contains(&format!("Content-Type: {kind}")),
            "{answer}"
        );
        assert!(answer.ends_with(end), "{method} {path}: {answer}");
        assert!(answer.contains("\r\nContent-Length: "), "{answer}");
    }
    // A client that sends nothing does not stop other clients.
    let _silent = exporter.connect();
    assert!(exporter.metrics().contains("\"/q\""));
}

#[test]
fn a_server_stays_while_processes_are_killed_and_queues_come_and_go() {
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "8"]).text();
    let exporter = Exporter::start(&site, &[]);
    for round in 0..10 {
        let name = format!("/round{round}");
        site.umsg(&["create", &name, "--max-messages", "8"]).text();
        let mut receiver = Killed(start(&mut site.command(&["recv", "/q", "--follow"])));
        let mut sender = Killed(start(&mut site.command(&["send", "/q", "--lines"])));
        let mut input = sender.0.stdin.take().unwrap();
        let lines = "line\n".repeat(1000);
        // After the receiver is killed, the queue fills, and the sender blocks.
        std::thread::scope(|scope| {
            scope.spawn(move || drop(std::io::Write::write_all(&mut input, lines.as_bytes())));
            exporter.metrics();
            receiver.0.kill().unwrap();
            exporter.metrics();
            sender.0.kill().unwrap();
        });
        site.umsg(&["rm", &name]).text();
        let text = exporter.metrics();
        assert!(!text.contains(&name), "{text}");
    }
    // The killed receiver held a message until `umsg stat` returned it to the queue: a scrape repairs nothing.
    site.umsg(&["stat", "/q"]).text();
    let text = exporter.metrics();
    let of = |metric| value(&text, metric, "posix", "/q");
    assert_eq!(
        of("umsg_queue_sent_messages_total"),
        of("umsg_queue_removed_messages_total") + of("umsg_queue_messages")
    );
}

#[test]
fn a_file_appears_whole_again_and_again() {
    let site = Site::new();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("umsg.prom");
    let path = file.to_str().unwrap();
    site.umsg(&["create", "/q"]).text();
    assert_eq!(site.umsg(&["metrics", "--write", path]).text(), "");
    let names = || fs::read_dir(home.path()).unwrap().count();
    assert_eq!(names(), 1, "no temporary file stays");
    let is_whole = |text: &str| {
        // The Prometheus text format has no end mark, so the last line belongs to the last metric.
        let last = text.lines().last().unwrap_or_default();
        text.starts_with("# HELP umsg_info ") && last.starts_with("umsg_queue_repairs_total{")
    };
    assert!(is_whole(&fs::read_to_string(&file).unwrap()));
    let every = ["metrics", "--write", path, "--every", "1ms"];
    let _writer = Killed(start(&mut site.command(&every)));
    site.umsg(&["send", "/q", "x"]).text();
    until("the file has the new message", || {
        let text = fs::read_to_string(&file).unwrap();
        assert!(is_whole(&text), "{text}");
        text.contains("umsg_queue_messages{kind=\"posix\",queue=\"/q\"} 1\n")
    });
    let missing = home.path().join("missing/umsg.prom");
    let failed = site.umsg(&["metrics", "--write", missing.to_str().unwrap()]);
    failed.fails(1, &["missing/umsg.prom", "choose another file"]);
}

#[test]
fn wrong_command_lines_are_refused() {
    let site = Site::new();
    for (arguments, says) in [
        (&["--listen", "0.0.0.0:9464"][..], "loopback"),
        (&["--listen", "9464"], "127.0.0.1:9464"),
        (
            &["--listen", "127.0.0.1:0", "--write", "x"],
            "cannot be used with",
        ),
        (&["--every", "5s"], "--write"),
    ] {
        let outcome = site.umsg(&[&["metrics"], arguments].concat());
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.errors.contains(says), "{outcome:?}");
    }
    let absent = site.path().join("absent");
    let mut command = site.command(&["metrics", "--dir", absent.to_str().unwrap()]);
    assert_eq!(finish(&mut command, b"").code, Some(1));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    site.umsg(&["metrics", "--listen", &address])
        .fails(1, &[&address, "choose another port"]);
}
