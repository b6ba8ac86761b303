//! Who dies while it changes a queue.

use super::acts::*;
use super::stage::Scenario;
use crate::support::killing::Bystander;
use umsg::sysv::Change;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "changes the queue while a receiver waits",
        prefill: |clerk| send_mixed(clerk, 5),
        bystander: Bystander::Receives,
        victim: |clerk| change(clerk.queue),
        points: &["MSG_CHANGED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "changes the queue while a sender waits",
        prefill: fill,
        bystander: Bystander::Sends,
        victim: |clerk| change(clerk.queue),
        points: &["MSG_CHANGED"],
        ..Scenario::PLAIN
    },
    Scenario {
        name: "changes who may do what",
        prefill: |clerk| send_mixed(clerk, 5),
        victim: |clerk| {
            let mode = Some(0o660);
            let change = Change {
                mode,
                ..Change::default()
            };
            clerk.queue.set(&change).expect("a change");
        },
        points: &["MSGCTL_HANDED_OVER", "MSG_CHANGED", "MSGCTL_APPLIED"],
        ..Scenario::PLAIN
    },
];
