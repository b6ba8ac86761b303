//! A queue that is closed for sending while other threads send and receive, and while the closing process dies.
//!
//! A receiver that got the end of the stream gets no message after it. If a send succeeded, its message is received before the end.

use super::stage::{Message, Queue, Slices, alive, explore};
use super::subject::{Subject, explore_death};
use crate::crash::Point;
use crate::lock::SLICE;
use crate::model::segment::Segment;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::segment::Policy;
use crate::posix_engine::{Engine, LeaseHandle, Refused};
use crate::sys::clock::Deadline;

/// Receives until the end of the stream.
fn receive_all(queue: &Queue, me: &Thread) -> Vec<Message> {
    let mut all = Vec::new();
    loop {
        match queue.receive(me, Deadline::Never) {
            Ok(message) => all.push(message),
            Err(Refused::Closed) => return all,
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Checks that a queue that was closed for sending is empty at the end. Then opens it for sending again, and checks that it works.
fn audit(queue: &Queue) {
    queue.direct(|queue, me| {
        let received = queue.receive(me, Deadline::Passed);
        assert_eq!(received, Err(Refused::Closed), "after the end");
        assert_eq!(queue.engine().reopen_send(me), Ok(true));
    });
    assert_eq!(queue.empty(), []);
    queue.audit();
}

#[test]
fn a_receiver_that_goes_to_sleep_learns_of_the_end() {
    explore("end: receive and close", 3, Slices::End, || {
        let queue = Queue::new(1, 1);
        let receiver = queue.spawn(1, receive_all);
        queue.direct(|queue, me| assert_eq!(queue.engine().close_send(me), Ok(true)));
        assert_eq!(alive(receiver), []);
        audit(&queue);
    });
}

#[test]
fn a_message_is_sent_before_the_end_or_not_at_all() {
    explore("end: send, receive and close", 2, Slices::End, || {
        let queue = Queue::new(2, 2);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Never));
        let receiver = queue.spawn(2, receive_all);
        queue.direct(|queue, me| assert_eq!(queue.engine().close_send(me), Ok(true)));
        let expected = match alive(sender) {
            Ok(()) => vec![(1, 0)],
            Err(Refused::Closed) => vec![],
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(alive(receiver), expected);
        audit(&queue);
    });
}

#[test]
fn a_blocked_sender_is_refused() {
    explore("end: a blocked sender", 2, Slices::End, || {
        let queue = Queue::new(1, 2).filled(&[(0, 0)]);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Never));
        let received = queue.direct(|queue, me| {
            assert_eq!(queue.engine().close_send(me), Ok(true));
            receive_all(queue, me)
        });
        assert_eq!(received, [(0, 0)]);
        assert_eq!(alive(sender), Err(Refused::Closed));
        audit(&queue);
    });
}

/// Leases the first message, and closes the queue for sending.
fn lease_and_close(queue: &Queue, me: &Thread) -> LeaseHandle {
    let (_, lease) = queue.lease(me, Deadline::Passed).unwrap();
    queue.engine().close_send(me).unwrap();
    lease
}

#[test]
fn an_open_lease_keeps_the_end_from_a_receiver() {
    explore("end: a lease", 2, Slices::End, || {
        let queue = Queue::new(1, 1).filled(&[(0, 0)]);
        let lease = queue.direct(lease_and_close);
        let receiver = queue.spawn(1, receive_all);
        queue.direct(|queue, me| assert_eq!(queue.engine().give_back(me, &lease), Ok(true)));
        assert_eq!(alive(receiver), [(0, 0)]);
        audit(&queue);
    });
}

#[test]
fn an_acknowledgement_ends_the_stream() {
    explore("end: an acknowledgement", 2, Slices::End, || {
        let queue = Queue::new(1, 1).filled(&[(0, 0)]);
        let lease = queue.direct(lease_and_close);
        let receiver = queue.spawn(1, receive_all);
        queue.direct(|queue, me| assert_eq!(queue.engine().acknowledge(me, &lease), Ok(true)));
        assert_eq!(alive(receiver), []);
        audit(&queue);
    });
}

#[test]
fn each_of_two_receivers_learns_of_the_end() {
    explore("end: two receivers and a close", 2, Slices::End, || {
        let queue = Queue::new(1, 2).filled(&[(0, 0)]);
        let first = queue.spawn(1, receive_all);
        let second = queue.spawn(2, receive_all);
        queue.direct(|queue, me| assert_eq!(queue.engine().close_send(me), Ok(true)));
        let mut received = alive(first);
        received.extend(alive(second));
        assert_eq!(received, [(0, 0)]);
        audit(&queue);
    });
}

#[test]
fn two_delayed_messages_come_once_each() {
    explore("end: two delayed messages", 2, Slices::End, || {
        let queue = Queue::new(2, 2).filled(&[(0, 0), (1, 0)]);
        let leases = [(); 2]
            .map(|()| queue.direct(|queue, me| queue.lease(me, Deadline::Passed).unwrap().1));
        let [first, second] = leases;
        let receiver = queue.spawn(1, |queue, me| {
            [(); 2].map(|()| queue.receive(me, Deadline::Never).unwrap())
        });
        let holder = queue.spawn(2, move |queue, me| {
            assert_eq!(queue.engine().return_at(me, &second, SLICE), Ok(true));
        });
        queue.direct(|queue, me| {
            assert_eq!(queue.engine().return_at(me, &first, SLICE / 2), Ok(true));
        });
        alive(holder);
        let mut received = alive(receiver);
        received.sort_unstable();
        assert_eq!(received, [(0, 0), (1, 0)]);
        assert_eq!(queue.empty(), []);
        queue.audit();
    });
}

#[test]
fn a_due_message_comes_before_those_that_are_sent_after_that_time() {
    explore("end: a due message and a send", 2, Slices::End, || {
        let queue = Queue::new(2, 3);
        queue.direct(|queue, me| {
            let room = queue.reserve(me, 1, Deadline::Passed).unwrap();
            // The delivery time of the message has already passed, so the next call delivers the message.
            assert_eq!(queue.engine().commit_at(me, &room, (8, 0), 1), Ok(true));
        });
        let receiver = queue.spawn(1, |queue, me| {
            [(); 2].map(|()| queue.receive(me, Deadline::Never).unwrap())
        });
        queue.direct(|queue, me| {
            assert_eq!(queue.send(me, (2, 0), Deadline::Never), Ok(()));
        });
        assert_eq!(alive(receiver), [(1, 0), (2, 0)]);
        assert_eq!(queue.empty(), []);
        queue.audit();
    });
}

#[test]
fn messages_for_one_time_come_in_the_order_of_their_sends() {
    explore(
        "end: messages for one time and a send",
        1,
        Slices::End,
        || {
            let queue = Queue::new(2, 4);
            queue.direct(|queue, me| {
                let reserve = |number| queue.reserve(me, number, Deadline::Passed).unwrap();
                let [second, first] = [2, 1].map(reserve);
                // Both messages have the same delivery time, which has passed. They are committed in the opposite order of their reservations.
                for room in [first, second] {
                    assert_eq!(queue.engine().commit_at(me, &room, (8, 0), 1), Ok(true));
                }
            });
            let receiver = queue.spawn(1, |queue, me| {
                [(); 3].map(|()| queue.receive(me, Deadline::Never).unwrap())
            });
            queue.direct(|queue, me| {
                assert_eq!(queue.send(me, (3, 0), Deadline::Never), Ok(()));
            });
            assert_eq!(alive(receiver), [(1, 0), (2, 0), (3, 0)]);
            assert_eq!(queue.empty(), []);
            queue.audit();
        },
    );
}

#[test]
fn a_process_dies_while_it_closes_a_queue() {
    explore_death("end: the closing process dies", 2, || {
        let queue = Queue::new(1, 1);
        world::doom(1, Death::At(Point::SEND_CLOSED_SET), 1);
        let victim = queue.spawn(1, |queue, me| queue.engine().close_send(me));
        let receiver = queue.spawn(2, receive_all);
        let died = thread::join(victim).is_none();
        assert_eq!(alive(receiver), []);
        audit(&queue);
        died
    });
}

/// Returns a queue that is closed for sending when its last producer ends.
fn counted() -> Queue {
    let mut segment = Segment::new(2, 2);
    segment.set_policy(Policy {
        close_with_producers: true,
        ..Policy::default()
    });
    Queue::of(Engine::new(segment))
}

/// Registers as a producer, sends a message, and ends as a producer. Returns false if the end of the other producers has closed the queue for sending
/// first.
fn produce(queue: &Queue, me: &Thread, number: u64) -> bool {
    match queue.engine().begin_to_produce(me) {
        Ok(begun) => assert!(begun),
        Err(Refused::Closed) => return false,
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(queue.send(me, (number, 0), Deadline::Never), Ok(()));
    assert_eq!(queue.engine().end_producing(me), Ok(true));
    true
}

#[test]
fn the_last_of_two_producers_ends_the_stream() {
    explore("end: two producers", 2, Slices::End, || {
        let queue = counted();
        let first = queue.spawn(1, |queue, me| produce(queue, me, 1));
        let second = queue.spawn(2, |queue, me| produce(queue, me, 2));
        let sent = [(1, alive(first)), (2, alive(second))];
        let mut received = queue.direct(receive_all);
        received.sort_unstable();
        let expected = sent.iter().filter(|(_, is_sent)| *is_sent);
        assert!(
            expected
                .clone()
                .map(|&(number, _)| (number, 0))
                .eq(received)
        );
        audit(&queue);
    });
}

#[test]
fn a_receiver_finds_the_last_producer_dead() {
    explore_death("end: the last producer dies", 2, || {
        let queue = counted();
        world::doom(1, Death::At(Point::PRODUCER_COUNTED), 1);
        let victim = queue.spawn(1, |queue, me| queue.engine().begin_to_produce(me));
        let died = thread::join(victim).is_none();
        assert_eq!(queue.direct(receive_all), []);
        audit(&queue);
        died
    });
}

#[test]
fn two_senders_find_the_last_producer_dead() {
    explore_death("end: two senders after the last producer", 2, || {
        let queue = counted();
        world::doom(1, Death::At(Point::PRODUCER_COUNTED), 1);
        let victim = queue.spawn(1, |queue, me| queue.engine().begin_to_produce(me));
        let died = thread::join(victim).is_none();
        let senders = [2, 3].map(|tid| {
            queue.spawn(tid, move |queue, me| {
                queue.send(me, (u64::from(tid), 0), Deadline::Never)
            })
        });
        for sender in senders {
            assert_eq!(alive(sender), Err(Refused::Closed));
        }
        assert_eq!(queue.direct(receive_all), []);
        audit(&queue);
        died
    });
}

#[test]
fn a_delayed_message_comes_before_the_end() {
    explore("end: a delayed message", 2, Slices::End, || {
        let queue = Queue::new(2, 2).filled(&[(0, 0)]);
        let lease = queue.direct(lease_and_close);
        let receiver = queue.spawn(1, receive_all);
        let later = SLICE / 2;
        queue.direct(|queue, me| {
            assert_eq!(queue.engine().return_at(me, &lease, later), Ok(true));
        });
        assert_eq!(alive(receiver), [(0, 0)]);
        audit(&queue);
    });
}
