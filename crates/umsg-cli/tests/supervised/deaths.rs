//! Tests the death of the supervisor, and of supervised programs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use super::support::compiler::Workshop;
use super::support::patients::Killed;
use super::support::{Site, start};
use super::{command, stream};

/// Returns the supervisor of a site's programs.
fn supervisor(site: &Site) -> Option<i32> {
    let environment = format!("UMSG_DIR={}", site.path().display());
    let is_it = |process: &Path| {
        let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
        let variables = std::fs::read(process.join("environ")).unwrap_or_default();
        let mut variables = variables.split(|&byte| byte == 0);
        name == "umsg:supervisor\n" && variables.any(|variable| variable == environment.as_bytes())
    };
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
    let found = processes.find(|process| is_it(&process.path()))?;
    found.file_name().to_str()?.parse().ok()
}

fn kill(process: i32) {
    // SAFETY: the call takes integers, and this test has started the process.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
}

pub fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let output: ChildStdout = child.stdout.take().unwrap();
    BufReader::new(output).lines().map(Result::unwrap)
}

fn wait_for_queue(site: &Site) {
    let start = Instant::now();
    while !site.path().join("mq/stream").exists() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the program opens no queue"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until this number of receivers is blocked in the queue.
pub fn wait_for_receivers(site: &Site, count: u32) {
    wait_for_queue(site);
    let start = Instant::now();
    while site.umsg(&["stat", "/stream", "--json"]).json()["blocked_receivers"] != count {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the receiver does not wait"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn await_none(site: &Site) {
    let start = Instant::now();
    while supervisor(site).is_some() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the supervisor stays"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until all threads of a killed supervisor have ended. The process may still be a zombie. Calls on queues already fail when the last thread
/// has closed the listener, but the supervisor's leases last until its last thread has ended.
fn await_end(process: i32) {
    let start = Instant::now();
    let lives = || {
        let path = format!("/proc/{process}/status");
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name).map(str::trim))
        };
        let is_zombie = line("State:").is_none_or(|state| state.starts_with(['Z', 'X']));
        let is_alone = line("Threads:").is_none_or(|count| ["0", "1"].contains(&count));
        !(is_zombie && is_alone)
    };
    while lives() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the supervisor stays"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_supervisor_ends_with_the_last_program() {
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = stream(&workshop, "static", &["-static"]);
    let mut child = Killed(start(&mut command(&site, &[], &program, &["receive"])));
    wait_for_queue(&site);
    assert!(supervisor(&site).is_some());
    child.0.kill().unwrap();
    await_none(&site);
}

/// A sender prints a message when the send has returned, and a receiver when the receive has returned. The sender may have sent one more message,
/// whose call failed. The receiver may get its last message again.
#[test]
fn no_message_is_lost_if_the_supervisor_is_killed() {
    let workshop = Workshop::new();
    let program = stream(&workshop, "static", &["-static"]);
    for round in 0..4 {
        let site = Site::new();
        let mut sender = Killed(start(&mut command(
            &site,
            &[],
            &program,
            &["send", "1000000"],
        )));
        let mut sent = lines(&mut sender.0);
        assert_eq!(sent.next().unwrap(), "0");
        let of_sender = supervisor(&site).unwrap();
        let mut receiver = Killed(start(&mut command(&site, &[], &program, &["receive"])));
        let mut received = lines(&mut receiver.0);
        let number = |text: String| text.parse::<u32>().unwrap();
        let first = received.by_ref().take(200 + round * 37);
        let mut seen: Vec<u32> = first.map(number).collect();
        kill(of_sender);
        let mut sent: Vec<String> = sent.collect();
        assert_eq!(sent.pop().unwrap(), "error ENOSYS");
        let last = number(sent.pop().unwrap());
        while *seen.last().unwrap() < last {
            seen.push(number(received.next().unwrap()));
        }
        // The receiver has a supervisor of its own.
        kill(supervisor(&site).unwrap());
        let rest: Vec<String> = received.collect();
        assert_eq!(rest.last().unwrap(), "error ENOSYS");
        assert_eq!(seen, (0..seen.len() as u32).collect::<Vec<_>>());
        assert!(
            seen.len() as u32 <= last + 2,
            "at most one more than was reported"
        );
    }
}

#[test]
fn a_message_that_is_received_while_the_supervisor_is_killed_comes_again_or_was_reported() {
    let workshop = Workshop::new();
    let program = stream(&workshop, "static", &["-static"]);
    for round in 0..4 {
        let site = Site::new();
        site.umsg(&[
            "create",
            "/stream",
            "--max-messages",
            "2000",
            "--message-size",
            "16",
        ])
        .text();
        let numbers: String = (0..2000).map(|number| format!("{number}\n")).collect();
        assert_eq!(
            site.umsg_with_input(&["send", "/stream", "--lines"], numbers.as_bytes())
                .code,
            Some(0)
        );
        let mut receiver = Killed(start(&mut command(&site, &[], &program, &["receive"])));
        let mut received = lines(&mut receiver.0);
        let mut seen: Vec<u32> = received
            .by_ref()
            .take(20 + round * 31)
            .map(|text| text.parse().unwrap())
            .collect();
        let killed = supervisor(&site).unwrap();
        kill(killed);
        seen.extend(received.filter_map(|text| text.parse::<u32>().ok()));
        await_end(killed);
        let rest = site.umsg(&["recv", "/stream", "--all", "--nonblocking"]);
        let rest = rest.text().lines().map(|text| text.parse::<u32>().unwrap());
        let next = seen.len() as u32;
        assert_eq!(seen, (0..next).collect::<Vec<_>>());
        // A message is redelivered if the supervisor died between the answer and the acknowledgement. It may be an earlier message than the last one:
        // the thread that answered may get no CPU while another thread leads.
        let (again, new): (Vec<u32>, Vec<u32>) = rest.partition(|number| *number < next);
        assert!(again.len() <= 1, "{again:?} after {next}");
        assert_eq!(new, (next..2000).collect::<Vec<_>>(), "after {next}");
    }
}

#[test]
fn a_killed_receiver_takes_no_message() {
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = stream(&workshop, "static", &["-static"]);
    let mut child = Killed(start(&mut command(&site, &[], &program, &["receive"])));
    wait_for_queue(&site);
    wait_for_receivers(&site, 1);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    site.umsg(&["send", "/stream", "kept"]).text();
    await_none(&site);
    assert_eq!(site.umsg(&["recv", "/stream"]).text().trim(), "kept");
}

/// A blocked receive has no message yet, and a blocked send has not sent its message.
#[test]
fn blocked_calls_fail_if_the_supervisor_is_killed_and_no_message_is_lost() {
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = stream(&workshop, "static", &["-static"]);
    let mut receiver = Killed(start(&mut command(&site, &[], &program, &["receive"])));
    wait_for_receivers(&site, 1);
    kill(supervisor(&site).unwrap());
    assert_eq!(lines(&mut receiver.0).last().unwrap(), "error ENOSYS");
    await_none(&site);
    let mut sender = Killed(start(&mut command(&site, &[], &program, &["send", "1000"])));
    let sent = lines(&mut sender.0);
    let start = Instant::now();
    while site.umsg(&["stat", "/stream", "--json"]).json()["blocked_senders"] != 1 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the sender does not wait"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(supervisor(&site).unwrap());
    let sent: Vec<String> = sent.collect();
    let (error, numbers) = sent.split_last().unwrap();
    assert_eq!((error.as_str(), numbers.len()), ("error ENOSYS", 10));
    let received = site.umsg(&["recv", "/stream", "--all", "--nonblocking"]);
    let received: Vec<&str> = received.text().lines().collect();
    assert_eq!(received, numbers);
}
