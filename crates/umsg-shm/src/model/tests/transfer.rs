//! Moves between two queues: a message is in exactly one of them, even if its mover dies at any step and other threads move or receive messages
//! meanwhile.
//!
//! | a defect | its effect here |
//! |---|---|
//! | an arrival is noted after the message is stored, or a repair stores no message of an arrival | a message comes twice, or is lost |
//! | the record of an arrival ends before the source has forgotten the message | a message comes twice |
//! | a mover that takes over does not check whether the message has arrived | a message comes twice |
//! | a slot is freed before its message has arrived | a message is lost |
//! | a repair counts an arrival as a held message | a slot is lost |
//! | a child ends a move of its parent | a message comes twice |

use super::stage::{Message, Queue, Slices, alive, explore};
use super::subject::{Subject, explore_death};
use crate::crash::Point;
use crate::leases::{Leases, State};
use crate::model::crash::step;
use crate::model::segment::Segment;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::segment::Policy;
use crate::posix_engine::{Arrival, Departure, Engine, Origin};
use crate::sys::clock::Deadline;

/// The numbers of the two queues.
const SOURCE: u64 = 1;
const OTHER: u64 = 2;

/// A queue whose messages are set aside when they come back, and the queue to which they are moved.
#[derive(Clone)]
struct Pair {
    source: Queue,
    other: Queue,
}

impl Pair {
    /// Makes the two queues. These messages are set aside in the source.
    fn new(messages: &[Message]) -> Pair {
        let mut segment = Segment::new(2, 3);
        segment.set_policy(Policy {
            label: 1,
            max_deliveries: 1,
            ..Policy::default()
        });
        let pair = Pair {
            source: Queue::of(Engine::new(segment)).filled(messages),
            other: Queue::new(2, 3),
        };
        pair.source.direct(|queue, me| {
            for _ in messages {
                let (_, lease) = queue.lease(me, Deadline::Passed).unwrap();
                assert_eq!(queue.engine().give_back(me, &lease), Ok(true));
            }
        });
        pair
    }

    /// Moves the messages that are set aside to the other queue.
    fn move_all(&self, me: &Thread) {
        let engine = self.source.engine();
        while let Some(departure) = engine.begin_to_move(me, Deadline::Never).unwrap() {
            let origin = Origin {
                queue: SOURCE,
                ticket: departure.handle.ticket,
            };
            let arrived = send(&self.source, &self.other, me, &departure, origin);
            engine
                .end_move(me, &departure.handle, arrived, Deadline::Never)
                .unwrap();
            if !arrived {
                return;
            }
            step();
            self.other
                .engine()
                .forget_arrival(me, origin, Deadline::Never)
                .unwrap();
        }
    }

    /// Completes the moves of dead processes, and sends all messages with a history back to the source.
    fn redrive_all(&self, me: &Thread) {
        let engine = self.other.engine();
        let target = self.source.engine();
        for (handle, to) in engine.left_redrives(me).unwrap() {
            assert_eq!(to, SOURCE);
            let origin = Origin {
                queue: OTHER,
                ticket: handle.ticket,
            };
            let arrived = target.has_arrived(me, origin, Deadline::Never).unwrap();
            engine.end_redrive(me, &handle, arrived).unwrap();
            if arrived {
                target.forget_arrival(me, origin, Deadline::Never).unwrap();
            }
        }
        for slot in 0..self.other.slots() {
            let cell = engine.segment().cell(slot).unwrap();
            let place = (slot, cell.sequence());
            let Some(departure) = engine.begin_redrive(me, place, SOURCE).unwrap() else {
                continue;
            };
            let origin = Origin {
                queue: OTHER,
                ticket: departure.handle.ticket,
            };
            let arrived = send(&self.other, &self.source, me, &departure, origin);
            engine.end_redrive(me, &departure.handle, arrived).unwrap();
            if arrived {
                step();
                target.forget_arrival(me, origin, Deadline::Never).unwrap();
            }
        }
    }

    /// Checks that each message is in one of the queues, or was received.
    fn settle(&self, received: &[Option<Message>], expected: &[Message]) {
        let mut all = self.source.empty();
        all.extend(self.other.empty());
        all.extend(received.iter().flatten());
        all.sort_unstable();
        assert_eq!(all, expected);
        for queue in [&self.source, &self.other] {
            queue.direct(|queue, me| {
                for (_, record) in Leases::of(queue.engine().segment()).all() {
                    if State::of(record) != State::Arrived {
                        continue;
                    }
                    // A process died after it had ended its record of the move. The next process that moves a message ends the record of the
                    // arrival.
                    let origin = Origin::of(record);
                    let from = match origin.queue {
                        SOURCE => &self.source,
                        _ => &self.other,
                    };
                    let engine = from.engine();
                    let departing = engine.is_departing(me, origin.ticket, Deadline::Never);
                    assert_eq!(departing, Ok(false));
                    queue
                        .engine()
                        .forget_arrival(me, origin, Deadline::Never)
                        .unwrap();
                }
            });
            queue.audit();
        }
    }
}

/// Sends a copy of the message, unless a copy has arrived before. Returns whether a copy had arrived before.
fn send(from: &Queue, to: &Queue, me: &Thread, departure: &Departure, origin: Origin) -> bool {
    step();
    let by = Deadline::Never;
    if departure.was_left && to.engine().has_arrived(me, origin, by).unwrap() {
        return true;
    }
    let Ok(room) = to.engine().try_reserve(me, departure.handle.len, by) else {
        return false;
    };
    let (one, other) = (from.engine().segment(), to.engine().segment());
    let mut bytes = [0; 8];
    let place = one.cell(departure.handle.slot).unwrap();
    one.copy_out(place, 8, &mut bytes).unwrap();
    other
        .copy_in(other.cell(room.slot).unwrap(), &bytes)
        .unwrap();
    let arrival = Arrival {
        trace: None,
        origin,
        history: Some(&departure.history),
        sent_at: None,
    };
    let key = departure.handle.key;
    to.engine()
        .arrive(me, &room, key, &arrival, by)
        .unwrap()
        .is_some()
}

/// The points of a move, in order.
const POINTS: [Point; 8] = [
    Point::RESERVE_SLOT_TAKEN,
    Point::RESERVE_HELD,
    Point::ARRIVE_WRITTEN,
    Point::ARRIVE_NOTED,
    Point::ARRIVE_MARKED,
    Point::ARRIVE_ENDED,
    Point::DEPART_ENDED,
    Point::RECEIVE_RETURNED,
];

#[test]
fn two_movers_move_each_message_once() {
    explore("transfer: two movers", 2, Slices::End, || {
        let pair = Pair::new(&[(1, 0), (2, 1)]);
        let other = pair.clone();
        let mover = pair.source.spawn(1, move |_, me| other.move_all(me));
        pair.source.direct(|_, me| pair.move_all(me));
        alive(mover);
        pair.source.direct(|_, me| pair.move_all(me));
        assert_eq!(pair.source.empty(), []);
        pair.settle(&[], &[(1, 0), (2, 1)]);
    });
}

#[test]
fn a_child_with_the_handles_of_its_parent_ends_no_move() {
    explore(
        "transfer: a handle of another process",
        2,
        Slices::End,
        || {
            let pair = Pair::new(&[(1, 0)]);
            let (parent, child) = (pair.clone(), pair.clone());
            // The parent could not find out whether the message had arrived. The parent forks, finds that the message has not arrived, and moves it
            // again.
            let mover = pair.source.spawn(1, move |queue, me| {
                let engine = queue.engine();
                let begun = engine.begin_to_move(me, Deadline::Never).unwrap();
                let handle = begun.unwrap().handle;
                let heir = queue.spawn(2, move |queue, me| {
                    let ended = queue.engine().end_move(me, &handle, false, Deadline::Never);
                    assert_eq!(ended, Ok(false));
                    child.move_all(me);
                });
                let ended = engine.end_move(me, &handle, false, Deadline::Never);
                assert_eq!(ended, Ok(true));
                parent.move_all(me);
                alive(heir);
            });
            alive(mover);
            pair.source.direct(|_, me| pair.move_all(me));
            assert_eq!(pair.source.empty(), []);
            pair.settle(&[], &[(1, 0)]);
        },
    );
}

#[test]
fn a_mover_that_dies_loses_no_message_and_doubles_none() {
    for point in [Point::MOVE_BEGUN].into_iter().chain(POINTS) {
        let name = format!("transfer: a mover dies at {point:?}");
        explore_death(&name, 3, move || {
            let pair = Pair::new(&[(1, 0)]);
            world::doom(1, Death::At(point), 1);
            let other = pair.clone();
            let victim = pair.source.spawn(1, move |_, me| other.move_all(me));
            let receiver = pair
                .other
                .spawn(2, |queue, me| queue.receive(me, Deadline::Passed).ok());
            let (victim, received) = (thread::join(victim), alive(receiver));
            pair.source.direct(|_, me| pair.move_all(me));
            assert_eq!(pair.source.empty(), []);
            pair.settle(&[received], &[(1, 0)]);
            victim.is_none()
        });
    }
}

#[test]
fn a_mover_that_dies_beside_another_loses_no_message_and_doubles_none() {
    for point in [Point::MOVE_BEGUN, Point::ARRIVE_NOTED, Point::DEPART_ENDED] {
        let name = format!("transfer: one of two movers dies at {point:?}");
        explore_death(&name, 3, move || {
            let pair = Pair::new(&[(1, 0)]);
            world::doom(1, Death::At(point), 1);
            let (one, two) = (pair.clone(), pair.clone());
            let victim = pair.source.spawn(1, move |_, me| one.move_all(me));
            let bystander = pair.source.spawn(2, move |_, me| two.move_all(me));
            let victim = thread::join(victim);
            alive(bystander);
            pair.source.direct(|_, me| pair.move_all(me));
            assert_eq!(pair.source.empty(), []);
            pair.settle(&[], &[(1, 0)]);
            victim.is_none()
        });
    }
}

#[test]
fn a_process_that_dies_while_it_sends_back_loses_no_message_and_doubles_none() {
    for point in [Point::REDRIVE_HELD, Point::REDRIVE_BEGUN]
        .into_iter()
        .chain(POINTS)
    {
        let name = format!("transfer: a redrive dies at {point:?}");
        explore_death(&name, 3, move || {
            let pair = Pair::new(&[(1, 0)]);
            pair.source.direct(|_, me| pair.move_all(me));
            world::doom(1, Death::At(point), 1);
            let other = pair.clone();
            let victim = pair.other.spawn(1, move |_, me| other.redrive_all(me));
            let receiver = pair
                .source
                .spawn(2, |queue, me| queue.receive(me, Deadline::Passed).ok());
            let (victim, received) = (thread::join(victim), alive(receiver));
            pair.other.direct(|_, me| pair.redrive_all(me));
            assert_eq!(pair.other.empty(), []);
            pair.settle(&[received], &[(1, 0)]);
            victim.is_none()
        });
    }
}
