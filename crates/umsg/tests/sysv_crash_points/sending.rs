//! Who dies sending.

use super::acts::*;
use super::stage::{Scenario, WANTED};
use crate::support::journal::How;
use crate::support::killing::{Batches, Bystander};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "sends mixed messages",
        victim: |clerk| send_mixed(clerk, 20),
        passes: 20,
        points: &["MSG_FILLED", "MSG_SENT", "MSG_LINKED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends mixed messages into a queue that holds some",
        prefill: |clerk| send_mixed(clerk, 20),
        victim: |clerk| send_mixed(clerk, 20),
        passes: 20,
        points: &["MSG_FILLED", "MSG_SENT", "MSG_LINKED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends messages for which the arena grows",
        victim: |clerk| {
            for length in 0..5 {
                clerk.send(How::Try, 1, 3000 + length * 16).expect("room");
            }
        },
        passes: 4,
        fresh: true,
        points: &["ARENA_SPLIT", "ARENA_NAMED", "MSG_FILLED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends batches",
        victim: |clerk| send_batches(clerk, 12),
        passes: 12,
        batches: Batches::Sends,
        points: &[
            "MSG_FILLED",
            "MSG_BATCH_FILLED",
            "MSG_BATCH_SENT",
            "MSG_LINKED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends batches into a queue that holds messages",
        prefill: |clerk| send_mixed(clerk, 20),
        victim: |clerk| send_batches(clerk, 12),
        passes: 12,
        batches: Batches::Sends,
        points: &["MSG_BATCH_FILLED", "MSG_BATCH_SENT", "MSG_LINKED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends to a waiting receiver",
        prefill: |clerk| send_mixed(clerk, 5),
        bystander: Bystander::Receives,
        victim: |clerk| {
            let _ = clerk.send(How::Try, WANTED, 90);
        },
        alone: &["MSG_SENT", "MSG_NOTED", "MSG_OFFERED"],
        points: &["MSG_FILLED", "MSG_SENT", "MSG_NOTED", "MSG_OFFERED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends to others while a receiver waits",
        bystander: Bystander::Receives,
        victim: |clerk| send_mixed(clerk, 10),
        passes: 10,
        points: &["MSG_FILLED", "MSG_SENT", "MSG_LINKED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends a batch of which a receiver waits for one",
        bystander: Bystander::Receives,
        victim: |clerk| {
            let batch = [(1, 20), (WANTED, 700), (WANTED, 10), (2, 0)];
            clerk.send_batch(How::Try, &batch).expect("room");
        },
        batches: Batches::Sends,
        alone: &["MSG_BATCH_SENT", "MSG_LINKED", "MSG_NOTED", "MSG_OFFERED"],
        points: &[
            "MSG_BATCH_FILLED",
            "MSG_BATCH_SENT",
            "MSG_LINKED",
            "MSG_NOTED",
            "MSG_OFFERED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends where somebody died with an offer",
        prefill: leave_offer,
        victim: |clerk| send_mixed(clerk, 1),
        points: &["MSG_PUT_BACK", "MSG_FILLED", "MSG_LINKED"],
        ..Scenario::PLAIN
    },
];
