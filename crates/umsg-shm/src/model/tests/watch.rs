//! Polling: the level that a queue's doorbell shows while other threads send, receive, begin to poll, and die.
//!
//! The doorbell shows the true level at the end. After the death of any process, the doorbell shows each operation that is possible. If the doorbell
//! shows that an operation is possible, then an operation that does not wait succeeds.
//!
//! | a defect | its effect here |
//! |---|---|
//! | a sender does not check under its lock whether a process polls, or a thread that begins to poll borrows no sender lock | a message is not shown |
//! | a possible operation is shown after it became possible | a death in between leaves a message, or room, that is not shown |
//! | an edge-triggered poller learns of a message only after it is sent | a death in between leaves a message that was not reported |
//! | a receiver does not wait for a sender that is ringing | a message that was shown can't be received |
//! | room is no event if the queue had neither messages nor room before | an edge-triggered poller waits although there is room |
//! | the event for that room comes after the room | a death in between leaves room without an event |
//! | a call does not look for a pending ring of another sender | after the death of that sender, the call sees a message that is not shown |
//! | a receiver counts on the packet of a pending ring, or a sender does not count the packets after a late ring | the level at the end is wrong |
//! | a change beside a late ring wakes no poller | an edge-triggered poller waits beside a message |

use super::stage::{LATER, Message, Queue, Slices, alive, explore};
use super::subject::{Deaths, Subject};
use super::sysv_stage;
use crate::crash::Point;
use crate::doorbell::{LEVELS, MESSAGES, ROOM};
use crate::model::doorbell::Doorbell;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::{LeaseHandle, WATCHED};
use crate::sync::{Ordering, spin_hint};
use crate::sys::clock::Deadline;
use crate::sysv_engine::order::Want;

/// A queue of either engine with a doorbell.
trait Polled: Subject {
    /// Returns a message that carries this number.
    fn message(number: u64) -> Self::Message;

    /// Begins to poll the queue. Returns whether the process needs a helper for deadlines.
    fn begin_to_poll(&self, me: &Thread) -> bool;

    /// Leases a message, and does not end the lease.
    fn lease_one(&self, me: &Thread);

    fn shows(&self) -> (bool, bool);

    /// Sends this many messages, numbered from 0, and begins to poll the queue. Returns the queue.
    fn polled(self, messages: u64) -> Self {
        let messages: Vec<_> = (0..messages).map(Self::message).collect();
        let queue = self.filled(&messages);
        queue.direct(Self::begin_to_poll);
        queue
    }
}

impl Polled for Queue {
    fn message(number: u64) -> Message {
        (number, 0)
    }

    fn begin_to_poll(&self, me: &Thread) -> bool {
        self.engine().watch(me, LEVELS).unwrap()
    }

    fn lease_one(&self, me: &Thread) {
        self.lease(me, Deadline::Passed).unwrap();
    }

    fn shows(&self) -> (bool, bool) {
        self.engine().doorbell().shows()
    }
}

impl Polled for sysv_stage::Queue {
    fn message(number: u64) -> sysv_stage::Message {
        (number, 1)
    }

    fn begin_to_poll(&self, me: &Thread) -> bool {
        self.engine().watch(me, LEVELS).unwrap()
    }

    fn lease_one(&self, me: &Thread) {
        self.lease(me, Want::Any, Deadline::Passed).unwrap();
    }

    fn shows(&self) -> (bool, bool) {
        self.engine().doorbell().shows()
    }
}

/// Returns a polled queue with room for two messages that holds `messages` messages.
fn watched(messages: u64) -> Queue {
    Queue::new(2, 2).polled(messages)
}

/// Returns a polled queue for one message: a sender rings under the locks, because the message fills the queue.
fn ringing() -> Queue {
    Queue::new(1, 1).polled(0)
}

/// Returns a polled System V queue for two messages, as [`watched`] does for a POSIX queue.
fn watched_typed(messages: u64) -> sysv_stage::Queue {
    sysv_stage::Queue::new(2).polled(messages)
}

fn shows(queue: &impl Polled) -> (bool, bool) {
    queue.shows()
}

/// Waits until `ready` returns true for the level that the doorbell shows.
fn poll(doorbell: &Doorbell, ready: impl Fn((bool, bool)) -> bool) {
    while !ready(doorbell.shows()) {
        spin_hint();
    }
}

#[test]
fn a_process_that_begins_to_poll_is_shown_a_message_that_is_sent_meanwhile() {
    explore("watch: begins beside a send", 3, Slices::Endless, || {
        let queue = Queue::new(1, 1);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Never));
        queue.direct(|queue, me| queue.engine().watch(me, LEVELS).unwrap());
        alive(sender).unwrap();
        assert_eq!(shows(&queue), (true, false));
        assert_eq!(queue.empty(), [(1, 0)]);
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
    });
}

/// Leases the only message, while a process begins to poll.
fn begins_beside_a_lease(queue: impl Polled) {
    let lessee = queue.spawn(1, |queue, me| queue.lease_one(me));
    let needs_time = queue.direct(Polled::begin_to_poll);
    alive(lessee);
    // Without a helper, the doorbell shows a message, so that the process checks the queue.
    assert!(needs_time || shows(&queue).0);
}

#[test]
fn a_process_that_begins_to_poll_beside_the_first_lease_has_a_helper_or_is_told_to_look() {
    explore("watch: begins beside a lease", 3, Slices::Endless, || {
        begins_beside_a_lease(Queue::new(1, 1).filled(&[(0, 0)]));
    });
    explore("watch: beside a System V lease", 3, Slices::Endless, || {
        begins_beside_a_lease(sysv_stage::Queue::new(1).filled(&[(0, 1)]));
    });
}

#[test]
fn what_is_shown_is_what_there_is() {
    explore("watch: two threads", 2, Slices::Endless, || {
        let queue = watched(1);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Never));
        let received = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        alive(sender).unwrap();
        assert_eq!(received, Ok((0, 0)));
        assert_eq!(shows(&queue), (true, true));
        assert_eq!(queue.empty(), [(1, 0)]);
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
    });
}

#[test]
fn a_message_that_is_shown_can_be_received() {
    explore("watch: shown and received", 2, Slices::Endless, || {
        let queue = watched(0);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Never));
        queue.direct(|queue, me| {
            poll(queue.engine().doorbell(), |(message, _)| message);
            assert_eq!(queue.receive(me, Deadline::Passed), Ok((1, 0)));
        });
        alive(sender).unwrap();
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
    });
}

#[test]
fn room_that_is_shown_can_be_used() {
    explore("watch: shown and sent", 2, Slices::Endless, || {
        let queue = watched(2);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Never));
        queue.direct(|queue, me| {
            poll(queue.engine().doorbell(), |(_, room)| room);
            assert_eq!(queue.send(me, (2, 0), Deadline::Passed), Ok(()));
        });
        assert_eq!(alive(receiver), Ok((0, 0)));
        assert_eq!(shows(&queue), (true, false));
        assert_eq!(queue.empty(), [(1, 0), (2, 0)]);
        queue.audit();
    });
}

/// Returns a polled queue whose only message is leased, and the lease.
fn leased() -> (Queue, LeaseHandle) {
    let queue = Queue::new(1, 1).polled(1);
    let lease = queue.direct(|queue, me| queue.lease(me, Deadline::Passed).unwrap().1);
    (queue, lease)
}

/// Sends a message as an edge-triggered poller does: after a failure it waits for an event.
fn send_by_edges(queue: &Queue, me: &Thread, message: Message) {
    let doorbell = queue.engine().doorbell();
    loop {
        let before = doorbell.room_events();
        if queue.send(me, message, Deadline::Passed).is_ok() {
            return;
        }
        while doorbell.room_events() == before {
            spin_hint();
        }
    }
}

#[test]
fn room_after_neither_messages_nor_room_is_an_event() {
    explore("watch: a lease ends", 2, Slices::Endless, || {
        let (queue, lease) = leased();
        let holder = queue.spawn(1, move |queue, me| queue.engine().acknowledge(me, &lease));
        queue.direct(|queue, me| send_by_edges(queue, me, (1, 0)));
        assert_eq!(alive(holder), Ok(true));
        assert_eq!(queue.empty(), [(1, 0)]);
        queue.audit();
    });
}

#[test]
fn room_after_neither_is_an_event_though_the_level_has_changed_meanwhile() {
    explore("watch: two leases end", 1, Slices::Endless, || {
        let (queue, lease) = leased();
        let holder = queue.spawn(1, move |queue, me| {
            queue.engine().give_back(me, &lease).unwrap();
            let (_, lease) = queue.lease(me, LATER).unwrap();
            queue.engine().acknowledge(me, &lease)
        });
        queue.direct(|queue, me| send_by_edges(queue, me, (1, 0)));
        assert_eq!(alive(holder), Ok(true));
        assert_eq!(queue.empty(), [(1, 0)]);
        queue.audit();
    });
}

#[test]
fn a_message_for_a_blocked_receiver_is_not_shown() {
    explore("watch: a hand-over", 2, Slices::Endless, || {
        let queue = watched(0);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Never));
        queue.direct(|queue, me| {
            let wait_flags = &queue.engine().segment().fixed().wait_flags;
            while wait_flags.attention() & crate::posix_engine::RECEIVERS == 0 {
                spin_hint();
            }
            queue.send(me, (1, 0), Deadline::Passed).unwrap();
            assert_eq!(shows(queue), (false, true));
        });
        assert_eq!(alive(receiver), Ok((1, 0)));
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
    });
}

#[test]
fn no_process_rings_when_none_polls_any_longer() {
    explore("watch: forgotten", 2, Slices::Endless, || {
        let queue = watched(0);
        queue.engine().doorbell().leave();
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Never));
        let received = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        alive(sender).unwrap();
        assert_eq!(queue.empty().len(), usize::from(received.is_err()));
        let wait_flags = &queue.engine().segment().fixed().wait_flags;
        assert_eq!(wait_flags.attention() & WATCHED, 0);
        queue.audit();
    });
}

#[test]
fn a_message_that_is_sent_after_the_doorbell_is_gone_is_shown_to_the_next_poller() {
    explore("watch: gone", 2, Slices::Endless, || {
        let queue = watched(0);
        queue.engine().doorbell().set_gone(true);
        let sender = queue.spawn(1, |queue, me| {
            queue.send(me, (1, 0), Deadline::Never)?;
            queue.send(me, (2, 0), Deadline::Never)
        });
        queue.direct(|queue, me| {
            // Between these two calls, another process makes another FIFO under the locks.
            queue.engine().watch_anew(me, LEVELS).unwrap();
        });
        alive(sender).unwrap();
        assert_eq!(shows(&queue), (true, false));
        assert_eq!(queue.empty(), [(1, 0), (2, 0)]);
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
    });
}

/// The points at which a thread dies while it rings the doorbell.
const POINTS: [Point; 4] = [
    Point::BELL_BEGUN,
    Point::BELL_RUNG,
    Point::BELL_FORETOLD,
    Point::BELL_SETTLED,
];

/// Explores the death of thread 1 at each point that it passes. `play` checks the results, and returns whether the thread died.
fn dies_at(name: &str, points: &[Point], play: fn() -> bool) {
    for &point in points {
        let deaths = Deaths::default();
        for nth in [1, 2] {
            let name = format!("watch: {name} dies at {point:?}, {nth}");
            deaths.explore(&name, 1, Slices::End, move || {
                world::doom(1, Death::At(point), nth);
                play()
            });
        }
        deaths.expect(&format!("watch: {name} at {point:?}"));
    }
}

/// Runs a sender that may be doomed, and checks that the doorbell shows a remaining message. Returns whether the sender died.
fn dies_sending<Q: Polled>(queue: Q) -> bool {
    let sender = queue.spawn(1, |queue, me| {
        queue.send_one(me, Q::message(1), Deadline::Never)
    });
    let died = thread::join(sender).is_none();
    expect_shown(&queue);
    died
}

/// Runs a sender as [`dies_sending`] does, after another sender died while it rang. The second sender, which may be doomed, too, repairs first.
fn dies_repairing<Q: Polled>(queue: Q) -> bool {
    world::doom(3, Death::At(Point::BELL_FORETOLD), 1);
    let send = |me: &Thread| queue.send_one(me, Q::message(1), Deadline::Passed);
    assert!(thread::live(3, send).is_none());
    let second = queue.spawn(1, |queue, me| {
        // Each of these calls rings.
        queue.send_one(me, Q::message(2), LATER).unwrap();
        let _ = queue.receive_one(me, Q::ANY, Deadline::Passed);
    });
    let died = thread::join(second).is_none();
    expect_shown(&queue);
    died
}

/// The points of a sender whose ring is deferred.
const DEFERRED: [Point; 5] = [
    Point::SEND_FILLED,
    Point::SEND_PUBLISHED,
    Point::SEND_COUNTED,
    Point::BELL_DEFERRED,
    Point::BELL_DEFERRED_RUNG,
];

/// Runs a sender whose ring is deferred, and which may be doomed, in parallel with `other`. Returns whether the sender died.
fn dies_deferring(other: impl FnOnce(&Queue, &Thread)) -> bool {
    let queue = watched(0);
    let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Never));
    queue.direct(other);
    let died = thread::join(sender).is_none();
    // A call that changes nothing makes the doorbell show the message, if there is one.
    let counts = queue.direct(|queue, me| queue.engine().settled_counts(me));
    let (shown, left) = (shows(&queue), queue.empty());
    assert_eq!(
        (shown.0, left.len() as u64),
        (counts.messages != 0, counts.messages)
    );
    assert_eq!(shows(&queue), (false, true));
    queue.audit();
    died
}

#[test]
fn a_call_that_sees_a_message_shows_it_though_its_sender_died_before_it_rang() {
    dies_at("a sender that rings last", &DEFERRED, || {
        dies_deferring(|queue, me| {
            let counts = queue.engine().settled_counts(me);
            assert!(counts.messages == 0 || shows(queue).0);
        })
    });
}

#[test]
fn a_message_beside_a_pending_ring_is_shown() {
    dies_at(
        "a sender that rings last beside a sender",
        &DEFERRED,
        || {
            dies_deferring(|queue, me| {
                queue.send(me, (2, 0), LATER).unwrap();
                assert!(shows(queue).0);
            })
        },
    );
}

#[test]
fn a_receive_beside_a_pending_ring_leaves_the_level_right() {
    dies_at(
        "a sender that rings last beside a receiver",
        &DEFERRED,
        || {
            dies_deferring(|queue, me| {
                let _ = queue.receive(me, Deadline::Passed);
            })
        },
    );
}

#[test]
fn an_edge_triggered_poller_gets_each_message_beside_deferred_rings() {
    explore("watch: deferred edges", 1, Slices::Endless, || {
        let queue = watched(0);
        let sender = queue.spawn(1, |queue, me| {
            queue.send(me, (1, 0), Deadline::Never).unwrap();
            queue.send(me, (2, 0), Deadline::Never).unwrap();
        });
        queue.direct(|queue, me| {
            let doorbell = queue.engine().doorbell();
            let mut received = 0;
            while received != 2 {
                let before = doorbell.message_events();
                while queue.receive(me, Deadline::Passed).is_ok() {
                    received += 1;
                }
                while received != 2 && doorbell.message_events() == before {
                    spin_hint();
                }
            }
        });
        alive(sender);
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
    });
}

#[test]
fn two_senders_to_an_empty_queue_leave_the_level_right() {
    explore("watch: two deferred rings", 1, Slices::Endless, || {
        let queue = watched(0);
        let senders = [1, 2].map(|tid| {
            queue.spawn(tid, move |queue, me| {
                queue.send(me, (tid.into(), 0), Deadline::Never)
            })
        });
        let received = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        for sender in senders {
            alive(sender).unwrap();
        }
        let is_left = (true, received.is_ok());
        assert_eq!(shows(&queue), is_left);
        assert_eq!(queue.empty().len(), 2 - usize::from(received.is_ok()));
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
    });
}

/// Fails if the descriptor does not show a remaining message, or does not show room when the queue is empty.
fn expect_shown(queue: &impl Polled) {
    let shown = queue.shows();
    let left = queue.empty();
    assert!(left.is_empty() || shown.0, "{left:?} and {shown:?}");
    assert_eq!(queue.shows(), (false, true));
    queue.audit();
}

#[test]
fn a_sender_that_dies_leaves_no_message_that_is_not_shown() {
    let also = [
        Point::SEND_FILLED,
        Point::SEND_PUBLISHED,
        Point::SEND_COUNTED,
    ];
    let points: Vec<Point> = POINTS.into_iter().chain(also).collect();
    dies_at("a sender", &points, || dies_sending(ringing()));
}

#[test]
fn a_sender_that_dies_has_notified_a_poller_that_asked_for_every_edge() {
    let points: Vec<Point> = [Point::SEND_PUBLISHED, Point::SEND_COUNTED]
        .into_iter()
        .chain(POINTS)
        .collect();
    dies_at("a sender beside messages", &points, || {
        let queue = Queue::new(4, 4);
        let before = queue.direct(|queue, me| {
            queue.send(me, (0, 0), Deadline::Passed).unwrap();
            let engine = queue.engine();
            engine.watch(me, LEVELS | MESSAGES | ROOM).unwrap();
            engine.doorbell().nudges()
        });
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 0), Deadline::Never));
        let died = thread::join(sender).is_none();
        let is_told = queue.engine().doorbell().nudges() > before;
        let left = queue.empty();
        assert!(left.len() == 1 || is_told, "{left:?}");
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
        died
    });
}

#[test]
fn a_receiver_that_dies_leaves_no_room_that_is_not_shown() {
    let also = [Point::RECEIVE_TAKEN, Point::RECEIVE_FREED];
    let points: Vec<Point> = POINTS.into_iter().chain(also).collect();
    dies_at("a receiver", &points, || {
        let queue = watched(2);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, LATER));
        let died = thread::join(receiver).is_none();
        let shown = shows(&queue);
        let left = queue.empty();
        assert!(left.len() == 2 || shown.1, "{left:?} and {shown:?}");
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
        died
    });
}

#[test]
fn a_holder_that_dies_when_it_acknowledges_leaves_no_room_without_an_event() {
    let points: Vec<Point> = [Point::LEASE_ENDED].into_iter().chain(POINTS).collect();
    dies_at("a holder", &points, || {
        let (queue, lease) = leased();
        let before = queue.engine().doorbell().room_events();
        let holder = queue.spawn(1, move |queue, me| queue.engine().acknowledge(me, &lease));
        let died = thread::join(holder).is_none();
        let after = queue.engine().doorbell().room_events();
        let sent = queue.direct(|queue, me| queue.send(me, (1, 0), LATER));
        assert!(sent.is_err() || after > before, "room without an event");
        queue.empty();
        // The director holds the lease, and ends it if the dead thread has not ended it.
        queue.direct(|queue, me| queue.engine().acknowledge(me, &lease).unwrap());
        assert_eq!(shows(&queue), (false, true));
        queue.audit();
        died
    });
}

#[test]
fn a_repairer_that_dies_after_a_ringer_leaves_nothing_that_is_not_shown() {
    let repair = [Point::REPAIR_SURVEYED, Point::REPAIR_FREED];
    let points: Vec<Point> = repair.into_iter().chain([Point::BELL_RUNG]).collect();
    dies_at("a repairer after a ringer", &points, || {
        dies_repairing(ringing())
    });
}

#[test]
fn a_message_of_a_system_v_queue_that_is_shown_can_be_received() {
    explore(
        "watch: shown and received, typed",
        2,
        Slices::Endless,
        || {
            let queue = watched_typed(0);
            let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 1), Deadline::Never));
            queue.direct(|queue, me| {
                poll(queue.engine().doorbell(), |(message, _)| message);
                assert_eq!(queue.receive(me, Want::Any, Deadline::Passed), Ok((1, 1)));
            });
            alive(sender).unwrap();
            assert_eq!(queue.engine().doorbell().shows(), (false, true));
            queue.audit();
        },
    );
}

#[test]
fn a_sender_to_a_system_v_queue_that_dies_leaves_no_message_that_is_not_shown() {
    let also = [Point::MSG_FILLED, Point::MSG_SENT, Point::MSG_LINKED];
    let points: Vec<Point> = POINTS.into_iter().chain(also).collect();
    dies_at("a typed sender", &points, || dies_sending(watched_typed(0)));
}

#[test]
fn a_repairer_of_a_system_v_queue_that_dies_leaves_nothing_that_is_not_shown() {
    let points = [
        Point::MSG_SURVEYED,
        Point::MSG_CLEARED,
        Point::MSG_ORDERED,
        Point::BELL_RUNG,
    ];
    dies_at("a repairer after a typed ringer", &points, || {
        dies_repairing(watched_typed(0))
    });
}
