//! The operations of victims, and of the processes before them.

use crate::chaos::actor::Actor;
use crate::chaos::journal::How;
use crate::support::Random;
use crate::support::child::{Child, Exit};

/// Returns a random priority and length: most messages fit into their cell, some need the arena, a few make the arena grow.
pub fn any(random: &mut Random) -> (u16, usize) {
    let priority = match random.below(3) {
        0 => 0,
        1 => random.below(5) as u16,
        _ => random.below(32_768) as u16,
    };
    let len = match random.below(8) {
        0..4 => random.below(72) as usize,
        4..7 => 73 + random.below(200) as usize,
        _ => 1000 + random.below(3096) as usize,
    };
    (priority, len)
}

pub fn send_mixed(actor: &mut Actor<'_>, count: usize) {
    let mut random = Random::new(count as u64 + actor.journal.used() as u64);
    for _ in 0..count {
        let (priority, len) = any(&mut random);
        actor.send(How::Try, priority, len).expect("room");
    }
}

pub fn send_alike(actor: &mut Actor<'_>, count: usize) {
    for _ in 0..count {
        actor.send(How::Try, 3, 16).expect("room");
    }
}

/// Sends batches of two and three messages in turn, of one priority and of several.
pub fn send_batches(actor: &mut Actor<'_>, count: usize) {
    let mut random = Random::new(count as u64 + actor.journal.used() as u64);
    for batch in 0..count {
        let mut messages = [(); 3].map(|()| any(&mut random));
        if batch % 4 < 2 {
            messages = messages.map(|(_, len)| (2, len));
        }
        actor
            .send_batch(How::Try, &messages[batch % 2..])
            .expect("room");
    }
}

pub fn fill(actor: &mut Actor<'_>) {
    while actor.send(How::Try, 3, 100).is_ok() {}
}

pub fn fill_mixed(actor: &mut Actor<'_>) {
    let mut random = Random::new(7);
    loop {
        let (priority, len) = any(&mut random);
        if actor.send(How::Try, priority % 3, len).is_err() {
            return;
        }
    }
}

pub fn receive(actor: &mut Actor<'_>, count: usize) {
    for _ in 0..count {
        actor.receive(How::Try).expect("a message");
    }
}

/// Leases all messages: acknowledges one, keeps one, returns one, and so on. The kept leases last until the end.
pub fn lease(actor: &mut Actor<'_>, rounds: usize) {
    let mut kept = Vec::new();
    for _ in 0..rounds {
        let done = actor.lease(How::Try).expect("a message");
        kept.push(actor.lease(How::Try).expect("a message"));
        let other = actor.lease(How::Try).expect("a message");
        actor.acknowledge(done).expect("a lease");
        other.give_back().expect("a lease");
    }
}

/// Reserves room three times: sends one message, keeps the second room, gives the third back, and so on.
pub fn reserve(actor: &mut Actor<'_>, rounds: usize) {
    let mut random = Random::new(actor.journal.used() as u64);
    let mut kept = Vec::new();
    for _ in 0..rounds {
        let (priority, len) = any(&mut random);
        let room = actor.reserve(How::Try, len * 2).expect("room");
        kept.push(actor.reserve(How::Try, len).expect("room"));
        let other = actor.reserve(How::Try, len).expect("room");
        actor.commit(room, priority, len).expect("a reservation");
        drop(other);
    }
}

/// Lets a process lease some messages and reserve some room, and end without returning them.
pub fn leave_leases(actor: &mut Actor<'_>) {
    let mut holder = Child::run(|| {
        let leases: Vec<_> = (0..4)
            .map(|_| actor.lease(How::Try).expect("a message"))
            .collect();
        let rooms: Vec<_> = (0..4)
            .map(|_| actor.reserve(How::Try, 500).expect("room"))
            .collect();
        std::mem::forget((leases, rooms));
        0
    });
    holder.expect(Exit::Code(0), "the holder");
}

pub fn receive_batches(actor: &mut Actor<'_>, count: usize, most: usize) {
    for _ in 0..count {
        actor.receive_batch(How::Try, most).expect("a message");
    }
}
