//! Victims that send.

use super::acts::*;
use super::stage::{Scenario, WANTED};
use crate::chaos::journal::How;
use crate::chaos::killing::{Batches, Bystander};
use crate::crash_points;

pub const ALL: &[Scenario] = &[
    Scenario::new("sends mixed messages", |clerk| send_mixed(clerk, 20))
        .passes(20)
        .dies_at(crash_points![MSG_FILLED MSG_SENT MSG_LINKED]),
    Scenario::new(
        "sends mixed messages into a queue that holds some",
        |clerk| send_mixed(clerk, 20),
    )
    .prefill(|clerk| send_mixed(clerk, 20))
    .passes(20)
    .dies_at(crash_points![MSG_FILLED MSG_SENT MSG_LINKED]),
    Scenario::new("sends messages for which the arena grows", |clerk| {
        for length in 0..5 {
            clerk.send(How::Try, 1, 3000 + length * 16).expect("room");
        }
    })
    .passes(4)
    .fresh()
    .dies_at(crash_points![ARENA_SPLIT ARENA_NAMED MSG_FILLED]),
    Scenario::new("sends batches", |clerk| send_batches(clerk, 12))
        .passes(12)
        .batches(Batches::Sends)
        .dies_at(crash_points![MSG_FILLED MSG_BATCH_FILLED MSG_BATCH_SENT MSG_LINKED]),
    Scenario::new("sends batches into a queue that holds messages", |clerk| {
        send_batches(clerk, 12)
    })
    .prefill(|clerk| send_mixed(clerk, 20))
    .passes(12)
    .batches(Batches::Sends)
    .dies_at(crash_points![MSG_BATCH_FILLED MSG_BATCH_SENT MSG_LINKED]),
    Scenario::new("sends to a waiting receiver", |clerk| {
        let _ = clerk.send(How::Try, WANTED, 90);
    })
    .prefill(|clerk| send_mixed(clerk, 5))
    .beside(Bystander::Receives)
    .alone(crash_points![MSG_SENT MSG_NOTED MSG_OFFERED])
    .dies_at(crash_points![MSG_FILLED MSG_SENT MSG_NOTED MSG_OFFERED]),
    Scenario::new("sends to others while a receiver waits", |clerk| {
        send_mixed(clerk, 10)
    })
    .beside(Bystander::Receives)
    .passes(10)
    .dies_at(crash_points![MSG_FILLED MSG_SENT MSG_LINKED]),
    Scenario::new("sends a batch of which a receiver waits for one", |clerk| {
        let batch = [(1, 20), (WANTED, 700), (WANTED, 10), (2, 0)];
        clerk.send_batch(How::Try, &batch).expect("room");
    })
    .beside(Bystander::Receives)
    .batches(Batches::Sends)
    .alone(crash_points![MSG_BATCH_SENT MSG_LINKED MSG_NOTED MSG_OFFERED])
    .dies_at(crash_points![
        MSG_BATCH_FILLED MSG_BATCH_SENT MSG_LINKED MSG_NOTED MSG_OFFERED
    ]),
    Scenario::new("sends where a receiver died with an offer", |clerk| {
        send_mixed(clerk, 1)
    })
    .prefill(leave_offer)
    .dies_at(crash_points![MSG_PUT_BACK MSG_FILLED MSG_LINKED]),
];
