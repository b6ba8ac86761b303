//! System V queues: a process makes one queue after the other in one segment. Meanwhile other processes have handles of the earlier queues, and
//! another process wants the names of the segment.

use super::stage::{Slices, alive, explore};
use super::subject::Subject;
use super::sysv_stage::Queue;
use crate::crash::Point;
use crate::model::thread;
use crate::model::world::{self, Death};
use crate::sync::{Ordering, fence};
use crate::sys::clock::Deadline;
use crate::sysv_engine::order::Want;
use crate::sysv_engine::{Refused, Why};

const REMOVED: Refused = Refused::Own(Why::Removed);

#[test]
fn a_receiver_of_a_removed_queue_gets_nothing_of_the_next_one() {
    explore("typed recycle: an old receiver", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        let receiver = queue.spawn(1, |queue, me| queue.receive(me, Want::Any, Deadline::Never));
        queue.direct(|queue, me| {
            if !queue.vacate(me).unwrap() {
                return queue.remove(me).unwrap();
            }
            let next = queue.revive(me, 100).unwrap();
            next.send(me, (2, 5), Deadline::Passed).unwrap();
            assert_eq!(next.receive(me, Want::Any, Deadline::Passed), Ok((2, 5)));
            next.audit();
        });
        assert_eq!(alive(receiver), Err(REMOVED));
    });
}

#[test]
fn a_sender_of_a_removed_queue_sends_nothing_to_the_next_one() {
    explore("typed recycle: an old sender", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        let sender = queue.spawn(1, |queue, me| queue.send(me, (1, 5), Deadline::Passed));
        let is_kept = queue.direct(|queue, me| {
            let is_kept = queue.vacate(me).unwrap();
            assert!(is_kept, "no thread waits");
            let next = queue.revive(me, 100).unwrap();
            let received = next.receive(me, Want::Any, Deadline::Passed);
            assert_eq!(received, Err(Refused::NotNow));
            is_kept
        });
        assert!(matches!(alive(sender), Ok(()) | Err(REMOVED)) && is_kept);
        queue.direct(|queue, me| {
            let sent = queue.send(me, (1, 5), Deadline::Passed);
            assert_eq!(sent, Err(REMOVED));
            assert_eq!(queue.vacate(me), Err(REMOVED));
            assert_eq!(queue.remove(me), Err(REMOVED));
        });
    });
}

#[test]
fn a_segment_is_taken_away_or_holds_the_next_queue() {
    explore("typed recycle: a taker", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        assert!(queue.direct(|queue, me| queue.vacate(me).unwrap()));
        let taker = queue.spawn(1, |queue, _| queue.fixed().rights.take());
        let next = queue.direct(|queue, me| queue.revive(me, 100));
        assert_ne!(alive(taker), next.is_some());
        if let Some(next) = next {
            next.audit();
        }
    });
}

#[test]
fn of_two_processes_that_keep_a_segment_one_makes_the_next_queue() {
    explore("typed recycle: two makers", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        assert!(queue.direct(|queue, me| queue.vacate(me).unwrap()));
        let other = queue.spawn(1, |queue, me| queue.revive(me, 200).is_some());
        let mine = queue.direct(|queue, me| queue.revive(me, 100).is_some());
        let made = [alive(other), mine];
        // A process that finds the lock taken makes no queue.
        assert!(made != [true; 2]);
        let state = queue.fixed().rights.state();
        assert_eq!(made.contains(&true), state.live().is_some());
    });
}

#[test]
fn a_dead_owner_of_the_next_queue_is_noticed_though_an_old_handle_takes_its_lock() {
    explore("typed recycle: a dead sender", 2, Slices::End, || {
        let queue = Queue::new(2);
        let next = queue.direct(|queue, me| {
            assert!(queue.vacate(me).unwrap());
            queue.revive(me, 100).unwrap()
        });
        world::doom(2, Death::At(Point::MSG_SENT), 1);
        let dead = next.spawn(2, |next, me| next.send(me, (1, 5), Deadline::Passed));
        assert_eq!(thread::join(dead), None);
        let old = queue.spawn(1, |queue, me| {
            queue.receive(me, Want::Any, Deadline::Passed)
        });
        let received = next.direct(|next, me| next.receive(me, Want::Any, Deadline::Never));
        assert_eq!(received, Ok((1, 5)));
        assert_eq!(alive(old), Err(REMOVED));
        next.audit();
    });
}

#[test]
fn a_process_that_dies_while_it_recycles_leaves_a_whole_queue_or_none() {
    for point in [Point::MSG_VACATED, Point::MSG_EMPTIED, Point::MSG_REFILLED] {
        explore("typed recycle: death", 2, Slices::End, move || {
            let queue = Queue::new(1).filled(&[(1, 5)]);
            world::doom(2, Death::At(point), 1);
            let maker = queue.spawn(2, |queue, me| {
                queue.vacate(me).unwrap() && queue.revive(me, 100).is_some()
            });
            let old = queue.spawn(1, |queue, me| queue.send(me, (2, 5), Deadline::Passed));
            assert_eq!(thread::join(maker), None);
            let _ = alive(old);
            assert!(queue.fixed().rights.state().vacant().is_some());
            assert!(queue.fixed().rights.take());
        });
    }
}

#[test]
fn an_identifier_and_a_state_that_stays_belong_together() {
    explore("typed recycle: a reader", 3, Slices::Endless, || {
        let queue = Queue::new(1);
        let reader = queue.spawn(1, |queue, _| {
            let fixed = queue.fixed();
            let before = fixed.rights.state();
            let id = fixed.header.id();
            // Acquire: GENERATION. A reader of a mapped header has this fence, too.
            fence(Ordering::Acquire);
            let after = fixed.rights.state();
            if before == after
                && let Some(generation) = after.live()
            {
                assert_eq!(id, 100 * generation.number() as i32);
            }
        });
        queue.direct(|queue, me| {
            assert!(queue.vacate(me).unwrap());
            queue.revive(me, 100).unwrap();
        });
        alive(reader);
    });
}
