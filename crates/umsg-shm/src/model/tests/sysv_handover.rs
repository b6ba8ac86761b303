//! System V queues: blocking, handing over, waking; and a time-out in the middle of it.
//!
//! | a defect | its effect here |
//! |---|---|
//! | no fence between the mark of a sleeper and the check of the word, or between the word and the check for sleepers | a deadlock |
//! | the sender does not offer, or does not wake; a receive admits no blocked sender | a deadlock |
//! | the end of a wait does not read the outcome of its node | a message is lost, or sent twice |
//! | an offered message that was not accepted is not put back | a message is lost |

use super::stage::{LATER, SOON, Slices, alive, explore};
use super::subject::{Subject, optional};
use super::sysv_stage::{Message, Queue};
use crate::lock::SLICE;
use crate::sync::spin_hint;
use crate::sys::clock::Deadline;
use crate::sysv_engine::Refused;
use crate::sysv_engine::order::Want;
use crate::waiters::{List, Waiters};

/// Waits until this number of nodes is in a list.
fn wait_for(queue: &Queue, list: List, count: u32) {
    while Waiters::of(queue.engine().segment()).len(list) != count {
        spin_hint();
    }
}

/// Returns the message if it was sent, or None if the send timed out.
fn sent(result: Result<(), Refused>, message: Message) -> Option<Message> {
    match result {
        Ok(()) => Some(message),
        Err(refused) => {
            assert_eq!(refused, Refused::TimedOut);
            None
        }
    }
}

#[test]
fn a_sender_and_a_receiver_that_goes_to_sleep_see_each_other() {
    explore("typed handover: one message", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        let receiver = queue.spawn(1, |queue, me| {
            queue.receive(me, Want::Exactly(5), Deadline::Never)
        });
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        assert_eq!(alive(receiver), Ok((1, 5)));
        queue.audit();
    });
}

#[test]
fn of_two_receivers_one_gets_the_message() {
    explore("typed handover: two receivers", 2, Slices::Endless, || {
        let queue = Queue::new(1);
        let receivers = [1, 2].map(|tid| {
            queue.spawn(tid, |queue, me| {
                optional(queue.receive(me, Want::Any, SOON))
            })
        });
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        let received = receivers.map(alive);
        queue.settle(&received, &[(1, 5)]);
    });
}

#[test]
fn each_receiver_gets_the_message_of_its_type() {
    explore("typed handover: two types", 1, Slices::Endless, || {
        let queue = Queue::new(2);
        let receivers = [1, 2].map(|tid| {
            queue.spawn(tid, move |queue, me| {
                queue.receive(me, Want::Exactly(tid.into()), Deadline::Never)
            })
        });
        queue.direct(|queue, me| {
            for number in [2, 1] {
                let message = (number, number as i64);
                queue.send(me, message, Deadline::Passed).unwrap();
            }
        });
        let received = receivers.map(alive);
        assert_eq!(received, [Ok((1, 1)), Ok((2, 2))]);
        queue.audit();
    });
}

#[test]
fn a_time_out_and_a_message_decide_for_one_of_them() {
    explore(
        "typed handover: time-out of a receiver",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1);
            let receiver = queue.spawn(1, |queue, me| optional(queue.receive(me, Want::Any, SOON)));
            queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
            let received = alive(receiver);
            queue.settle(&[received], &[(1, 5)]);
        },
    );
}

#[test]
fn a_time_out_and_room_decide_for_one_of_them() {
    explore(
        "typed handover: time-out of a sender",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1);
            queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
            let sender = queue.spawn(1, |queue, me| sent(queue.send(me, (2, 5), SOON), (2, 5)));
            let first = queue.direct(|queue, me| queue.receive(me, Want::Any, Deadline::Passed));
            assert_eq!(first, Ok((1, 5)));
            let sent = alive(sender);
            let left = queue.empty();
            assert_eq!(left, Vec::from_iter(sent));
            queue.audit();
        },
    );
}

#[test]
fn a_blocked_sender_is_let_in_and_woken() {
    explore(
        "typed handover: a blocked sender",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1);
            queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
            let sender = queue.spawn(1, |queue, me| queue.send(me, (2, 6), Deadline::Never));
            queue.direct(|queue, me| {
                for expected in [(1, 5), (2, 6)] {
                    let want = Want::Exactly(expected.1);
                    assert_eq!(queue.receive(me, want, Deadline::Never), Ok(expected));
                }
            });
            assert_eq!(alive(sender), Ok(()));
            queue.audit();
        },
    );
}

#[test]
fn a_newcomer_does_not_get_what_a_sleeper_waits_for() {
    explore("typed handover: a newcomer", 2, Slices::Endless, || {
        let queue = Queue::new(1);
        let sleeper = queue.spawn(1, |queue, me| queue.receive(me, Want::Any, Deadline::Never));
        queue.direct(|queue, me| {
            wait_for(queue, List::Receivers, 1);
            let sender = queue.spawn(2, |queue, me| {
                queue.send(me, (1, 5), Deadline::Passed).unwrap()
            });
            let newcomer = queue.receive(me, Want::Any, Deadline::Passed);
            assert_eq!(newcomer, Err(Refused::NotNow));
            alive(sender);
        });
        assert_eq!(alive(sleeper), Ok((1, 5)));
        queue.audit();
    });
}

#[test]
fn an_offer_that_is_taken_back_while_it_is_taken_up_is_one_of_both() {
    explore("typed handover: a slow receiver", 2, Slices::End, || {
        let queue = Queue::new(1);
        let slow = queue.spawn(1, |queue, me| optional(queue.receive(me, Want::Any, LATER)));
        let sender = queue.spawn(2, |queue, me| {
            queue.send(me, (1, 5), Deadline::Passed).unwrap()
        });
        let newcomer = queue.direct(|queue, me| {
            // By the clock of this thread, the slow thread has not run for a long time.
            me.oversleep(2 * SLICE);
            optional(queue.receive(me, Want::Any, Deadline::Passed))
        });
        let slow = alive(slow);
        alive(sender);
        queue.settle(&[slow, newcomer], &[(1, 5)]);
    });
}

#[test]
fn a_slot_that_is_filled_again_while_it_is_copied_gives_no_message_twice() {
    explore(
        "typed handover: a slot filled again",
        2,
        Slices::End,
        || {
            let queue = Queue::new(1);
            let slow = queue.spawn(1, |queue, me| {
                optional(queue.receive(me, Want::Exactly(5), LATER))
            });
            let (first, second) = queue.direct(|queue, me| {
                wait_for(queue, List::Receivers, 1);
                queue.send(me, (1, 5), Deadline::Passed).unwrap();
                me.oversleep(2 * SLICE);
                let first = optional(queue.receive(me, Want::Any, Deadline::Passed));
                // If the slot of the first message is free, the second message goes into this slot.
                let second = sent(queue.send(me, (2, 6), Deadline::Monotonic(1)), (2, 6));
                (first, second)
            });
            let slow = alive(slow);
            let mut expected = vec![(1, 5)];
            expected.extend(second);
            queue.settle(&[slow, first], &expected);
        },
    );
}
