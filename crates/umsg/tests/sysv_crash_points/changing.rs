//! Victims that change a queue.

use super::acts::*;
use super::stage::Scenario;
use crate::chaos::killing::Bystander;
use crate::crash_points;
use umsg::sysv::Change;

pub const ALL: &[Scenario] = &[
    Scenario::new("changes the queue while a receiver waits", |clerk| {
        change(clerk.queue)
    })
    .prefill(|clerk| send_mixed(clerk, 5))
    .beside(Bystander::Receives)
    .dies_at(crash_points![MSG_CHANGED]),
    Scenario::new("changes the queue while a sender waits", |clerk| {
        change(clerk.queue)
    })
    .prefill(fill)
    .beside(Bystander::Sends)
    .dies_at(crash_points![MSG_CHANGED]),
    Scenario::new("changes the mode", |clerk| {
        let mode = Some(0o660);
        let change = Change {
            mode,
            ..Change::default()
        };
        clerk.queue.set(&change).expect("a change");
    })
    .prefill(|clerk| send_mixed(clerk, 5))
    .dies_at(crash_points![MSGCTL_HANDED_OVER MSG_CHANGED MSGCTL_APPLIED]),
];
