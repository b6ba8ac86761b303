//! Messages in place: leases and reservations during all other operations, and the deaths of their holders.
//!
//! | a defect | its effect here |
//! |---|---|
//! | a lease's message is taken before the record names its holder; a repair does not count the records | a message is lost |
//! | a repair leaves a leased message in the queue, or treats a leased message as still offered by a node | a message comes twice |
//! | a repair keeps the record of a message that was committed | the message is not delivered |
//! | a commit does not drain the ring first | its message overtakes earlier messages |
//! | a reservation does not correct the room that senders have seen | two messages share the last place |
//! | a commit or a return does not serve, an acknowledgement admits no blocked sender | a deadlock |
//! | the slot of a dead reservation is not freed | a slot is lost |
//! | an offered message counts as neither queued nor leased | the counts are too small |
//! | a blocked thread does not check for dead holders | no thread makes progress |

use super::stage::{LATER, Message, Queue, Slices, alive, explore};
use super::subject::{Subject, explore_death};
use crate::crash::Point;
use crate::model::crash::step;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::Refused;
use crate::sys::clock::Deadline;

/// Sends a message in place: reserves a slot, writes the message and commits it.
fn send_in_place(queue: &Queue, me: &Thread, message: Message) -> Result<(), Refused> {
    let room = queue.reserve(me, message.0, Deadline::Passed)?;
    assert_eq!(queue.engine().commit(me, &room, 8, message.1), Ok(true));
    Ok(())
}

/// Receives a message in place: leases it, reads it and acknowledges it.
fn receive_in_place(queue: &Queue, me: &Thread, by: Deadline) -> Result<Message, Refused> {
    let (message, lease) = queue.lease(me, by)?;
    assert_eq!(queue.engine().acknowledge(me, &lease), Ok(true));
    Ok(message)
}

#[test]
fn a_commit_wakes_a_receiver_that_goes_to_sleep() {
    explore("holds: commit and sleep", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Never));
        queue.direct(|queue, me| send_in_place(queue, me, (1, 0)).unwrap());
        assert_eq!(alive(receiver), Ok((1, 0)));
        queue.audit();
    });
}

#[test]
fn a_message_that_is_sent_arrives_at_a_blocked_receiver_that_leases() {
    explore("holds: send and lease", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let receiver = queue.spawn(1, |queue, me| receive_in_place(queue, me, Deadline::Never));
        queue.direct(|queue, me| queue.send(me, (1, 0), Deadline::Passed).unwrap());
        assert_eq!(alive(receiver), Ok((1, 0)));
        queue.audit();
    });
}

#[test]
fn a_message_that_is_handed_to_a_lease_counts_all_the_time() {
    explore("holds: send, lease and count", 2, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let holder = queue.spawn(1, |queue, me| queue.lease(me, Deadline::Never).unwrap().1);
        queue.direct(|queue, me| {
            queue.send(me, (1, 0), Deadline::Passed).unwrap();
            let counts = queue.engine().settled_counts(me);
            assert_eq!(counts.messages + counts.leased, 1, "{counts:?}");
        });
        let lease = alive(holder);
        queue.direct(|queue, me| {
            assert_eq!(queue.engine().acknowledge(me, &lease), Ok(true));
            let counts = queue.engine().settled_counts(me);
            assert_eq!((counts.messages, counts.leased), (0, 0));
        });
        queue.audit();
    });
}

#[test]
fn a_commit_takes_its_place_behind_what_was_sent() {
    explore("holds: commit, send, receive", 2, Slices::Endless, || {
        let queue = Queue::new(3, 3).filled(&[(1, 0)]);
        let committer = queue.spawn(1, |queue, me| send_in_place(queue, me, (2, 0)));
        let sender = queue.spawn(2, |queue, me| queue.send(me, (3, 0), Deadline::Passed));
        let first = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        assert_eq!(first, Ok((1, 0)));
        assert_eq!((alive(committer), alive(sender)), (Ok(()), Ok(())));
        let mut left = queue.empty();
        left.sort_unstable();
        assert_eq!(left, [(2, 0), (3, 0)]);
        queue.audit();
    });
}

#[test]
fn a_reservation_and_a_send_share_the_room() {
    explore("holds: the last place", 2, Slices::Endless, || {
        let queue = Queue::new(2, 3).filled(&[(1, 0)]);
        let reserving = queue.spawn(1, |queue, me| {
            let room = queue.reserve(me, 2, Deadline::Passed);
            if let Ok(room) = &room {
                assert_eq!(queue.engine().counts().reserved, 1);
                // While the room is reserved, the send of the other thread is refused.
                assert!(queue.engine().counts().messages <= 1);
                assert_eq!(queue.engine().commit(me, room, 8, 0), Ok(true));
            }
            room.map(|_| ())
        });
        let sent = queue.direct(|queue, me| queue.send(me, (3, 0), Deadline::Passed));
        let reserved = alive(reserving);
        assert!(
            matches!(
                (reserved, sent),
                (Ok(()), Err(Refused::NotNow)) | (Err(Refused::NotNow), Ok(()))
            ),
            "{reserved:?} {sent:?}"
        );
        assert_eq!(queue.empty().len(), 2);
        queue.audit();
    });
}

#[test]
fn a_reservation_that_is_given_back_lets_a_blocked_sender_in() {
    explore(
        "holds: cancel and a blocked sender",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1, 2);
            let room = queue.direct(|queue, me| queue.reserve(me, 1, Deadline::Passed).unwrap());
            let sender = queue.spawn(1, |queue, me| queue.send(me, (2, 0), Deadline::Never));
            queue.direct(|queue, me| {
                assert_eq!(queue.engine().cancel(me, &room, Deadline::Never), Ok(true));
            });
            assert_eq!(alive(sender), Ok(()));
            assert_eq!(queue.empty(), [(2, 0)]);
            queue.audit();
        },
    );
}

#[test]
fn an_acknowledgement_lets_a_blocked_sender_in() {
    explore(
        "holds: acknowledge and a blocked sender",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1, 2).filled(&[(1, 0)]);
            let sender = queue.spawn(1, |queue, me| queue.send(me, (2, 0), Deadline::Never));
            let received = queue.direct(|queue, me| receive_in_place(queue, me, Deadline::Passed));
            assert_eq!((received, alive(sender)), (Ok((1, 0)), Ok(())));
            assert_eq!(queue.empty(), [(2, 0)]);
            queue.audit();
        },
    );
}

#[test]
fn what_is_given_back_goes_to_a_blocked_receiver() {
    explore(
        "holds: give back and a blocked receiver",
        3,
        Slices::Endless,
        || {
            let queue = Queue::new(1, 1).filled(&[(1, 0)]);
            let (_, lease) = queue.direct(|queue, me| queue.lease(me, Deadline::Passed).unwrap());
            let receiver = queue.spawn(1, |queue, me| {
                let (message, lease) = queue.lease(me, Deadline::Never).unwrap();
                assert_eq!(queue.engine().acknowledge(me, &lease), Ok(true));
                (message, lease.deliveries)
            });
            queue.direct(|queue, me| {
                assert_eq!(queue.engine().give_back(me, &lease), Ok(true));
            });
            assert_eq!(alive(receiver), ((1, 0), 2));
            queue.audit();
        },
    );
}

#[test]
fn two_that_lease_get_a_message_each_and_one_that_is_returned_comes_first() {
    explore("holds: two that lease", 2, Slices::Endless, || {
        let queue = Queue::new(2, 2).filled(&[(1, 0), (2, 0)]);
        let returning = queue.spawn(1, |queue, me| {
            let (message, lease) = queue.lease(me, Deadline::Passed).unwrap();
            assert_eq!(queue.engine().give_back(me, &lease), Ok(true));
            message
        });
        let other = queue.spawn(2, |queue, me| receive_in_place(queue, me, Deadline::Passed));
        let (returned, received) = (alive(returning), alive(other).unwrap());
        let left = if received == (1, 0) { (2, 0) } else { (1, 0) };
        assert!(returned == left || returned == (1, 0));
        assert_eq!(queue.empty(), [left]);
        queue.audit();
    });
}

#[test]
fn the_end_of_its_time_and_an_acknowledgement_decide_for_one_of_them() {
    explore("holds: limit and acknowledge", 3, Slices::End, || {
        let queue = Queue::new(1, 1).filled(&[(1, 0)]);
        let lease = queue.direct(|queue, me| {
            let (_, lease) = queue.lease(me, Deadline::Passed).unwrap();
            assert_eq!(queue.engine().limit(me, &lease, 2), Ok(true));
            lease
        });
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, LATER));
        let holder = queue.spawn(9, move |queue, me| queue.engine().acknowledge(me, &lease));
        let outcome = (alive(holder), alive(receiver));
        assert!(
            matches!(
                outcome,
                (Ok(true), Err(Refused::TimedOut)) | (Ok(false), Ok((1, 0)))
            ),
            "{outcome:?}"
        );
        assert_eq!(queue.empty(), []);
        queue.audit();
    });
}

#[test]
fn a_sleeping_receiver_gets_what_a_dead_holder_held() {
    explore("holds: a dead holder of a lease", 2, Slices::End, || {
        let queue = Queue::new(1, 1).filled(&[(1, 0)]);
        let holder = queue.spawn(1, |queue, me| {
            // The lease fails if the other thread has taken the message before.
            let _ = queue.lease(me, Deadline::Passed);
            step();
            me.die()
        });
        let receiver = queue.spawn(2, |queue, me| queue.receive(me, Deadline::Never));
        assert_eq!(thread::join::<()>(holder), None);
        assert_eq!(alive(receiver), Ok((1, 0)));
        queue.audit();
    });
    explore("holds: a dead holder of room", 2, Slices::End, || {
        let queue = Queue::new(1, 2);
        let holder = queue.spawn(1, |queue, me| {
            let _ = queue.reserve(me, 1, Deadline::Passed);
            step();
            me.die()
        });
        let sender = queue.spawn(2, |queue, me| queue.send(me, (2, 0), Deadline::Never));
        assert_eq!(thread::join::<()>(holder), None);
        assert_eq!(alive(sender), Ok(()));
        assert_eq!(queue.empty(), [(2, 0)]);
        queue.audit();
    });
}

/// The action of a thread of a scenario.
#[derive(Clone, Copy, Debug)]
enum Act {
    Send(Message),
    Commit(Message),
    Cancel,
    Receive,
    Acknowledge,
    GiveBack,
}

/// The fate of the message that the victim held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    There,
    Gone,
}
use Fate::{Gone, There};

impl Act {
    /// Performs the action. Returns two messages: the received message that can't come back, and the sent message.
    fn go(self, queue: &Queue, me: &Thread) -> (Option<Message>, Option<Message>) {
        let engine = queue.engine();
        match self {
            Act::Send(message) => {
                let sent = queue.send(me, message, LATER);
                (None, sent.is_ok().then_some(message))
            }
            Act::Commit(message) => {
                let sent = send_in_place(queue, me, message);
                (None, sent.is_ok().then_some(message))
            }
            Act::Cancel => {
                if let Ok(room) = queue.reserve(me, 77, Deadline::Passed) {
                    assert_eq!(engine.cancel(me, &room, Deadline::Never), Ok(true));
                }
                (None, None)
            }
            Act::Receive => (queue.receive(me, LATER).ok(), None),
            Act::Acknowledge => (receive_in_place(queue, me, LATER).ok(), None),
            Act::GiveBack => {
                if let Ok((_, lease)) = queue.lease(me, LATER) {
                    assert_eq!(engine.give_back(me, &lease), Ok(true));
                }
                (None, None)
            }
        }
    }
}

/// A scenario: a queue, a victim that dies, in some scenarios another victim that dies during the repair, and a bystander.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    max_messages: usize,
    slots: usize,
    before: &'static [Message],
    victim: Act,
    bystander: Act,
    preemptions: usize,
}

impl Scenario {
    fn dies_at(self, points: &[(Point, Fate)]) {
        for &(point, fate) in points {
            let name = format!("holds: {} at {point:?}", self.name);
            explore_death(&name, self.preemptions, move || self.play(point, fate));
        }
    }

    /// Runs one execution. Returns whether the victim died.
    fn play(self, point: Point, fate: Fate) -> bool {
        let queue = Queue::new(self.max_messages, self.slots).filled(self.before);
        world::doom(1, Death::At(point), 1);
        let victim = queue.spawn(1, move |queue, me| self.victim.go(queue, me));
        let bystander = queue.spawn(2, move |queue, me| self.bystander.go(queue, me));
        let (victims, bystanders) = (thread::join(victim), alive(bystander));
        self.settle(&queue, victims, bystanders, fate);
        victims.is_none()
    }

    /// Checks that each message was received once, or remains, and that the message of the victim has the fate of its crash point.
    fn settle(
        self,
        queue: &Queue,
        victims: Option<(Option<Message>, Option<Message>)>,
        bystanders: (Option<Message>, Option<Message>),
        fate: Fate,
    ) {
        let (received, sent) = victims.unwrap_or_default();
        let mut expected: Vec<_> = self.before.iter().copied().chain(sent).collect();
        expected.extend(bystanders.1);
        let mut found = queue.empty();
        found.extend(received.into_iter().chain(bystanders.0));
        expected.sort_unstable();
        found.sort_unstable();
        if victims.is_none() {
            match (self.victim, fate) {
                (Act::Commit(message), There) => expected.push(message),
                (Act::Acknowledge, Gone) => {
                    assert_eq!(found.len() + 1, expected.len(), "received twice");
                    expected.retain(|message| found.contains(message));
                }
                _ => {}
            }
            expected.sort_unstable();
        }
        assert_eq!(found, expected);
        queue.audit();
    }
}

#[test]
fn a_holder_of_a_lease_dies_and_its_message_is_delivered_again() {
    let scenario = Scenario {
        name: "a lease beside a receiver",
        max_messages: 2,
        slots: 2,
        before: &[(1, 0), (2, 1)],
        victim: Act::Acknowledge,
        bystander: Act::Receive,
        preemptions: 2,
    };
    scenario.dies_at(&[
        (Point::LEASE_HELD, There),
        (Point::LEASE_TAKEN, There),
        (Point::RECEIVE_UNSTORED, There),
        (Point::LEASE_ENDED, Gone),
        (Point::RECEIVE_RETURNED, Gone),
    ]);
    let returning = Scenario {
        name: "a lease that is returned beside a receiver",
        victim: Act::GiveBack,
        ..scenario
    };
    returning.dies_at(&[(Point::RETURN_MARKED, There), (Point::RETURN_ENDED, There)]);
}

#[test]
fn a_holder_of_the_only_message_dies_beside_one_that_sleeps() {
    let scenario = Scenario {
        name: "a lease of the only message",
        max_messages: 1,
        slots: 2,
        before: &[(1, 0)],
        victim: Act::Acknowledge,
        bystander: Act::Acknowledge,
        preemptions: 2,
    };
    scenario.dies_at(&[
        (Point::LEASE_HELD, There),
        (Point::RECEIVE_TAKEN, There),
        (Point::LEASE_TAKEN, There),
        (Point::LEASE_ENDED, Gone),
    ]);
    let returning = Scenario {
        name: "a return of the only message",
        victim: Act::GiveBack,
        ..scenario
    };
    returning.dies_at(&[(Point::RETURN_MARKED, There), (Point::RETURN_ENDED, There)]);
    let sending = Scenario {
        name: "a lease beside a blocked sender",
        bystander: Act::Send((2, 0)),
        ..scenario
    };
    sending.dies_at(&[
        (Point::LEASE_HELD, There),
        (Point::LEASE_ENDED, Gone),
        (Point::ADMIT_ACCEPTED, Gone),
    ]);
}

#[test]
fn a_receiver_that_is_woken_with_a_message_dies_while_it_leases() {
    Scenario {
        name: "a lease of what was offered",
        max_messages: 1,
        slots: 1,
        before: &[],
        victim: Act::Acknowledge,
        bystander: Act::Commit((1, 0)),
        preemptions: 3,
    }
    .dies_at(&[
        (Point::WAIT_LISTED, There),
        (Point::WAIT_WOKEN, There),
        (Point::LEASE_HELD, There),
        (Point::LEASE_ENDED, Gone),
    ]);
}

#[test]
fn a_sender_in_place_dies_and_its_message_is_sent_whole_or_its_room_is_free() {
    let scenario = Scenario {
        name: "a reservation beside a sender",
        max_messages: 2,
        slots: 2,
        before: &[(1, 0)],
        victim: Act::Commit((2, 1)),
        bystander: Act::Send((3, 0)),
        preemptions: 2,
    };
    scenario.dies_at(&[
        (Point::GROW_LENT, Gone),
        (Point::RESERVE_SLOT_TAKEN, Gone),
        (Point::RESERVE_HELD, Gone),
        (Point::DRAIN_MARKED, Gone),
        (Point::DRAIN_LINKED, Gone),
        (Point::COMMIT_MARKED, There),
        (Point::COMMIT_ENDED, There),
    ]);
    let cancelling = Scenario {
        name: "a reservation that is given back",
        victim: Act::Cancel,
        ..scenario
    };
    cancelling.dies_at(&[(Point::CANCEL_ENDED, Gone), (Point::RECEIVE_RETURNED, Gone)]);
    let receiving = Scenario {
        name: "a reservation beside a receiver",
        bystander: Act::Receive,
        ..scenario
    };
    receiving.dies_at(&[(Point::RESERVE_HELD, Gone), (Point::COMMIT_MARKED, There)]);
}

#[test]
fn the_repairer_after_a_holder_dies_too_or_while_it_takes_back_the_lease() {
    let firsts = [
        (Act::Acknowledge, Point::LEASE_HELD, There),
        (Act::Acknowledge, Point::LEASE_TAKEN, There),
        (Act::GiveBack, Point::RETURN_MARKED, There),
        (Act::Commit((3, 0)), Point::RESERVE_HELD, Gone),
        (Act::Commit((3, 0)), Point::COMMIT_MARKED, There),
    ];
    let seconds = [
        Point::REPAIR_SURVEYED,
        Point::REPAIR_CLEARED,
        Point::REPAIR_STORED,
        Point::REPAIR_FREED,
        Point::RETURN_MARKED,
        Point::RECEIVE_RETURNED,
    ];
    for (victim, first, fate) in firsts {
        for second in seconds {
            let scenario = Scenario {
                name: "a repairer",
                max_messages: 3,
                slots: 3,
                before: &[(1, 0), (2, 1)],
                victim,
                bystander: Act::Receive,
                preemptions: 2,
            };
            let name = format!("holds: {first:?}, then {second:?}");
            explore(&name, 2, Slices::End, move || {
                let queue = Queue::new(3, 3).filled(scenario.before);
                world::doom(1, Death::At(first), 1);
                assert!(thread::live(1, |me| scenario.victim.go(&queue, me)).is_none());
                world::doom(3, Death::At(second), 1);
                let repairer = queue.spawn(3, |queue, me| Act::GiveBack.go(queue, me));
                let bystander = queue.spawn(2, |queue, me| Act::Receive.go(queue, me));
                let bystanders = (thread::join(repairer), alive(bystander)).1;
                scenario.settle(&queue, None, bystanders, fate);
            });
        }
    }
}
