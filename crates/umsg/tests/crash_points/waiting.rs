//! Who dies while it waits, or begins to, or is woken.

use super::acts::*;
use super::stage::{SHALLOW, Scenario};
use crate::support::actor::Actor;
use crate::support::journal::How;
use crate::support::killing::{Batches, Bystander, Nudge};
use std::time::Duration;

/// Where a receiver comes by that begins to wait.
const BEGINNING: &[&str] = &[
    "WAIT_NODE_FILLED",
    "WAIT_LISTED",
    "WAIT_UNNAMED",
    "WAIT_NAMED",
];

/// And a sender, which leaves its message in a slot first.
const PARKING: &[&str] = &[
    "GROW_LENT",
    "PARK_SLOT_TAKEN",
    "PARK_FILLED",
    "WAIT_NODE_FILLED",
    "WAIT_LISTED",
    "WAIT_UNNAMED",
    "WAIT_NAMED",
];

fn wait_for_a_message(actor: &mut Actor<'_>) {
    let _ = actor.receive(How::Block);
}

fn wait_for_a_message_in_vain(actor: &mut Actor<'_>) {
    let _ = actor.receive(How::Within(Duration::from_millis(3)));
}

fn wait_for_room(actor: &mut Actor<'_>) {
    let _ = actor.send(How::Block, 3, 200);
}

fn wait_for_room_for_a_batch(actor: &mut Actor<'_>) {
    let _ = actor.send_batch(How::Block, &[(3, 200); 3]);
}

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "is woken with a message to lease",
        victim: |actor| {
            let lease = actor.lease(How::Block).expect("a message");
            actor.acknowledge(lease).expect("a lease");
        },
        nudge: Nudge::Send,
        leases: true,
        points: &["WAIT_WOKEN", "LEASE_HELD", "LEASE_ENDED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for a message",
        victim: wait_for_a_message,
        points: BEGINNING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for a message behind another receiver",
        bystander: Bystander::Receives,
        victim: wait_for_a_message,
        points: BEGINNING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "is woken with a message",
        victim: wait_for_a_message,
        nudge: Nudge::Send,
        points: &["WAIT_WOKEN", "RECEIVE_RETURNED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over",
        victim: wait_for_a_message_in_vain,
        timed: true,
        points: &["WAIT_LISTED", "WAIT_NAMED", "WAIT_WOKEN"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over, behind another receiver",
        bystander: Bystander::Receives,
        victim: wait_for_a_message_in_vain,
        timed: true,
        points: &["WAIT_WOKEN"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for room",
        shape: SHALLOW,
        prefill: fill,
        victim: wait_for_room,
        points: PARKING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for room behind another sender, with a message that needs a new block",
        shape: SHALLOW,
        prefill: fill_mixed,
        bystander: Bystander::Sends,
        victim: |actor| {
            let len = 1000 + 100 * (actor.journal.used() % 20);
            let _ = actor.send(How::Block, 3, len);
        },
        points: PARKING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "is woken with room",
        shape: SHALLOW,
        prefill: fill,
        victim: wait_for_room,
        nudge: Nudge::Receive,
        points: &["WAIT_WOKEN"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch",
        shape: SHALLOW,
        prefill: fill,
        victim: wait_for_room_for_a_batch,
        batches: Batches::Sends,
        points: &[
            "GROW_LENT",
            "WAIT_NODE_FILLED",
            "WAIT_LISTED",
            "WAIT_UNNAMED",
            "WAIT_NAMED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch behind another",
        shape: SHALLOW,
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: wait_for_room_for_a_batch,
        batches: Batches::Sends,
        points: &["WAIT_LISTED", "WAIT_UNNAMED", "WAIT_NAMED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "is woken with room for a batch",
        shape: SHALLOW,
        prefill: |actor| {
            fill(actor);
            receive(actor, 1);
        },
        victim: |actor| {
            let _ = actor.send_batch(How::Block, &[(3, 200), (3, 16)]);
        },
        nudge: Nudge::Receive,
        batches: Batches::Sends,
        points: &[
            "WAIT_WOKEN",
            "BATCH_NOTED",
            "BATCH_STAMPED",
            "BATCH_PUBLISHED",
            "BATCH_COUNTED",
            "SEND_COUNTED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "waits for room for a batch until its time is over",
        shape: SHALLOW,
        prefill: fill,
        victim: |actor| {
            let time = Duration::from_millis(3);
            let _ = actor.send_batch(How::Within(time), &[(3, 200); 2]);
        },
        timed: true,
        batches: Batches::Sends,
        points: &["WAIT_WOKEN"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "waits for room until its time is over",
        shape: SHALLOW,
        prefill: fill,
        victim: |actor| {
            let _ = actor.send(How::Within(Duration::from_millis(3)), 3, 200);
        },
        timed: true,
        points: &["PARK_FILLED", "WAIT_WOKEN", "RECEIVE_RETURNED"],
        ..Scenario::PLAIN
    },
];
