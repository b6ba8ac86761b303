//! Tests the screen while processes are stopped or killed, and while queues are removed or damaged.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use umsg::Namespace;
use umsg::posix::{self, OpenOptions};

use crate::support::patients::{Killed, stopped};
use crate::support::{Site, set_mode, start};
use crate::terminal::Terminal;
use crate::{LARGE, SMALL, cells, with_all_kinds};

/// The files and offsets of the two locks of a POSIX queue, and of the lock of a System V queue. Source: docs/format.md.
const LOCKS: [(&str, u64); 3] = [("mq/orders", 512), ("mq/orders", 768), ("msg/0", 256)];

/// Returns the data of a file, each piece with its offset. A System V queue's file is 3.5 GB long, and nearly all of it is a hole.
fn data_of(file: &Path) -> Vec<(u64, Vec<u8>)> {
    let file = File::open(file).unwrap();
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Ok(begin) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(begin)).unwrap();
        let mut piece = vec![0; (at - begin) as usize];
        file.read_exact_at(&mut piece, begin).unwrap();
        pieces.push((begin, piece));
    }
    assert!(!pieces.is_empty());
    pieces
}

#[test]
fn the_screen_takes_no_lock_and_changes_no_byte_of_a_queue() {
    needs_a_terminal!();
    let (site, _ring) = with_all_kinds();
    let owners = [
        stopped(&site, "/orders", "mq/orders"),
        stopped(&site, "/orders", "mq/orders"),
        stopped(&site, "key:0x12", "msg/0"),
    ];
    for ((file, offset), owner) in LOCKS.iter().zip(&owners) {
        site.scribble(file, *offset, &owner.0.id().to_le_bytes());
    }
    site.umsg(&["peek", "/orders"]).fails(1, &["is stopped"]);
    let files = ["mq/orders", "msg/0"].map(|file| site.path().join(file));
    let before = files.each_ref().map(|file| data_of(file));
    let terminal = Terminal::start(&site, SMALL, &["--every", "50ms"]);
    let has_rates = |screen: &str| cells(screen, "/orders").is_some_and(|cells| cells[3] == "0");
    terminal.until("rates", has_rates);
    terminal.press(&["Enter"]);
    // The diagnosis reads a copy of the queue's file, so it does not need the lock that a stopped process holds.
    terminal.shows(&["messages    3 of 4", "Messages by priority", "is stopped"]);
    terminal.press(&["q", "Down", "Enter"]);
    terminal.shows(&["System V queue", "Messages by type", "is stopped"]);
    let after = files.each_ref().map(|file| data_of(file));
    assert!(before == after, "the screen has changed a queue");
    // The page of messages shows an error, and the screen continues.
    terminal.press(&["q", "Home", "m"]);
    terminal.shows(&["is stopped"]);
    terminal.press(&["q", "q"]);
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn the_screen_outlives_queues_that_go_and_are_damaged_and_the_namespace() {
    needs_a_terminal!();
    let (site, ring) = with_all_kinds();
    site.umsg(&["create", "/short"]).text();
    site.scribble("mq/short", 0, &[0x55; 64]);
    fs::write(site.path().join("mq/none"), b"no queue").unwrap();
    let terminal = Terminal::start(&site, LARGE, &["--every", "50ms"]);
    terminal.shows(&["/orders", "/short", "/none", "unusable"]);
    // The test removes the queue while its details are shown, and creates it again.
    terminal.press(&["/"]);
    terminal.send("orders");
    terminal.press(&["Enter", "Home", "Enter"]);
    terminal.shows(&["/orders  POSIX queue", "messages    3 of 4"]);
    site.umsg(&["rm", "/orders"]).text();
    terminal.shows(&["gone", "The queue was removed."]);
    site.umsg(&["create", "/orders", "--max-messages", "9"])
        .text();
    terminal.shows(&["messages    0 of 9"]);
    // The test overwrites and truncates the queue's file while `umsg top` maps it. The header stays valid, so that `umsg top` can diagnose the queue.
    for offset in (512..16_384).step_by(512) {
        site.scribble("mq/orders", offset, &[0xa5; 512]);
    }
    terminal.shows(&["Problems"]);
    let file = fs::File::options()
        .write(true)
        .open(site.path().join("mq/orders"));
    file.unwrap().set_len(0).unwrap();
    terminal.press(&["q", "/", "Escape"]);
    terminal.shows(&["key:0x00000012", "ring:/jobs"]);
    drop(ring);
    terminal.hides(&["ring:/jobs"]);
    // The test removes the whole namespace, and makes it again.
    fs::remove_dir_all(site.path()).unwrap();
    terminal.shows(&["does not exist"]);
    fs::create_dir(site.path()).unwrap();
    set_mode(site.path(), 0o700);
    site.umsg(&["create", "/back"]).text();
    terminal.until("the new queue", |screen| {
        screen.contains("/back") && !screen.contains("key:")
    });
    terminal.press(&["q"]);
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn figures_under_load_are_right_while_processes_are_killed() {
    needs_a_terminal!();
    let site = Site::new();
    site.umsg(&["create", "/q", "--max-messages", "8"]).text();
    let terminal = Terminal::start(&site, SMALL, &["--every", "50ms"]);
    terminal.shows(&["/q"]);
    terminal.press(&["Enter"]);
    for round in 0..6 {
        let name = format!("/round{round}");
        site.umsg(&["create", &name, "--max-messages", "8"]).text();
        let receiver = Killed(start(&mut site.command(&["recv", "/q", "--follow"])));
        let sender = Killed(start(&mut site.command(&["send", "/q", "--lines"])));
        let lines = "line\n".repeat(100_000);
        // After the receiver is killed, the queue fills, and the sender blocks.
        std::thread::scope(|scope| {
            // The programs are killed at the end of this closure, also if it panics. Otherwise the threads would wait for them.
            let (mut receiver, mut sender) = (receiver, sender);
            let mut input = sender.0.stdin.take().unwrap();
            // The sender has input until it is killed. After a limited input, a slow test would find neither rates nor a full queue.
            scope.spawn(move || while input.write_all(lines.as_bytes()).is_ok() {});
            let rates = |screen: &str| {
                let line = screen.lines().find(|line| line.starts_with("rates"));
                line.is_some_and(|line| !line.contains("in 0/s") && !line.contains("in -/s"))
            };
            let output = BufReader::new(receiver.0.stdout.take().unwrap());
            scope.spawn(move || output.lines().count());
            terminal.until("rates", rates);
            receiver.0.kill().unwrap();
            // If the receiver dies with an offered message, the message comes back to a queue that may be full.
            terminal.until("a full queue", |screen| {
                let is_full = ["8 of 8", "9 of 8"].iter().any(|of| screen.contains(of));
                is_full && screen.contains("full") && !screen.contains("corrupted")
            });
            sender.0.kill().unwrap();
        });
        site.umsg(&["rm", &name]).text();
    }
    terminal.press(&["q"]);
    // `umsg stat` returns the messages of the killed processes to the queue.
    site.umsg(&["stat", "/q"]).text();
    let namespace = Namespace::existing(site.path()).unwrap();
    let mut options = OpenOptions::new();
    let queue: posix::Queue = options.read(true).namespace(&namespace).open("/q").unwrap();
    let messages = queue.glance().attributes.messages.to_string();
    terminal.until("the library's figures", |screen| {
        cells(screen, "/q").is_some_and(|cells| cells[..2] == [&*messages, "8"])
            && !screen.contains("/round")
    });
    // SIGTERM ends `umsg top` gracefully.
    let pid = terminal.process();
    umsg_testkit::run::succeed(std::process::Command::new("kill").arg(&pid));
    assert_eq!(terminal.ends(), 0);
    terminal.gives_the_screen_back();
}
