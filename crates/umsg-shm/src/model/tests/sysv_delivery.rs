//! System V queues: messages that are sent or returned for a later delivery, and the end of the stream.
//!
//! | a defect | its effect here |
//! |---|---|
//! | a message is delivered whose record is already released, or the delivery does not release the record | a message comes twice |
//! | a sleeping receiver does not learn of a delay | the message comes too late, which no model notices, or never |
//! | a close does not wake a waiter, or wakes it before the queue is marked as closed | a deadlock |
//! | a call does not check the version under the lock | a message comes after the end |

use super::stage::{LATER, Slices, alive, explore};
use super::subject::{Subject, explore_death};
use super::sysv_stage::{Message, Queue};
use crate::crash::Point;
use crate::lock::SLICE;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;
use crate::sysv_engine::Refused;
use crate::sysv_engine::order::Want;

/// Receives until the end of the stream.
fn receive_all(queue: &Queue, me: &Thread) -> Vec<Message> {
    let mut all = Vec::new();
    loop {
        match queue.receive(me, Want::Any, Deadline::Never) {
            Ok(message) => all.push(message),
            Err(Refused::Closed) => return all,
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn close(queue: &Queue) {
    queue.direct(|queue, me| assert_eq!(queue.engine().close_send(me), Ok(true)));
}

/// Checks that a queue that was closed for sending is empty at the end. Then opens it for sending again, and checks that it works.
fn audit(queue: &Queue) {
    queue.direct(|queue, me| {
        let received = queue.receive(me, Want::Any, Deadline::Passed);
        assert_eq!(received, Err(Refused::Closed), "after the end");
        assert_eq!(queue.engine().reopen_send(me), Ok(true));
    });
    assert_eq!(queue.empty(), []);
    queue.audit();
}

#[test]
fn each_of_two_receivers_learns_of_the_end() {
    explore("typed end: two receivers", 2, Slices::End, || {
        let queue = Queue::new(2);
        queue.direct(|queue, me| queue.send(me, (0, 5), Deadline::Passed).unwrap());
        let first = queue.spawn(1, receive_all);
        let second = queue.spawn(2, |queue, me| {
            queue.receive(me, Want::Exactly(6), Deadline::Never)
        });
        close(&queue);
        assert_eq!(alive(first), [(0, 5)]);
        assert_eq!(alive(second), Err(Refused::Closed));
        audit(&queue);
    });
}

#[test]
fn a_message_is_sent_before_the_end_or_not_at_all() {
    explore("typed end: send, receive and close", 2, Slices::End, || {
        let queue = Queue::new(1);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 5), Deadline::Never));
        let receiver = queue.spawn(2, receive_all);
        close(&queue);
        let expected = match alive(sender) {
            Ok(()) => vec![(1, 5)],
            Err(Refused::Closed) => vec![],
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(alive(receiver), expected);
        audit(&queue);
    });
}

#[test]
fn a_blocked_sender_is_refused() {
    explore("typed end: a blocked sender", 2, Slices::End, || {
        let queue = Queue::new(1);
        queue.direct(|queue, me| queue.send(me, (0, 5), Deadline::Passed).unwrap());
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 5), Deadline::Never));
        close(&queue);
        assert_eq!(queue.direct(receive_all), [(0, 5)]);
        assert_eq!(alive(sender), Err(Refused::Closed));
        audit(&queue);
    });
}

#[test]
fn an_acknowledgement_ends_the_stream() {
    explore("typed end: an acknowledgement", 2, Slices::End, || {
        let queue = Queue::new(1);
        let handle = queue.direct(|queue, me| {
            queue.send(me, (0, 5), Deadline::Passed).unwrap();
            queue.lease(me, Want::Any, Deadline::Passed).unwrap().1
        });
        close(&queue);
        let receiver = queue.spawn(1, receive_all);
        queue.direct(|queue, me| assert_eq!(queue.engine().acknowledge(me, &handle), Ok(true)));
        assert_eq!(alive(receiver), []);
        audit(&queue);
    });
}

#[test]
fn a_process_dies_while_it_closes_a_queue() {
    explore_death("typed end: the closing process dies", 2, || {
        let queue = Queue::new(1);
        world::doom(1, Death::At(Point::MSG_CLOSED), 1);
        let victim = queue.spawn(1, |queue, me| queue.engine().close_send(me));
        let receiver = queue.spawn(2, receive_all);
        let died = thread::join(victim).is_none();
        assert_eq!(alive(receiver), []);
        audit(&queue);
        died
    });
}

#[test]
fn two_delayed_messages_come_once_each() {
    explore("typed delay: sent and returned", 2, Slices::End, || {
        let queue = Queue::new(2);
        let handle = queue.direct(|queue, me| {
            queue.send(me, (0, 5), Deadline::Passed).unwrap();
            queue.lease(me, Want::Any, Deadline::Passed).unwrap().1
        });
        let receiver = queue.spawn(1, |queue, me| {
            [5, 6].map(|mtype| {
                let want = Want::Exactly(mtype);
                queue.receive(me, want, Deadline::Never).unwrap()
            })
        });
        let sender = queue.spawn(2, |queue, me| queue.send_later(me, (1, 6), SLICE));
        queue.direct(|queue, me| {
            assert_eq!(queue.engine().return_at(me, &handle, SLICE / 2), Ok(true));
        });
        assert_eq!(alive(sender), Ok(()));
        assert_eq!(alive(receiver), [(0, 5), (1, 6)]);
        assert_eq!(queue.empty(), []);
        queue.audit();
    });
}

#[test]
fn a_due_message_comes_before_those_that_are_sent_after_that_time() {
    explore("typed delay: due and sent", 2, Slices::End, || {
        let queue = Queue::new(2);
        // The delivery time of the message has already passed, so the next call delivers the message.
        queue.direct(|queue, me| assert_eq!(queue.send_later(me, (1, 5), 1), Ok(())));
        let receiver = queue.spawn(1, |queue, me| {
            [(); 2].map(|()| queue.receive(me, Want::Any, Deadline::Never).unwrap())
        });
        queue.direct(|queue, me| {
            assert_eq!(queue.send(me, (2, 5), Deadline::Never), Ok(()));
        });
        assert_eq!(alive(receiver), [(1, 5), (2, 5)]);
        assert_eq!(queue.empty(), []);
        queue.audit();
    });
}

#[test]
fn a_delayed_message_of_the_dead_comes_once_or_was_not_sent() {
    let deaths = [
        (Point::MSG_DELAY_NOTED, vec![]),
        (Point::MSG_DELAYED, vec![(1, 5)]),
    ];
    for (point, expected) in deaths {
        let name = format!("typed delay: death at {point:?}");
        explore_death(&name, 2, move || {
            let queue = Queue::new(2);
            world::doom(1, Death::At(point), 1);
            let victim = queue.spawn(1, |queue, me| queue.send_later(me, (1, 5), SLICE));
            let bystander = queue.spawn(2, |queue, me| queue.send(me, (2, 6), LATER).unwrap());
            let died = thread::join(victim).is_none();
            alive(bystander);
            let mut all = queue.direct(|queue, me| {
                me.oversleep(4 * SLICE);
                std::iter::from_fn(|| queue.receive(me, Want::Any, Deadline::Passed).ok())
                    .collect::<Vec<_>>()
            });
            all.sort_unstable();
            let expected = expected.iter().copied().chain([(2, 6)]);
            assert!(expected.eq(all));
            queue.audit();
            died
        });
    }
}
