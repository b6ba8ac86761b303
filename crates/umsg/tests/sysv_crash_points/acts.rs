//! The operations of victims, and of the processes that use the queue before them.

use super::stage::QBYTES;
use crate::chaos::clerk::Clerk;
use crate::chaos::journal::{How, SHORTEST};
use crate::chaos::killing::STUCK;
use crate::support::child::{Child, Exit};
use crate::support::{Random, wait_until};
use std::sync::atomic::Ordering::SeqCst;
use umsg::sysv::{Change, Queue, ReceiveError, Want};
use umsg_shm::crash;

/// Returns a random type except the awaited one, and a random length: many messages fit into their cell, some need the arena, a few make the arena
/// grow.
pub fn any(random: &mut Random) -> (u16, usize) {
    let mtype = match random.below(3) {
        0 => 1,
        1 => 4 + random.below(5) as u16,
        _ => 10 + random.below(30_000) as u16,
    };
    let len = match random.below(8) {
        0..4 => random.below(40) as usize,
        4..7 => 40 + random.below(200) as usize,
        _ => 300 + random.below(500) as usize,
    };
    (mtype, len)
}

pub fn random(clerk: &Clerk<'_>) -> Random {
    Random::new(clerk.journal.used() as u64 + 1)
}

pub fn send_mixed(clerk: &mut Clerk<'_>, count: usize) {
    let mut random = random(clerk);
    for _ in 0..count {
        let (mtype, len) = any(&mut random);
        clerk.send(How::Try, mtype, len).expect("room");
    }
}

pub fn send_batches(clerk: &mut Clerk<'_>, count: usize) {
    let mut random = random(clerk);
    for batch in 0..count {
        let mut messages = [(); 3].map(|()| any(&mut random));
        if batch % 4 < 2 {
            messages = messages.map(|(_, len)| (2, len));
        }
        let messages = &messages[batch % 2..];
        clerk.send_batch(How::Try, messages).expect("room");
    }
}

/// Fills the queue to the last byte: with 16 messages of 1,000 bytes, and short ones.
pub fn fill(clerk: &mut Clerk<'_>) {
    let mut mtypes = [1, 2, 5, 2000].into_iter().cycle();
    for len in [1000, SHORTEST] {
        while clerk.send(How::Try, mtypes.next().unwrap(), len).is_ok() {}
    }
}

/// Receives messages, each time with another selection.
pub fn receive(clerk: &mut Clerk<'_>, count: usize) {
    let wants = [
        Want::Any,
        Want::Except(1),
        Want::Lowest(i64::MAX),
        Want::Exactly(1),
    ];
    for want in wants.into_iter().cycle().take(count) {
        match clerk.receive(How::Try, want) {
            Err(ReceiveError::NoMessage) => clerk.receive(How::Try, Want::Any),
            received => received,
        }
        .expect("a message");
    }
}

pub fn receive_batches(clerk: &mut Clerk<'_>, count: usize, most: usize) {
    for _ in 0..count {
        let received = clerk.receive_batch(How::Try, Want::Any, most);
        received.expect("a message");
    }
}

/// Leases three messages in each round: acknowledges the first one, keeps the second one, and returns the third one. The kept leases last until this
/// function ends.
pub fn lease(clerk: &mut Clerk<'_>, rounds: usize) {
    let mut kept = Vec::new();
    for _ in 0..rounds {
        let done = clerk.lease(How::Try, Want::Any).expect("a message");
        kept.push(clerk.lease(How::Try, Want::Except(1)).expect("a message"));
        let other = clerk.lease(How::Try, Want::Any).expect("a message");
        clerk.acknowledge(done).expect("a lease");
        other.give_back().expect("a lease");
    }
}

/// Lets a process lease some messages, and end without returning them.
pub fn leave_leases(clerk: &mut Clerk<'_>) {
    let mut holder = Child::run(|| {
        let lease = || clerk.lease(How::Try, Want::Any).expect("a message");
        std::mem::forget([(); 4].map(|()| lease()));
        0
    });
    holder.expect(Exit::Code(0), "the holder");
}

/// A receiver gets an offered message, and dies before it has taken the message.
pub fn leave_offer(clerk: &mut Clerk<'_>) {
    let mut dead = Child::run(|| {
        crash::arm("MSG_TAKEN_UP", 1);
        let _ = clerk.receive(How::Block, Want::Exactly(9));
        0
    });
    let waits = wait_until(STUCK, || status(clerk.queue).blocked_receivers == 1);
    assert!(waits, "no process waits for an offer");
    clerk.send(How::Try, 9, 60).expect("room");
    dead.expect(
        Exit::Signal(libc::SIGKILL),
        "the process that was offered a message",
    );
    clerk.me().receiving.store(0, SeqCst);
}

pub fn status(queue: &Queue) -> umsg::sysv::Status {
    queue.status().expect("a status")
}

/// Changes the queue's properties to the values that they already have.
pub fn change(queue: &Queue) {
    let qbytes = Some(QBYTES as u64);
    let change = Change {
        qbytes,
        ..Change::default()
    };
    queue.set(&change).expect("a change");
}
