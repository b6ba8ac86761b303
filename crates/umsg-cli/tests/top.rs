//! `umsg top`: in a real terminal, and what it prints.

mod support;
#[path = "top/terminal.rs"]
mod terminal;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use serde_json::Value;
use support::patients::{Killed, stopped};
use support::{NOBODY, Site, end, give_to, set_mode, start};
use terminal::Terminal;
use umsg::Namespace;
use umsg::posix::{self, OpenOptions};
use umsg::ring::{self, Post};

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 50);

/// The offsets of the locks of a POSIX queue, and of the lock of a System V queue: docs/format.md.
const LOCKS: [(&str, u64); 3] = [("mq/orders", 512), ("mq/orders", 768), ("msg/0", 256)];

/// Ends a test for which there is no terminal.
macro_rules! needs_a_terminal {
    () => {
        if terminal::is_missing() {
            return;
        }
    };
}

/// Returns a namespace with a queue of each kind. The ring is this process's.
fn with_all_kinds() -> (Site, ring::Ring) {
    let site = Site::new();
    site.umsg(&["create", "/orders", "--max-messages", "4"])
        .text();
    site.umsg(&["create", "key:0x12"]).text();
    for (message, rank) in [("first", "3"), ("second", "5"), ("third", "5")] {
        let of = |option| ["send", "/orders", message, option, rank];
        site.umsg(&of("--priority")).text();
        let mut of = of("--type");
        of[1] = "key:0x12";
        site.umsg(&of).text();
    }
    let namespace = Namespace::existing(site.path()).unwrap();
    let options = ring::Options::new().entries(8).overflow(8).to_owned();
    let ring = options.create_in(&namespace, "/jobs").unwrap();
    ring.sender().send(&Post::new(1)).unwrap();
    ring.sender().send(&Post::new(2)).unwrap();
    (site, ring)
}

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

/// Returns the cells of the line of a queue, without its name and without pictures.
fn cells<'s>(screen: &'s str, name: &str) -> Option<Vec<&'s str>> {
    let mut lines = screen.lines().map(str::split_whitespace);
    let line = lines.find(|words| words.clone().next() == Some(name))?;
    let is_picture = |word: &&str| word.starts_with(|c: char| ('▁'..='▏').contains(&c));
    Some(line.skip(1).filter(|word| !is_picture(word)).collect())
}

#[track_caller]
fn cells_of<'s>(screen: &'s str, name: &str) -> Vec<&'s str> {
    cells(screen, name).unwrap_or_else(|| panic!("{name} is not in {screen}"))
}

/// Returns the place of a text on the screen, as column and row.
#[track_caller]
fn place(screen: &str, text: &str) -> (u16, u16) {
    let mut lines = screen.lines().zip(0..);
    let found = lines.find_map(|(line, row)| Some((line.find(text)?, line, row)));
    let (at, line, row) = found.unwrap_or_else(|| panic!("{text} is not in {screen}"));
    (line[..at].chars().count() as u16, row)
}

#[test]
fn without_a_terminal_the_error_names_the_other_ways() {
    let (site, _ring) = with_all_kinds();
    site.umsg(&["top"])
        .fails(1, &["not a terminal", "--json", "--batch"]);
    for (arguments, code) in [
        (&["top", "--json", "--batch"][..], 2),
        (&["top", "--sort", "nothing"], 2),
        (&["top", "--tree", "--json"], 2),
        (&["top", "--batch", "--dir", "/nowhere"], 1),
    ] {
        assert_eq!(site.umsg(arguments).code, Some(code), "{arguments:?}");
    }
}

#[test]
fn the_printed_figures_are_those_of_the_library() {
    let (site, ring) = with_all_kinds();
    let outcome = site.umsg(&["top", "--json", "-n", "1"]);
    let refresh = outcome.json();
    let by_name: HashMap<&str, &Value> = refresh["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| (queue["queue"].as_str().unwrap(), queue))
        .collect();
    let namespace = Namespace::existing(site.path()).unwrap();
    let mut options = OpenOptions::new();
    let queue = options
        .read(true)
        .namespace(&namespace)
        .open("/orders")
        .unwrap();
    let (seen, shown) = (queue.glance(), by_name["/orders"]);
    for (field, number) in [
        ("messages", seen.attributes.messages as u64),
        ("capacity", seen.attributes.max_messages as u64),
        ("bytes", seen.attributes.bytes),
        ("sent", seen.sent),
        ("removed", seen.removed),
        ("memory", seen.memory),
        ("uid", seen.uid.into()),
        ("blocked_senders", seen.blocked_senders as u64),
    ] {
        assert_eq!(shown[field], number, "{field}");
    }
    assert_eq!(shown["fill"], 0.75);
    assert_eq!(by_name["key:0x00000012"]["messages"], 3);
    assert_eq!(by_name["key:0x00000012"]["bytes"], 16);
    assert_eq!(by_name["ring:/jobs"]["messages"], ring.status().messages);
    assert_eq!(by_name["ring:/jobs"]["receiver_alive"], true);
    assert!(shown["sent_per_second"].is_null(), "no refresh before");

    let table = site.umsg(&[
        "top", "--batch", "-n", "2", "--every", "50ms", "--sort", "messages",
    ]);
    let text = table.text();
    assert_eq!(text.matches("umsg top  ").count(), 2, "{text}");
    assert_eq!(cells_of(text, "/orders")[..3], ["3", "4", "75%"], "{text}");
    let mut last = text.lines().filter(|line| line.starts_with("ring:/jobs"));
    assert_eq!(
        cells_of(last.next_back().unwrap(), "ring:/jobs")[3..5],
        ["0", "0"]
    );
    let place = |name| text.find(name).unwrap();
    assert!(
        place("/orders ") < place("ring:/jobs "),
        "3 messages, and 2"
    );
}

#[test]
fn a_refresh_a_line_shows_rates_and_goes_on_until_the_reader_ends() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let mut child = start(&mut site.command(&["top", "--json", "--every", "50ms"]));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert!(next()["interval_seconds"].is_null());
    site.umsg(&["send", "/q", "four"]).text();
    let refresh = loop {
        let refresh = next();
        if refresh["queues"][0]["sent"] == 1 {
            break refresh;
        }
    };
    let (queue, seconds) = (&refresh["queues"][0], &refresh["interval_seconds"]);
    let per_second = |field: &str| queue[field].as_f64().unwrap() * seconds.as_f64().unwrap();
    assert!((per_second("sent_per_second") - 1.0).abs() < 1e-6);
    assert!((per_second("sent_bytes_per_second") - 4.0).abs() < 1e-6);
    assert_eq!(per_second("removed_per_second"), 0.0);
    drop(output);
    assert_eq!(end(child).code, Some(0));
}

#[test]
fn the_screen_shows_what_the_library_says_in_any_size() {
    needs_a_terminal!();
    let (site, _ring) = with_all_kinds();
    let terminal = Terminal::start(&site, SMALL, &["--every", "100ms"]);
    let rates = |screen: &str| cells(screen, "ring:/jobs").is_some_and(|cells| cells[3] != "-");
    let screen = terminal.until("rates", rates);
    assert!(screen.contains("2 queues, 1 ring"), "{screen}");
    // Messages, capacity, fill, rates; then senders and receivers.
    let orders = cells_of(&screen, "/orders");
    assert_eq!(orders[..5], ["3", "4", "75%", "0", "0"], "{screen}");
    assert_eq!(orders[6..], ["0", "0"], "{screen}");
    assert_eq!(
        cells_of(&screen, "key:0x00000012")[..3],
        ["3", "16.0K", "0%"]
    );
    assert_eq!(cells_of(&screen, "ring:/jobs")[..3], ["2", "16", "12%"]);
    site.umsg(&["recv", "/orders"]).text();
    terminal.until("two messages", |screen| {
        cells(screen, "/orders").is_some_and(|cells| cells[..2] == ["2", "4"])
    });

    // A blocked receiver.
    site.umsg(&["create", "/empty"]).text();
    let _receiver = Killed(start(&mut site.command(&["recv", "/empty"])));
    terminal.until("a receiver waits", |screen| {
        cells(screen, "/empty").is_some_and(|cells| cells.last() == Some(&"1"))
    });

    terminal.resize(LARGE.0, LARGE.1);
    let screen = terminal.shows(&["OWNER", "MEMORY", "STATE", "B OUT/s"]);
    let owner = fs::metadata(site.path()).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), rustix_uid());
    assert!(screen.lines().next().unwrap().contains("every 100ms"));
    for (width, height) in [(40, 10), (12, 4), (2, 2), (300, 100), (40, 3), SMALL] {
        terminal.resize(width, height);
        let width = usize::from(width);
        terminal.until("another size", |screen| {
            let first = screen.lines().next().unwrap_or_default();
            first.starts_with(&"umsg top"[..width.min(8)]) && first.chars().count() <= width
        });
    }
    terminal.resize(1, 1);
    terminal.until("one character", |screen| screen.trim() == "?");
    terminal.resize(SMALL.0, SMALL.1);
    // The other columns are behind the arrow keys.
    terminal.until("small again", |screen| {
        screen.contains("RCV") && !screen.contains("STATE")
    });
    terminal.press(&["-N", "30", "Right"]);
    let screen = terminal.shows(&["STATE", "OWNER", "NAME"]);
    assert!(!screen.contains("MSGS"), "{screen}");
    terminal.press(&["-N", "30", "Left"]);
    terminal.shows(&["MSGS"]);
    terminal.press(&["q"]);
    assert_eq!(terminal.ends(), 0);
    assert_eq!(
        terminal.value("alternate_on"),
        "0",
        "the screen is given back"
    );
}

fn rustix_uid() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn keys_and_mouse_sort_filter_and_fold() {
    needs_a_terminal!();
    let site = Site::new();
    for (name, count) in [("/jobs.mail", 1), ("/jobs.print", 3), ("/log", 2)] {
        site.umsg(&["create", name]).text();
        for _ in 0..count {
            site.umsg(&["send", name, "x"]).text();
        }
    }
    let names = |screen: &str| -> Vec<String> {
        let lines = screen.lines().skip(3).take(20);
        let words =
            lines.filter_map(|line| line.split_whitespace().find(|word| word.contains('/')));
        words.map(str::to_owned).collect()
    };
    let terminal = Terminal::start(&site, SMALL, &["--every", "1h"]);
    let lists =
        |wanted: &[&str]| terminal.until(&format!("{wanted:?}"), |screen| names(screen) == wanted);
    lists(&["/jobs.mail", "/jobs.print", "/log"]);
    terminal.press(&[">"]);
    let screen = lists(&["/jobs.print", "/log", "/jobs.mail"]);
    assert!(screen.contains("MSGS▾"), "{screen}");
    terminal.press(&["r"]);
    lists(&["/jobs.mail", "/log", "/jobs.print"]);
    let (column, row) = place(&screen, "NAME");
    terminal.click(column, row);
    lists(&["/jobs.mail", "/jobs.print", "/log"]);
    terminal.click(column, row);
    lists(&["/log", "/jobs.print", "/jobs.mail"]);
    terminal.click(column, row);
    lists(&["/jobs.mail", "/jobs.print", "/log"]);

    terminal.press(&["/"]);
    terminal.shows(&["Names with:"]);
    terminal.send("JOBS");
    lists(&["/jobs.mail", "/jobs.print"]);
    terminal.press(&["Enter"]);
    terminal.shows(&["[names with \"JOBS\"]"]);
    terminal.press(&["/"]);
    terminal.shows(&["Names with: JOBS"]);
    terminal.press(&["Escape"]);
    lists(&["/jobs.mail", "/jobs.print", "/log"]);

    terminal.press(&["t"]);
    let screen = lists(&["/jobs.*", "/jobs.mail", "/jobs.print", "/log"]);
    let group = screen
        .lines()
        .find(|line| line.contains("/jobs.*"))
        .unwrap();
    assert_eq!(group.split_whitespace().nth(2), Some("4"), "{screen}");
    terminal.press(&["Home", "Space"]);
    lists(&["/jobs.*", "/log"]);
    terminal.press(&["Space", "t"]);
    let screen = lists(&["/jobs.mail", "/jobs.print", "/log"]);

    terminal.press(&["?"]);
    terminal.shows(&["Keys", "dead letters", "quit"]);
    terminal.press(&["?"]);
    terminal.hides(&["dead letters"]);
    // A click selects, and one at the selection shows more.
    let (column, row) = place(&screen, "/log");
    terminal.click(column, row);
    terminal.click(column, row);
    terminal.shows(&["/log  POSIX queue", "messages    2 of "]);
    terminal.press(&["q", "q"]);
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn details_show_waits_holds_and_priorities_and_messages_can_be_searched() {
    needs_a_terminal!();
    let (site, _ring) = with_all_kinds();
    let namespace = Namespace::existing(site.path()).unwrap();
    let mut options = OpenOptions::new();
    let queue = options
        .read(true)
        .namespace(&namespace)
        .open("/orders")
        .unwrap();
    let lease = queue.receive_lease().unwrap();
    let terminal = Terminal::start(&site, LARGE, &["--every", "100ms"]);
    terminal.shows(&["/orders"]);
    terminal.press(&["Enter"]);
    let me = std::process::id().to_string();
    terminal.shows(&[
        "messages    2 of 4",
        "1 leased",
        "Messages by priority",
        "Held messages",
        &me,
    ]);
    drop(lease);
    terminal.shows(&["messages    3 of 4", "0 leased"]);
    terminal.hides(&["Held messages"]);
    site.umsg(&["send", "/orders", "fourth"]).text();
    let sender = Killed(start(&mut site.command(&["send", "/orders", "fifth"])));
    let pid = sender.0.id().to_string();
    terminal.shows(&["full", "Waiting", "to send", &pid]);
    let ranks = |screen: &str, rank: &str| {
        let mut lines = screen.lines().map(|line| line.split_whitespace());
        let line = lines.find(|words| words.clone().next() == Some(rank));
        line.and_then(|mut words| words.nth(2)?.parse::<u32>().ok())
    };
    terminal.until("priorities", |screen| {
        [("5", 2), ("3", 1), ("0", 1)]
            .iter()
            .all(|(rank, count)| ranks(screen, rank) == Some(*count))
    });

    terminal.press(&["m"]);
    let screen = terminal.shows(&["4 messages", "first", "second", "third", "fourth"]);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(
        lines[3].contains("second") && lines[6].contains("fourth"),
        "{screen}"
    );
    terminal.press(&["/"]);
    terminal.shows(&["Messages with:"]);
    terminal.send("IR");
    let screen = terminal.shows(&["2 of 4 with"]);
    assert!(
        screen.contains("third") && !screen.contains("second"),
        "{screen}"
    );
    terminal.press(&["Enter", "Down", "Enter"]);
    terminal.shows(&["5 bytes, priority or type 3", "first"]);
    terminal.press(&["q", "q"]);
    terminal.shows(&["POSIX queue", "to send"]);
    // The pages of the other kinds of queues.
    terminal.press(&["q", "Down", "Enter"]);
    terminal.shows(&["key:0x00000012  System V queue", "Messages by type"]);
    terminal.press(&["m"]);
    terminal.shows(&["3 messages", "first"]);
    terminal.press(&["q", "q", "End", "Enter"]);
    terminal.shows(&["ring:/jobs  ring", "Receiver", &me]);
    terminal.press(&["m"]);
    terminal.shows(&["the messages of a ring can't be read"]);
    terminal.press(&["C-c"]);
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn a_queue_is_changed_only_after_a_confirmation() {
    needs_a_terminal!();
    let site = Site::new();
    site.umsg(&[
        "create",
        "/jobs",
        "--max-deliveries",
        "1",
        "--dead-letter",
        "/jobs.dead",
    ])
    .text();
    for message in ["bad", "worse"] {
        site.umsg(&["send", "/jobs", message]).text();
    }
    let fail = ["recv", "/jobs", "--all", "--exec", "false"];
    site.umsg(&fail);
    site.umsg(&["send", "/jobs", "good"]).text();
    site.umsg(&["create", "key:7"]).text();
    site.umsg(&["send", "key:7", "x"]).text();
    let messages = |name: &str| site.umsg(&["stat", name, "--json"]).json()["messages"].clone();
    assert_eq!(messages("/jobs.dead"), 2);

    let careful = Terminal::start(&site, SMALL, &["--read-only"]);
    careful.shows(&["/jobs.dead"]);
    for key in ["P", "X", "R"] {
        careful.press(&["?"]);
        careful.shows(&["Keys"]);
        careful.press(&["?"]);
        careful.hides(&["--read-only", "Keys"]);
        careful.press(&[key]);
        careful.shows(&["--read-only: no queue is changed"]);
    }
    drop(careful);

    let terminal = Terminal::start(&site, SMALL, &["--every", "100ms"]);
    terminal.shows(&["/jobs.dead"]);
    terminal.press(&["P"]);
    terminal.shows(&["Receive and drop 1 message of /jobs?", "any other key"]);
    terminal.press(&["n"]);
    terminal.shows(&["nothing was changed"]);
    assert_eq!(messages("/jobs"), 1);
    terminal.press(&["P"]);
    terminal.shows(&["Receive and drop"]);
    terminal.press(&["y"]);
    terminal.shows(&["/jobs: 1 message purged"]);
    assert_eq!(messages("/jobs"), 0);

    // One dead letter from the list of messages, and then all.
    terminal.press(&["Down", "m"]);
    terminal.shows(&["2 messages", "/jobs (undelivered)", "bad"]);
    terminal.press(&["Down", "R"]);
    terminal.shows(&["Send dead letter ", "back to its queue?"]);
    terminal.press(&["y"]);
    terminal.shows(&["/jobs.dead: 1 dead letter sent back", "1 message, copied"]);
    assert_eq!(
        (messages("/jobs"), messages("/jobs.dead")),
        (1.into(), 1.into())
    );
    terminal.press(&["q", "R"]);
    terminal.shows(&["Send all dead letters of /jobs.dead back"]);
    terminal.press(&["y"]);
    // The screen may still have the same words about the first one.
    site.wait_for("/jobs.dead", "messages", 0);
    terminal.shows(&["1 dead letter sent back"]);
    assert_eq!(messages("/jobs"), 2);

    terminal.press(&["X"]);
    terminal.shows(&["Remove /jobs.dead with its messages?"]);
    terminal.press(&["y"]);
    terminal.shows(&["/jobs.dead: removed"]);
    terminal.press(&["End", "P"]);
    terminal.shows(&["1 message of key:0x00000007?"]);
    terminal.press(&["y"]);
    terminal.shows(&["1 message purged"]);
    terminal.press(&["X"]);
    terminal.shows(&["Remove key:0x00000007"]);
    terminal.press(&["y"]);
    terminal.shows(&["id:0: removed", "1 queue, 0 rings"]);
    let left = site.umsg(&["ls", "--json"]).json();
    assert_eq!(left["queues"].as_array().unwrap().len(), 1);
}

#[test]
fn colours_are_those_of_the_background_or_none() {
    needs_a_terminal!();
    let (site, _ring) = with_all_kinds();
    let painted = |arguments: &[&str], variables: &[(&str, &str)]| {
        let terminal = Terminal::start_with(&site, SMALL, arguments, variables);
        terminal.shows(&["ring:/jobs"]);
        terminal.painted()
    };
    let has_colour = |screen: &str, colour: u8| {
        let parts = screen.split("\x1b[").skip(1);
        let mut sequences = parts.filter_map(|part| part.split_once('m'));
        sequences.any(|(codes, _)| codes == format!("38;5;{colour}"))
    };
    let dark = painted(&[], &[]);
    assert!(has_colour(&dark, 6) && has_colour(&dark, 3), "{dark:?}");
    for (arguments, variables) in [
        (&[][..], &[("COLORFGBG", "0;15")][..]),
        (&["--colors", "light"], &[("NO_COLOR", "1")]),
    ] {
        let light = painted(arguments, variables);
        assert!(has_colour(&light, 4) && !has_colour(&light, 3), "{light:?}");
    }
    let none = painted(&[], &[("NO_COLOR", "1")]);
    for colour in 0..16 {
        assert!(!has_colour(&none, colour), "{colour}: {none:?}");
    }
    let ascii = painted(&[], &[("LANG", "C")]);
    assert!(ascii.is_ascii(), "{ascii}");
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
    // The diagnosis reads a copy.
    terminal.shows(&["messages    3 of 4", "Messages by priority", "is stopped"]);
    terminal.press(&["q", "Down", "Enter"]);
    terminal.shows(&["System V queue", "Messages by type", "is stopped"]);
    let after = files.each_ref().map(|file| data_of(file));
    assert!(before == after, "the screen has changed a queue");
    // Reading the messages is refused, and the screen goes on.
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
    // Removed while its details are shown, and created again.
    terminal.press(&["/"]);
    terminal.send("orders");
    terminal.press(&["Enter", "Home", "Enter"]);
    terminal.shows(&["/orders  POSIX queue", "messages    3 of 4"]);
    site.umsg(&["rm", "/orders"]).text();
    terminal.shows(&["gone", "The queue was removed."]);
    site.umsg(&["create", "/orders", "--max-messages", "9"])
        .text();
    terminal.shows(&["messages    0 of 9"]);
    // Scribbled over, and cut short, while it is mapped. The header stays, so that there is a diagnosis.
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
    // The whole namespace is removed, and made again.
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
fn queues_of_other_users_are_shown_as_denied() {
    umsg_testkit::needs_root!();
    let (site, _ring) = with_all_kinds();
    site.umsg(&["create", "/mine", "--mode", "666"]).text();
    set_mode(site.path(), 0o1777);
    give_to(&site.path().join("mq/mine"), NOBODY);
    let outcome = site.umsg_as_nobody(&["top", "--json", "-n", "1"]).unwrap();
    let refresh = outcome.json();
    assert_eq!(refresh["queues"][0]["queue"], "/mine");
    let denied: Vec<&Value> = refresh["left_out"].as_array().unwrap().iter().collect();
    assert_eq!(denied.len(), 3, "{refresh}");
    assert!(
        denied.iter().all(|queue| queue["why"] == "permission"),
        "{refresh}"
    );
    let outcome = site.umsg_as_nobody(&["top", "--batch", "-n", "1"]).unwrap();
    assert!(outcome.text().contains("/orders: denied"), "{outcome:?}");
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
        let mut receiver = Killed(start(&mut site.command(&["recv", "/q", "--follow"])));
        let mut sender = Killed(start(&mut site.command(&["send", "/q", "--lines"])));
        let mut input = sender.0.stdin.take().unwrap();
        let lines = "line\n".repeat(100_000);
        // The sender blocks as soon as the receiver is dead.
        std::thread::scope(|scope| {
            scope.spawn(move || drop(input.write_all(lines.as_bytes())));
            let rates = |screen: &str| {
                let line = screen.lines().find(|line| line.starts_with("rates"));
                line.is_some_and(|line| !line.contains("in 0/s") && !line.contains("in -/s"))
            };
            let output = BufReader::new(receiver.0.stdout.take().unwrap());
            scope.spawn(move || output.lines().count());
            terminal.until("rates", rates);
            receiver.0.kill().unwrap();
            terminal.shows(&["messages    8 of 8", "full"]);
            sender.0.kill().unwrap();
        });
        site.umsg(&["rm", &name]).text();
    }
    terminal.press(&["q"]);
    // This call returns the messages that the killed processes held.
    site.umsg(&["stat", "/q"]).text();
    let namespace = Namespace::existing(site.path()).unwrap();
    let mut options = OpenOptions::new();
    let queue: posix::Queue = options.read(true).namespace(&namespace).open("/q").unwrap();
    let messages = queue.glance().attributes.messages.to_string();
    terminal.until("the library's figures", |screen| {
        cells(screen, "/q").is_some_and(|cells| cells[..2] == [&*messages, "8"])
            && !screen.contains("/round")
    });
    // A signal ends the command gracefully.
    let pid = terminal.process();
    umsg_testkit::run::succeed(std::process::Command::new("kill").arg(&pid));
    assert_eq!(terminal.ends(), 0);
    assert_eq!(
        terminal.value("alternate_on"),
        "0",
        "the screen is given back"
    );
}
