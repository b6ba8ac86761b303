//! Queues that are removed when their last handle, thread or process ends in any way.
//! No process is ever left with a queue that others do not find under its name. The tests take turns, because a forked child
//! of one test has the queue of another test open.

#[path = "last_close/descriptors.rs"]
mod descriptors;
#[path = "last_close/races.rs"]
mod races;
mod support;

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::{entries, in_child, leave_descriptors};
use support::shared::{Shared, Zeroed};
use support::{turn, wait_until};
use umsg::posix::{self, Notify, OpenError, OpenOptions, Queue, RestoreError, Snapshot};
use umsg_shm::crash;

const PATIENCE: Duration = Duration::from_secs(10);

fn options(place: &Place) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(&place.namespace);
    options.max_messages(5).message_size(64);
    options
}

/// Opens the queue /q, or creates it. The queue is removed when its last user closes it.
fn create(place: &Place) -> Queue {
    let mut options = options(place);
    options.create(true).remove_on_last_close(true);
    options.open("/q").unwrap()
}

fn open(place: &Place) -> Result<Queue, OpenError> {
    options(place).open("/q")
}

/// Opens the queue for an inspection, which neither keeps nor removes the queue.
fn look(place: &Place) -> Result<Queue, OpenError> {
    options(place).counted(false).open("/q")
}

#[track_caller]
fn expect_gone(place: &Place) {
    // Neither the name nor the file is left.
    assert!(matches!(look(place), Err(OpenError::NotFound)));
    let left: Vec<_> = std::fs::read_dir(place.path().join("mq"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Fails unless the namespace has only its record and empty directories.
#[track_caller]
fn expect_nothing_else(place: &Place, when: &str) {
    let left = entries(place.path());
    assert_eq!(left, [".namespace"], "{when}");
}

/// Starts a child that has the queue open until it gets the order to end; then it closes the queue.
fn user(place: &Place, told: &Shared<Told>) -> Child {
    let has = told.opened.load(Ordering::SeqCst);
    let child = Child::run(|| {
        let queue = create(place);
        told.opened.fetch_add(1, Ordering::SeqCst);
        let _ = wait_until(PATIENCE, || told.end.load(Ordering::SeqCst) != 0);
        drop(queue);
        0
    });
    let opened = || told.opened.load(Ordering::SeqCst) > has;
    assert!(wait_until(PATIENCE, opened), "no child has it open");
    child
}

struct Told {
    opened: AtomicU32,
    end: AtomicU32,
}

// SAFETY: the type consists of numbers, for which zeroes are valid.
unsafe impl Zeroed for Told {}

#[test]
fn the_last_of_several_handles_removes_the_queue_and_no_other_does() {
    let place = Place::in_turn();
    let first = create(&place);
    assert!(first.status().remove_on_last_close);
    first.try_send(b"kept", 0).unwrap();
    let second = open(&place).unwrap();
    drop(first);
    let third = open(&place).unwrap();
    assert_eq!(third.attributes().messages, 1);
    drop(second);
    drop(look(&place).unwrap());
    assert_eq!(look(&place).unwrap().identity(), third.identity());
    drop(third);
    expect_gone(&place);
    let anew = create(&place);
    assert_eq!(anew.attributes().messages, 0);
    drop(anew);
    expect_gone(&place);
}

#[test]
fn the_last_of_several_processes_removes_the_queue() {
    let place = Place::in_turn();
    let told = Shared::<Told>::new();
    let mut users = [user(&place, &told), user(&place, &told)];
    users[0].kill();
    assert!(look(&place).is_ok());
    told.end.store(1, Ordering::SeqCst);
    users[1].expect(Exit::Code(0), "the last user");
    expect_gone(&place);
}

#[test]
fn a_forked_child_that_has_closed_a_queue_which_its_parent_polls_does_not_keep_it() {
    let place = Place::in_turn();
    let told = Shared::<Told>::new();
    let first = create(&place);
    // Other users may open the queue's file, so a thread of the library passes their sends and receives on to this process's pollers.
    let everybodys = Permissions::from_mode(0o666);
    std::fs::set_permissions(place.path().join("mq/q/queue"), everybodys).unwrap();
    let mut queue = Some(open(&place).unwrap());
    drop(first);
    queue.as_ref().unwrap().pollable().unwrap();
    let mut child = Child::run(|| {
        drop(queue.take());
        told.opened.fetch_add(1, Ordering::SeqCst);
        let is_over = || told.end.load(Ordering::SeqCst) != 0;
        i32::from(!wait_until(PATIENCE, is_over))
    });
    assert!(wait_until(PATIENCE, || told.opened.load(Ordering::SeqCst) == 1));
    drop(queue.take());
    expect_gone(&place);
    told.end.store(1, Ordering::SeqCst);
    child.expect(Exit::Code(0), "a child that has closed its queue");
}

#[test]
fn a_forked_child_has_the_queue_open_too() {
    let place = Place::in_turn();
    let told = Shared::<Told>::new();
    let queue = create(&place);
    let mut child = Child::run(|| {
        let is_told = || told.end.load(Ordering::SeqCst) != 0;
        let _ = wait_until(PATIENCE, is_told);
        queue.try_send(b"from the child", 0).unwrap();
        // The process ends without closing the queue.
        0
    });
    let identity = queue.identity();
    drop(queue);
    assert_eq!(look(&place).unwrap().identity(), identity);
    told.end.store(1, Ordering::SeqCst);
    child.expect(Exit::Code(0), "the child");
    expect_gone(&place);
}

#[test]
fn a_child_that_executes_another_program_has_it_no_more() {
    let place = Place::in_turn();
    let queue = create(&place);
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    drop(queue);
    expect_gone(&place);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_queue_whose_users_were_all_killed_is_removed_by_the_next_process() {
    let _turn = turn();
    type Come = (&'static str, fn(&Place));
    let comes: &[Come] = &[
        ("lists the namespace", |place| {
            assert!(posix::list(&place.namespace).unwrap().is_empty());
        }),
        ("sweeps it", |place| {
            // A process that only lists stale files does not remove them.
            for _ in 0..2 {
                assert_eq!(place.namespace.stale_files().unwrap().queues, ["/q"]);
                let listed = posix::list_untouched(&place.namespace).unwrap();
                assert_eq!(listed.len(), 1);
                assert_eq!(listed[0].queue.as_ref().unwrap().attributes().messages, 1);
            }
            assert_eq!(place.namespace.sweep().unwrap().queues, ["/q"]);
            assert!(place.namespace.stale_files().unwrap().is_empty());
            assert!(place.namespace.sweep().unwrap().is_empty());
        }),
        ("opens the queue", |place| {
            assert!(matches!(open(place), Err(OpenError::NotFound)));
        }),
        ("looks at the queue", |place| {
            assert!(matches!(look(place), Err(OpenError::NotFound)));
        }),
        ("creates it anew", |place| {
            let mut options = options(place);
            let queue = options.create(true).exclusive(true).open("/q").unwrap();
            assert_eq!(queue.attributes().messages, 0);
            assert!(!queue.status().remove_on_last_close);
            posix::unlink_in(&place.namespace, "/q").unwrap();
        }),
        ("creates another", |place| {
            let mut options = options(place);
            options.create(true).remove_on_last_close(true);
            drop(options.open("/other").unwrap());
        }),
        ("needs its room", |place| {
            let mut limits = place.namespace.limits().unwrap();
            limits.max_queues = 1;
            place.namespace.set_limits(&limits).unwrap();
            drop(options(place).create(true).open("/other").unwrap());
            posix::unlink_in(&place.namespace, "/other").unwrap();
        }),
    ];
    for (what, come) in comes {
        let place = Place::new();
        let told = Shared::<Told>::new();
        let mut users = [user(&place, &told), user(&place, &told)];
        users[0].kill();
        create(&place).try_send(b"left", 0).unwrap();
        assert!(look(&place).is_ok(), "one of them has it open");
        users[1].kill();
        assert!(place.path().join("mq/q/queue").exists(), "{what}");
        come(&place);
        expect_gone(&place);
    }
}

#[test]
fn a_queue_that_is_made_for_others_waits_for_the_first_of_them() {
    let place = Place::in_turn();
    let mut options = options(&place);
    options.create(true).counted(false);
    let queue = options.remove_on_last_close(true).open("/q").unwrap();
    queue.try_send(b"for the first", 0).unwrap();
    drop(queue);
    assert_eq!(posix::list(&place.namespace).unwrap().len(), 1);
    assert!(place.namespace.sweep().unwrap().is_empty());
    drop(options.open("/q").unwrap());
    let first = open(&place).unwrap();
    assert_eq!(first.attributes().messages, 1);
    drop(first);
    expect_gone(&place);
}

#[test]
fn a_handle_that_was_refused_leaves_nothing_behind() {
    let place = Place::in_turn();
    let mut none = options(&place);
    none.read(false).write(false);
    let queue = create(&place);
    assert!(matches!(none.open("/q"), Err(OpenError::NoAccessMode)));
    assert!(look(&place).is_ok());
    drop(queue);
    let mut options = options(&place);
    options.create(true).counted(false);
    drop(options.remove_on_last_close(true).open("/q").unwrap());
    assert!(matches!(none.open("/q"), Err(OpenError::NoAccessMode)));
    assert!(look(&place).is_ok(), "no process has opened it");
}

#[test]
fn a_queue_that_was_unlinked_meanwhile_takes_no_other_along() {
    let place = Place::in_turn();
    let old = create(&place);
    posix::unlink_in(&place.namespace, "/q").unwrap();
    let new = create(&place);
    assert_ne!(old.identity(), new.identity());
    drop(old);
    assert_eq!(look(&place).unwrap().identity(), new.identity());
    posix::unlink_in(&place.namespace, "/q").unwrap();
    let plain = options(&place).create(true).open("/q").unwrap();
    drop(new);
    assert_eq!(look(&place).unwrap().identity(), plain.identity());
    drop(plain);
    assert!(look(&place).is_ok(), "it stays until it is unlinked");
}

#[test]
fn a_registration_keeps_its_queue_until_it_ends() {
    let place = Place::in_turn();
    let queue = create(&place);
    // Registers as C programs do: the registration is not bound to the handle.
    let ticket = queue.register(Notify::call(|_| ())).unwrap();
    assert_ne!(ticket, 0);
    let identity = queue.identity();
    drop(queue);
    assert!(look(&place).is_ok(), "the process waits for a message");
    posix::withdraw_notification(identity);
    let is_gone = || matches!(look(&place), Err(OpenError::NotFound));
    assert!(wait_until(PATIENCE, is_gone));
    expect_gone(&place);
}

#[test]
fn a_stopped_remover_is_waited_for_a_second() {
    let place = Place::in_turn();
    let mut options = options(&place);
    options.create(true).counted(false);
    drop(options.remove_on_last_close(true).open("/q").unwrap());
    let file = File::open(place.path().join("mq/q/queue")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let begin = Instant::now();
    let refused = open(&place).unwrap_err();
    expect_error!(refused, OpenError::Leaving, libc::EAGAIN);
    assert!(begin.elapsed() >= Duration::from_millis(900));
    drop(file);
    drop(open(&place).unwrap());
    expect_gone(&place);
}

#[test]
fn a_snapshot_says_so_and_what_is_restored_of_it_goes_too() {
    let place = Place::in_turn();
    let queue = create(&place);
    queue.try_send(b"saved", 3).unwrap();
    let mut bytes = Vec::new();
    queue.snapshot(&mut bytes).unwrap();
    let snapshot = Snapshot::read(&mut &bytes[..]).unwrap();
    assert!(snapshot.info().remove_on_last_close);
    let taken = snapshot.restore("/q", &options(&place)).unwrap_err();
    assert!(matches!(
        taken,
        RestoreError::Open(OpenError::AlreadyExists)
    ));
    drop(queue);
    expect_gone(&place);
    let restored = snapshot.restore("/q", &options(&place)).unwrap();
    assert!(restored.status().remove_on_last_close);
    assert_eq!(look(&place).unwrap().attributes().messages, 1);
    drop(restored);
    expect_gone(&place);
}

#[test]
fn a_repaired_queue_still_goes_with_its_last_user() {
    let place = Place::in_turn();
    let queue = create(&place);
    queue.try_send(b"m", 0).unwrap();
    // The offset is that of the policy for a full queue; 7 is no valid policy.
    let file = File::options()
        .write(true)
        .open(place.path().join("mq/q/queue"));
    file.unwrap().write_all_at(&[7], 6528).unwrap();
    let repaired = posix::repair(&place.namespace, "/q").unwrap();
    assert!(!repaired.before.is_healthy() && repaired.after.is_healthy());
    assert!(look(&place).unwrap().status().remove_on_last_close);
    drop(queue);
    expect_gone(&place);
}
