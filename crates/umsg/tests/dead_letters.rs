//! Only the owner of a queue's file decides where undeliverable messages go. Another process with write access to the file does not decide it.
//!
//! The tests run one after another, because a child that one test forks also has the queues of the other tests open.

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::users::{Everybodys, as_user};
use support::{turn, wait_until};
use umsg::posix::{self, OpenError, Queue, ReceiveError, Undelivered};

const STUCK: Duration = Duration::from_secs(20);
const VICTIM: u32 = 65534;
const STRANGER: u32 = 12345;

/// The offsets of the fields of `posix::Rules` in a segment: docs/format.md.
const TIME_TO_LIVE: u64 = 6536;
const LABEL: u64 = 6544;

/// The locks of a segment: docs/format.md.
const LOCKS: [u64; 2] = [512, 768];

fn poke(file: &Path, at: u64, value: u64) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&value.to_le_bytes(), at).unwrap();
}

fn peek(file: &Path, at: u64) -> u64 {
    let mut bytes = [0; 8];
    let file = File::open(file).unwrap();
    file.read_exact_at(&mut bytes, at).unwrap();
    u64::from_le_bytes(bytes)
}

/// Returns the labels in a namespace's directory.
fn labels(namespace: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(namespace).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_label = |path: &PathBuf| path.to_str().unwrap().contains("/.dead-");
    paths.filter(is_label).collect()
}

/// Returns the path that the label of a queue's file would have.
fn label_of(namespace: &Path, file: &Path, number: u64) -> PathBuf {
    let inode = file.metadata().unwrap().ino();
    namespace.join(format!(".dead-{inode:016x}-{number:016x}"))
}

/// Fails unless a receive finds no message.
fn receives_nothing(queue: &Queue) {
    std::thread::sleep(Duration::from_millis(20));
    let received = queue.receive_timeout(&mut [0; 64], Duration::from_millis(20));
    assert_eq!(received, Err(ReceiveError::TimedOut));
}

fn messages(place: &Everybodys, queue: &str) -> usize {
    place.open(queue).attributes().messages
}

#[test]
fn what_a_sender_writes_in_a_segment_moves_no_message_to_another_queue() {
    let _turn = turn();
    let Some(place) = Everybodys::new() else {
        return;
    };
    as_user(VICTIM, "the owner", || {
        place.options(0o600).open("/private").unwrap();
        place.options(0o666).open("/a").unwrap();
        // A queue of the same owner that has a label, which all processes can list.
        let mut labelled = place.options(0o600);
        labelled.dead_letter("/private").open("/other").unwrap();
    });
    let file = place.file("/a");
    let other = peek(&place.file("/other"), LABEL);
    let forged = label_of(place.path(), &file, 7);
    let strangers = label_of(place.path(), &place.file("/other"), 8);
    as_user(STRANGER, "the stranger", || {
        symlink("mq/private", &forged).unwrap();
        symlink("mq/private", &strangers).unwrap();
    });
    for number in [other, 7, 8, u64::MAX, u64::from_le_bytes(*b"/private")] {
        as_user(STRANGER, "the stranger", || {
            place.open("/a").send(b"rm -rf", 9).unwrap();
            poke(&file, TIME_TO_LIVE, 1);
            poke(&file, LABEL, number);
        });
        for user in [VICTIM, 0] {
            as_user(user, "the receiver", || receives_nothing(&place.open("/a")));
        }
        assert_eq!(messages(&place, "/private"), 0, "{number:#x}");
        let status = place.open("/a").status();
        assert_eq!(status.undelivered, Some(Undelivered::Unnamed));
        assert_eq!(status.dead_letter, None);
        let diagnosis = posix::diagnose(&place.namespace, "/a").unwrap();
        let problem = &diagnosis.problems[0];
        assert!(problem.what.contains("set aside"), "{problem:?}");
    }
}

#[test]
fn no_process_names_a_dead_letter_queue_of_another_user() {
    let _turn = turn();
    let Some(place) = Everybodys::new() else {
        return;
    };
    place.options(0o600).open("/rootonly").unwrap();
    place.options(0o666).open("/everybodys").unwrap();
    as_user(STRANGER, "the stranger", || {
        for dead_letter in ["/rootonly", "/everybodys"] {
            let mut options = place.options(0o666);
            let refused = options.dead_letter(dead_letter).open("/bait");
            assert!(
                matches!(refused, Err(OpenError::DeadLetterQueueOfAnother)),
                "{refused:?}"
            );
            assert_eq!(refused.unwrap_err().errno(), libc::EPERM);
        }
        // The refused calls have left no label.
        assert_eq!(labels(place.path()), [""; 0].map(PathBuf::from));
        // The library makes no label for this dead-letter queue. So the stranger makes the label, and writes the label's number into the file.
        place.options(0o666).open("/bait").unwrap();
        let file = place.file("/bait");
        symlink("mq/rootonly", label_of(place.path(), &file, 7)).unwrap();
        place.open("/bait").send(b"for root", 0).unwrap();
        poke(&file, TIME_TO_LIVE, 1);
        poke(&file, LABEL, 7);
    });
    let bait = place.open("/bait");
    receives_nothing(&bait);
    assert_eq!(messages(&place, "/rootonly"), 0);
    assert_eq!(bait.status().undelivered, Some(Undelivered::OtherOwner));
}

#[test]
fn a_name_that_another_user_has_taken_since_gets_no_messages() {
    let _turn = turn();
    let Some(place) = Everybodys::new() else {
        return;
    };
    let later = |place: &Everybodys| posix::unlink_in(&place.namespace, "/later").unwrap();
    // Root's dead-letter queue gets no messages of another user. Another user's dead-letter queue gets no messages of the owner.
    for (owner, next, receiver) in [(STRANGER, 0, 0), (VICTIM, STRANGER, VICTIM)] {
        as_user(owner, "the owner", || {
            let mut options = place.options(0o666);
            options.time_to_live(Duration::from_millis(1));
            let queue = options.dead_letter("/later").open("/q").unwrap();
            queue.send(b"mine", 0).unwrap();
            later(&place);
        });
        as_user(next, "the next", || {
            place.options(0o666).open("/later").unwrap();
        });
        as_user(receiver, "the receiver", || {
            let queue = place.open("/q");
            receives_nothing(&queue);
            assert_eq!(queue.status().undelivered, Some(Undelivered::OtherOwner));
        });
        assert_eq!(messages(&place, "/later"), 0);
        later(&place);
        // When the owner takes the name again, the messages go to the owner's queue.
        as_user(owner, "the owner", || {
            place.options(0o666).open("/later").unwrap();
        });
        as_user(receiver, "the receiver", || {
            receives_nothing(&place.open("/q"))
        });
        assert_eq!(messages(&place, "/later"), 1);
        later(&place);
        posix::unlink_in(&place.namespace, "/q").unwrap();
    }
}

/// The file claims to be made in another PID namespace: a process that used it would change the form of its locks.
#[test]
fn the_file_of_another_user_under_the_name_is_not_used() {
    const HOME: u64 = 64;
    let _turn = turn();
    let Some(place) = Everybodys::new() else {
        return;
    };
    as_user(VICTIM, "the owner", || {
        let mut options = place.options(0o666);
        options.time_to_live(Duration::from_millis(1));
        let queue = options.dead_letter("/later").open("/q").unwrap();
        queue.send(b"mine", 0).unwrap();
        posix::unlink_in(&place.namespace, "/later").unwrap();
    });
    as_user(STRANGER, "the stranger", || {
        place.options(0o666).open("/later").unwrap();
    });
    let planted = place.namespace.path().join("mq/later");
    poke(&planted, HOME, peek(&planted, HOME) ^ 1);
    as_user(VICTIM, "the receiver", || {
        let queue = place.open("/q");
        receives_nothing(&queue);
        assert_eq!(queue.status().undelivered, Some(Undelivered::OtherOwner));
    });
    assert_eq!(LOCKS.map(|lock| peek(&planted, lock)), [0, 0]);
}

#[test]
fn messages_stay_set_aside_until_queue_link_and_dead_letter_queue_have_one_owner() {
    let _turn = turn();
    let Some(place) = Everybodys::new() else {
        return;
    };
    let mut options = place.options(0o600);
    options.time_to_live(Duration::from_millis(1));
    let queue = options.dead_letter("/dead").open("/q").unwrap();
    queue.send(b"old", 0).unwrap();
    drop(queue);
    let give = |path: &Path| lchown(path, Some(VICTIM), None).unwrap();
    let dead = place.file("/dead");
    let [label] = &labels(place.path())[..] else {
        panic!("one label");
    };
    give(&place.file("/q"));
    for (next, why) in [
        (Some(&dead), Some(Undelivered::Unnamed)),
        (Some(label), Some(Undelivered::Unnamed)),
        (None, None),
    ] {
        as_user(VICTIM, "the new owner", || {
            let queue = place.open("/q");
            receives_nothing(&queue);
            assert_eq!(queue.status().undelivered, why);
        });
        if let Some(next) = next {
            give(next);
        }
    }
    assert_eq!(messages(&place, "/dead"), 1);
}

#[test]
fn a_repair_finds_the_link_of_a_corrupted_queue() {
    let place = Place::in_turn();
    let mut options = umsg::posix::OpenOptions::new();
    options.read(true).write(true).create(true);
    options.namespace(&place.namespace).dead_letter("/dead");
    options.time_to_live(Duration::from_millis(1));
    options.message_size(64).open("/q").unwrap();
    let file = place.path().join("mq/q");
    for scribbled in [0, 1, u64::MAX] {
        poke(&file, LABEL, scribbled);
        assert_eq!(place.open("/q").status().dead_letter, None);
        let repaired = posix::repair(&place.namespace, "/q").unwrap();
        assert_eq!(repaired.done.len(), 1);
        let again = posix::repair(&place.namespace, "/q").unwrap();
        assert_eq!(again.done, [""; 0]);
        let queue = place.open("/q");
        queue.send(b"old", 0).unwrap();
        receives_nothing(&queue);
    }
    assert_eq!(place.open("/dead").attributes().messages, 3);
}

#[test]
fn the_dead_letter_link_of_a_queue_goes_with_it() {
    let place = Place::in_turn();
    let make = |goes: bool| {
        let mut options = umsg::posix::OpenOptions::new();
        options.read(true).write(true).create(true);
        options.namespace(&place.namespace).dead_letter("/dead");
        options.remove_on_last_close(goes).open("/q").unwrap()
    };
    for _ in 0..3 {
        drop(make(false));
        assert_eq!(labels(place.path()).len(), 1);
        posix::unlink_in(&place.namespace, "/q").unwrap();
        assert_eq!(labels(place.path()).len(), 0);
        let queue = make(true);
        assert_eq!(labels(place.path()).len(), 1);
        drop(queue);
        assert_eq!(labels(place.path()).len(), 0);
        // A queue whose last user was killed.
        let mut victim = Child::run(|| {
            let _queue = make(true);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), "the last user");
        let _ = make(true);
    }
    assert_eq!(labels(place.path()).len(), 0);
}

#[cfg(feature = "crash-points")]
#[test]
fn a_killed_creator_leaves_a_link_that_is_swept_and_no_queue() {
    let place = Place::in_turn();
    place.create("/dead", 10, 8192);
    let make = || {
        let mut options = umsg::posix::OpenOptions::new();
        options.read(true).write(true).create(true);
        options.namespace(&place.namespace).dead_letter("/dead");
        options.open("/q").unwrap()
    };
    for (point, exists) in [
        ("CREATE_LABELLED", false),
        ("CREATE_UNNAMED", false),
        ("CREATE_NAMED", true),
    ] {
        let mut victim = Child::run(|| {
            umsg_shm::crash::arm(point, 1);
            make();
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), point);
        assert_eq!(place.path().join("mq/q").exists(), exists, "{point}");
        let [label] = &labels(place.path())[..] else {
            panic!("{point}: one label");
        };
        // A fresh label may belong to a queue that is still being created, so the sweep keeps it.
        assert_eq!(place.namespace.sweep().unwrap().incomplete, 0, "{point}");
        age(label);
        let left = usize::from(!exists);
        assert_eq!(place.namespace.stale_files().unwrap().incomplete, left);
        assert_eq!(place.namespace.sweep().unwrap().incomplete, left, "{point}");
        assert_eq!(labels(place.path()).len(), usize::from(exists), "{point}");
    }
    assert_eq!(make().status().dead_letter, Some("/dead".into()));
}

/// Sets the times of a link to an hour ago.
#[cfg(feature = "crash-points")]
fn age(link: &Path) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let then = Timespec {
        tv_sec: link.symlink_metadata().unwrap().mtime() - 3600,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: then,
        last_modification: then,
    };
    utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn a_message_that_expires_while_the_holds_of_the_dead_end_is_no_corruption() {
    for round in 0..5 {
        let place = Place::in_turn();
        let mut options = place.options(4, 8);
        let live = Duration::from_millis(20);
        options.time_to_live(live).dead_letter("/dead");
        let queue = options.open("/q").unwrap();
        let mut holder = Child::run(|| {
            let queue = place.open("/q");
            // The order matters: the message comes back first, and then there is room.
            let lease = || {
                queue.try_send(b"old", 0).unwrap();
                queue.try_receive_lease().ok()
            };
            let _lease = std::iter::repeat_with(lease).flatten().next();
            let _room = queue.try_reserve(8).unwrap();
            std::thread::sleep(STUCK);
            0
        });
        let is_held = || queue.status().attributes.reserved == 1;
        assert!(wait_until(STUCK, is_held), "round {round}");
        // This reservation comes after the leases in the queue's list of leases and reservations.
        let mine = queue.try_reserve(8).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.receive_vec_timeout(STUCK));
            let is_waiting = || queue.status().blocked_receivers == 1;
            assert!(wait_until(STUCK, is_waiting), "round {round}");
            std::thread::sleep(2 * live);
            holder.signal(libc::SIGKILL);
            holder.expect(Exit::Signal(libc::SIGKILL), "the holder");
            // When the message comes back, it is too old for the receiver that waits.
            std::thread::sleep(Duration::from_millis(20));
            let nothing = queue.try_receive_vec();
            drop(mine);
            queue.close_send().unwrap();
            let end = waiting.join().unwrap();
            assert_eq!(end, Err(ReceiveError::Closed), "round {round}");
            assert_eq!(nothing, Err(ReceiveError::Empty), "round {round}");
        });
        let now = queue.attributes();
        assert_eq!((now.messages, now.leased, now.reserved), (0, 0, 0));
        assert_eq!(place.open("/dead").try_receive_vec().unwrap().data, b"old");
    }
}
