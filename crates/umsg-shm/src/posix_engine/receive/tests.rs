//! Tests of the plain case of a receive. A receiver reads the queue before it has the lock, and may use the values only if they are still true under
//! the lock.

use super::{Engine, Refused, Sighted};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::segment::testing;
use crate::sys::clock::Deadline;
use crate::sys::thread;

fn engine() -> Engine {
    Engine::new(testing::segment(4, 8))
}

fn send(engine: &Engine, message: u8, priority: usize) {
    let me = thread::current();
    engine
        .try_send(me, &[message], priority, Deadline::Passed)
        .unwrap();
}

fn receive(engine: &Engine) -> Result<u8, Refused> {
    let mut buffer = [0; 8];
    let taken = engine.try_receive(thread::current(), &mut buffer, Deadline::Passed);
    taken.map(|_| buffer[0])
}

/// Takes the steps of the plain case that are made under the lock. No other thread uses the queue in these tests.
fn take(engine: &Engine, sighted: &Sighted<'_>) -> Option<u8> {
    let mut buffer = [0; 8];
    let (receiving, me) = (ReceiverHeld::in_test(), thread::current());
    let taken = engine.take_sighted(receiving, me, sighted, &mut buffer);
    taken.map(|_| buffer[0])
}

#[test]
fn a_sighted_message_is_received_while_nothing_changes() {
    let engine = engine();
    send(&engine, 1, 3);
    send(&engine, 2, 3);
    assert_eq!(take(&engine, &engine.sight().unwrap()), Some(1));
    assert_eq!(receive(&engine), Ok(2));
}

#[test]
fn a_sighted_message_that_another_call_receives_is_not_received_again() {
    let engine = engine();
    send(&engine, 1, 0);
    send(&engine, 2, 0);
    let sighted = engine.sight().unwrap();
    assert_eq!(receive(&engine), Ok(1));
    assert_eq!(take(&engine, &sighted), None, "it comes twice");
    assert_eq!(receive(&engine), Ok(2));
}

#[test]
fn a_sighted_message_waits_for_an_older_one_that_comes_back() {
    let (engine, me) = (engine(), thread::current());
    send(&engine, 1, 0);
    send(&engine, 2, 0);
    let lease = engine.lease(me, Deadline::Passed).unwrap();
    let sighted = engine.sight().unwrap();
    assert_eq!(engine.give_back(me, &lease), Ok(true));
    assert_eq!(take(&engine, &sighted), None, "it overtakes");
    assert_eq!([receive(&engine), receive(&engine)], [Ok(1), Ok(2)]);
}

#[test]
fn a_sighted_message_waits_for_a_later_one_of_a_higher_priority() {
    let engine = engine();
    send(&engine, 1, 0);
    let sighted = engine.sight().unwrap();
    send(&engine, 2, 5);
    assert_eq!(take(&engine, &sighted), None, "it overtakes");
    assert!(engine.sight().is_none(), "two priorities are in the ring");
    assert_eq!([receive(&engine), receive(&engine)], [Ok(2), Ok(1)]);
}

#[test]
fn a_sighted_message_whose_stamp_a_repair_removes_is_left() {
    let engine = engine();
    send(&engine, 1, 0);
    let sighted = engine.sight().unwrap();
    sighted.cell.clear_stamp();
    assert_eq!(take(&engine, &sighted), None, "it was never sent");
}

#[test]
fn the_stamps_of_earlier_laps_show_no_message() {
    let engine = engine();
    // The test sends more messages than the queue has slots, so each slot is used several times.
    for number in 0..200 {
        assert!(engine.sight().is_none(), "nothing was sent after {number}");
        send(&engine, number, 0);
        assert_eq!(receive(&engine), Ok(number));
    }
    assert_eq!(receive(&engine), Err(Refused::NotNow));
}
