//! Files and directories whose lock in the kernel another process holds without limit. Needs root, to act as several users.
//!
//! A write(2) from a page that is never served holds the lock of a file's inode, or of a FIFO; a getdents64(2) into such a page holds the lock of a
//! directory. A system call that takes the same lock waits without end, and can't be killed.

mod support;

use rustix::event::PollFlags;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::child::{Child, Exit};
use support::events::poll_for;
use support::fault;
use support::shared::Shared;
use support::users::{Everybodys, become_user, start_as};
use support::wait_until;
use umsg::posix;
use umsg::ring::{Options, Post, Ring, Sender};
use umsg::sysv::{self, Want};

const OWNER: u32 = 4242;
const USER: u32 = 4243;
const STRANGER: u32 = 4244;
const LONG: Duration = Duration::from_secs(60);
const KEY: i32 = 7;

/// The offsets of words of a POSIX queue's segment, such as `attention`: docs/format.md, section 2.
const ATTENTION: u64 = 128;
const WATCHED: u64 = 884;
const NUMBER: u64 = 1000;

fn as_user(user: u32, work: impl FnOnce()) -> Child {
    start_as(user, || {
        work();
        0
    })
}

/// Starts a process of a user that holds locks until it is killed.
fn holder(user: u32, hold: impl FnOnce()) -> Child {
    let holds = Shared::<AtomicU64>::new();
    let child = Child::run(|| {
        fault::prepare();
        become_user(user);
        rustix::process::umask(Mode::empty());
        hold();
        holds.store(1, Ordering::SeqCst);
        std::thread::sleep(10 * LONG);
        0
    });
    let is_held = wait_until(LONG, || holds.load(Ordering::SeqCst) == 1);
    assert!(is_held, "{}", child.portrait());
    child
}

/// Waits for processes that must not wait for the locks of `holder`. `holder` is killed before a failure is reported, because a process that
/// waits for its locks can't be killed.
fn expect_to_go_on(mut holder: Child, users: Vec<(u32, Child)>) {
    let mut stuck = String::new();
    for (user, mut child) in users {
        let exit = child.wait(LONG);
        if exit != Some(Exit::Code(0)) {
            stuck = format!("user {user}: {exit:?}{}", child.portrait());
            holder.kill();
            break;
        }
    }
    assert_eq!(stuck, "");
    holder.kill();
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    options.custom_flags(flags).open(path).unwrap()
}

fn sysv_queue(place: &Everybodys) -> sysv::Queue {
    let mut options = sysv::OpenOptions::new();
    options.namespace(&place.namespace).create(true).mode(0o666);
    options.open(KEY).unwrap()
}

/// Starts a process that owns a ring until it is killed.
fn ring_owner(place: &Everybodys) -> Child {
    let ready = Shared::<AtomicU64>::new();
    let owner = as_user(OWNER, || {
        let made = Options::new()
            .mode(0o666)
            .create_in(&place.namespace, "/ring");
        let mut ring: Ring = made.unwrap();
        ready.store(1, Ordering::SeqCst);
        loop {
            ring.receive().unwrap();
        }
    });
    assert!(wait_until(LONG, || ready.load(Ordering::SeqCst) == 1));
    owner
}

/// A namespace with queues that every user may use; None if the test can't run here.
fn queues() -> Option<Everybodys> {
    let place = Everybodys::new().filter(|_| fault::is_possible())?;
    let mut maker = as_user(OWNER, || {
        place.options(0o666).open("/q").unwrap();
        sysv_queue(&place);
    });
    maker.expect(Exit::Code(0), "the owner");
    Some(place)
}

fn pass_messages(place: &Everybodys) {
    let mut bytes = [0; 64];
    let queue = place.open("/q");
    queue.send_timeout(b"m", 0, LONG).unwrap();
    queue.receive_timeout(&mut bytes, LONG).unwrap();
    let sysv_queue = sysv_queue(place);
    sysv_queue.send_timeout(1, b"m", LONG).unwrap();
    sysv_queue
        .receive_timeout(Want::Any, &mut bytes, LONG)
        .unwrap();
    let sender = Sender::open_in(&place.namespace, "/ring").unwrap();
    sender
        .send_timeout(&Post::new(0).payload(b"m"), LONG)
        .unwrap();
}

fn poll_queues(place: &Everybodys) {
    let mut bytes = [0; 64];
    let queue = place.open("/q");
    let descriptor = queue.pollable().unwrap();
    queue.send_timeout(b"m", 0, LONG).unwrap();
    assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
    queue.receive_timeout(&mut bytes, LONG).unwrap();
    let sysv_queue = sysv_queue(place);
    let descriptor = sysv_queue.pollable().unwrap();
    sysv_queue.send_timeout(1, b"m", LONG).unwrap();
    assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
    sysv_queue
        .receive_timeout(Want::Any, &mut bytes, LONG)
        .unwrap();
}

fn look_around(place: &Everybodys) {
    let namespace = &place.namespace;
    posix::list(namespace).unwrap();
    sysv::list(namespace).unwrap();
    umsg::ring::list(namespace).unwrap();
    place.open("/q").status();
    assert!(posix::diagnose(namespace, "/q").unwrap().is_healthy());
    assert!(sysv::diagnose(namespace, KEY).unwrap().is_healthy());
    namespace.stale_files().unwrap();
    namespace.sweep().unwrap();
}

fn use_all(place: &Everybodys) {
    pass_messages(place);
    poll_queues(place);
    look_around(place);
}

/// Does `work` as each of the users, while the holder runs.
fn expect_users_to_go_on(holder: Child, users: [u32; 3], work: impl Fn()) {
    let users = users.map(|user| (user, as_user(user, &work)));
    expect_to_go_on(holder, users.into());
}

#[test]
fn while_a_peer_holds_the_locks_of_the_files_of_queues_their_users_go_on() {
    let Some(place) = queues() else { return };
    let _ring = ring_owner(&place);
    let holder = holder(STRANGER, || {
        for file in ["mq/q", "msg/0", "ring/ring"] {
            fault::write_for_ever(open(&place.path().join(file))).unwrap();
        }
    });
    expect_users_to_go_on(holder, [OWNER, USER, 0], || use_all(&place));
}

#[test]
fn while_a_stranger_holds_the_locks_of_the_directories_queues_are_opened_and_used() {
    let Some(place) = queues() else { return };
    let _ring = ring_owner(&place);
    let holder = holder(STRANGER, || {
        for directory in ["", "mq", "msg", "ring", "bell"] {
            let directory = File::open(place.path().join(directory)).unwrap();
            fault::list_for_ever(directory).unwrap();
        }
    });
    expect_users_to_go_on(holder, [OWNER, USER, 0], || {
        pass_messages(&place);
        let queue = place.open("/q");
        queue.status();
        assert!(
            posix::diagnose(&place.namespace, "/q")
                .unwrap()
                .is_healthy()
        );
    });
}

#[test]
fn a_fifo_whose_lock_another_user_holds_keeps_no_process_from_a_queue() {
    let Some(place) = queues() else { return };
    let _ring = ring_owner(&place);
    let holder = holder(STRANGER, || {
        let queue = place.file("/q");
        let inode = std::fs::metadata(&queue).unwrap().ino();
        let bell = place.path().join(format!("bell/{inode:016x}-{:016x}", 1));
        mkfifoat(CWD, &bell, Mode::from_raw_mode(0o666)).unwrap();
        fault::write_for_ever(open(&bell)).unwrap();
        let file = open(&queue);
        file.write_all_at(&1_u64.to_ne_bytes(), NUMBER).unwrap();
        file.write_all_at(&1_u32.to_ne_bytes(), WATCHED).unwrap();
        file.write_all_at(&4_u32.to_ne_bytes(), ATTENTION).unwrap();
    });
    expect_users_to_go_on(holder, [USER, 0, OWNER], || use_all(&place));
}
