//! Blocking, handing over, waking; and a time-out in the middle of it.
//!
//! | a defect | its effect here |
//! |---|---|
//! | no barrier between the stamp and the flag, or between the flag and the stamps; no second check | a deadlock |
//! | the sender does not serve, or does not wake; a receive admits no blocked sender, or does not wake it | a deadlock |
//! | the end of a wait does not read the outcome of its node | a message is lost, or sent twice |
//! | a receiver that comes later is served before a waiter | it gets the message of the waiter |

use super::stage::{LATER, Message, Queue, SOON, Slices, alive, explore};
use super::subject::{Subject, optional};
use crate::lock::SLICE;
use crate::posix_engine::{RECEIVERS, Refused};
use crate::sync::{Ordering, spin_hint};
use crate::sys::clock::Deadline;

#[test]
fn a_sender_and_a_receiver_that_goes_to_sleep_see_each_other() {
    explore("handover: one message", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Never));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        assert_eq!(alive(receiver), Ok((1, 0)));
        queue.audit();
    });
}

#[test]
fn each_sleeping_receiver_gets_a_message() {
    explore("handover: two receivers", 1, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        let receivers =
            [1, 2].map(|tid| queue.spawn(tid, |queue, me| queue.receive(me, Deadline::Never)));
        queue.direct(|queue, me| {
            for number in 1..=2 {
                queue.send(me, (number, 0), Deadline::Passed).unwrap();
            }
        });
        let received = receivers.map(|receiver| alive(receiver).ok());
        queue.settle(&received, &[(1, 0), (2, 0)]);
    });
}

#[test]
fn a_time_out_and_a_message_decide_for_one_of_them() {
    explore(
        "handover: time-out of a receiver",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1, 1);
            let receiver = queue.spawn(1, |queue, me| optional(queue.receive(me, SOON)));
            queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
            let received = alive(receiver);
            queue.settle(&[received], &[(1, 0)]);
        },
    );
}

#[test]
fn a_message_that_one_receiver_gave_up_goes_to_the_next() {
    explore("handover: time-out of one of two", 1, Slices::End, || {
        let queue = Queue::new(1, 1);
        let hasty = queue.spawn(1, |queue, me| optional(queue.receive(me, SOON)));
        let patient = queue.spawn(2, |queue, me| queue.receive(me, Deadline::Never));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        let hasty = alive(hasty);
        if hasty.is_some() {
            queue.direct(|queue, me| queue.send(me, (2, 0), Deadline::Passed).unwrap());
        }
        let patient = alive(patient).unwrap();
        assert_eq!(hasty.is_some(), patient == (2, 0));
        queue.audit();
    });
}

#[test]
fn a_sleeping_sender_gets_the_room_that_a_receive_makes() {
    explore("handover: a blocked sender", 2, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        let sender = queue.spawn(1, |queue, me| queue.send(me, (2, 1), Deadline::Never));
        queue.direct(|queue, me| {
            assert_eq!(queue.receive(me, Deadline::Never), Ok((1, 0)));
            assert_eq!(queue.receive(me, Deadline::Never), Ok((2, 1)));
        });
        assert_eq!(alive(sender), Ok(()));
        queue.audit();
    });
}

#[test]
fn a_time_out_and_room_decide_for_one_of_them() {
    explore("handover: time-out of a sender", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        let sender = queue.spawn(1, |queue, me| queue.send(me, (2, 1), SOON));
        let first = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        let sent = alive(sender);
        let mut expected = vec![(1, 0)];
        match sent {
            Ok(()) => expected.push((2, 1)),
            Err(refused) => assert_eq!(refused, Refused::TimedOut),
        }
        queue.settle(&[optional(first)], &expected);
    });
}

#[test]
fn a_newcomer_does_not_get_what_a_sleeper_waits_for() {
    explore("handover: a newcomer", 2, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let sleeper = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Never));
        queue.direct(|queue, me| {
            let wait_flags = &queue.engine().segment().fixed().wait_flags;
            while wait_flags.attention() != RECEIVERS {
                spin_hint();
            }
            let sender = queue.spawn(2, |queue, me| {
                queue.send(me, (1, 0), Deadline::Passed).unwrap()
            });
            assert_eq!(queue.receive(me, Deadline::Passed), Err(Refused::NotNow));
            alive(sender);
        });
        assert_eq!(alive(sleeper), Ok((1, 0)));
        queue.audit();
    });
}

#[test]
fn an_offer_that_is_not_taken_up_goes_to_somebody_else() {
    explore("handover: a stopped receiver", 2, Slices::End, || {
        let queue = Queue::new(1, 1);
        let stopped = queue.spawn(1, |queue, me| optional(queue.receive(me, LATER)));
        let sender = queue.spawn(2, |queue, me| {
            queue.send(me, (1, 0), Deadline::Passed).unwrap()
        });
        let newcomer = queue.direct(|queue, me| {
            // By the clock of this thread, the stopped thread has not run for a long time.
            me.oversleep(2 * SLICE);
            optional(queue.receive(me, Deadline::Passed))
        });
        let stopped = alive(stopped);
        alive(sender);
        queue.settle(&[stopped, newcomer], &[(1, 0)]);
    });
}
