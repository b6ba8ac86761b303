//! System V queues: two deaths. A process dies in an operation, and the next process dies during the repair, while a bystander continues.
//!
//! The models are built as in `two_deaths`. The queue has one lock, so the second thread finds every operation of the first thread. The second thread
//! dies at each point of `REPAIR`, and after `MSG_ADMITTED` also at `MSG_SENT`. In the tests with real processes, a repairer dies at each point that
//! a repairer passes (`sysv_crash_points::a_repairer_that_is_killed_is_itself_repaired`). A removed queue is not repaired: a process that finds the
//! queue removed leaves it as it is.
//!
//! | a defect | its effect here |
//! |---|---|
//! | a repair ends or begins a thing, such as a number, a node's list or a record, before the changes on which that thing depends | a message is lost, or comes twice |
//! | the next repair trusts the results of the previous one | a slot is lost, or is free twice |
//! | a waiter is not woken although the repair is done twice | a deadlock |

use super::stage::{LATER, alive};
use super::subject::{Subject, optional};
use super::sysv_stage::{Message, Queue, RECEIVE, SEND};
use super::two_deaths::{dies, dies_at};
use crate::crash::Point;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;
use crate::sysv_engine::Refused;
use crate::sysv_engine::order::Want;

/// The points of a repair.
const REPAIR: [Point; 3] = [Point::MSG_SURVEYED, Point::MSG_CLEARED, Point::MSG_ORDERED];

/// Lets thread 1 receive, or die at this point.
fn dies_receiving(queue: &Queue, point: Point) -> Option<Option<Message>> {
    world::doom(1, Death::At(point), 1);
    thread::live(1, |me| {
        optional(queue.receive(me, Want::Any, Deadline::Passed))
    })
}

/// Runs a queue with one message, in which a process runs `life` and dies. Then a process that wants to receive dies during the repair, while another
/// process runs. Checks that the `expected` messages were received or remain.
fn dies_twice(name: &str, first: Point, life: fn(&Queue, &Thread), expected: &'static [Message]) {
    dies_at(name, first, &REPAIR, move |second| {
        let queue = Queue::new(4).filled(&[(1, 5)]);
        assert!(dies(first, |me| life(&queue, me)));
        world::doom(1, Death::At(second), 1);
        let receive = |queue: &Queue, me: &Thread| optional(queue.receive(me, Want::Any, LATER));
        let victim = queue.spawn(1, receive);
        let bystander = queue.spawn(2, receive);
        let victim = thread::join(victim);
        let received = [victim.flatten(), alive(bystander)];
        queue.settle(&received, expected);
        victim.is_none()
    });
}

#[test]
fn what_the_dead_had_sent_is_there_though_its_repairer_dies() {
    let send = |queue: &Queue, me: &Thread| {
        let _ = queue.send(me, (2, 6), Deadline::Passed);
    };
    dies_twice("a typed sender", Point::MSG_FILLED, send, &[(1, 5)]);
    dies_twice("a typed sender", Point::MSG_SENT, send, &[(1, 5), (2, 6)]);
}

#[test]
fn a_batch_of_the_dead_is_whole_or_not_there_though_its_repairer_dies() {
    let send = |queue: &Queue, me: &Thread| {
        let _ = queue.send_batch(me, &[(2, 6), (3, 5)], Deadline::Passed);
    };
    let batch = "a typed batch";
    dies_twice(batch, Point::MSG_BATCH_FILLED, send, &[(1, 5)]);
    let all = &[(1, 5), (2, 6), (3, 5)];
    dies_twice(batch, Point::MSG_BATCH_SENT, send, all);
}

#[test]
fn what_the_dead_had_leased_comes_back_though_its_repairer_dies() {
    let acknowledge = |queue: &Queue, me: &Thread| {
        let (_, handle) = queue.lease(me, Want::Any, Deadline::Passed).unwrap();
        let _ = queue.engine().acknowledge(me, &handle);
    };
    let give_back = |queue: &Queue, me: &Thread| {
        let (_, handle) = queue.lease(me, Want::Any, Deadline::Passed).unwrap();
        let _ = queue.engine().give_back(me, &handle);
    };
    let lease = "a typed lease";
    dies_twice(lease, Point::MSG_LEASED, acknowledge, &[(1, 5)]);
    dies_twice(lease, Point::MSG_ACKNOWLEDGED, acknowledge, &[]);
    dies_twice(lease, Point::MSG_RETURNED, give_back, &[(1, 5)]);
}

#[test]
fn a_message_that_the_dead_was_handing_over_is_received_once_though_its_repairer_dies() {
    for first in [Point::MSG_NOTED, Point::MSG_OFFERED] {
        dies_at("a typed hand-over", first, &REPAIR, move |second| {
            let queue = Queue::new(1);
            let receiver =
                queue.spawn(2, |queue, me| optional(queue.receive(me, Want::Any, LATER)));
            let is_first_dead = dies(first, |me| queue.send(me, (1, 5), LATER));
            let victim = dies_receiving(&queue, second);
            let received = [alive(receiver), victim.flatten()];
            queue.settle(&received, &[(1, 5)]);
            is_first_dead && victim.is_none()
        });
    }
}

#[test]
fn an_offer_that_the_dead_was_clearing_away_was_received_once_though_its_repairer_dies() {
    let first = Point::MSG_REAPED;
    dies_at("a typed reaper", first, &REPAIR, move |second| {
        let queue = Queue::new(2);
        let receive = |queue: &Queue, me: &Thread| optional(queue.receive(me, Want::Any, LATER));
        let receiver = queue.spawn(4, receive);
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        assert_eq!(alive(receiver), Some((1, 5)));
        // The thread passes the point if the receiver has accepted the offer.
        let is_first_dead = dies(first, |me| queue.send(me, (2, 6), Deadline::Passed));
        let bystander = queue.spawn(2, receive);
        let victim = dies_receiving(&queue, second);
        let received = [alive(bystander), victim.flatten()];
        let expected: &[_] = match is_first_dead {
            true => &[],
            false => &[(2, 6)],
        };
        queue.settle(&received, expected);
        is_first_dead && victim.is_none()
    });
}

#[test]
fn a_message_that_the_dead_was_letting_in_is_sent_once_though_its_repairer_dies() {
    for first in [Point::MSG_ADMITTED, Point::MSG_SENT] {
        // A repair sends the message that was admitted and has no number.
        let seconds = [REPAIR[0], REPAIR[1], REPAIR[2], Point::MSG_SENT];
        let seconds = match first {
            Point::MSG_ADMITTED => &seconds[..],
            _ => &REPAIR,
        };
        dies_at("a typed admission", first, seconds, move |second| {
            let queue = Queue::new(1).filled(&[(1, 5)]);
            let sender = queue.spawn(2, |queue, me| queue.send(me, (2, 6), LATER));
            let is_first_dead = dies(first, |me| queue.receive(me, Want::Any, Deadline::Passed));
            let victim = dies_receiving(&queue, second);
            assert_eq!(alive(sender), Ok(()));
            // The first receiver has received the first message, even if it died.
            queue.settle(&[victim.flatten()], &[(2, 6)]);
            is_first_dead && victim.is_none()
        });
    }
}

#[test]
fn a_waiter_is_checked_again_though_the_process_that_changed_the_rights_and_the_repairer_are_dead()
{
    let first = Point::MSG_CHANGED;
    dies_at("a change of rights", first, &REPAIR, move |second| {
        let queue = Queue::new(1);
        let receiver = queue.spawn(2, |queue, me| {
            queue
                .try_to_receive(me, Want::Any, Deadline::Never)
                .is_err()
        });
        assert!(dies(first, |me| queue.change(me, SEND, 1)));
        world::doom(1, Death::At(second), 1);
        let send = |me: &Thread| queue.send(me, (1, 5), LATER);
        let is_second_dead = thread::live(1, send).is_none();
        queue.direct(|queue, me| {
            if is_second_dead {
                queue.send(me, (1, 5), LATER).unwrap();
            }
        });
        assert!(alive(receiver), "received what it may not");
        queue.direct(|queue, me| queue.change(me, SEND | RECEIVE, 1).unwrap());
        assert_eq!(queue.empty(), [(1, 5)]);
        queue.audit();
        is_second_dead
    });
}
