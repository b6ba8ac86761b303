//! Who dies while it waits, or begins to, or is woken.

use super::acts::*;
use super::scenario::{PLAIN, Scenario};
use crate::support::journal::How;
use crate::support::killing::{Bystander, Nudge};
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "is woken with a message to lease",
        victim: |actor| {
            let lease = actor.lease(How::Block).expect("a message");
            actor.acknowledge(lease).expect("a lease");
        },
        nudge: Nudge::Send,
        points: &["WAIT_WOKEN", "LEASE_HELD", "LEASE_ENDED"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for a message",
        victim: |actor| {
            let _ = actor.receive(How::Block);
        },
        points: &[
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for a message behind another receiver",
        bystander: Bystander::Receives,
        victim: |actor| {
            let _ = actor.receive(How::Block);
        },
        points: &[
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "is woken with a message",
        victim: |actor| {
            let _ = actor.receive(How::Block);
        },
        nudge: Nudge::Send,
        points: &["WAIT_WOKEN", "RECEIVE_RETURNED"],
        ..PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over",
        victim: |actor| {
            let _ = actor.receive(How::Within(Duration::from_millis(3)));
        },
        points: &["WAIT_LISTED", "WAIT_NAMED", "WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over, behind another receiver",
        bystander: Bystander::Receives,
        victim: |actor| {
            let _ = actor.receive(How::Within(Duration::from_millis(3)));
        },
        points: &["WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send(How::Block, 3, 200);
        },
        points: &[
            "GROW_LENT",
            "PARK_SLOT_TAKEN",
            "PARK_FILLED",
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room behind another sender, with a message that needs a new block",
        depth: 30,
        prefill: fill_mixed,
        bystander: Bystander::Sends,
        victim: |actor| {
            let len = 1000 + 100 * (actor.journal.used() % 20);
            let _ = actor.send(How::Block, 3, len);
        },
        points: &[
            "GROW_LENT",
            "PARK_SLOT_TAKEN",
            "PARK_FILLED",
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "is woken with room",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send(How::Block, 3, 200);
        },
        nudge: Nudge::Receive,
        points: &["WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send_batch(How::Block, &[(3, 200); 3]);
        },
        points: &[
            "GROW_LENT",
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch behind another",
        depth: 30,
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |actor| {
            let _ = actor.send_batch(How::Block, &[(3, 200); 3]);
        },
        points: &["WAIT_LISTED", "WAIT_UNNAMED", "WAIT_NAMED"],
        ..PLAIN
    },
    Scenario {
        name: "is woken with room for a batch",
        depth: 30,
        prefill: |actor| {
            fill(actor);
            receive(actor, 1);
        },
        victim: |actor| {
            let _ = actor.send_batch(How::Block, &[(3, 200), (3, 16)]);
        },
        nudge: Nudge::Receive,
        points: &[
            "WAIT_WOKEN",
            "BATCH_NOTED",
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
            "SEND_COUNTED",
        ],
        ..PLAIN
    },
    Scenario {
        name: "waits for room for a batch until its time is over",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let time = Duration::from_millis(3);
            let _ = actor.send_batch(How::Within(time), &[(3, 200); 2]);
        },
        points: &["WAIT_WOKEN"],
        ..PLAIN
    },
    Scenario {
        name: "waits for room until its time is over",
        depth: 30,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send(How::Within(Duration::from_millis(3)), 3, 200);
        },
        points: &["PARK_FILLED", "WAIT_WOKEN", "RECEIVE_RETURNED"],
        ..PLAIN
    },
];
