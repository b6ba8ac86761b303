//! Who dies receiving.

use super::acts::*;
use super::stage::Scenario;
use crate::support::journal::How;
use crate::support::killing::{Batches, Bystander, STUCK};
use umsg::sysv::Want;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "receives by type and in order of arrival",
        prefill: |clerk| send_mixed(clerk, 40),
        victim: |clerk| receive(clerk, 30),
        passes: 30,
        points: &["MSG_COPIED", "MSG_ENDED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives batches",
        prefill: |clerk| send_mixed(clerk, 40),
        victim: |clerk| receive_batches(clerk, 8, 3),
        passes: 24,
        batches: Batches::Receives,
        points: &["MSG_ENDED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives from a full queue while a sender is blocked",
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |clerk| receive(clerk, 6),
        alone: &["MSG_ENDED", "MSG_ADMITTED", "MSG_SENT", "MSG_LINKED"],
        points: &[
            "MSG_COPIED",
            "MSG_ENDED",
            "MSG_ADMITTED",
            "MSG_SENT",
            "MSG_LINKED",
        ],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives batches from a full queue while a batch is blocked",
        prefill: fill,
        bystander: Bystander::SendsBatches,
        victim: |clerk| receive_batches(clerk, 4, 3),
        batches: Batches::Receives,
        alone: &["MSG_ENDED"],
        points: &["MSG_ENDED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives what the dead had leased",
        prefill: |clerk| {
            send_mixed(clerk, 4);
            leave_leases(clerk);
        },
        victim: |clerk| {
            // A process may have looked in this tick of the clock.
            let _ = clerk.receive(How::Within(STUCK), Want::Any);
            receive(clerk, 3);
        },
        passes: 3,
        points: &["MSG_RETURNED", "MSG_COPIED", "MSG_ENDED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "receives what another was offered and did not take",
        prefill: leave_offer,
        victim: |clerk| {
            let _ = clerk.receive(How::Try, Want::Exactly(9));
        },
        points: &["MSG_PUT_BACK", "MSG_COPIED", "MSG_ENDED"],
        ..Scenario::PLAIN
    },
];
