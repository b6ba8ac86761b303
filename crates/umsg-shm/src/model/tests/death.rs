//! Death at each crash point of an operation, while a bystander goes on.
//!
//! What was sent by a send that returned is received exactly once, by the bystander or at the end; what the victim was
//! sending or receiving, at most once and whole; no slot is lost, and both sides go on working.
//!
//! | a defect | what it leads to here |
//! |---|---|
//! | the repair does not complete an offer or an admission, frees no slot, forgets those that nodes hold, or keeps the lists | a message comes twice, or a slot is lost |
//! | a waiter's node is not named to the kernel, or messages are offered to the dead | a deadlock |
//! | who repairs looks at what the lock guards when it wakes all processes, after it has dropped the lock | a race on the number of nodes |
//! | where the entry is another slot's, the cursor that passed it is not seen (no release, or no fence) | a race on the message |

use super::stage::{DIRECTOR, LATER, Message, Queue, Slices, alive, explore};
use crate::crash::Point;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::Refused;
use crate::sys::clock::Deadline;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a thread of a scenario does: sends this, or receives.
#[derive(Clone, Copy)]
enum Act {
    Send(Message),
    Receive,
}
use Act::{Receive, Send};

/// What becomes of the message that the victim was sending, or of one that it was receiving.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is in the queue.
    There,
    /// It is not.
    Gone,
    /// That depends on what the bystander did before.
    Either,
}
use Fate::{Either, Gone, There};

/// A queue, two threads that use it, and where one of them dies.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    max_messages: usize,
    slots: usize,
    /// What is in the queue at first.
    before: &'static [Message],
    victim: Act,
    bystander: Act,
    preemptions: usize,
}

impl Scenario {
    /// Explores the victim's death at each of the points.
    fn dies_at(self, points: &[(Point, Fate)]) {
        for &(point, fate) in points {
            self.dies(Death::At(point), fate, format!("{point:?}"));
        }
    }

    fn dies(self, death: Death, fate: Fate, at: String) {
        let died_once = Arc::new(AtomicBool::new(false));
        let died = Arc::clone(&died_once);
        let name = format!("death: {} at {at}", self.name);
        explore(&name, self.preemptions, Slices::End, move || {
            if self.play(death, fate) {
                died.store(true, Ordering::Relaxed);
            }
        });
        assert!(
            died_once.load(Ordering::Relaxed),
            "{name}: the point is never reached"
        );
    }

    /// One execution. Answers whether the victim died.
    fn play(self, death: Death, fate: Fate) -> bool {
        let queue = Queue::new(self.max_messages, self.slots);
        queue.direct(|queue, me| {
            for &message in self.before {
                queue.send(me, message, Deadline::Passed).unwrap();
            }
        });
        world::doom(1, death, 1);
        let victim = queue.spawn(1, move |queue, me| act(self.victim, queue, me));
        let bystander = queue.spawn(2, move |queue, me| act(self.bystander, queue, me));
        let victims = thread::join(victim);
        let bystanders = alive(bystander);
        let left = queue.empty();
        let died = victims.is_none();

        let mut expected = self.before.to_vec();
        expected.extend(sent(self.bystander, Some(bystanders)));
        expected.extend(sent(self.victim, victims));
        expected.sort_unstable();
        let mut found = left.clone();
        found.extend(received(self.bystander, Some(bystanders)));
        found.extend(received(self.victim, victims));
        found.sort_unstable();
        if died {
            check_fate(self.victim, fate, &mut expected, &mut found);
        }
        assert_eq!(found, expected, "left in the queue: {left:?}");
        queue.audit();
        died
    }
}

/// The victim's own message counts as its fate says; a message that it may have taken is forgotten likewise.
fn check_fate(victim: Act, fate: Fate, expected: &mut Vec<Message>, found: &mut Vec<Message>) {
    match victim {
        Send(message) => {
            let is_there = found.contains(&message);
            assert!(fate != There || is_there, "a message that was sent is lost");
            assert!(
                fate != Gone || !is_there,
                "a message was received that was never sent"
            );
            found.retain(|&other| other != message);
        }
        Receive => {
            let missing = expected.len() - found.len();
            assert!(fate != There || missing == 0, "a message is lost");
            assert!(fate != Gone || missing == 1, "a message was received twice");
            assert!(missing <= 1);
            if missing == 1 {
                expected.retain(|message| found.contains(message));
            }
        }
    }
}

/// What a thread received, if it received.
fn act(act: Act, queue: &Queue, me: &Thread) -> Result<Option<Message>, Refused> {
    match act {
        Send(message) => queue.send(me, message, LATER).map(|()| None),
        Receive => queue.receive(me, LATER).map(Some),
    }
}

type Outcome = Result<Option<Message>, Refused>;

/// The message that a thread has sent for certain.
fn sent(act: Act, outcome: Option<Outcome>) -> Option<Message> {
    match (act, outcome) {
        (Send(message), Some(Ok(_))) => Some(message),
        (Send(_), Some(Err(refused))) => {
            assert_eq!(refused, Refused::TimedOut);
            None
        }
        _ => None,
    }
}

/// The message that a thread has received for certain.
fn received(act: Act, outcome: Option<Outcome>) -> Option<Message> {
    match (act, outcome) {
        (Receive, Some(Ok(message))) => message,
        (Receive, Some(Err(refused))) => {
            assert_eq!(refused, Refused::TimedOut);
            None
        }
        _ => None,
    }
}

#[test]
fn a_sender_dies_and_another_goes_on() {
    Scenario {
        name: "a sender beside a sender",
        max_messages: 3,
        slots: 3,
        before: &[(1, 0)],
        victim: Send((2, 3)),
        bystander: Send((3, 1)),
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
        max_messages: 3,
        slots: 3,
        before: &[(1, 0), (2, 3), (3, 0)],
        victim: Receive,
        bystander: Receive,
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
        max_messages: 2,
        slots: 2,
        before: &[(1, 0)],
        victim: Receive,
        bystander: Send((2, 0)),
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
        max_messages: 1,
        slots: 1,
        before: &[],
        victim: Receive,
        bystander: Send((1, 0)),
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
        max_messages: 1,
        slots: 1,
        before: &[],
        victim: Send((1, 0)),
        bystander: Receive,
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
        max_messages: 1,
        slots: 2,
        before: &[(1, 0)],
        victim: Receive,
        bystander: Send((2, 1)),
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
        max_messages: 1,
        slots: 2,
        before: &[(1, 0)],
        victim: Send((2, 1)),
        bystander: Receive,
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
        max_messages: 4,
        slots: 2,
        before: &[(1, 0), (2, 0)],
        victim: Send((3, 0)),
        bystander: Send((4, 0)),
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
        // Out of turn: the second slot's entry in the ring becomes the first slot's.
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
        // No slice has to pass: the message is not offered to the dead.
        let receiver = queue.spawn(2, |queue, me| queue.receive(me, Deadline::Never));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        assert_eq!(alive(receiver), Ok((1, 0)));
        queue.audit();
    });
}

#[test]
fn who_repairs_dies_too() {
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
            // The first victim had taken the one of priority 3.
            assert_eq!(found, [(1, 0), (3, 0)]);
            queue.audit();
        });
    }
}

#[test]
fn who_repairs_wakes_everybody_beside_one_that_begins_to_wait() {
    explore("death: waking everybody", 2, Slices::End, || {
        let queue = Queue::new(1, 1);
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        world::doom(3, Death::At(Point::RECEIVE_COPIED), 1);
        let victim = thread::live(3, |me| queue.receive(me, Deadline::Passed));
        assert!(victim.is_none());
        // One of them finds nothing, and is the first that ever takes a node.
        let receivers = [1, 2].map(|tid| queue.spawn(tid, |queue, me| queue.receive(me, LATER)));
        let mut received = receivers.map(alive);
        received.sort_by_key(Result::is_err);
        assert_eq!(received, [Ok((1, 0)), Err(Refused::TimedOut)]);
        assert_eq!(queue.empty(), []);
        queue.audit();
    });
}
