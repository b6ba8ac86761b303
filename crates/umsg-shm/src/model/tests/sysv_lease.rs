//! System V queues: leases, their ends, and the death of a process that holds one.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the end of a lease does not check whether the lease still exists | a message comes back that was acknowledged |
//! | the message ends after its record, or comes back before the record ends | a message is lost or comes twice when a process dies |
//! | the repair forgets leased messages, or keeps the records of ended messages | the same |
//! | a returned message is not given to waiters | a deadlock |

use super::stage::{LATER, Slices, alive, explore};
use super::subject::{Subject, explore_death, optional};
use super::sysv_stage::Queue;
use crate::crash::Point;
use crate::lock::SLICE;
use crate::model::thread;
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;
use crate::sysv_engine::order::Want;

#[test]
fn a_message_that_comes_back_is_given_to_a_waiter() {
    explore("typed lease: given back", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        let handle = queue.direct(|queue, me| {
            queue.send(me, (1, 5), Deadline::Passed).unwrap();
            queue.lease(me, Want::Any, Deadline::Passed).unwrap().1
        });
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Want::Any, Deadline::Never));
        queue.direct(|queue, me| assert_eq!(queue.engine().give_back(me, &handle), Ok(true)));
        assert_eq!(alive(receiver), Ok((1, 5)));
        queue.audit();
    });
}

#[test]
fn an_acknowledged_message_makes_room_for_a_waiter() {
    explore("typed lease: acknowledged", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        let handle = queue.direct(|queue, me| {
            queue.send(me, (1, 5), Deadline::Passed).unwrap();
            queue.lease(me, Want::Any, Deadline::Passed).unwrap().1
        });
        let sender = queue.spawn(1, |queue, me| queue.send(me, (2, 6), Deadline::Never));
        queue.direct(|queue, me| assert_eq!(queue.engine().acknowledge(me, &handle), Ok(true)));
        assert_eq!(alive(sender), Ok(()));
        assert_eq!(queue.empty(), [(2, 6)]);
        queue.audit();
    });
}

#[test]
fn the_end_of_its_time_and_an_acknowledgement_decide_for_one_of_them() {
    explore("typed lease: time limit", 3, Slices::End, || {
        let queue = Queue::new(1);
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        let holder = queue.spawn(1, |queue, me| {
            let (message, handle) = queue.lease(me, Want::Any, Deadline::Passed).ok()?;
            let engine = queue.engine();
            let is_held = engine.limit(me, &handle, SLICE).unwrap();
            (engine.acknowledge(me, &handle).unwrap() && is_held).then_some(message)
        });
        let other = queue.direct(|queue, me| {
            // By the clock of this thread, the time of the lease is over.
            me.oversleep(2 * SLICE);
            optional(queue.receive(me, Want::Any, Deadline::Passed))
        });
        queue.settle(&[alive(holder), other], &[(1, 5)]);
    });
}

#[test]
fn a_blocked_receiver_leases_what_it_is_offered() {
    explore("typed lease: offered", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        let holder = queue.spawn(1, |queue, me| {
            let (message, handle) = queue.lease(me, Want::Any, Deadline::Never).unwrap();
            assert_eq!(queue.engine().acknowledge(me, &handle), Ok(true));
            message
        });
        queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
        assert_eq!(alive(holder), (1, 5));
        queue.audit();
    });
}

#[test]
fn what_the_dead_held_comes_back_unless_it_was_acknowledged() {
    let deaths = [
        (Point::MSG_LEASED, true, true),
        (Point::MSG_ACKNOWLEDGED, true, false),
        (Point::MSG_RETURNED, false, true),
    ];
    for (point, acknowledges, comes_back) in deaths {
        for is_offered in [false, true] {
            let name = format!("typed lease: death at {point:?}, offered: {is_offered}");
            explore_death(&name, 2, move || {
                let queue = Queue::new(2);
                let send = |queue: &Queue| {
                    queue.direct(|queue, me| queue.send(me, (1, 5), Deadline::Passed).unwrap());
                };
                if !is_offered {
                    send(&queue);
                }
                world::doom(1, Death::At(point), 1);
                let victim = queue.spawn(1, move |queue, me| {
                    let (_, handle) = queue.lease(me, Want::Exactly(5), LATER).unwrap();
                    match acknowledges {
                        true => queue.engine().acknowledge(me, &handle),
                        false => queue.engine().give_back(me, &handle),
                    }
                });
                let bystander = queue.spawn(2, |queue, me| queue.send(me, (2, 6), LATER).unwrap());
                if is_offered {
                    send(&queue);
                }
                let is_dead = thread::join(victim).is_none();
                alive(bystander);
                let mut all = queue.empty();
                all.sort_unstable();
                if comes_back {
                    assert_eq!(all, [(1, 5), (2, 6)]);
                } else {
                    assert_eq!(all, [(2, 6)]);
                }
                queue.audit();
                is_dead
            });
        }
    }
}
