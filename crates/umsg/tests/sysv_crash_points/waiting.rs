//! Who dies while it waits, or begins to, or is woken.

use super::acts::*;
use super::stage::{Scenario, WANTED};
use crate::support::clerk::Clerk;
use crate::support::journal::How;
use crate::support::killing::{Batches, Bystander, Nudge};
use std::time::Duration;
use umsg::sysv::Want;

/// Where who begins to wait comes by.
const BEGINNING: &[&str] = &["MSG_SEATED", "MSG_LISTED", "WAIT_UNNAMED", "MSG_NAMED"];

/// And a sender, which leaves its message in a slot first.
const PARKING: &[&str] = &[
    "MSG_FILLED",
    "MSG_PARKED",
    "MSG_SEATED",
    "MSG_LISTED",
    "WAIT_UNNAMED",
    "MSG_NAMED",
];

fn wait_for_room(clerk: &mut Clerk<'_>) {
    let _ = clerk.send(How::Block, 2, 200);
}

fn wait_for_room_for_a_batch(clerk: &mut Clerk<'_>) {
    let _ = clerk.send_batch(How::Block, &[(2, 200); 3]);
}

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "is woken with a message to lease",
        victim: |clerk| {
            let lease = clerk
                .lease(How::Block, Want::Exactly(3))
                .expect("a message");
            clerk.acknowledge(lease).expect("a lease");
        },
        nudge: Nudge::Send,
        leases: true,
        points: &["MSG_WOKEN", "MSG_LEASED", "MSG_ACKNOWLEDGED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for a message",
        victim: |clerk| {
            let _ = clerk.receive(How::Block, Want::Any);
        },
        points: BEGINNING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for a message behind another receiver",
        prefill: |clerk| send_mixed(clerk, 5),
        bystander: Bystander::Receives,
        victim: |clerk| {
            let _ = clerk.receive(How::Block, Want::Exactly(WANTED.into()));
        },
        points: BEGINNING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "is woken with a message",
        prefill: |clerk| send_mixed(clerk, 5),
        victim: |clerk| {
            let _ = clerk.receive(How::Block, Want::Exactly(WANTED.into()));
            let _ = clerk.send(How::Try, 2, 16);
        },
        nudge: Nudge::Send,
        points: &["MSG_WOKEN", "MSG_TAKEN_UP", "MSG_REAPED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over",
        victim: |clerk| {
            let _ = clerk.receive(How::Within(Duration::from_millis(20)), Want::Any);
        },
        timed: true,
        points: &["MSG_LISTED", "MSG_NAMED", "MSG_WOKEN"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "waits for a message until its time is over, behind another receiver",
        bystander: Bystander::Receives,
        victim: |clerk| {
            let want = Want::Exactly(WANTED.into());
            let _ = clerk.receive(How::Within(Duration::from_millis(20)), want);
        },
        timed: true,
        points: &["MSG_WOKEN"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for room",
        prefill: fill,
        victim: wait_for_room,
        points: PARKING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for room behind another sender, with a message that needs a new block",
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |clerk| {
            let len = 1000 + 100 * (clerk.journal.used() % 20);
            let _ = clerk.send(How::Block, 2, len);
        },
        points: PARKING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "is woken with room",
        prefill: fill,
        victim: wait_for_room,
        nudge: Nudge::Receive,
        points: &["MSG_WOKEN"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "waits for room until its time is over",
        prefill: fill,
        victim: |clerk| {
            let _ = clerk.send(How::Within(Duration::from_millis(20)), 2, 200);
        },
        timed: true,
        points: &["MSG_PARKED", "MSG_WOKEN", "MSG_ENDED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch",
        prefill: fill,
        victim: wait_for_room_for_a_batch,
        batches: Batches::Sends,
        points: BEGINNING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "begins to wait for room for a batch behind another",
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: wait_for_room_for_a_batch,
        batches: Batches::Sends,
        points: BEGINNING,
        ..Scenario::PLAIN
    },
    Scenario {
        name: "is woken with room for a batch",
        prefill: fill,
        victim: |clerk| {
            let _ = clerk.send_batch(How::Block, &[(2, 200), (4, 16)]);
        },
        nudge: Nudge::Receive,
        batches: Batches::Sends,
        points: &[
            "MSG_WOKEN",
            "MSG_BATCH_FILLED",
            "MSG_BATCH_SENT",
            "MSG_LINKED",
        ],
        ..Scenario::PLAIN
    },
];
