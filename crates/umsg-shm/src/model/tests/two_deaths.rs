//! Two deaths: a process dies in an operation, and the next process dies during the repair, while a bystander continues.
//!
//! The first thread dies alone, or while another process waits for it. The second thread dies at a chosen point, in all interleavings with the
//! bystander that have up to one preemption. No message is lost or repeated, except a message that a dead receiver had taken, and no slot is lost.
//! The models of System V queues are in `sysv_two_deaths`. The models of other protocols with two deaths are in `death`, `leases`, `lock`,
//! `notification` and `watch`.
//!
//! | after a death in | the second dies at |
//! |---|---|
//! | growing, parking, `ADMIT_ACCEPTED`, a turn, the receive of a ring's owner | each of `REPAIR` |
//! | handing over | the first and the last of `REPAIR` |
//! | `RECEIVE_ADMITTED`, a batch that was sent under a loan | the last of `REPAIR` |
//! | a batch that was received | the last of `REPAIR`, and `RECEIVE_RETURNED` |
//! | a batch that was sent | one point of removing or counting the batch, and one point of the repairer's own message |
//! | the announcement of a priority | two points of the repairer's own message |
//! | a send to a ring | four points of the repairer's own message |
//!
//! Other points for the second death are not explored. In the tests with real processes, a repairer dies at each point that a repairer
//! passes: `crash_points::a_repairer_that_is_killed_is_itself_repaired`.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the stamps of a batch are removed after `batch_end`, or `batch_end` is stored before the cursor | part of a batch is received |
//! | a repair ends the loan before it has repaired the senders' side, or does not begin again | a slot or a message is lost |
//! | a repair counts an offer or an admission as done before it is | a message is lost, or comes twice |
//! | a repair of the receivers' side looks at slots that a sender may be filling | a race on the cell |
//! | a receiver believes the announcement of two dead senders | a lower priority comes first |

use super::batch::{receive_batch, send_batch};
use super::ring_stage::{OWNER, Ring};
use super::stage::{LATER, Message, Queue, alive};
use super::subject::{Subject, explore_death, optional};
use crate::crash::Point;
use crate::doorbell::LEVELS;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::Refused;
use crate::sys::clock::Deadline;

/// The thread that dies first, if it dies alone.
const FIRST: u32 = 3;

/// The points of a repair of the receivers' side.
const REPAIR: [Point; 4] = [
    Point::REPAIR_SURVEYED,
    Point::REPAIR_CLEARED,
    Point::REPAIR_STORED,
    Point::REPAIR_FREED,
];

/// Explores the death of thread 1 at each of these points. Thread 1 dies during a repair, after another process died at the point `first`.
pub(super) fn dies_at(
    name: &str,
    first: Point,
    seconds: &[Point],
    play: impl Fn(Point) -> bool + Copy + Send + Sync + 'static,
) {
    for &second in seconds {
        let name = format!("two deaths: {name} at {first:?}, then {second:?}");
        explore_death(&name, 1, move || play(second));
    }
}

/// Runs `life` in a process that dies at the point. Returns whether the process reached the point.
pub(super) fn dies<T>(point: Point, life: impl FnOnce(&Thread) -> T) -> bool {
    world::doom(FIRST, Death::At(point), 1);
    thread::live(FIRST, life).is_none()
}

#[test]
fn a_batch_of_the_dead_is_whole_or_not_there_though_its_repairer_dies() {
    let deaths = [
        (
            Point::BATCH_NOTED,
            false,
            [Point::BATCH_TAKEN_BACK, Point::SEND_PUBLISHED],
        ),
        (
            Point::BATCH_STAMPED,
            false,
            [Point::BATCH_TAKEN_BACK, Point::SEND_FILLED],
        ),
        (
            Point::BATCH_PUBLISHED,
            true,
            [Point::BATCH_COUNTED, Point::SEND_PUBLISHED],
        ),
    ];
    for (first, is_sent, seconds) in deaths {
        dies_at("a batch", first, &seconds, move |second| {
            let queue = Queue::new(4, 4);
            assert!(dies(first, |me| {
                send_batch(&queue, me, &[(1, 0), (2, 0)], Deadline::Passed)
            }));
            world::doom(1, Death::At(second), 1);
            let victim = queue.spawn(1, |queue, me| queue.send(me, (3, 0), LATER));
            let bystander = queue.spawn(2, |queue, me| queue.send(me, (4, 0), LATER));
            let died = thread::join(victim).is_none();
            assert_eq!(alive(bystander), Ok(()));
            let mut expected = if is_sent {
                vec![(1, 0), (2, 0)]
            } else {
                vec![]
            };
            if !died || second == Point::SEND_PUBLISHED {
                expected.push((3, 0));
            }
            expected.push((4, 0));
            queue.settle(&[], &expected);
            died
        });
    }
}

#[test]
fn a_batch_that_the_dead_sent_with_both_locks_is_whole_or_not_there_though_its_repairer_dies() {
    for (first, is_sent) in [
        (Point::BATCH_STAMPED, false),
        (Point::BATCH_PUBLISHED, true),
    ] {
        // The loan of the sender lock has ended before this point.
        let seconds = [Point::REPAIR_FREED];
        dies_at("a batch under a loan", first, &seconds, move |second| {
            let queue = Queue::new(4, 4);
            // A send to a polled queue borrows the sender lock.
            queue.direct(|queue, me| queue.engine().watch(me, LEVELS).unwrap());
            assert!(dies(first, |me| {
                send_batch(&queue, me, &[(1, 0), (2, 0)], Deadline::Passed)
            }));
            world::doom(1, Death::At(second), 1);
            let bystander = queue.spawn(2, |queue, me| queue.send(me, (3, 0), LATER));
            let victim = thread::live(1, |me| queue.receive(me, Deadline::Passed));
            assert_eq!(alive(bystander), Ok(()));
            let expected: &[_] = match is_sent {
                true => &[(1, 0), (2, 0), (3, 0)],
                false => &[(3, 0)],
            };
            queue.settle(&[victim.and_then(optional)], expected);
            victim.is_none()
        });
    }
}

#[test]
fn a_batch_that_the_dead_had_received_leaves_its_slots_though_its_repairer_dies() {
    let first = Point::RECEIVE_BATCH_TAKEN;
    let seconds = [Point::RECEIVE_RETURNED, Point::REPAIR_FREED];
    dies_at("a received batch", first, &seconds, move |second| {
        let queue = Queue::new(2, 2).filled(&[(1, 0), (2, 0)]);
        assert!(dies(first, |me| receive_batch(
            &queue,
            me,
            2,
            Deadline::Passed
        )));
        // The repair frees two slots. At this point of the second pass, one of these slots is free.
        let nth = 1 + u32::from(second == Point::RECEIVE_RETURNED);
        world::doom(1, Death::At(second), nth);
        let bystander = queue.spawn(2, |queue, me| queue.send(me, (3, 0), LATER));
        let victim = thread::live(1, |me| queue.receive(me, Deadline::Passed));
        assert_eq!(alive(bystander), Ok(()));
        queue.settle(&[victim.and_then(optional)], &[(3, 0)]);
        victim.is_none()
    });
}

#[test]
fn a_queue_that_the_dead_was_growing_loses_no_slot_though_its_repairer_dies() {
    for first in [Point::GROW_DOUBLED, Point::GROW_COUNTED] {
        dies_at("growth", first, &REPAIR, move |second| {
            let queue = Queue::new(4, 2).filled(&[(1, 0), (2, 0)]);
            assert!(dies(first, |me| queue.send(me, (3, 0), Deadline::Passed)));
            world::doom(1, Death::At(second), 1);
            let bystander = queue.spawn(2, |queue, me| queue.send(me, (4, 0), LATER));
            let victim = thread::live(1, |me| queue.receive(me, Deadline::Passed));
            assert_eq!(alive(bystander), Ok(()));
            let received = victim.and_then(optional);
            queue.settle(&[received], &[(1, 0), (2, 0), (4, 0)]);
            victim.is_none()
        });
    }
}

#[test]
fn what_a_dead_sender_had_parked_leaves_its_slot_though_its_repairer_dies() {
    for first in [Point::PARK_SLOT_TAKEN, Point::WAIT_LISTED] {
        dies_at("a parked message", first, &REPAIR, move |second| {
            let queue = Queue::new(1, 2).filled(&[(1, 0)]);
            assert!(dies(first, |me| queue.send(me, (2, 0), LATER)));
            world::doom(1, Death::At(second), 1);
            let bystander = queue.spawn(2, |queue, me| queue.send(me, (3, 0), LATER));
            let victim = thread::live(1, |me| queue.receive(me, Deadline::Passed));
            let sent = alive(bystander);
            assert!(matches!(sent, Ok(()) | Err(Refused::TimedOut)));
            let mut all = queue.empty();
            all.extend(victim.and_then(optional));
            // A listed sender may be admitted before the others, because it is the first in the list.
            if first == Point::WAIT_LISTED {
                all.retain(|&message| message != (2, 0));
            }
            all.sort_unstable();
            let mut expected = vec![(1, 0)];
            expected.extend(sent.ok().map(|()| (3, 0)));
            assert_eq!(all, expected);
            queue.audit();
            victim.is_none()
        });
    }
}

#[test]
fn a_message_that_the_dead_was_handing_over_is_received_once_though_its_repairer_dies() {
    for first in [Point::SERVE_OFFERED, Point::SERVE_TAKEN] {
        let seconds = [Point::REPAIR_SURVEYED, Point::REPAIR_FREED];
        dies_at("a hand-over", first, &seconds, move |second| {
            let queue = Queue::new(1, 1);
            let receiver = queue.spawn(2, |queue, me| queue.receive(me, LATER));
            let is_first_dead = dies(first, |me| queue.send(me, (1, 0), LATER));
            world::doom(1, Death::At(second), 1);
            let victim = thread::live(1, |me| queue.receive(me, Deadline::Passed));
            let received = [optional(alive(receiver)), victim.and_then(optional)];
            queue.settle(&received, &[(1, 0)]);
            is_first_dead && victim.is_none()
        });
    }
}

#[test]
fn a_message_that_the_dead_was_letting_in_is_sent_once_though_its_repairer_dies() {
    let deaths = [
        (Point::ADMIT_ACCEPTED, &REPAIR[..]),
        // The blocked sender may send its message during the repair.
        (Point::RECEIVE_ADMITTED, &[Point::REPAIR_FREED]),
    ];
    for (first, seconds) in deaths {
        dies_at("an admission", first, seconds, move |second| {
            let queue = Queue::new(1, 2).filled(&[(1, 0)]);
            let sender = queue.spawn(2, |queue, me| queue.send(me, (2, 0), LATER));
            let is_first_dead = dies(first, |me| queue.receive(me, Deadline::Passed));
            world::doom(1, Death::At(second), 1);
            let victim = thread::live(1, |me| queue.receive(me, Deadline::Passed));
            assert_eq!(alive(sender), Ok(()));
            // The first victim has received the first message, dead or alive.
            queue.settle(&[victim.and_then(optional)], &[(2, 0)]);
            is_first_dead && victim.is_none()
        });
    }
}

#[test]
fn a_blocked_batch_whose_turn_the_dead_began_is_sent_though_its_repairer_dies() {
    let first = Point::BATCH_TURN;
    dies_at("a turn", first, &REPAIR, move |second| {
        let queue = Queue::new(2, 2).filled(&[(1, 0)]);
        let sender = queue.spawn(2, |queue, me| {
            send_batch(queue, me, &[(2, 0), (3, 0)], LATER)
        });
        let is_first_dead = dies(first, |me| queue.receive(me, Deadline::Passed));
        world::doom(1, Death::At(second), 1);
        let victim = thread::live(1, |me| queue.receive(me, Deadline::Passed));
        assert_eq!(alive(sender), Ok(()));
        queue.settle(&[victim.and_then(optional)], &[(2, 0), (3, 0)]);
        is_first_dead && victim.is_none()
    });
}

#[test]
fn what_two_dead_senders_announced_misleads_no_receiver() {
    let seconds = [Point::SEND_RUN_CHANGED, Point::SEND_PUBLISHED];
    dies_at(
        "an announcement",
        Point::SEND_RUN_CHANGED,
        &seconds,
        |second| {
            let queue = Queue::new(4, 4);
            let send = |me: &Thread| queue.send(me, (2, 3), Deadline::Passed);
            assert!(dies(Point::SEND_RUN_CHANGED, send));
            world::doom(1, Death::At(second), 1);
            let victim = queue.spawn(1, |queue, me| queue.send(me, (3, 2), LATER));
            let bystander = queue.spawn(2, |queue, me| {
                queue.send(me, (4, 3), LATER).unwrap();
                queue.receive(me, Deadline::Passed)
            });
            let died = thread::join(victim).is_none();
            assert_eq!(alive(bystander), Ok((4, 3)));
            let mut left = queue.empty();
            assert!(left.is_sorted_by(|a, b| a.1 >= b.1), "{left:?}");
            left.sort_unstable();
            let is_sent = !died || second == Point::SEND_PUBLISHED;
            let expected: &[_] = match is_sent {
                true => &[(3, 2)],
                false => &[],
            };
            assert_eq!(left, expected);
            queue.audit();
            died
        },
    );
}

#[test]
fn of_two_dead_senders_to_a_ring_none_keeps_a_third_ones_message_from_its_owner() {
    let seconds = [
        (Point::SEND_FILLED, false),
        (Point::SEND_PUBLISHED, true),
        (Point::RING_DUE, true),
        (Point::RING_SILENCED, true),
    ];
    for (first, awaited) in [(Point::SEND_PUBLISHED, 2), (Point::RING_DUE, 1)] {
        for (second, is_sent) in seconds {
            dies_at("a ring's sender", first, &[second], move |second| {
                let ring = Ring::new(4, 4);
                let owner =
                    ring.own(move |ring, me| ring.wait(me, awaited, Deadline::Never).unwrap());
                let is_first_dead = dies(first, |me| ring.send(me, 10, Deadline::Passed));
                world::doom(1, Death::At(second), 1);
                let send = |me: &Thread| ring.send(me, 20, Deadline::Passed);
                let is_second_dead = thread::live(1, send).is_none();
                ring.direct(|ring, me| ring.send(me, 30, Deadline::Passed).unwrap());
                alive(owner);
                let mut all = ring.close_account();
                all.sort_unstable();
                let expected: &[u64] = match is_sent || !is_second_dead {
                    true => &[10, 20, 30],
                    false => &[10, 30],
                };
                assert_eq!(all, expected);
                is_first_dead && is_second_dead
            });
        }
    }
}

#[test]
fn a_repairer_that_dies_after_a_rings_owner_keeps_no_sender_waiting() {
    let first = Point::RECEIVE_TAKEN;
    dies_at("a ring's owner", first, &REPAIR, move |second| {
        let ring = Ring::new(1, 1);
        ring.direct(|ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
        world::doom(OWNER, Death::At(first), 1);
        assert!(thread::live(OWNER, |me| ring.take(me)).is_none());
        world::doom(1, Death::At(second), 1);
        let bystander = ring.spawn(2, |ring, me| ring.send(me, 20, Deadline::Never));
        let victim = thread::live(1, |me| ring.send(me, 30, LATER));
        // The queue has room for one of the messages, and no thread makes further room.
        let sent = alive(bystander);
        let sent = [
            sent.map(|()| 20),
            victim.unwrap_or(Err(Refused::TimedOut)).map(|()| 30),
        ];
        let expected: Vec<u64> = sent.into_iter().filter_map(Result::ok).collect();
        assert_eq!(ring.close_account(), expected);
        victim.is_none()
    });
}
