//! System V queues: death at each crash point of an operation, while a bystander continues.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the repair forgets the messages of nodes, ends an offer that was not accepted, or does not end an accepted one | a message is lost, or comes twice |
//! | the repair does not finish an admission whose sender knows of it, or starts such an admission again | a message is lost, or repeated |
//! | a waiter's node is not named to the kernel, or messages are offered to the dead | a deadlock |
//! | a repairer reads the guarded data when it wakes all processes, after it has released the lock | a race on the number of nodes |

use super::scenario::{Act, Fate, Scenario};
use super::stage::{DIRECTOR, LATER, Slices, alive, explore};
use super::subject::{Subject, explore_death, optional};
use super::sysv_stage::Queue;
use crate::crash::Point;
use crate::lock::SLICE;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;
use crate::sysv_engine::order::Want;
use Act::{Receive, Send};
use Fate::{Either, Gone, There};
use Want::{Any, Exactly};

#[test]
fn a_sender_dies_and_another_goes_on() {
    Scenario {
        name: "a sender beside a sender",
        queue: || Queue::new(3),
        before: &[(1, 5)],
        victim: Send((2, 6)),
        bystanders: &[Send((3, 5))],
        preemptions: 3,
    }
    .dies_at(&[
        (Point::MSG_FILLED, Gone),
        (Point::MSG_SENT, There),
        (Point::MSG_LINKED, There),
    ]);
}

#[test]
fn a_receiver_dies_and_another_goes_on() {
    Scenario {
        name: "a receiver beside a receiver",
        queue: || Queue::new(3),
        before: &[(1, 5), (2, 6)],
        victim: Receive(Any),
        bystanders: &[Receive(Any)],
        preemptions: 3,
    }
    .dies_at(&[(Point::MSG_COPIED, There), (Point::MSG_ENDED, Gone)]);
}

#[test]
fn a_blocked_receiver_dies_and_swallows_nothing() {
    Scenario {
        name: "a blocked receiver",
        queue: || Queue::new(1),
        before: &[],
        victim: Receive(Any),
        bystanders: &[Send((1, 5))],
        preemptions: 3,
    }
    .dies_at(&[
        (Point::MSG_CLAIMED, There),
        (Point::MSG_LISTED, There),
        (Point::MSG_NAMED, There),
        (Point::MSG_WOKEN, There),
        (Point::MSG_TAKEN_UP, There),
    ]);
}

#[test]
fn a_sender_dies_while_it_hands_a_message_over() {
    let scenario = Scenario {
        name: "a sender that hands over",
        queue: || Queue::new(1),
        before: &[],
        victim: Send((1, 5)),
        bystanders: &[Receive(Any)],
        preemptions: 3,
    };
    scenario.dies_at(&[
        (Point::MSG_SENT, There),
        (Point::MSG_NOTED, There),
        (Point::MSG_OFFERED, There),
    ]);
    scenario.dies(Death::Waking, There, "the wake-up".into());
}

#[test]
fn a_receiver_dies_while_it_lets_a_blocked_sender_in() {
    let scenario = Scenario {
        name: "a receiver beside a blocked sender",
        queue: || Queue::new(1),
        before: &[(1, 5)],
        victim: Receive(Any),
        bystanders: &[Send((2, 6))],
        preemptions: 3,
    };
    scenario.dies_at(&[
        (Point::MSG_ENDED, Gone),
        (Point::MSG_ADMITTED, Gone),
        (Point::MSG_SENT, Gone),
        (Point::MSG_LINKED, Gone),
    ]);
    scenario.dies(Death::Waking, Gone, "the wake-up".into());
}

#[test]
fn a_receiver_dies_while_it_lets_a_sender_in_whose_message_another_receiver_takes() {
    Scenario {
        name: "a receiver, a blocked sender and a blocked receiver",
        queue: || Queue::new(1),
        before: &[(1, 5)],
        victim: Receive(Exactly(5)),
        bystanders: &[Send((2, 6)), Receive(Exactly(6))],
        preemptions: 2,
    }
    .dies_at(&[
        (Point::MSG_ADMITTED, Gone),
        (Point::MSG_SENT, Gone),
        (Point::MSG_NOTED, Gone),
        (Point::MSG_OFFERED, Gone),
    ]);
}

#[test]
fn a_blocked_sender_dies_and_leaves_no_slot_behind() {
    Scenario {
        name: "a blocked sender",
        queue: || Queue::new(1),
        before: &[(1, 5)],
        victim: Send((2, 6)),
        bystanders: &[Receive(Any)],
        preemptions: 3,
    }
    .dies_at(&[
        (Point::MSG_PARKED, Gone),
        (Point::MSG_CLAIMED, Gone),
        (Point::MSG_LISTED, Either),
        (Point::MSG_NAMED, Either),
        (Point::MSG_WOKEN, Either),
    ]);
}

#[test]
fn a_receiver_dies_while_it_clears_away_an_accepted_offer() {
    explore_death("typed death: at MSG_REAPED", 2, || {
        let queue = Queue::new(2);
        let receiver = queue.spawn(1, |queue, me| optional(queue.receive(me, Any, LATER)));
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        // The thread dies if it arrives after the receiver has accepted the offer.
        world::doom(2, Death::At(Point::MSG_REAPED), 1);
        let cleaner = queue.spawn(2, |queue, me| queue.send(me, (2, 6), Deadline::Passed));
        let received = alive(receiver);
        let second = thread::join(cleaner).map(|sent| sent.map(|()| (2, 6)).unwrap());
        let mut expected = vec![(1, 5)];
        expected.extend(second);
        queue.settle(&[received], &expected);
        second.is_none()
    });
}

#[test]
fn a_receiver_dies_while_it_takes_an_offer_back() {
    for point in [Point::MSG_PUT_BACK, Point::MSG_COPIED, Point::MSG_ENDED] {
        let name = format!("typed death: a newcomer at {point:?}");
        explore_death(&name, 2, move || {
            let queue = Queue::new(1);
            let slow = queue.spawn(1, |queue, me| optional(queue.receive(me, Any, LATER)));
            queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
            world::doom(2, Death::At(point), 1);
            let newcomer = queue.spawn(2, |queue, me| {
                // By the clock of this thread, the slow thread has not run for a long time.
                me.oversleep(2 * SLICE);
                optional(queue.receive(me, Any, Deadline::Passed))
            });
            let newcomer = thread::join(newcomer);
            let is_dead = newcomer.is_none();
            // At this point the message is already received: the thread dies after it has marked the message as ended.
            let taken = (is_dead && point == Point::MSG_ENDED).then_some((1, 5));
            let received = [alive(slow), newcomer.flatten(), taken];
            queue.settle(&received, &[(1, 5)]);
            is_dead
        });
    }
}

#[test]
fn the_repairer_dies_too() {
    for point in [Point::MSG_SURVEYED, Point::MSG_CLEARED, Point::MSG_ORDERED] {
        let name = format!("typed death: a repairer at {point:?}");
        explore(&name, 3, Slices::End, move || {
            let queue = Queue::new(3);
            queue.direct(|queue, me| {
                for message in [(1, 5), (2, 6), (3, 5)] {
                    queue.send(me, message, Deadline::Passed).unwrap();
                }
            });
            world::doom(DIRECTOR, Death::At(Point::MSG_ENDED), 1);
            let first = thread::live(DIRECTOR, |me| {
                queue.receive(me, Want::Lowest(9), Deadline::Passed)
            });
            assert!(first.is_none());
            world::doom(1, Death::At(point), 1);
            let receive = |by| move |queue: &Queue, me: &Thread| queue.receive(me, Any, by);
            let victim = queue.spawn(1, receive(Deadline::Passed));
            let bystander = queue.spawn(2, receive(LATER));
            let mut found = Vec::from_iter(thread::join(victim).map(Result::unwrap));
            found.push(alive(bystander).unwrap());
            found.extend(queue.empty());
            found.sort_unstable();
            // The first victim had taken the first message.
            assert_eq!(found, [(2, 6), (3, 5)]);
            queue.audit();
        });
    }
}

#[test]
fn a_repair_wakes_all_waiters_beside_one_that_begins_to_wait() {
    explore("typed death: waking everybody", 2, Slices::End, || {
        let queue = Queue::new(1);
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        world::doom(3, Death::At(Point::MSG_COPIED), 1);
        let victim = thread::live(3, |me| queue.receive(me, Any, Deadline::Passed));
        assert!(victim.is_none());
        // One of the receivers finds no message, and is the first thread that ever takes a waiter record.
        let receivers =
            [1, 2].map(|tid| queue.spawn(tid, |queue, me| optional(queue.receive(me, Any, LATER))));
        let received = receivers.map(alive);
        queue.settle(&received, &[(1, 5)]);
    });
}
