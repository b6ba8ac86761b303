//! A queue is used under the name that its creator gave it: hard links give it no second name.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use support::place::Place;
use support::users::{Everybodys, as_user};
use umsg::posix::{self, OpenError, OpenOptions};
use umsg::ring;

const VICTIM: u32 = 65534;
const STRANGER: u32 = 12345;

fn names_of(file: &Path) -> u64 {
    file.metadata().unwrap().nlink()
}

fn is_refused(place: &Everybodys, name: &str) {
    for (read, write) in [(true, false), (false, true), (true, true)] {
        let mut options = OpenOptions::new();
        options.read(read).write(write);
        let opened = options.namespace(&place.namespace).open(name);
        let error = opened.expect_err(name);
        expect_error!(error, OpenError::SecondName, libc::EACCES, "{name}");
    }
    let diagnosed = posix::diagnose(&place.namespace, name);
    assert!(matches!(diagnosed, Err(OpenError::SecondName)), "{name}");
}

#[test]
fn no_process_talks_to_the_users_of_another_name_of_a_queues_file() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    as_user(VICTIM, "the owner", || {
        place.options(0o666).open("/pub").unwrap();
    });
    as_user(STRANGER, "the stranger", || {
        fs::hard_link(place.file("/pub"), place.file("/cmd")).unwrap();
    });
    for user in [VICTIM, 0] {
        as_user(user, "another user", || {
            for name in ["/cmd", "/pub"] {
                is_refused(&place, name);
            }
        });
    }
    for listed in posix::list(&place.namespace).unwrap() {
        let error = listed.queue.expect_err("no queue");
        assert!(matches!(error, OpenError::SecondName), "{error}");
    }
    // The file and all its names belong to the owner. Once the second name is removed, the queue works as before.
    as_user(VICTIM, "the owner", || {
        fs::remove_file(place.file("/cmd")).unwrap();
        place.open("/pub").send(b"", 0).unwrap();
    });
}

#[test]
fn a_queue_that_is_removed_lives_on_under_no_other_name() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    for goes in [false, true] {
        as_user(VICTIM, "the owner", || {
            let mut options = place.options(0o666);
            let queue = options.remove_on_last_close(goes).open("/pub").unwrap();
            let file = match goes {
                true => place.file("/pub").join("queue"),
                false => place.file("/pub"),
            };
            fs::hard_link(&file, place.file("/cmd")).unwrap();
            posix::unlink_in(&place.namespace, "/pub").unwrap();
            drop(queue);
        });
        assert_eq!(names_of(&place.file("/cmd")), 1);
        assert_eq!(place.file("/cmd").metadata().unwrap().mode() & 0o777, 0);
        as_user(STRANGER, "another user", || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).namespace(&place.namespace);
            let error = options.open("/cmd").unwrap_err();
            assert!(matches!(error, OpenError::PermissionDenied), "{error}");
        });
        fs::remove_file(place.file("/cmd")).unwrap();
    }
}

#[test]
fn a_ring_is_found_under_no_second_name() {
    let place = Place::new();
    let _ring = ring::Options::new()
        .create_in(&place.namespace, "/r")
        .unwrap();
    let at = |name: &str| place.path().join("ring").join(name);
    fs::hard_link(at("r"), at("s")).unwrap();
    for name in ["/r", "/s"] {
        let error = ring::diagnose(&place.namespace, name).unwrap_err();
        assert!(error.to_string().contains("second hard link"), "{error}");
    }
    fs::remove_file(at("s")).unwrap();
    ring::diagnose(&place.namespace, "/r").unwrap();
}

#[test]
fn a_queue_that_is_made_has_one_name_at_every_moment() {
    let place = Place::new();
    for goes in [false, true] {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options
            .remove_on_last_close(goes)
            .namespace(&place.namespace);
        let queue = options.open("/q").unwrap();
        let file = match goes {
            true => place.path().join("mq/q/queue"),
            false => place.path().join("mq/q"),
        };
        assert_eq!(names_of(&file), 1);
        drop(queue);
        let _ = posix::unlink_in(&place.namespace, "/q");
    }
}

#[test]
fn the_removal_of_a_name_changes_no_file_that_holds_no_queue() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    let other = place.path().join("other");
    fs::write(&other, b"of another program").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o666)).unwrap();
    fs::hard_link(&other, place.file("/job")).unwrap();
    posix::unlink_in(&place.namespace, "/job").unwrap();
    assert_eq!(names_of(&other), 1);
    assert_eq!(other.metadata().unwrap().mode() & 0o777, 0o666);
}
