//! Rings between processes that die.

mod support;

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use support::child::{Child, Exit};
use support::limit_descriptors;
use support::place::Place;
use support::wait_until;
use umsg::ring::{Options, Post, ReceiveError, Ring, RingError, SendError, Sender, Until};

const LONG: Duration = Duration::from_secs(20);

fn owner(place: &Place, entries: u32) -> Ring {
    Options::new()
        .entries(entries)
        .create_in(&place.namespace, "/ring")
        .unwrap()
}

#[test]
fn another_process_posts_to_a_named_ring() {
    let place = Place::new();
    let mut ring = owner(&place, 16);
    let mut child = Child::run(|| {
        let sender = Sender::open_in(&place.namespace, "/ring").unwrap();
        let post = Post::new(7).res(-7).flags(70).payload(b"from afar");
        i32::from(sender.send(&post).is_err())
    });
    let message = ring.receive_timeout(LONG).unwrap();
    assert_eq!((message.user_data, message.res, message.flags), (7, -7, 70));
    assert_eq!(message.payload, b"from afar");
    assert_eq!(message.tag.pid as i32, child.pid());
    child.expect(Exit::Code(0), "the sender");
}

#[test]
fn senders_learn_of_the_owners_death_and_another_takes_the_name() {
    let place = Place::new();
    let mut child = Child::run(|| {
        let ring = owner(&place, 16);
        std::mem::forget(ring);
        loop {
            std::thread::sleep(LONG);
        }
    });
    let mut sender = None;
    let opened = || {
        sender = Sender::open_in(&place.namespace, "/ring").ok();
        sender.is_some()
    };
    assert!(wait_until(LONG, opened), "the owner made no ring");
    let sender = sender.unwrap();
    sender.send(&Post::new(1)).unwrap();
    let taken = Options::new().create_in(&place.namespace, "/ring");
    assert!(matches!(taken, Err(RingError::Owned(pid)) if pid as i32 == child.pid()));
    child.kill();
    let refused = || matches!(sender.try_send(&Post::new(2)), Err(SendError::OwnerDead));
    assert!(wait_until(LONG, refused), "the sender was not told");
    let mut ring = owner(&place, 16);
    let sender = Sender::open_in(&place.namespace, "/ring").unwrap();
    sender.send(&Post::new(3)).unwrap();
    assert_eq!(ring.receive_timeout(LONG).unwrap().user_data, 3);
}

#[test]
fn a_forked_child_that_ends_does_not_close_its_parents_ring() {
    let place = Place::new();
    let mut ring = owner(&place, 16);
    let descriptor = ring.pollable().as_raw_fd();
    let mut child = Child::run(|| {
        // SAFETY: the child has its own copy of all memory, and ends without dropping `ring` a second time.
        drop(unsafe { std::ptr::read(&raw const ring) });
        0
    });
    child.expect(Exit::Code(0), "the child");
    Sender::open_in(&place.namespace, "/ring")
        .unwrap()
        .send(&Post::new(1))
        .unwrap();
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the call takes one structure, a local variable.
    let readable = unsafe { libc::poll(&raw mut poll, 1, LONG.as_millis() as i32) };
    assert_eq!((readable, poll.revents), (1, libc::POLLIN));
    assert_eq!(ring.receive_timeout(LONG).unwrap().user_data, 1);
}

#[test]
fn a_forked_child_may_send_to_its_parents_ring_and_not_receive() {
    let mut ring = Options::new().create().unwrap();
    let sender = ring.sender();
    Child::run(|| {
        sender.send(&Post::new(1)).unwrap();
        assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::NotOwner);
        assert_eq!(
            ring.wait(1, Until::Now).unwrap_err(),
            ReceiveError::NotOwner
        );
        assert_eq!(ring.drain(|_| ()).unwrap_err(), ReceiveError::NotOwner);
        ring.close();
        0
    })
    .expect(Exit::Code(0), "the child");
    sender.send(&Post::new(2)).unwrap();
    assert_eq!(ring.try_receive().unwrap().user_data, 1);
}

#[test]
fn more_messages_than_a_ring_holds_are_not_waited_for() {
    let mut ring = Options::new().entries(4).overflow(2).create().unwrap();
    assert_eq!(
        ring.wait(7, Until::Forever).unwrap_err(),
        ReceiveError::TooMany { max: 6 }
    );
    let sender = ring.sender();
    (0..6).for_each(|n| sender.send(&Post::new(n)).unwrap());
    assert_eq!(ring.wait(6, Until::Forever).unwrap(), 6);
}

#[test]
fn a_sender_that_had_no_descriptor_to_ring_with_rings_with_its_next_message() {
    let place = Place::new();
    let mut ring = owner(&place, 16);
    let descriptor = ring.pollable().as_raw_fd();
    let readable = |milliseconds: i32| {
        let mut poll = libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the call takes one structure, a local variable.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 }
    };
    let mut child = Child::run(|| {
        let sender = Sender::open_in(&place.namespace, "/ring").unwrap();
        let before = limit_descriptors(0);
        sender.send(&Post::new(1)).unwrap();
        assert!(!readable(0), "no process could ring");
        limit_descriptors(before);
        sender.send(&Post::new(2)).unwrap();
        0
    });
    child.expect(Exit::Code(0), "the sender");
    assert!(readable(LONG.as_millis() as i32));
    assert_eq!(ring.drain(|_| {}).unwrap(), 2);
    // A new sender also makes the descriptor readable.
    Child::run(|| {
        Sender::open_in(&place.namespace, "/ring")
            .unwrap()
            .send(&Post::new(3))
            .unwrap();
        0
    })
    .expect(Exit::Code(0), "another sender");
    assert!(readable(LONG.as_millis() as i32));
}

#[test]
fn a_forked_child_takes_nothing_that_its_parent_is_to_receive() {
    let place = Place::new();
    let mut ring = owner(&place, 16);
    let sender = ring.sender();
    let file = std::fs::File::open("/dev/null").unwrap();
    let ticket = sender.pass_fd(file.as_fd()).unwrap();
    sender.send(&Post::new(1)).unwrap();
    let mut child = Child::run(|| {
        assert!(!ring.is_own());
        ring.pollable();
        assert!(ring.take_fd(ticket).is_none());
        assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::NotOwner);
        0
    });
    child.expect(Exit::Code(0), "the child");
    assert!(ring.is_own() && ring.take_fd(ticket).is_some());
    assert_eq!(ring.try_receive().unwrap().user_data, 1);
}

#[test]
fn descriptors_that_the_receiver_has_not_taken_in_are_refused_until_it_has() {
    let place = Place::new();
    let mut ring = owner(&place, 16);
    let sender = ring.sender();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut tickets = Vec::new();
    let refused = loop {
        match sender.pass_fd(file.as_fd()) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, SendError::TooManyDescriptors));
    assert_eq!(refused.errno(), libc::EAGAIN);
    assert!(
        refused
            .to_string()
            .contains("send again after the receiver has taken some"),
        "{refused}"
    );
    assert!(
        tickets
            .into_iter()
            .all(|ticket| ring.take_fd(ticket).is_some())
    );
    sender.pass_fd(file.as_fd()).unwrap();
}

#[test]
fn a_batch_that_never_fits_is_not_called_full() {
    let ring = Options::new().entries(2).overflow(2).create().unwrap();
    let sender = ring.sender();
    let error = sender.try_send_batch(&[Post::new(1); 5]).unwrap_err();
    assert_eq!(error.errno(), libc::EMSGSIZE);
    assert!(error.to_string().contains("holds 4"), "{error}");
    sender.try_send_batch(&[Post::new(1); 4]).unwrap();
    let error = sender.try_send_batch(&[Post::new(1)]).unwrap_err();
    assert!(matches!(error, SendError::Full), "{error}");
}

#[test]
fn passing_a_descriptor_to_a_ring_without_its_doorbell_fails_with_owner_dead() {
    let place = Place::new();
    let ring = Options::new().create_in(&place.namespace, "/left").unwrap();
    let sender = Sender::open_in(&place.namespace, "/left").unwrap();
    // Removes the doorbell, as does a process that finds the owner dead a moment before the owner has ended.
    let mut entries = place.path().join("ring").read_dir().unwrap();
    let is_bell = |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes()[0] == b'.';
    let bell = entries
        .find_map(|entry| entry.ok().filter(is_bell))
        .unwrap();
    std::fs::remove_file(bell.path()).unwrap();
    let passed = sender.pass_fd(std::io::stdin().as_fd());
    assert!(matches!(passed, Err(SendError::OwnerDead)), "{passed:?}");
    drop(ring);
}
