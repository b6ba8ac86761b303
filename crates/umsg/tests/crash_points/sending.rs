//! Victims that send, also in place, and victims that make the queue grow.

use super::acts::*;
use super::stage::{SHALLOW, Scenario, Shape};
use crate::chaos::journal::How;
use crate::chaos::killing::{Batches, Bystander, STUCK};
use crate::crash_points;

/// Points of a sender after it has sent a message that a receiver waits for.
const HANDING_OVER: &[&str] = crash_points![
    SEND_PUBLISHED SEND_COUNTED SEND_UNSERVED SERVE_NOTED SERVE_OFFERED SERVE_TAKEN
];

/// The points of a call that sends a message written in place.
const COMMITTING: &[&str] = crash_points![
    COMMIT_MARKED COMMIT_ENDED SERVE_NOTED SERVE_OFFERED SERVE_TAKEN
];

pub const ALL: &[Scenario] = &[
    Scenario::new("sends in place into a queue that holds some", |actor| {
        reserve(actor, 10)
    })
    .prefill(|actor| send_mixed(actor, 20))
    .passes(10)
    .dies_at(crash_points![
        GROW_LENT RESERVE_SLOT_TAKEN RESERVE_HELD DRAIN_MARKED DRAIN_LINKED COMMIT_MARKED
        COMMIT_ENDED CANCEL_ENDED RECEIVE_RETURNED
    ]),
    Scenario::new("sends in place what makes the arena grow", |actor| {
        for length in 0..60 {
            let room = actor.reserve(How::Try, 3000 + length * 16).expect("room");
            actor.commit(room, 1, 2000).expect("a reservation");
        }
    })
    .passes(60)
    .fresh()
    .dies_at(crash_points![ARENA_SPLIT ARENA_NAMED]),
    Scenario::new("sends in place to a waiting receiver", |actor| {
        let room = actor.reserve(How::Try, 100).expect("room");
        actor.commit(room, 3, 90).expect("a reservation");
    })
    .beside(Bystander::Receives)
    .alone(COMMITTING)
    .dies_at(COMMITTING),
    Scenario::new(
        "sends in place once the room of the dead has come back",
        |actor| {
            // If another process has checked the holders within this tick of the clock, this call has to wait for the next tick.
            let room = actor.reserve(How::Within(STUCK), 10).expect("room");
            actor.commit(room, 3, 10).expect("a reservation");
        },
    )
    .shape(SHALLOW)
    .prefill(|actor| {
        send_mixed(actor, 26);
        leave_leases(actor);
    })
    .dies_at(crash_points![RETURN_MARKED RECEIVE_RETURNED RESERVE_HELD]),
    Scenario::new("sends short messages of one priority", |actor| {
        send_alike(actor, 20)
    })
    .passes(20)
    .dies_at(crash_points![SEND_FILLED SEND_PUBLISHED SEND_COUNTED SEND_UNSERVED]),
    Scenario::new(
        "sends mixed messages into a queue that holds some",
        |actor| send_mixed(actor, 30),
    )
    .prefill(|actor| send_mixed(actor, 20))
    .passes(5)
    .dies_at(crash_points![
        SEND_FILLED SEND_RUN_CHANGED SEND_PUBLISHED SEND_COUNTED SEND_UNSERVED ARENA_SPLIT
        ARENA_NAMED
    ]),
    Scenario::new("sends messages for which the arena grows", |actor| {
        for length in 0..60 {
            actor.send(How::Try, 1, 3000 + length * 16).expect("room");
        }
    })
    .passes(60)
    .fresh()
    .dies_at(crash_points![ARENA_SPLIT ARENA_NAMED]),
    Scenario::new("sends batches", |actor| send_batches(actor, 12))
        .passes(5)
        .batches(Batches::Sends)
        .dies_at(crash_points![
            BATCH_NOTED BATCH_STAMPED BATCH_PUBLISHED BATCH_COUNTED SEND_RUN_CHANGED SEND_COUNTED
            SEND_UNSERVED ARENA_SPLIT ARENA_NAMED
        ]),
    Scenario::new("sends batches into a queue that holds messages", |actor| {
        send_batches(actor, 12)
    })
    .prefill(|actor| send_mixed(actor, 20))
    .passes(5)
    .batches(Batches::Sends)
    .dies_at(crash_points![BATCH_NOTED BATCH_STAMPED BATCH_PUBLISHED BATCH_COUNTED]),
    Scenario::new("sends a batch to a waiting receiver", |actor| {
        send_batches(actor, 1)
    })
    .beside(Bystander::Receives)
    .batches(Batches::Sends)
    .alone(crash_points![
        BATCH_PUBLISHED BATCH_COUNTED SEND_COUNTED SEND_UNSERVED SERVE_OFFERED
    ])
    .dies_at(crash_points![
        BATCH_STAMPED BATCH_PUBLISHED SEND_COUNTED SEND_UNSERVED SERVE_OFFERED
    ]),
    Scenario::new("sends to a waiting receiver", |actor| send_alike(actor, 1))
        .beside(Bystander::Receives)
        .alone(HANDING_OVER)
        .dies_at(HANDING_OVER),
];

/// Victims that grow the queue.
pub const GROWING: &[Scenario] = &[Scenario::new("fills a deep queue", |actor| {
    while actor.send(How::Try, 3, 100).is_ok() {}
})
.shape(Shape {
    depth: 3000,
    size: 256,
})
.passes(2)
.fresh()
.dies_at(crash_points![
    GROW_LENT GROW_COPIED GROW_DOUBLED GROW_WRITTEN GROW_COUNTED
])];
