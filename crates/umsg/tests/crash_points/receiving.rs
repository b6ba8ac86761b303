//! Who dies receiving.

use super::acts::*;
use super::stage::{SHALLOW, Scenario};
use crate::support::journal::How;
use crate::support::killing::{Batches, Bystander, STUCK};

/// Where a receiver from the store comes by that makes room for a blocked sender.
const ADMITTING: &[&str] = &[
    "RECEIVE_UNSTORED",
    "RECEIVE_RETURNED",
    "RECEIVE_ADMITTED",
    "ADMIT_ACCEPTED",
];

/// The same of a batch, where a batch is blocked.
const TURNING: &[&str] = &[
    "RECEIVE_BATCH_TAKEN",
    "RECEIVE_FREED",
    "RECEIVE_ADMITTED",
    "BATCH_TURN",
];

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "receives what the dead held",
        prefill: |actor| {
            send_mixed(actor, 4);
            leave_holds(actor);
        },
        victim: |actor| {
            // A process may have looked in this tick of the clock.
            let _ = actor.receive(How::Within(STUCK));
            receive(actor, 3);
        },
        passes: 3,
        points: &["RETURN_MARKED", "RECEIVE_RETURNED", "RECEIVE_FREED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives from the ring",
        prefill: |actor| send_alike(actor, 30),
        victim: |actor| receive(actor, 20),
        passes: 20,
        points: &[
            "RECEIVE_COPIED",
            "RECEIVE_TAKEN",
            "RECEIVE_RETURNED",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives from the store",
        prefill: |actor| send_mixed(actor, 40),
        victim: |actor| receive(actor, 20),
        passes: 15,
        points: &[
            "DRAIN_MARKED",
            "DRAIN_LINKED",
            "RECEIVE_COPIED",
            "RECEIVE_UNSTORED",
            "RECEIVE_RETURNED",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives from a full queue while a sender is blocked",
        shape: SHALLOW,
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |actor| receive(actor, 6),
        alone: &[
            "RECEIVE_RETURNED",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
            "ADMIT_ACCEPTED",
        ],
        points: &[
            "RECEIVE_COPIED",
            "RECEIVE_RETURNED",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
            "ADMIT_ACCEPTED",
            "DRAIN_MARKED",
            "DRAIN_LINKED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives from a full queue of mixed messages while a sender is blocked",
        shape: SHALLOW,
        prefill: fill_mixed,
        bystander: Bystander::Sends,
        victim: |actor| receive(actor, 6),
        alone: ADMITTING,
        points: ADMITTING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives batches from the ring",
        prefill: |actor| send_alike(actor, 40),
        victim: |actor| receive_batches(actor, 8, 3),
        passes: 8,
        batches: Batches::Receives,
        points: &[
            "RECEIVE_COPIED",
            "RECEIVE_TAKEN",
            "RECEIVE_RETURNED",
            "RECEIVE_BATCH_TAKEN",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives batches from the store",
        prefill: |actor| send_mixed(actor, 40),
        victim: |actor| receive_batches(actor, 8, 3),
        passes: 8,
        batches: Batches::Receives,
        points: &[
            "RECEIVE_COPIED",
            "RECEIVE_UNSTORED",
            "RECEIVE_RETURNED",
            "RECEIVE_BATCH_TAKEN",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives a batch from a full queue while a batch is blocked",
        shape: SHALLOW,
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |actor| receive_batches(actor, 2, 3),
        batches: Batches::Receives,
        alone: TURNING,
        points: TURNING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives from a full queue while a batch is blocked",
        shape: SHALLOW,
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |actor| receive(actor, 6),
        alone: &["BATCH_TURN"],
        points: &[
            "RECEIVE_TAKEN",
            "RECEIVE_FREED",
            "RECEIVE_ADMITTED",
            "BATCH_TURN",
        ],
        ..Scenario::PLAIN
    },
];
