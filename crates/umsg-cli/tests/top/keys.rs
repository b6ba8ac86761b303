//! Tests keys and the mouse: the list, the details, and changes of queues.

use crate::support::patients::Killed;
use crate::support::{Site, start};
use crate::terminal::Terminal;
use crate::{LARGE, SMALL, open_orders, with_all_kinds};

/// Returns the place of a text on the screen, as column and row.
#[track_caller]
fn place(screen: &str, text: &str) -> (u16, u16) {
    let mut lines = screen.lines().zip(0..);
    let found = lines.find_map(|(line, row)| Some((line.find(text)?, line, row)));
    let (at, line, row) = found.unwrap_or_else(|| panic!("{text} is not in {screen}"));
    (line[..at].chars().count() as u16, row)
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
    // A click on another line selects it. A click on the selected line shows the details.
    let (column, row) = place(&screen, "/log");
    terminal.click(column, row);
    terminal.click(column, row);
    terminal.shows(&["/log  POSIX queue", "messages    2 of "]);
    terminal.press(&["q", "q"]);
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn escape_goes_back_one_step_at_a_time() {
    needs_a_terminal!();
    let site = Site::new();
    for name in ["/jobs", "/log"] {
        site.umsg(&["create", name]).text();
        site.umsg(&["send", name, "first"]).text();
        site.umsg(&["send", name, "second"]).text();
    }
    let terminal = Terminal::start(&site, SMALL, &["--every", "1h"]);
    terminal.shows(&["/jobs", "/log"]);
    terminal.press(&["Enter"]);
    terminal.shows(&["/jobs  POSIX queue"]);
    terminal.press(&["Escape"]);
    terminal.shows(&["/jobs", "/log"]);
    // An Enter that is typed before the terminal is in raw mode arrives as a line feed.
    terminal.press(&["C-j"]);
    terminal.shows(&["/jobs  POSIX queue"]);
    terminal.press(&["Escape"]);
    terminal.shows(&["/jobs", "/log"]);

    // With a filter, the first Escape shows all queues again.
    terminal.press(&["/"]);
    terminal.shows(&["Names with:"]);
    terminal.send("log");
    terminal.press(&["Enter"]);
    terminal.shows(&["[names with \"log\"]"]);
    terminal.hides(&["/jobs"]);
    terminal.press(&["Enter"]);
    terminal.shows(&["/log  POSIX queue"]);
    terminal.press(&["Escape"]);
    terminal.shows(&["[names with \"log\"]"]);
    terminal.press(&["Escape"]);
    terminal.shows(&["/jobs", "/log"]);

    // The same with a search in the messages.
    terminal.press(&["m"]);
    terminal.shows(&["first", "second"]);
    terminal.press(&["/"]);
    terminal.shows(&["Messages with:"]);
    terminal.send("sec");
    terminal.press(&["Enter"]);
    terminal.shows(&["1 of 2 with"]);
    terminal.press(&["Escape"]);
    terminal.shows(&["2 messages", "first", "second"]);
    terminal.press(&["Escape"]);
    terminal.shows(&["/jobs", "/log"]);
    terminal.press(&["Escape"]);
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn details_show_waits_holds_and_priorities_and_messages_can_be_searched() {
    needs_a_terminal!();
    let (site, _ring) = with_all_kinds();
    let queue = open_orders(&site);
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
    // The test opens the pages of the other kinds of queues.
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

    // The test sends back one dead letter from the list of messages, and then all dead letters of the queue.
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
    // The screen may still show this text for the first dead letter, so the test waits for the queue.
    site.wait_for("/jobs.dead", "messages", 0);
    terminal.shows(&["1 dead letter sent back"]);
    assert_eq!(messages("/jobs"), 2);

    // The answer to a question about a queue does not remove another queue of the same name.
    terminal.press(&["X"]);
    terminal.shows(&["Remove /jobs.dead with its messages?"]);
    site.umsg(&["rm", "/jobs.dead"]).text();
    site.umsg(&["create", "/jobs.dead", "--max-messages", "77"])
        .text();
    terminal.press(&["y"]);
    terminal.shows(&["/jobs.dead: another queue has the name now", " 77 "]);
    // If a refresh found no queue of this name, the next line is selected.
    terminal.press(&["Home", "Down", "X"]);
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
