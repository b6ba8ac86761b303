//! Which System V queues there are: found, made, changed and removed by many at once, by the dead, by strangers.

mod support;

use std::fs;
use std::time::Duration;
use support::Random;
use support::child::{Child, Exit};
use support::place::Place;
use umsg::Namespace;
use umsg::sysv::{self, ControlError, OpenError, OpenOptions, PRIVATE, Queue};

const KEY: i32 = 0x1234;

fn options(namespace: &Namespace) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.namespace(namespace);
    options
}

fn make(namespace: &Namespace, key: i32) -> Result<Queue, OpenError> {
    options(namespace).create(true).open(key)
}

fn find(namespace: &Namespace, key: i32) -> Result<Queue, OpenError> {
    options(namespace).open(key)
}

/// The names in `msg/`, without that of the file that counts identifiers.
fn names(place: &Place) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(place.path().join("msg"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".next")
        .collect();
    names.sort();
    names
}

#[test]
fn a_queue_is_found_by_its_key_and_by_its_identifier_until_it_is_removed() {
    let place = Place::new();
    let namespace = &place.namespace;
    assert!(matches!(find(namespace, KEY), Err(OpenError::NotFound)));
    let queue = make(namespace, KEY).unwrap();
    assert_eq!((queue.id(), queue.key()), (0, KEY));
    assert_eq!(names(&place), ["0", "k-00001234"]);
    queue.send(3, b"hello").unwrap();
    let same = find(namespace, KEY).unwrap();
    let also = options(namespace).open_id(queue.id()).unwrap();
    assert_eq!((same.id(), also.id()), (0, 0));
    assert_eq!(also.status().unwrap().entry.messages, 1);
    queue.remove().unwrap();
    assert!(names(&place).is_empty());
    assert!(matches!(find(namespace, KEY), Err(OpenError::NotFound)));
    for id in [0, 1, -1, i32::MAX, i32::MIN] {
        let error = options(namespace).open_id(id).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{id}: {error}");
    }
    assert!(matches!(same.status(), Err(ControlError::Removed)));
    assert!(matches!(same.remove(), Err(ControlError::Removed)));
}

#[test]
fn queues_without_a_key_are_distinct_and_found_by_their_identifier() {
    let place = Place::new();
    let one = make(&place.namespace, PRIVATE).unwrap();
    let other = options(&place.namespace).open(PRIVATE).unwrap();
    assert_eq!((one.id(), other.id(), one.key()), (0, 1, 0));
    assert_eq!(names(&place), ["0", "1", "p-0", "p-1"]);
    let again = options(&place.namespace).open_id(1).unwrap();
    other.send(1, b"hello").unwrap();
    assert_eq!(again.status().unwrap().entry.messages, 1);
    sysv::remove(&place.namespace, 0).unwrap();
    assert!(one.is_removed());
}

#[test]
fn who_wants_a_new_queue_is_told_that_there_is_one() {
    let place = Place::new();
    make(&place.namespace, KEY).unwrap();
    let exclusive = options(&place.namespace)
        .create(true)
        .exclusive(true)
        .open(KEY);
    assert!(matches!(exclusive, Err(OpenError::AlreadyExists)));
    let alone = options(&place.namespace).exclusive(true).open(KEY);
    assert_eq!(alone.unwrap().id(), 0);
}

/// Calls on the kernel's queues, in an IPC namespace of the caller's own.
mod kernel {
    pub fn unshare() -> bool {
        // SAFETY: the caller is a child of its own.
        unsafe { libc::unshare(libc::CLONE_NEWIPC) == 0 }
    }

    pub fn get(key: i32) -> i32 {
        // SAFETY: no pointers.
        unsafe { libc::msgget(key, libc::IPC_CREAT | 0o600) }
    }

    pub fn remove(id: i32) {
        // SAFETY: IPC_RMID takes no pointer.
        assert_eq!(
            unsafe { libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()) },
            0
        );
    }
}

/// Says why and ends the child that has found that the kernel does not take part.
const LEFT_OUT: i32 = 77;

#[test]
fn identifiers_come_in_the_order_of_the_kernels() {
    let place = Place::new();
    let mut child = Child::run(|| {
        if !kernel::unshare() {
            return LEFT_OUT;
        }
        let mut random = Random::new(1);
        let mut queues: Vec<Queue> = Vec::new();
        for step in 0..3000 {
            // Up to a hundred queues, and at times few.
            let most = if step / 500 % 2 == 0 { 100 } else { 5 };
            if random.below(most) >= queues.len() as u64 {
                let key = match random.below(3) {
                    0 => PRIVATE,
                    _ => 1 + random.below(60) as i32,
                };
                let queue = make(&place.namespace, key).unwrap();
                assert_eq!(queue.id(), kernel::get(key), "step {step}");
                if queues.iter().all(|known| known.id() != queue.id()) {
                    queues.push(queue);
                }
            } else {
                let queue = queues.swap_remove(random.below(queues.len() as u64) as usize);
                kernel::remove(queue.id());
                queue.remove().unwrap();
            }
        }
        0
    });
    match child.wait(Duration::from_secs(60)) {
        Some(Exit::Code(LEFT_OUT)) => eprintln!("left out: needs root, for an IPC namespace"),
        end => assert_eq!(end, Some(Exit::Code(0))),
    }
}
