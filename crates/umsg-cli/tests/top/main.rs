//! Tests `umsg top` in a real terminal, and its printed output.

#[path = "../support/mod.rs"]
mod support;
mod terminal;

use support::Site;
use umsg::Namespace;
use umsg::posix;
use umsg::ring::{self, Post};

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 50);

/// Returns from the test if it has no terminal.
macro_rules! needs_a_terminal {
    () => {
        if crate::terminal::is_missing() {
            return;
        }
    };
}

mod keys;
mod printed;
mod robustness;
mod screen;

/// Returns a namespace with a queue of each kind. This process owns the ring.
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

/// Opens the POSIX queue of [`with_all_kinds`] for receiving.
fn open_orders(site: &Site) -> posix::Queue {
    let namespace = Namespace::existing(site.path()).unwrap();
    let mut options = posix::OpenOptions::new();
    let options = options.read(true).namespace(&namespace);
    options.open("/orders").unwrap()
}

/// Returns the cells in the line of a queue, without the queue's name and without bar graphics. Returns None if no line begins with that name.
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
