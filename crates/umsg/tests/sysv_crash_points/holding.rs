//! Who dies with leases.

use super::acts::*;
use super::stage::{Scenario, WANTED};
use crate::support::journal::How;
use crate::support::killing::Bystander;
use umsg::sysv::Want;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "leases",
        prefill: |clerk| send_mixed(clerk, 40),
        victim: |clerk| lease(clerk, 8),
        passes: 8,
        leases: true,
        points: &["MSG_LEASED", "MSG_ACKNOWLEDGED", "MSG_RETURNED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "leases from a full queue while a sender is blocked",
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |clerk| lease(clerk, 4),
        passes: 2,
        leases: true,
        alone: &["MSG_ACKNOWLEDGED", "MSG_ADMITTED"],
        points: &[
            "MSG_LEASED",
            "MSG_ACKNOWLEDGED",
            "MSG_RETURNED",
            "MSG_ADMITTED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "leases and gives back what another waits for",
        prefill: |clerk| send_mixed(clerk, 5),
        bystander: Bystander::Receives,
        victim: |clerk| {
            // More than the bystander takes meanwhile, unless this one is interrupted.
            for _ in 0..10 {
                let batch = [(WANTED, 50); 30];
                clerk.send_batch(How::Try, &batch).expect("room");
                if let Ok(lease) = clerk.lease(How::Try, Want::Exactly(WANTED.into())) {
                    return lease.give_back().expect("a lease");
                }
            }
        },
        leases: true,
        points: &["MSG_LEASED", "MSG_RETURNED"],
        ..Scenario::PLAIN
    },
];
