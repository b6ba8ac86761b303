//! Who dies with leases.

use super::acts::*;
use super::stage::{SHALLOW, Scenario};
use crate::support::journal::How;
use crate::support::killing::Bystander;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "leases one message after the other",
        prefill: |actor| send_alike(actor, 30),
        victim: |actor| {
            let _held: Vec<_> = (0..20).map(|_| actor.lease(How::Try)).collect();
        },
        passes: 20,
        leases: true,
        points: &["LEASE_HELD", "RECEIVE_TAKEN", "LEASE_TAKEN"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "leases from the ring",
        prefill: |actor| send_alike(actor, 40),
        victim: |actor| lease(actor, 8),
        passes: 8,
        leases: true,
        points: &[
            "LEASE_HELD",
            "LEASE_TAKEN",
            "LEASE_ENDED",
            "RETURN_MARKED",
            "RETURN_ENDED",
            "RECEIVE_RETURNED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "leases from the store",
        prefill: |actor| send_mixed(actor, 40),
        victim: |actor| lease(actor, 8),
        passes: 8,
        leases: true,
        points: &[
            "LEASE_HELD",
            "LEASE_TAKEN",
            "LEASE_ENDED",
            "RETURN_MARKED",
            "RETURN_ENDED",
            "DRAIN_MARKED",
            "DRAIN_LINKED",
            "RECEIVE_UNSTORED",
            "RECEIVE_RETURNED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "leases from a full queue while a sender is blocked",
        shape: SHALLOW,
        prefill: fill_mixed,
        bystander: Bystander::Sends,
        victim: |actor| lease(actor, 4),
        leases: true,
        alone: &["LEASE_ENDED", "RECEIVE_RETURNED", "ADMIT_ACCEPTED"],
        points: &[
            "LEASE_HELD",
            "LEASE_TAKEN",
            "LEASE_ENDED",
            "RETURN_MARKED",
            "RETURN_ENDED",
            "RECEIVE_RETURNED",
            "ADMIT_ACCEPTED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "leases and waits for another message until its time is over",
        prefill: |actor| send_alike(actor, 1),
        victim: |actor| {
            let _first = actor.lease(How::Try).expect("a message");
            let _ = actor.lease(How::Within(Duration::from_millis(30)));
        },
        timed: true,
        leases: true,
        points: &["WAIT_LISTED", "WAIT_NAMED", "WAIT_WOKEN"],
        ..Scenario::PLAIN
    },
];
