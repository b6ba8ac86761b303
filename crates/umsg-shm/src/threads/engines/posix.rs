//! The calls of the engine of POSIX queues.

use super::{IMPATIENT, PATIENT, Several, insist};
use crate::leases::InPlace;
use crate::posix_engine::batch::{Batch, Sink};
use crate::posix_engine::segment::testing;
use crate::posix_engine::{Engine, Taken};
use crate::sys::thread::current;
use crate::threads::traffic::{LONGEST, TOGETHER, pass};
use std::time::Duration;

/// Returns a queue with room for three messages, so that each thread waits now and then.
fn engine() -> Engine {
    Engine::new(testing::segment(3, LONGEST))
}

fn send(engine: &Engine, messages: &[Vec<u8>], patience: Duration) {
    for bytes in messages {
        let priority = usize::from(bytes[0] % 3);
        insist(patience, |by| engine.send(current(), bytes, priority, by));
    }
}

fn receive(engine: &Engine, patience: Duration) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; LONGEST];
    let taken = insist(patience, |by| engine.receive(current(), &mut bytes, by));
    bytes.truncate(taken.len);
    vec![bytes]
}

fn send_in_place(engine: &Engine, messages: &[Vec<u8>]) {
    for bytes in messages {
        let room = insist(PATIENT, |by| engine.reserve(current(), LONGEST, by));
        let mut place = InPlace::new(engine.place(&room).unwrap(), LONGEST);
        assert_eq!(place.write_at(0, bytes), bytes.len());
        assert_eq!(engine.commit(current(), &room, bytes.len(), 1), Ok(true));
    }
}

/// Receives a message in place. Each message goes back to the queue after its first lease, and another thread may then get it.
fn receive_in_place(engine: &Engine) -> Vec<Vec<u8>> {
    loop {
        let lease = insist(PATIENT, |by| engine.lease(current(), by));
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
    fn len(&self) -> usize {
        self.0.len()
    }

    fn message(&self, index: usize) -> (&[u8], usize) {
        (&self.0[index], 2)
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
        engine.send_batch(current(), &Together(messages), by)
    });
}

fn receive_together(engine: &Engine, most: usize) -> Vec<Vec<u8>> {
    let (most, mut several) = (most.min(TOGETHER), Several::default());
    insist(PATIENT, |by| {
        engine.receive_batch(current(), most, &mut several, by)
    });
    several.received
}

#[test]
fn copies_of_messages_pass_through_a_full_queue() {
    let engine = engine();
    let send = |messages: &[Vec<u8>]| send(&engine, messages, PATIENT);
    let receive = |_| receive(&engine, PATIENT);
    pass(&[&send, &send], &[&receive, &receive]);
}

#[test]
fn messages_in_place_pass_beside_copies() {
    let engine = engine();
    let send = |messages: &[Vec<u8>]| send(&engine, messages, PATIENT);
    let send_in_place = |messages: &[Vec<u8>]| send_in_place(&engine, messages);
    let receive = |_| receive(&engine, PATIENT);
    let receive_in_place = |_| receive_in_place(&engine);
    pass(&[&send_in_place, &send], &[&receive_in_place, &receive]);
}

#[test]
fn batches_pass_beside_single_messages() {
    let engine = engine();
    let send = |messages: &[Vec<u8>]| send(&engine, messages, PATIENT);
    let send_together = |messages: &[Vec<u8>]| send_together(&engine, messages);
    let receive = |_| receive(&engine, PATIENT);
    let receive_together = |most| receive_together(&engine, most);
    pass(&[&send_together, &send], &[&receive_together, &receive]);
}

#[test]
fn a_waiter_that_gives_up_again_and_again_misses_nothing_and_leaves_nothing() {
    let engine = engine();
    let send = |messages: &[Vec<u8>]| send(&engine, messages, IMPATIENT);
    let receive = |_| receive(&engine, IMPATIENT);
    pass(&[&send, &send], &[&receive, &receive]);
}
