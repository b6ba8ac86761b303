//! System V queues in event loops. The kernel's System V queues can't be polled.

mod support;

use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;
use std::time::Duration;
use support::child::{Child, Exit};
use support::events::{Epoll, poll_for, polled, readiness_of};
use support::place::Place;
use umsg::sysv::Want;
use umsg::{Edges, Readiness};

const KEY: i32 = 0x7507;

/// Lets a process poll the queue, and end without closing it.
fn leave_poller(place: &Place) {
    let mut poller = Child::run(|| {
        let queue = place.open_sysv(KEY);
        std::mem::forget(queue.pollable().unwrap().try_clone_to_owned());
        0
    });
    poller.expect(Exit::Code(0), "a poller");
}

#[test]
fn a_system_v_queue_shows_messages_and_bytes_of_room() {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    let other = place.open_sysv(KEY);
    let descriptor = queue.pollable_with(Edges::All).unwrap();
    let both = EventFlags::IN | EventFlags::OUT;
    let set = Epoll::new(descriptor, both | EventFlags::ET);
    let shows = |readable, writable, told| {
        let expected = Readiness { readable, writable };
        assert_eq!(readiness_of(polled(descriptor)), expected);
        assert_eq!((other.readiness(), set.told()), (expected, told));
    };
    shows(false, true, Some(EventFlags::OUT));
    other.send(1, &[0; 100]).unwrap();
    shows(true, true, Some(both));
    let room = other.status().unwrap().entry.qbytes as usize - 100;
    let long = vec![0; room / 2];
    other.send(2, &long).unwrap();
    shows(true, true, Some(both));
    other.send(2, &long).unwrap();
    shows(true, false, Some(EventFlags::IN));
    let lease = queue.receive_lease(Want::Exactly(2)).unwrap();
    shows(true, false, Some(EventFlags::IN));
    lease.acknowledge().unwrap();
    shows(true, true, Some(both));
    let mut buffer = vec![0; room];
    queue.receive(Want::Any, &mut buffer).unwrap();
    shows(true, true, Some(both));
    queue.receive(Want::Any, &mut buffer).unwrap();
    shows(false, true, Some(EventFlags::OUT));
}

#[test]
fn room_that_comes_to_a_system_v_queue_whose_messages_are_all_leased_is_an_edge() {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    // Only the first lease of a queue makes pollers check the queue. The following leases do not.
    queue.try_send(1, b"m").unwrap();
    let early = queue.try_receive_lease(Want::Any).unwrap();
    let set = Epoll::new(queue.pollable().unwrap(), EventFlags::OUT | EventFlags::ET);
    early.acknowledge().unwrap();
    let other = place.open_sysv(KEY);
    let half = vec![0; other.status().unwrap().entry.qbytes as usize / 2];
    let [first, _second] = [1, 2].map(|mtype| {
        other.try_send(mtype, &half).unwrap();
        other.try_receive_lease(Want::Exactly(mtype)).unwrap()
    });
    // At first, the descriptor reports room that does not exist.
    while set.told().is_some() {}
    assert!(queue.try_send(1, b"x").is_err());
    first.acknowledge().unwrap();
    assert_eq!(set.told(), Some(EventFlags::OUT));
    queue.try_send(1, b"x").unwrap();
}

#[test]
fn a_poller_of_a_system_v_queue_learns_that_it_was_removed() {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    let set = Epoll::new(
        queue.pollable().unwrap(),
        EventFlags::IN | EventFlags::OUT | EventFlags::ET,
    );
    assert_eq!(set.told(), Some(EventFlags::OUT));
    place.open_sysv(KEY).remove().unwrap();
    assert_eq!(set.told(), Some(EventFlags::IN | EventFlags::OUT));
    let error = queue.try_receive(Want::Any, &mut []).unwrap_err();
    assert_eq!(error, umsg::sysv::ReceiveError::Removed);
    assert_eq!(place.poll_fifos().len(), 1);
    drop(queue);
    assert_eq!(place.poll_fifos().len(), 0);
}

#[test]
fn a_killed_poller_of_a_system_v_queue_is_forgotten() {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    leave_poller(&place);
    assert!(place.poll_fifos().len() <= 1);
    for _ in 0..1000 {
        queue.send(1, b"m").unwrap();
        queue.receive(Want::Any, &mut [0; 8]).unwrap();
    }
    assert_eq!(place.poll_fifos().len(), 0);
}

#[test]
fn a_sleeping_poller_of_a_system_v_queue_is_woken_by_another_process() {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    let descriptor = queue.pollable().unwrap();
    for _ in 0..20 {
        let mut child = Child::run(|| {
            std::thread::sleep(Duration::from_millis(5));
            place.open_sysv(KEY).send(3, b"m").unwrap();
            0
        });
        assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
        queue.try_receive(Want::Exactly(3), &mut [0; 8]).unwrap();
        child.expect(Exit::Code(0), "a sender");
    }
}

#[test]
fn a_sender_that_found_no_doorbell_of_a_system_v_queue_notifies_the_next_poller() {
    let place = Place::in_turn();
    let sender = place.create_sysv(KEY);
    leave_poller(&place);
    // The poller of another queue removes stale doorbells.
    place.create("/other", 4, 8).pollable().unwrap();
    place.expect_no_poll_fifos("the sweep");
    sender.send(1, b"1").unwrap();
    let poller = place.open_sysv(KEY);
    let descriptor = poller.pollable().unwrap();
    let set = Epoll::new(descriptor, EventFlags::IN);
    poller.try_receive(Want::Any, &mut [0; 8]).unwrap();
    assert_eq!(set.told(), None);
    sender.send(1, b"2").unwrap();
    assert_eq!(set.told(), Some(EventFlags::IN));
}
