//! The history of a message in a queue that traces messages: deliveries and their ends, in order. The tests read it while another process leases and
//! returns the message, and after deaths between an event and the step that the event records.
//!
//! | a defect | its effect here |
//! |---|---|
//! | an event is read without the receiver lock | a race |
//! | an event is counted before it is written, or a step that did not take effect is not taken back | an event in the wrong place |
//! | the record is not emptied for the next message of its slot | the history of another message |

use super::stage::{LATER, Queue, Slices, alive, explore};
use super::subject::{Subject, explore_death};
use crate::crash::Point;
use crate::lock::SLICE;
use crate::model::segment::Segment;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::segment::{Policy, Trace, TraceKind};
use crate::posix_engine::{Engine, Refused};
use crate::sys::clock::Deadline;

/// A queue that traces messages, with one message in its only slot.
fn traced() -> Queue {
    let mut segment = Segment::new(1, 1);
    segment.set_policy(Policy {
        trace_messages: true,
        ..Policy::default()
    });
    Queue::of(Engine::new(segment)).filled(&[(1, 0)])
}

/// Leases the message and gives it back. Returns whether there was a message.
fn lease_and_return(queue: &Queue, me: &Thread, by: Deadline) -> bool {
    match queue.lease(me, by) {
        Ok((_, lease)) => {
            assert_eq!(queue.engine().give_back(me, &lease), Ok(true));
            true
        }
        Err(Refused::NotNow | Refused::TimedOut) => false,
        Err(other) => panic!("{other:?}"),
    }
}

/// Reads the trace of the message, if it is in the queue. Returns the number of its deliveries, each of which has ended.
fn deliveries(queue: &Queue, me: &Thread) -> Option<u32> {
    let seen = queue.engine().peek(me, 0, usize::MAX).unwrap();
    if seen.iter().len() == 0 {
        return None;
    }
    Some(check(seen.trace(0).expect("the queue traces messages")))
}

/// Checks that each delivery follows the end of the previous delivery, and that the last delivery has ended. Returns the number of deliveries.
fn check(trace: &Trace) -> u32 {
    let first = trace.forgotten();
    let mut holder = None;
    for (n, event) in (first..).zip(trace.events()) {
        assert_eq!(event.delivery, n / 2 + 1, "{trace:?}");
        let is_start = event.kind == TraceKind::Delivered;
        assert_eq!(is_start, n % 2 == 0, "{trace:?}");
        let is_end = matches!(event.kind, TraceKind::Returned | TraceKind::HolderDied);
        assert!(is_start || is_end, "{trace:?}");
        // A call or the death of the process that leased the message ends the delivery.
        assert!(
            is_start || holder.is_none_or(|pid| pid == event.pid),
            "{trace:?}"
        );
        holder = is_start.then_some(event.pid);
    }
    let noted = first + trace.events().len() as u32;
    assert_eq!(
        noted % 2,
        0,
        "a message in the queue is not delivered: {trace:?}"
    );
    noted / 2
}

#[test]
fn a_reader_sees_whole_deliveries_while_another_leases_and_returns() {
    explore("trace: a holder and a reader", 2, Slices::Endless, || {
        let queue = traced();
        let holder = queue.spawn(1, |queue, me| lease_and_return(queue, me, Deadline::Passed));
        let seen = queue.direct(deliveries);
        let held = u32::from(alive(holder));
        assert!(seen.is_none_or(|seen| seen <= held));
        assert_eq!(queue.direct(deliveries), Some(held));
        assert_eq!(queue.empty(), [(1, 0)]);
        queue.audit();
    });
}

#[test]
fn the_next_message_of_a_slot_has_a_history_of_its_own() {
    explore("trace: the next message", 1, Slices::Endless, || {
        let queue = traced();
        queue.direct(|queue, me| {
            assert!(lease_and_return(queue, me, Deadline::Passed));
            queue.receive(me, Deadline::Passed).unwrap();
        });
        let sender = queue.spawn(1, |queue, me| {
            queue.send(me, (2, 0), Deadline::Passed).unwrap();
        });
        let seen = queue.direct(deliveries);
        assert!(seen.is_none_or(|seen| seen == 0));
        alive(sender);
        queue.direct(|queue, me| {
            assert_eq!(deliveries(queue, me), Some(0));
            assert!(lease_and_return(queue, me, Deadline::Passed));
            assert_eq!(deliveries(queue, me), Some(1));
        });
        assert_eq!(queue.empty(), [(2, 0)]);
        queue.audit();
    });
}

/// Lets a process die at its `nth` passage of the point: the first passage is in its lease, the second passage in its return.
fn dies(point: Point, nth: u32) {
    let name = format!("trace: {point:?}, passage {nth}");
    explore_death(&name, 2, move || {
        let queue = traced();
        world::doom(1, Death::At(point), nth);
        let victim = queue.spawn(1, |queue, me| lease_and_return(queue, me, Deadline::Passed));
        let other = queue.spawn(2, |queue, me| lease_and_return(queue, me, LATER));
        let (victim, other) = (thread::join(victim), alive(other));
        // A lease took effect if the victim passed the point in its return.
        let by_victim = u32::from(victim.unwrap_or(nth == 2));
        // Readers skip an event of a step that did not take effect, and the next event replaces it. The director's lease comes after the end of the
        // dead process's lease.
        queue.direct(|queue, me| {
            let seen = deliveries(queue, me);
            assert!(seen.is_none_or(|seen| seen == by_victim + u32::from(other)));
            queue.let_holders_be_looked_at();
            while !lease_and_return(queue, me, Deadline::Passed) {
                me.oversleep(SLICE);
                queue.let_holders_be_looked_at();
            }
            let expected = by_victim + u32::from(other) + 1;
            assert_eq!(deliveries(queue, me), Some(expected));
        });
        assert_eq!(queue.empty(), [(1, 0)]);
        queue.audit();
        victim.is_none()
    });
}

#[test]
fn the_event_of_a_step_that_death_cut_short_is_replaced() {
    for point in [Point::TRACE_WRITTEN, Point::TRACE_NOTED] {
        for nth in [1, 2] {
            dies(point, nth);
        }
    }
}
