//! A name that leads to another file at each access: an open of the name fails with EAGAIN after some tries.

use super::trace::watch_child;
use crate::support::place::Place;
use std::fs;
use std::path::Path;
use umsg::Namespace;
use umsg::posix::{OpenError, OpenOptions};

/// Puts another file with the same content in the place of a file.
fn replace(file: &Path) {
    let new = file.with_extension("new");
    fs::copy(file, &new).unwrap();
    fs::rename(&new, file).unwrap();
}

fn options(place: &Path) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).max_messages(1);
    options
        .message_size(8)
        .namespace(&Namespace::at(place).unwrap());
    options
}

#[track_caller]
fn expect_again<T>(opened: Result<T, OpenError>) {
    assert_eq!(opened.err().map(|error| error.errno()), Some(libc::EAGAIN));
}

#[test]
fn a_queue_that_is_missing_for_open_and_there_for_create_is_given_up() {
    let place = Place::new();
    let file = place.path().join("mq/q");
    let mut options = options(place.path());
    let work = || expect_again(options.create(true).open("/q"));
    watch_child("open", work, &mut |call| match call {
        // linkat is the call that gives a new queue its name.
        libc::SYS_linkat => drop(fs::File::create(&file)),
        libc::SYS_openat => drop(fs::remove_file(&file)),
        _ => {}
    });
}

#[test]
fn a_queue_that_is_replaced_at_each_look_gets_no_descriptor() {
    let place = Place::new();
    drop(options(place.path()).create(true).open("/q").unwrap());
    let file = place.path().join("mq/q");
    let work = || expect_again(options(place.path()).open_with_descriptor("/q", false));
    watch_child("open", work, &mut |call| {
        if call == libc::SYS_openat {
            replace(&file);
        }
    });
}

#[test]
fn a_queue_of_the_last_user_that_is_replaced_at_each_look_is_given_up() {
    let place = Place::new();
    let mut options = options(place.path());
    options.remove_on_last_close(true).counted(false);
    drop(options.create(true).open("/q").unwrap());
    let file = place.path().join("mq/q/queue");
    let work = || expect_again(self::options(place.path()).remove_unused(false).open("/q"));
    watch_child("open", work, &mut |call| {
        if call == libc::SYS_flock {
            replace(&file);
        }
    });
}
