//! Tests `umsg bench-queue`: the rate of its load, and its measurements.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use support::patients::Killed;
use support::{Site, start};

/// Returns whether the namespace has no queue.
#[track_caller]
fn is_empty(site: &Site) -> bool {
    site.umsg(&["ls", "--quiet"]).text().is_empty()
}

#[test]
fn a_run_counts_every_message_and_leaves_no_queue() {
    let site = Site::new();
    let run = [
        "bench-queue",
        "--rate",
        "2000",
        "--time",
        "500ms",
        "--size",
        "32",
        "--json",
    ];
    for more in [
        &[][..],
        &["--senders", "2", "--receivers", "3", "--wait", "blocking"],
    ] {
        let report = site.umsg(&[&run, more].concat()).json();
        // On a busy machine, the sender may send fewer than the 1000 messages of its rate before the benchmark ends.
        let sent = report["sent"].as_u64().unwrap();
        assert!((1..=1000).contains(&sent), "{report}");
        assert_eq!(report["received"], sent);
        let latency = &report["latency_nanoseconds"];
        let of = |name| latency[name].as_u64().unwrap();
        assert!(0 < of("min") && of("min") <= of("p50"), "{report}");
        assert!(of("p50") <= of("p99") && of("p99") <= of("max"), "{report}");
        let scheduled = &report["latency_from_schedule_nanoseconds"];
        assert!(
            scheduled["max"].as_u64() >= latency["min"].as_u64(),
            "{report}"
        );
        assert!(
            report["sender_cpu_seconds"].as_f64().unwrap() > 0.0,
            "{report}"
        );
        assert!(is_empty(&site));
    }
    let text = site.umsg(&[
        "bench-queue",
        "--rate",
        "0",
        "--time",
        "0.1",
        "--depth",
        "4",
    ]);
    let text = text.text();
    assert!(
        text.contains("as many messages as possible of 64 bytes, depth 4,"),
        "{text}"
    );
    assert!(
        text.contains("\nlatency ") && text.contains("\nfrom schedule "),
        "{text}"
    );
    assert!(is_empty(&site));
}

#[test]
fn a_rate_beyond_the_machine_is_reported() {
    let site = Site::new();
    let run = [
        "bench-queue",
        "--rate",
        "1G",
        "--time",
        "0.1",
        "--size",
        "8K",
    ];
    let text = site.umsg(&run);
    assert!(text.text().contains("\nnot reached: "), "{text:?}");
}

#[test]
fn a_run_that_is_ended_leaves_neither_a_process_nor_a_queue() {
    let site = Site::new();
    for signal in ["-TERM", "-KILL"] {
        let run = Killed(start(&mut site.command(&["bench-queue", "--time", "1h"])));
        let begin = Instant::now();
        let users = || {
            let maps = fs::read_dir("/proc").unwrap().flatten();
            let maps = maps.filter_map(|entry| fs::read_to_string(entry.path().join("maps")).ok());
            let path = site.path().to_str().unwrap().to_owned();
            maps.filter(|maps| maps.contains(&path)).count()
        };
        let wait = |what: &str, holds: &dyn Fn() -> bool| {
            while !holds() {
                assert!(begin.elapsed() < Duration::from_secs(120), "{what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait("three processes use the queue", &|| users() == 3);
        let pid = run.0.id().to_string();
        let kill = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(kill.unwrap().success());
        wait("the processes end", &|| users() == 0);
        // The kernel removes the mappings of a killed process before it closes the files of the process.
        wait("no queue is left", &|| is_empty(&site));
    }
}

#[test]
fn wrong_loads_are_refused() {
    let site = Site::new();
    for (arguments, says) in [
        (["--size", "8"], "16 bytes or more"),
        (["--time", "0"], "above 0"),
        (["--senders", "0"], "1..=64"),
        (["--rate", "-1"], "negative"),
    ] {
        let outcome = site.umsg(&[&["bench-queue"], &arguments[..]].concat());
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.errors.contains(says), "{outcome:?}");
    }
}
