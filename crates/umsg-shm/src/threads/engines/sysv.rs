//! The calls of the engine of System V queues.

use super::{IMPATIENT, PATIENT, Several, insist};
use crate::leases::InPlace;
use crate::sys::thread::current;
use crate::sysv_engine::order::Want;
use crate::sysv_engine::tests::{call, engine};
use crate::sysv_engine::{Batch, Engine, Sink, Taken};
use crate::threads::traffic::{LONGEST, TOGETHER, pass};
use std::time::Duration;

/// The room of the queue, in bytes: so little that each thread waits now and then.
const ROOM: u64 = 2 * LONGEST as u64;

/// Returns the type of a message. Each type has one receiver.
fn type_of(bytes: &[u8]) -> i64 {
    1 + i64::from(bytes[0] % 2)
}

fn send(engine: &Engine, messages: &[Vec<u8>], patience: Duration) {
    for bytes in messages {
        insist(patience, |by| engine.send(&call(by), type_of(bytes), bytes));
    }
}

fn receive(engine: &Engine, want: Want, patience: Duration) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; LONGEST];
    let taken = insist(patience, |by| {
        engine.receive(&call(by), want, &mut bytes, false)
    });
    bytes.truncate(taken.len);
    vec![bytes]
}

/// Receives a message in place. Each message goes back to the queue after its first lease, and another thread may then get it.
fn receive_in_place(engine: &Engine, want: Want) -> Vec<Vec<u8>> {
    loop {
        let lease = insist(PATIENT, |by| engine.lease(&call(by), want));
        let mut bytes = vec![0; lease.len];
        InPlace::new(engine.place(&lease).unwrap(), lease.len).read_at(0, &mut bytes);
        if lease.deliveries > 1 {
            assert_eq!(engine.acknowledge(current(), &lease), Ok(true));
            return vec![bytes];
        }
        assert_eq!(engine.give_back(current(), &lease), Ok(true));
    }
}

struct Together<'a>(&'a [Vec<u8>]);

impl Batch for Together<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn at(&self, index: usize) -> (i64, &[u8]) {
        (type_of(&self.0[index]), &self.0[index])
    }
}

impl Sink for Several {
    fn place(&mut self, _len: usize) -> Option<&mut [u8]> {
        Some(self.room())
    }

    fn taken(&mut self, taken: Taken) {
        self.take(taken.len);
    }
}

fn send_together(engine: &Engine, messages: &[Vec<u8>]) {
    insist(PATIENT, |by| {
        engine.send_batch(&call(by), &Together(messages))
    });
}

fn receive_together(engine: &Engine, want: Want, most: usize) -> Vec<Vec<u8>> {
    let (most, mut several) = (most.min(TOGETHER), Several::default());
    insist(PATIENT, |by| {
        engine.receive_batch(&call(by), want, most, &mut several)
    });
    several.received
}

#[test]
fn messages_of_two_types_pass_through_a_full_queue() {
    let engine = engine(ROOM);
    let send = |messages: &[Vec<u8>]| send(&engine, messages, PATIENT);
    let first = |_| receive(&engine, Want::Exactly(1), PATIENT);
    let second = |_| receive(&engine, Want::Exactly(2), PATIENT);
    pass(&[&send, &send], &[&first, &second]);
}

#[test]
fn messages_in_place_pass_beside_copies() {
    let engine = engine(ROOM);
    let send = |messages: &[Vec<u8>]| send(&engine, messages, PATIENT);
    let in_place = |_| receive_in_place(&engine, Want::Any);
    let copied = |_| receive(&engine, Want::Lowest(9), PATIENT);
    pass(&[&send, &send], &[&in_place, &copied]);
}

#[test]
fn batches_pass_beside_single_messages() {
    let engine = engine(ROOM);
    let together = |messages: &[Vec<u8>]| send_together(&engine, messages);
    let send = |messages: &[Vec<u8>]| send(&engine, messages, PATIENT);
    let several = |most| receive_together(&engine, Want::Any, most);
    let receive = |_| receive(&engine, Want::Any, PATIENT);
    pass(&[&together, &send], &[&several, &receive]);
}

#[test]
fn a_waiter_that_gives_up_again_and_again_misses_nothing_and_leaves_nothing() {
    let engine = engine(ROOM);
    let send = |messages: &[Vec<u8>]| send(&engine, messages, IMPATIENT);
    let receive = |_| receive(&engine, Want::Any, IMPATIENT);
    pass(&[&send, &send], &[&receive, &receive]);
}
