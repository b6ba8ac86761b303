//! Fair priorities: the turns of lower priorities pass from one receiver to the next, even if a receiver dies.
//!
//! | a defect | its effect here |
//! |---|---|
//! | a delivery is not counted, or is counted before its message is taken | a lower priority waits too long |
//! | the state of the turns is read or stored without the receiver lock | a race |

use super::stage::{Message, Queue, Slices, alive, explore};
use super::subject::{Subject, explore_death};
use crate::crash::Point;
use crate::model::segment::Segment;
use crate::model::thread;
use crate::model::world::{self, Death};
use crate::posix_engine::Engine;
use crate::posix_engine::segment::Policy;
use crate::sys::clock::Deadline;

/// Returns a queue of four messages, in which a lower priority has a turn after `after` deliveries.
fn fair(after: u32) -> Queue {
    let mut segment = Segment::new(4, 5);
    segment.set_policy(Policy {
        fair_priorities: after,
        ..Policy::default()
    });
    Queue::of(Engine::new(segment))
}

#[test]
fn a_lower_priority_has_its_turn_while_higher_ones_are_sent() {
    explore("fair: a sender", 2, Slices::Endless, || {
        let queue = fair(1).filled(&[(0, 3), (1, 0)]);
        let sender = queue.spawn(1, |queue, me| {
            queue.send(me, (2, 3), Deadline::Passed).unwrap();
            queue.send(me, (3, 3), Deadline::Passed).unwrap();
        });
        queue.direct(|queue, me| {
            let receive = || queue.receive(me, Deadline::Passed);
            assert_eq!((receive(), receive()), (Ok((0, 3)), Ok((1, 0))));
        });
        alive(sender);
        assert_eq!(queue.empty(), [(2, 3), (3, 3)]);
        queue.audit();
    });
}

#[test]
fn two_receivers_share_the_turns() {
    explore("fair: two receivers", 2, Slices::Endless, || {
        let queue = fair(1).filled(&[(0, 3), (1, 3), (2, 0)]);
        let receive = |queue: &Queue, me: &_| queue.receive(me, Deadline::Never).unwrap();
        let receivers = [queue.spawn(1, receive), queue.spawn(2, receive)];
        let mut received = receivers.map(alive);
        received.sort_unstable();
        assert_eq!(received, [(0, 3), (2, 0)]);
        assert_eq!(queue.empty(), [(1, 3)]);
        queue.audit();
    });
}

/// Lets a victim receive and die at the point. Checks that the message of priority 0 is then among the next `within` messages.
fn dies(point: Point, before: &'static [Message], within: usize) {
    explore_death(&format!("fair: death at {point:?}"), 2, move || {
        let queue = fair(1).filled(before);
        world::doom(1, Death::At(point), 1);
        let victim = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Never));
        let sender = queue.spawn(2, |queue, me| queue.send(me, (9, 3), Deadline::Passed));
        let victims = thread::join(victim);
        let died = victims.is_none();
        assert_eq!(alive(sender), Ok(()));
        let left = queue.empty();
        if died {
            let at = left.iter().position(|message| message.1 == 0);
            assert!(at.is_some_and(|at| at < within), "{left:?}");
        } else {
            assert_eq!(victims, Some(Ok(before[0])));
            assert_eq!(left[0].1, 0, "{left:?}");
        }
        queue.audit();
        died
    });
}

#[test]
fn a_receiver_that_dies_takes_no_turn_from_a_lower_priority() {
    let before: &[Message] = &[(0, 3), (1, 3), (2, 0)];
    dies(Point::RECEIVE_COPIED, before, 2);
    dies(Point::RECEIVE_UNSTORED, before, 2);
    dies(Point::TURN_COUNTED, before, 1);
    dies(Point::RECEIVE_FREED, before, 1);
}

#[test]
fn a_receiver_that_dies_in_a_turn_leaves_the_message_or_takes_it_along() {
    for (point, is_left) in [
        (Point::RECEIVE_COPIED, true),
        (Point::RECEIVE_UNSTORED, false),
        (Point::TURN_COUNTED, false),
    ] {
        explore_death(
            &format!("fair: death in a turn at {point:?}"),
            2,
            move || {
                let queue = fair(1).filled(&[(0, 3), (1, 3), (2, 0), (3, 0)]);
                queue.direct(|queue, me| {
                    assert_eq!(queue.receive(me, Deadline::Passed), Ok((0, 3)));
                });
                world::doom(1, Death::At(point), 1);
                let victim = queue.spawn(1, |queue, me| queue.receive(me, Deadline::Never));
                let died = thread::join(victim).is_none();
                let left = queue.empty();
                if died && is_left {
                    assert_eq!(left, [(2, 0), (1, 3), (3, 0)]);
                } else if died && point == Point::RECEIVE_UNSTORED {
                    // The delivery in the turn was not counted, so the lower priority gets its turn again.
                    assert_eq!(left, [(3, 0), (1, 3)]);
                } else {
                    assert_eq!(left, [(1, 3), (3, 0)]);
                }
                queue.audit();
                died
            },
        );
    }
}
