//! Death at each crash point of an operation, while a bystander continues.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the repair does not complete an offer or an admission, frees no slot, forgets the slots that nodes name, or keeps the old lists | a message comes twice, or a slot is lost |
//! | a waiter's node is not named to the kernel, or messages are offered to the dead | a deadlock |
//! | a repairer reads the guarded data when it wakes all processes, after it has released the lock | a race on the number of nodes |
//! | a thread reads a ring entry that names another slot by now, and does not see that the cursor has passed the entry (no release, or no fence) | a race on the message |

use super::scenario::{Act, Fate, Scenario};
use super::stage::{DIRECTOR, LATER, Message, Queue, Slices, alive, explore};
use super::subject::Subject;
use crate::crash::Point;
use crate::model::thread;
use crate::model::world::{self, Death};
use crate::posix_engine::Refused;
use crate::sys::clock::Deadline;
use Act::Send;
use Fate::{Either, Gone, There};

/// The act that receives the next message.
const RECEIVE: Act<Message, ()> = Act::Receive(());

#[test]
fn a_sender_dies_and_another_goes_on() {
    Scenario {
        name: "a sender beside a sender",
        queue: || Queue::new(3, 3),
        before: &[(1, 0)],
        victim: Send((2, 3)),
        bystanders: &[Send((3, 1))],
        preemptions: 3,
    }
    .dies_at(&[
        (Point::SEND_FILLED, Gone),
        (Point::SEND_RUN_CHANGED, Gone),
        (Point::SEND_PUBLISHED, There),
        (Point::SEND_COUNTED, There),
        (Point::SEND_UNSERVED, There),
    ]);
}

#[test]
fn a_receiver_dies_and_another_goes_on() {
    Scenario {
        name: "a receiver beside a receiver",
        queue: || Queue::new(3, 3),
        before: &[(1, 0), (2, 3), (3, 0)],
        victim: RECEIVE,
        bystanders: &[RECEIVE],
        preemptions: 2,
    }
    .dies_at(&[
        (Point::DRAIN_MARKED, There),
        (Point::DRAIN_LINKED, There),
        (Point::RECEIVE_COPIED, There),
        (Point::RECEIVE_UNSTORED, Gone),
        (Point::RECEIVE_RETURNED, Gone),
        (Point::RECEIVE_FREED, Gone),
        (Point::RECEIVE_ADMITTED, Gone),
    ]);
}

#[test]
fn a_receiver_on_the_fast_path_dies_and_a_sender_goes_on() {
    Scenario {
        name: "a receiver beside a sender",
        queue: || Queue::new(2, 2),
        before: &[(1, 0)],
        victim: RECEIVE,
        bystanders: &[Send((2, 0))],
        preemptions: 3,
    }
    .dies_at(&[
        (Point::RECEIVE_COPIED, There),
        (Point::RECEIVE_TAKEN, Gone),
        (Point::RECEIVE_RETURNED, Gone),
        (Point::RECEIVE_FREED, Gone),
    ]);
}

#[test]
fn a_blocked_receiver_dies_and_swallows_nothing() {
    Scenario {
        name: "a blocked receiver",
        queue: || Queue::new(1, 1),
        before: &[],
        victim: RECEIVE,
        bystanders: &[Send((1, 0))],
        preemptions: 3,
    }
    .dies_at(&[
        (Point::WAIT_NODE_FILLED, There),
        (Point::WAIT_LISTED, There),
        (Point::WAIT_UNNAMED, There),
        (Point::WAIT_NAMED, There),
        (Point::WAIT_WOKEN, There),
    ]);
}

#[test]
fn a_sender_dies_while_it_hands_a_message_over() {
    let scenario = Scenario {
        name: "a server",
        queue: || Queue::new(1, 1),
        before: &[],
        victim: Send((1, 0)),
        bystanders: &[RECEIVE],
        preemptions: 3,
    };
    scenario.dies_at(&[
        (Point::SEND_UNSERVED, There),
        (Point::SERVE_NOTED, There),
        (Point::SERVE_OFFERED, There),
        (Point::SERVE_TAKEN, There),
    ]);
    scenario.dies(Death::Waking, There, "the wake-up".into());
}

#[test]
fn a_receiver_dies_while_it_admits_a_blocked_sender() {
    Scenario {
        name: "a receiver beside a blocked sender",
        queue: || Queue::new(1, 2),
        before: &[(1, 0)],
        victim: RECEIVE,
        bystanders: &[Send((2, 1))],
        preemptions: 3,
    }
    .dies_at(&[
        (Point::RECEIVE_FREED, Gone),
        (Point::ADMIT_ACCEPTED, Gone),
        (Point::DRAIN_MARKED, Either),
        (Point::RECEIVE_ADMITTED, Gone),
    ]);
}

#[test]
fn a_blocked_sender_dies_and_leaves_no_slot_behind() {
    Scenario {
        name: "a blocked sender",
        queue: || Queue::new(1, 2),
        before: &[(1, 0)],
        victim: Send((2, 1)),
        bystanders: &[RECEIVE],
        preemptions: 3,
    }
    .dies_at(&[
        (Point::GROW_LENT, Gone),
        (Point::PARK_SLOT_TAKEN, Gone),
        (Point::PARK_FILLED, Gone),
        (Point::WAIT_NODE_FILLED, Gone),
        (Point::WAIT_LISTED, Either),
        (Point::WAIT_UNNAMED, Either),
        (Point::WAIT_NAMED, Either),
        (Point::WAIT_WOKEN, Either),
    ]);
}

#[test]
fn a_sender_dies_while_it_grows_the_queue() {
    Scenario {
        name: "growing",
        queue: || Queue::new(4, 2),
        before: &[(1, 0), (2, 0)],
        victim: Send((3, 0)),
        bystanders: &[Send((4, 0))],
        preemptions: 2,
    }
    .dies_at(&[
        (Point::GROW_LENT, Gone),
        (Point::GROW_COPIED, Gone),
        (Point::GROW_DOUBLED, Gone),
        (Point::GROW_WRITTEN, Gone),
        (Point::GROW_COUNTED, Gone),
    ]);
}

#[test]
fn a_dead_senders_message_is_taken_while_its_side_is_repaired() {
    explore("death: taken before the repair", 2, Slices::End, || {
        let queue = Queue::new(4, 2);
        world::doom(1, Death::At(Point::SEND_PUBLISHED), 2);
        let victim = thread::live(1, |me| {
            queue.send(me, (1, 0), Deadline::Passed).unwrap();
            queue.send(me, (2, 3), Deadline::Passed).unwrap();
        });
        assert!(victim.is_none());
        let heir = queue.spawn(2, |queue, me| queue.send(me, (3, 0), Deadline::Never));
        // This receive takes the message of the higher priority out of order: it puts the first slot into the ring in place of the second slot.
        let first = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        assert_eq!(first, Ok((2, 3)));
        let other = queue.spawn(3, |queue, me| queue.receive(me, Deadline::Passed));
        assert_eq!(alive(other), Ok((1, 0)));
        assert_eq!(alive(heir), Ok(()));
        assert_eq!(queue.empty(), [(3, 0)]);
        queue.audit();
    });
}

#[test]
fn a_sleeper_that_the_kernel_marked_dead_is_passed_over_at_once() {
    explore("death: a marked sleeper", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        world::doom(1, Death::At(Point::WAIT_NAMED), 1);
        let victim = thread::live(1, |me| queue.receive(me, Deadline::Never));
        assert!(victim.is_none());
        // The receiver need not wait for a slice, because the message is not offered to a dead thread.
        let receiver = queue.spawn(2, |queue, me| queue.receive(me, Deadline::Never));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        assert_eq!(alive(receiver), Ok((1, 0)));
        queue.audit();
    });
}

#[test]
fn the_repairer_dies_too() {
    for point in [
        Point::REPAIR_SURVEYED,
        Point::REPAIR_CLEARED,
        Point::REPAIR_STORED,
        Point::REPAIR_FREED,
    ] {
        let name = format!("death: a repairer at {point:?}");
        explore(&name, 3, Slices::End, move || {
            let queue = Queue::new(3, 3);
            queue.direct(|queue, me| {
                for message in [(1, 0), (2, 3), (3, 0)] {
                    queue.send(me, message, Deadline::Passed).unwrap();
                }
            });
            world::doom(DIRECTOR, Death::At(Point::RECEIVE_UNSTORED), 1);
            let first = thread::live(DIRECTOR, |me| queue.receive(me, Deadline::Passed));
            assert!(first.is_none());
            world::doom(1, Death::At(point), 1);
            let victim = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Passed));
            let bystander = queue.spawn(2, |queue, me| queue.receive(me, LATER));
            let mut found: Vec<_> = thread::join(victim)
                .into_iter()
                .map(Result::unwrap)
                .collect();
            found.push(alive(bystander).unwrap());
            found.extend(queue.empty());
            found.sort_unstable();
            // The first victim had taken the message of priority 3.
            assert_eq!(found, [(1, 0), (3, 0)]);
            queue.audit();
        });
    }
}

#[test]
fn a_repair_wakes_all_waiters_beside_one_that_begins_to_wait() {
    explore("death: waking everybody", 2, Slices::End, || {
        let queue = Queue::new(1, 1);
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        world::doom(3, Death::At(Point::RECEIVE_COPIED), 1);
        let victim = thread::live(3, |me| queue.receive(me, Deadline::Passed));
        assert!(victim.is_none());
        // One of the receivers finds no message, and is the first thread that ever takes a node.
        let receivers = [1, 2].map(|tid| queue.spawn(tid, |queue, me| queue.receive(me, LATER)));
        let mut received = receivers.map(alive);
        received.sort_by_key(Result::is_err);
        assert_eq!(received, [Ok((1, 0)), Err(Refused::TimedOut)]);
        assert_eq!(queue.empty(), []);
        queue.audit();
    });
}
