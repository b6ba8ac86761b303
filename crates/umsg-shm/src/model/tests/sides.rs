//! Sending and receiving across the two sides of a queue, which share no lock.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the stamp is stored without release, or read without acquire | a race on the message |
//! | a check without the lock does not compare the cursor again | a queue that is not empty is reported as empty |
//! | "full" is decided by a cached value | a send is refused although the queue has room |

use super::stage::{Queue, Slices, alive, explore, polled};
use super::subject::Subject;
use crate::posix_engine::Refused;
use crate::sys::clock::Deadline;

#[test]
fn messages_arrive_whole_and_in_order() {
    explore("sides: two messages", 3, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        let sender = queue.spawn(1, |queue, me| {
            for number in 1..=2 {
                queue.send(me, (number, 0), Deadline::Passed).unwrap();
            }
        });
        let received = queue
            .direct(|queue, me| [(); 2].map(|()| polled(|| queue.receive(me, Deadline::Passed))));
        assert_eq!(received, [(1, 0), (2, 0)]);
        alive(sender);
        queue.audit();
    });
}

#[test]
fn a_slot_is_filled_again_when_its_message_was_taken() {
    explore("sides: one slot twice", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let sender = queue.spawn(1, |queue, me| {
            for number in 1..=2 {
                polled(|| queue.send(me, (number, 0), Deadline::Passed));
            }
        });
        let received = queue
            .direct(|queue, me| [(); 2].map(|()| polled(|| queue.receive(me, Deadline::Passed))));
        assert_eq!(received, [(1, 0), (2, 0)]);
        alive(sender);
        // The send used the slot of the received message, so the queue needed no new slot.
        assert_eq!(queue.slots(), 1);
        queue.audit();
    });
}

#[test]
fn full_and_empty_are_said_only_when_true() {
    explore("sides: room and messages", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        let receiver = queue.spawn(1, |queue, me| {
            // The message was in the queue before this call, so the call must not find the queue empty.
            queue.receive(me, Deadline::Passed).unwrap()
        });
        let sent = queue.direct(|queue, me| queue.send(me, (2, 0), Deadline::Passed));
        assert_eq!(alive(receiver), (1, 0));
        match sent {
            Ok(()) => assert_eq!(queue.empty(), [(2, 0)]),
            Err(refused) => {
                assert_eq!(refused, Refused::NotNow);
                // The message was received before this call, so the call must not find the queue full.
                queue.direct(|queue, me| queue.send(me, (3, 0), Deadline::Passed).unwrap());
                assert_eq!(queue.empty(), [(3, 0)]);
            }
        }
        queue.audit();
    });
}

#[test]
fn a_look_that_is_overtaken_looks_again() {
    explore("sides: an overtaken look", 3, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        queue.direct(|queue, me| {
            queue.send(me, (1, 0), Deadline::Passed).unwrap();
            queue.send(me, (2, 0), Deadline::Passed).unwrap();
        });
        let other = queue.spawn(1, |queue, me| {
            let received = queue.receive(me, Deadline::Passed).unwrap();
            queue.send(me, (3, 0), Deadline::Passed).unwrap();
            received
        });
        // There is always at least one message, in every order of the threads.
        let mine = queue.direct(|queue, me| queue.receive(me, Deadline::Passed).unwrap());
        let mut received = vec![mine, alive(other)];
        received.extend(queue.empty());
        received.sort_unstable();
        assert_eq!(received, [(1, 0), (2, 0), (3, 0)]);
        queue.audit();
    });
}

#[test]
fn no_message_is_received_twice() {
    explore("sides: two receivers", 3, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Passed));
        let mine = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        let theirs = alive(receiver);
        assert!(mine.is_ok() != theirs.is_ok(), "{mine:?} {theirs:?}");
        queue.audit();
    });
}
