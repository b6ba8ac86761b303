//! Notification: registering, firing and withdrawing during sends and receives, and deaths between the steps.
//!
//! | a defect | its effect here |
//! |---|---|
//! | no decision before a message is taken | a message that came, and was received at once, notifies no process |
//! | no decision when the lock is released; no second check after the store to the flag, or no fence between them; senders are not asked to decide | no process is told of a message, or a thread that waits for it sleeps without end |
//! | firing without a compare-and-swap | a withdrawn registration is fired |
//! | a repair does not check which process is registered | no process is told of a message |
//! | a sender raises a signal without a compare-and-swap before it | a withdrawn registration causes a signal |
//! | the process does not wait for a sender that raises its signal | both raise it |
//! | a repair leaves a record whose signal a dead sender was raising | no process raises it |

use super::stage::{LATER, Queue, Slices, alive, explore, polled};
use super::subject::Subject;
use crate::consent::Shown;
use crate::crash::Point;
use crate::lock::SLICE;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::{Claim, NOTICE, Outcome, Refused, RegisterError, What};
use crate::sync::{AtomicU32, Ordering};
use crate::sys::clock::Deadline;
use crate::sys::futex;
use crate::waiters::{List, Waiters};
use std::sync::Arc;

/// A record, and the value of its word.
type Place = (u32, u32);

fn register(queue: &Queue, me: &Thread, what: What) -> Result<Place, RegisterError> {
    let claim = Claim {
        what,
        signal: 1,
        ticket: 0,
        shown: Shown::default(),
    };
    queue.engine().register(me, &claim)
}

/// Registers for a signal, and shows senders that the process consents to it.
fn register_consenting(queue: &Queue, me: &Thread) -> Place {
    let claim = Claim {
        what: What::Signal,
        signal: 1,
        ticket: 1,
        shown: Shown {
            descriptor: 0,
            place: 1,
        },
    };
    queue.engine().register(me, &claim).unwrap()
}

/// Waits as the helper thread does, in a process that is registered for a signal. Returns the number of signals that it raises.
fn help(queue: &Queue, me: &Thread, place: Place) -> u32 {
    loop {
        match outcome(queue, place) {
            Outcome::Armed => {
                let found = queue.engine().notice_word(place.0, place.1);
                let (word, value) = found.expect("a record");
                futex::wait(word, value, Deadline::Never.or_slice(SLICE));
                queue.engine().fire_if_due(me);
            }
            Outcome::Fired { .. } => {
                queue.engine().acknowledge_notice(place.0, place.1);
                return 1;
            }
            Outcome::Gone => return 0,
        }
    }
}

fn outcome(queue: &Queue, place: Place) -> Outcome {
    queue.engine().outcome(place.0, place.1)
}

fn is_fired(queue: &Queue, place: Place) -> bool {
    matches!(outcome(queue, place), Outcome::Fired { .. })
}

/// Sleeps until the registration is fired, and acknowledges the notification. `deadline` says when the thread next checks the queue.
fn wait(queue: &Queue, me: &Thread, place: Place, deadline: impl Fn() -> Deadline) {
    while !is_fired(queue, place) {
        let found = queue.engine().notice_word(place.0, place.1);
        let (word, value) = found.expect("a record");
        futex::wait(word, value, deadline());
        if deadline() != Deadline::Never {
            queue.engine().fire_if_due(me);
        }
    }
}

/// Checks that the registration was fired, or that the next message to the empty queue fires it.
fn expect_to_be_fired_at_last(queue: &Queue, place: Place) {
    queue.direct(|queue, me| {
        if outcome(queue, place) == Outcome::Armed {
            assert!(queue.engine().counts().messages != 0, "it was not fired");
            let wait_flags = &queue.engine().segment().fixed().wait_flags;
            let is_wanted = wait_flags.attention() & NOTICE != 0;
            assert!(!is_wanted, "a message is there, and nobody was told of it");
            while queue.receive(me, Deadline::Passed).is_ok() {}
            queue.send(me, (99, 0), Deadline::Passed).unwrap();
        }
    });
    assert!(is_fired(queue, place));
    queue.engine().acknowledge_notice(place.0, place.1);
    queue.empty();
    queue.audit();
}

/// Returns a queue with this number of messages, and a registration that the director has made.
fn registered(max_messages: usize, messages: u64) -> (Queue, Place) {
    let queue = Queue::new(max_messages, max_messages);
    let place = queue.direct(|queue, me| {
        for number in 1..=messages {
            queue.send(me, (number, 0), Deadline::Passed).unwrap();
        }
        register(queue, me, What::Wait).unwrap()
    });
    (queue, place)
}

#[test]
fn a_registration_and_a_message_see_each_other() {
    explore("notice: register and send", 3, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        let registrar = queue.spawn(1, |queue, me| register(queue, me, What::Wait));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        let place = alive(registrar).unwrap();
        expect_to_be_fired_at_last(&queue, place);
    });
}

#[test]
fn a_process_that_empties_the_queue_and_then_waits_is_notified_of_the_next() {
    explore(
        "notice: register, receive, wait",
        2,
        Slices::Endless,
        || {
            let queue = Queue::new(2, 2);
            let reader = queue.spawn(1, |queue, me| {
                let place = register(queue, me, What::Wait).unwrap();
                if queue.receive(me, Deadline::Passed).is_err() {
                    wait(queue, me, place, || Deadline::Never);
                    queue.receive(me, Deadline::Passed).unwrap();
                }
                place
            });
            queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
            let place = alive(reader);
            expect_to_be_fired_at_last_or_was(&queue, place);
        },
    );
}

/// Checks the registration as [`expect_to_be_fired_at_last`] does. The queue may also be empty, with the registration armed for the next message.
fn expect_to_be_fired_at_last_or_was(queue: &Queue, place: Place) {
    queue.direct(|queue, me| {
        if outcome(queue, place) == Outcome::Armed {
            queue.send(me, (98, 0), Deadline::Passed).unwrap();
        }
    });
    expect_to_be_fired_at_last(queue, place);
}

#[test]
fn what_comes_and_goes_has_notified() {
    explore("notice: send beside receive", 2, Slices::Endless, || {
        let (queue, place) = registered(1, 0);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Passed));
        let received = queue.direct(|queue, me| polled(|| queue.receive(me, Deadline::Passed)));
        assert_eq!((received, alive(sender)), ((1, 0), Ok(())));
        assert!(is_fired(&queue, place));
        expect_to_be_fired_at_last(&queue, place);
    });
}

#[test]
fn a_queue_that_is_emptied_is_watched_from_then_on() {
    explore("notice: empty beside send", 3, Slices::Endless, || {
        let (queue, place) = registered(2, 1);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Passed));
        queue.direct(|queue, me| queue.send(me, (2, 0), Deadline::Passed).unwrap());
        assert_eq!(alive(receiver), Ok((1, 0)));
        expect_to_be_fired_at_last(&queue, place);
    });
}

#[test]
fn a_blocked_receiver_comes_first() {
    explore("notice: blocked receiver", 2, Slices::Endless, || {
        let (queue, place) = registered(1, 0);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Never));
        let was_blocked = queue.direct(|queue, me| {
            let waiters = Waiters::of(queue.engine().segment());
            let was_blocked = waiters.len(List::Receivers) != 0;
            queue.send(me, (1, 0), Deadline::Passed).unwrap();
            was_blocked
        });
        assert_eq!(alive(receiver), Ok((1, 0)));
        assert!(!was_blocked || !is_fired(&queue, place));
        expect_to_be_fired_at_last_or_was(&queue, place);
    });
}

#[test]
fn a_withdrawal_and_a_message_decide_for_one_of_them() {
    explore("notice: withdraw and send", 3, Slices::Endless, || {
        let (queue, place) = registered(2, 0);
        let owner = queue.spawn(1, move |queue, _| queue.engine().withdraw(place.0, place.1));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        assert_ne!(alive(owner), is_fired(&queue, place));
        // Whether the withdrawal or the message came first, another process can register now.
        let next = queue.direct(|queue, me| register(queue, me, What::Wait).unwrap());
        expect_to_be_fired_at_last(&queue, next);
    });
}

#[test]
fn one_of_two_is_registered() {
    explore("notice: two registrations", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let other = queue.spawn(1, |queue, me| register(queue, me, What::Wait));
        let own = queue.direct(|queue, me| register(queue, me, What::Wait));
        match (alive(other), own) {
            (Ok(place), Err(RegisterError::Busy)) | (Err(RegisterError::Busy), Ok(place)) => {
                expect_to_be_fired_at_last_or_was(&queue, place);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_signal_has_been_raised_when_the_send_returns() {
    explore("notice: raised", 2, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let place = queue.direct(|queue, me| register(queue, me, What::Signal).unwrap());
        let raised = Arc::new(AtomicU32::new(0));
        let signal = Arc::clone(&raised);
        let owner = queue.spawn(1, move |queue, me| {
            wait(queue, me, place, || Deadline::Never);
            // Relaxed: the acknowledgement publishes this store.
            signal.store(1, Ordering::Relaxed);
            queue.engine().acknowledge_notice(place.0, place.1);
        });
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        assert_eq!(raised.load(Ordering::Relaxed), 1);
        alive(owner);
        assert_eq!(outcome(&queue, place), Outcome::Gone);
        queue.empty();
        queue.audit();
    });
}

/// Lets a sender die at that point, while the registered process waits.
fn a_sender_dies_at(point: Point) {
    explore(&format!("notice: {point:?}"), 2, Slices::End, move || {
        let queue = Queue::new(1, 1);
        let place = queue.direct(|queue, me| register(queue, me, What::Wait).unwrap());
        world::doom(1, Death::At(point), 1);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Passed));
        queue.direct(|queue, me| {
            let slice = || Deadline::Never.or_slice(SLICE);
            wait(queue, me, place, slice);
        });
        assert!(thread::join(sender).is_none());
        expect_to_be_fired_at_last(&queue, place);
    });
}

#[test]
fn a_dead_senders_message_notifies_all_the_same() {
    for point in [
        Point::SEND_PUBLISHED,
        Point::SEND_UNSERVED,
        Point::NOTICE_NOTED,
        Point::NOTICE_FIRED,
        Point::NOTICE_UNTOLD,
    ] {
        a_sender_dies_at(point);
    }
}

#[test]
fn a_dead_senders_message_notifies_though_its_repairer_dies() {
    let seconds = [
        Point::REPAIR_SURVEYED,
        Point::REPAIR_FREED,
        Point::NOTICE_NOTED,
        Point::NOTICE_FIRED,
    ];
    for second in seconds {
        explore(
            &format!("notice: two deaths, {second:?}"),
            1,
            Slices::End,
            move || {
                let queue = Queue::new(2, 2);
                let place = queue.direct(|queue, me| register(queue, me, What::Wait).unwrap());
                world::doom(1, Death::At(Point::NOTICE_NOTED), 1);
                let first = thread::live(1, |me| queue.send(me, (1, 0), Deadline::Passed));
                assert!(first.is_none());
                world::doom(2, Death::At(second), 1);
                let repairer = queue.spawn(2, |queue, me| queue.send(me, (2, 0), LATER));
                queue.direct(|queue, me| {
                    let slice = || Deadline::Never.or_slice(SLICE);
                    wait(queue, me, place, slice);
                });
                let _ = thread::join(repairer);
                expect_to_be_fired_at_last(&queue, place);
            },
        );
    }
}

#[test]
fn a_process_that_dies_while_it_registers_is_not_registered() {
    for point in [
        Point::NOTICE_FILLED,
        Point::NOTICE_DECIDED,
        Point::NOTICE_ARMED,
    ] {
        explore(&format!("notice: {point:?}"), 2, Slices::End, move || {
            let queue = Queue::new(2, 2);
            world::doom(1, Death::At(point), 1);
            let victim = queue.spawn(1, |queue, me| register(queue, me, What::Wait).map(|_| ()));
            queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
            assert!(thread::join(victim).is_none());
            let place = queue.direct(|queue, me| register(queue, me, What::Wait).unwrap());
            expect_to_be_fired_at_last(&queue, place);
        });
    }
}

#[test]
fn a_receiver_that_dies_when_it_has_emptied_the_queue_does_not_hide_that() {
    for point in [Point::RECEIVE_TAKEN, Point::RECEIVE_FREED] {
        explore(&format!("notice: {point:?}"), 2, Slices::End, move || {
            let (queue, place) = registered(2, 1);
            world::doom(1, Death::At(point), 1);
            let victim = queue.spawn(1, |queue, me| {
                queue.receive(me, Deadline::Passed).map(|_| ())
            });
            let sent = queue.direct(|queue, me| queue.send(me, (2, 0), Deadline::Passed));
            assert_eq!(sent, Ok(()));
            assert!(thread::join(victim).is_none());
            // The registered process makes the same call at the end of each slice.
            queue.direct(|queue, me| queue.engine().fire_if_due(me));
            assert!(
                is_fired(&queue, place),
                "nobody would be told of the second"
            );
            expect_to_be_fired_at_last(&queue, place);
        });
    }
}

#[test]
fn a_registration_does_not_hold_up_a_process_that_is_refused() {
    explore("notice: refusals", 2, Slices::Endless, || {
        let (queue, place) = registered(1, 0);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Passed));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        let received = alive(receiver);
        assert!(matches!(received, Ok((1, 0)) | Err(Refused::NotNow)));
        assert!(is_fired(&queue, place));
        expect_to_be_fired_at_last(&queue, place);
    });
}

#[test]
fn a_sender_raises_the_signal_of_a_process_that_consents_and_the_process_does_not() {
    explore("notice: raise", 2, Slices::End, || {
        let queue = Queue::new(1, 1);
        let place = thread::live(1, |me| register_consenting(&queue, me)).expect("alive");
        let owner = queue.spawn(1, move |queue, me| help(queue, me, place));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        assert_eq!(world::signals(), 1, "before the send returns");
        assert_eq!(alive(owner), 0);
        queue.empty();
        queue.audit();
    });
}

#[test]
fn a_withdrawal_and_a_sender_that_raises_the_signal_decide_for_one_of_them() {
    explore("notice: withdraw and raise", 3, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        let place = thread::live(1, |me| register_consenting(&queue, me)).expect("alive");
        let owner = queue.spawn(1, move |queue, _| queue.engine().withdraw(place.0, place.1));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        let is_withdrawn = alive(owner);
        assert_eq!(world::signals(), u32::from(!is_withdrawn));
        assert_eq!(outcome(&queue, place), Outcome::Gone);
        let next = queue.direct(|queue, me| register(queue, me, What::Wait).unwrap());
        expect_to_be_fired_at_last(&queue, next);
    });
}

#[test]
fn the_process_raises_the_signal_that_a_dead_sender_was_raising() {
    for point in [Point::NOTICE_RAISING, Point::NOTICE_SIGNALLED] {
        explore(&format!("notice: {point:?}"), 2, Slices::End, move || {
            let queue = Queue::new(1, 1);
            let place = thread::live(1, |me| register_consenting(&queue, me)).expect("alive");
            world::doom(2, Death::At(point), 1);
            let sender = queue.spawn(2, |queue, me| queue.send(me, (1, 0), Deadline::Passed));
            let owner = queue.spawn(1, move |queue, me| help(queue, me, place));
            assert!(thread::join(sender).is_none());
            let raised = alive(owner);
            assert_eq!(raised, 1);
            // The signal is raised twice only if the sender died in between.
            assert_eq!(
                world::signals(),
                u32::from(point == Point::NOTICE_SIGNALLED)
            );
            queue.empty();
            queue.audit();
        });
    }
}
