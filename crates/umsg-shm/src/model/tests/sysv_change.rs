//! System V queues: IPC_SET, IPC_RMID and signals, while other threads wait.
//!
//! | a defect | its effect here |
//! |---|---|
//! | a change or a removal is not shown to waiters, or does not wake them | a deadlock |
//! | a waiter is served by the rights that it had at the start of its wait | a process that may not receive gets a message, or a message from a process that may not send arrives |
//! | a call checks the rights only before it has the lock | the same |
//! | an interrupted call does not read the outcome of its node | a message is lost, or sent twice |

use super::stage::{LATER, Slices, alive, explore};
use super::subject::Subject;
use super::sysv_stage::{Failed, Message, Queue, RECEIVE, SEND};
use crate::crash::Point;
use crate::model::thread;
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;
use crate::sysv_engine::order::Want;
use crate::sysv_engine::{Refused, Why};

/// Returns the message of a receive, or None if the queue was removed first.
fn unless_removed(result: Result<Message, Refused>) -> Option<Message> {
    match result {
        Ok(message) => Some(message),
        Err(refused) => {
            assert_eq!(refused, Refused::Own(Why::Removed));
            None
        }
    }
}

#[test]
fn a_waiter_learns_that_the_queue_is_removed() {
    explore("typed change: removal", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        let receiver = queue.spawn(1, |queue, me| {
            queue.receive(me, Want::Exactly(6), Deadline::Never)
        });
        let sender = queue.spawn(2, |queue, me| queue.send(me, (2, 5), Deadline::Never));
        queue.direct(|queue, me| queue.remove(me).unwrap());
        assert_eq!(alive(receiver), Err(Refused::Own(Why::Removed)));
        assert_eq!(alive(sender), Err(Refused::Own(Why::Removed)));
        queue.direct(|queue, me| {
            let received = queue.receive(me, Want::Any, Deadline::Passed);
            assert_eq!(received, Err(Refused::Own(Why::Removed)));
            assert_eq!(queue.remove(me), Err(Refused::Own(Why::Removed)));
        });
    });
}

#[test]
fn a_removal_and_a_hand_over_leave_no_waiter_behind() {
    explore(
        "typed change: removal and message",
        2,
        Slices::Endless,
        || {
            let queue = Queue::new(1);
            let receiver = queue.spawn(1, |queue, me| {
                unless_removed(queue.receive(me, Want::Any, Deadline::Never))
            });
            let sender = queue.spawn(2, |queue, me| queue.send(me, (1, 5), Deadline::Passed));
            queue.direct(|queue, me| queue.remove(me).unwrap());
            match (alive(sender), alive(receiver)) {
                (Err(refused), received) => {
                    assert_eq!((refused, received), (Refused::Own(Why::Removed), None));
                }
                // The removal has also removed messages that were not received.
                (Ok(()), received) => assert!(received.is_none_or(|message| message == (1, 5))),
            }
        },
    );
}

#[test]
fn a_message_that_was_handed_over_outlives_the_queue() {
    explore(
        "typed change: removal after a message",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1);
            let receiver = queue.spawn(1, |queue, me| {
                unless_removed(queue.receive(me, Want::Any, Deadline::Never))
            });
            let waits = queue.direct(|queue, me| {
                let waits = queue.waits_for_message();
                queue.send(me, (1, 5), Deadline::Passed).unwrap();
                queue.remove(me).unwrap();
                waits
            });
            let received = alive(receiver);
            assert!(received.is_none_or(|message| message == (1, 5)));
            assert!(
                received.is_some() || !waits,
                "it waited, and was offered the message"
            );
        },
    );
}

#[test]
fn a_process_that_dies_while_it_removes_a_queue_has_removed_it() {
    explore("typed change: death of a remover", 3, Slices::End, || {
        let queue = Queue::new(1);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Want::Any, Deadline::Never));
        world::doom(2, Death::At(Point::MSG_REMOVED), 1);
        let remover = queue.spawn(2, |queue, me| queue.remove(me));
        assert_eq!(thread::join(remover), None);
        assert_eq!(alive(receiver), Err(Refused::Own(Why::Removed)));
    });
}

#[test]
fn a_receiver_is_judged_again_before_it_gets_anything() {
    explore(
        "typed change: no right to receive",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1);
            let receiver = queue.spawn(1, |queue, me| {
                queue.try_to_receive(me, Want::Any, Deadline::Never)
            });
            queue.direct(|queue, me| {
                queue.change(me, SEND, 1).unwrap();
                queue.send(me, (1, 5), Deadline::Passed).unwrap();
            });
            assert_eq!(alive(receiver), Err(Failed::Denied));
            queue.direct(|queue, me| queue.change(me, SEND | RECEIVE, 1).unwrap());
            assert_eq!(queue.empty(), [(1, 5)]);
            queue.audit();
        },
    );
}

#[test]
fn a_receiver_is_checked_again_though_the_process_that_changed_the_rights_is_dead() {
    explore("typed change: death of a changer", 2, Slices::End, || {
        let queue = Queue::new(1);
        let receiver = queue.spawn(1, |queue, me| {
            queue.try_to_receive(me, Want::Any, Deadline::Never)
        });
        world::doom(2, Death::At(Point::MSG_CHANGED), 1);
        let changer = queue.spawn(2, |queue, me| queue.change(me, SEND, 1));
        assert_eq!(thread::join(changer), None);
        queue.direct(|queue, me| queue.send(me, (1, 5), LATER).unwrap());
        assert_eq!(alive(receiver), Err(Failed::Denied));
        queue.direct(|queue, me| queue.change(me, SEND | RECEIVE, 1).unwrap());
        assert_eq!(queue.empty(), [(1, 5)]);
        queue.audit();
    });
}

#[test]
fn a_blocked_sender_is_judged_again_when_there_is_room() {
    explore("typed change: no right to send", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        let sender = queue.spawn(1, |queue, me| {
            queue.try_to_send(me, (2, 5), Deadline::Never)
        });
        queue.direct(|queue, me| {
            queue.change(me, RECEIVE, 1).unwrap();
            let received = queue.receive(me, Want::Any, Deadline::Passed);
            assert_eq!(received, Ok((1, 5)));
        });
        assert_eq!(alive(sender), Err(Failed::Denied));
        queue.direct(|queue, me| queue.change(me, SEND | RECEIVE, 1).unwrap());
        assert_eq!(queue.empty(), []);
        queue.audit();
    });
}

#[test]
fn a_larger_queue_lets_a_blocked_sender_go_on() {
    explore("typed change: more room", 3, Slices::Endless, || {
        let queue = Queue::new(2);
        queue.direct(|queue, me| {
            queue.change(me, SEND | RECEIVE, 1).unwrap();
            queue.send(me, (1, 5), Deadline::Passed).unwrap();
        });
        let sender = queue.spawn(1, |queue, me| queue.send(me, (2, 5), Deadline::Never));
        queue.direct(|queue, me| queue.change(me, SEND | RECEIVE, 2).unwrap());
        assert_eq!(alive(sender), Ok(()));
        assert_eq!(queue.empty(), [(1, 5), (2, 5)]);
        queue.audit();
    });
}

#[test]
fn a_signal_and_a_message_decide_for_one_of_them() {
    explore(
        "typed change: a signal for a receiver",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1);
            world::interrupt(1);
            let receiver =
                queue.spawn(1, |queue, me| queue.receive(me, Want::Any, Deadline::Never));
            queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
            let received = match alive(receiver) {
                Ok(message) => Some(message),
                Err(refused) => {
                    assert_eq!(refused, Refused::Interrupted);
                    None
                }
            };
            queue.settle(&[received], &[(1, 5)]);
        },
    );
}

#[test]
fn a_signal_and_room_decide_for_one_of_them() {
    explore(
        "typed change: a signal for a sender",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1);
            queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
            world::interrupt(1);
            let sender = queue.spawn(1, |queue, me| queue.send(me, (2, 5), Deadline::Never));
            let first = queue.direct(|queue, me| queue.receive(me, Want::Any, Deadline::Passed));
            assert_eq!(first, Ok((1, 5)));
            let left = match alive(sender) {
                Ok(()) => vec![(2, 5)],
                Err(refused) => {
                    assert_eq!(refused, Refused::Interrupted);
                    Vec::new()
                }
            };
            assert_eq!(queue.empty(), left);
            queue.audit();
        },
    );
}
