//! Who dies sending, in place too, or while the queue grows.

use super::acts::*;
use super::stage::{SHALLOW, Scenario, Shape};
use crate::support::journal::How;
use crate::support::killing::{Batches, Bystander, STUCK};

/// Where a sender comes by whose message a receiver waits for, once it was sent.
const HANDING_OVER: &[&str] = &[
    "SEND_PUBLISHED",
    "SEND_COUNTED",
    "SEND_UNSERVED",
    "SERVE_NOTED",
    "SERVE_OFFERED",
    "SERVE_TAKEN",
];

/// The same of a message that was written in place.
const COMMITTING: &[&str] = &[
    "COMMIT_MARKED",
    "COMMIT_ENDED",
    "SERVE_NOTED",
    "SERVE_OFFERED",
    "SERVE_TAKEN",
];

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "sends in place into a queue that holds some",
        prefill: |actor| send_mixed(actor, 20),
        victim: |actor| reserve(actor, 10),
        passes: 10,
        points: &[
            "GROW_LENT",
            "RESERVE_SLOT_TAKEN",
            "RESERVE_HELD",
            "DRAIN_MARKED",
            "DRAIN_LINKED",
            "COMMIT_MARKED",
            "COMMIT_ENDED",
            "CANCEL_ENDED",
            "RECEIVE_RETURNED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends in place what makes the arena grow",
        victim: |actor| {
            for length in 0..60 {
                let room = actor.reserve(How::Try, 3000 + length * 16).expect("room");
                actor.commit(room, 1, 2000).expect("a reservation");
            }
        },
        passes: 60,
        fresh: true,
        points: &["ARENA_SPLIT", "ARENA_NAMED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends in place to a waiting receiver",
        bystander: Bystander::Receives,
        victim: |actor| {
            let room = actor.reserve(How::Try, 100).expect("room");
            actor.commit(room, 3, 90).expect("a reservation");
        },
        alone: COMMITTING,
        points: COMMITTING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends in place once the room of the dead has come back",
        shape: SHALLOW,
        prefill: |actor| {
            send_mixed(actor, 26);
            leave_holds(actor);
        },
        victim: |actor| {
            // A process may have looked in this tick of the clock.
            let room = actor.reserve(How::Within(STUCK), 10).expect("room");
            actor.commit(room, 3, 10).expect("a reservation");
        },
        points: &["RETURN_MARKED", "RECEIVE_RETURNED", "RESERVE_HELD"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends short messages of one priority",
        victim: |actor| send_alike(actor, 20),
        passes: 20,
        points: &[
            "SEND_FILLED",
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends mixed messages into a queue that holds some",
        prefill: |actor| send_mixed(actor, 20),
        victim: |actor| send_mixed(actor, 30),
        passes: 5,
        points: &[
            "SEND_FILLED",
            "SEND_RUN_CHANGED",
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "ARENA_SPLIT",
            "ARENA_NAMED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends messages for which the arena grows",
        victim: |actor| {
            for length in 0..60 {
                actor.send(How::Try, 1, 3000 + length * 16).expect("room");
            }
        },
        passes: 60,
        fresh: true,
        points: &["ARENA_SPLIT", "ARENA_NAMED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends batches",
        victim: |actor| send_batches(actor, 12),
        passes: 5,
        batches: Batches::Sends,
        points: &[
            "BATCH_NOTED",
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
            "SEND_RUN_CHANGED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "ARENA_SPLIT",
            "ARENA_NAMED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends batches into a queue that holds messages",
        prefill: |actor| send_mixed(actor, 20),
        victim: |actor| send_batches(actor, 12),
        passes: 5,
        batches: Batches::Sends,
        points: &[
            "BATCH_NOTED",
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends a batch to a waiting receiver",
        bystander: Bystander::Receives,
        victim: |actor| send_batches(actor, 1),
        batches: Batches::Sends,
        alone: &[
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "SERVE_OFFERED",
        ],
        points: &[
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "SERVE_OFFERED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "sends to a waiting receiver",
        bystander: Bystander::Receives,
        victim: |actor| send_alike(actor, 1),
        alone: HANDING_OVER,
        points: HANDING_OVER,
        ..Scenario::PLAIN
    },
];

/// Who dies while the queue grows.
pub const GROWING: &[Scenario] = &[Scenario {
    name: "fills a deep queue",
    shape: Shape {
        depth: 3000,
        size: 256,
    },
    victim: |actor| while actor.send(How::Try, 3, 100).is_ok() {},
    passes: 2,
    fresh: true,
    points: &[
        "GROW_LENT",
        "GROW_COPIED",
        "GROW_DOUBLED",
        "GROW_WRITTEN",
        "GROW_COUNTED",
    ],
    ..Scenario::PLAIN
}];
