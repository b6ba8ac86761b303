//! Tests the screen in several sizes, and its colors.

use std::fs;

use crate::support::patients::Killed;
use crate::support::start;
use crate::terminal::Terminal;
use crate::{LARGE, SMALL, cells, cells_of, with_all_kinds};

#[test]
fn the_screen_shows_what_the_library_says_in_any_size() {
    needs_a_terminal!();
    let (site, _ring) = with_all_kinds();
    let terminal = Terminal::start(&site, SMALL, &["--every", "100ms"]);
    let rates = |screen: &str| cells(screen, "ring:/jobs").is_some_and(|cells| cells[3] != "-");
    let screen = terminal.until("rates", rates);
    assert!(screen.contains("2 queues, 1 ring"), "{screen}");
    // The columns of the line are messages, capacity, fill level and two rates, and then senders and receivers.
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

    // The queue `/empty` gets a blocked receiver.
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
    // The test scrolls by the arrow keys to the columns that do not fit on the small screen.
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
    terminal.gives_the_screen_back();
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
