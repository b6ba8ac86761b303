//! Victims that hold leases.

use super::acts::*;
use super::stage::{Scenario, WANTED};
use crate::chaos::journal::How;
use crate::chaos::killing::Bystander;
use crate::crash_points;
use umsg::sysv::Want;

pub const ALL: &[Scenario] = &[
    Scenario::new("leases", |clerk| lease(clerk, 8))
        .prefill(|clerk| send_mixed(clerk, 40))
        .passes(8)
        .leases()
        .dies_at(crash_points![MSG_LEASED MSG_ACKNOWLEDGED MSG_RETURNED]),
    Scenario::new(
        "leases from a full queue while a sender is blocked",
        |clerk| lease(clerk, 4),
    )
    .prefill(fill)
    .beside(Bystander::Sends)
    .passes(2)
    .leases()
    .alone(crash_points![MSG_ACKNOWLEDGED MSG_ADMITTED])
    .dies_at(crash_points![MSG_LEASED MSG_ACKNOWLEDGED MSG_RETURNED MSG_ADMITTED]),
    Scenario::new("leases and gives back what another waits for", |clerk| {
        // The loop sends more messages than the bystander takes meanwhile, unless this process is interrupted.
        for _ in 0..10 {
            let batch = [(WANTED, 50); 30];
            clerk.send_batch(How::Try, &batch).expect("room");
            if let Ok(lease) = clerk.lease(How::Try, Want::Exactly(WANTED.into())) {
                return lease.give_back().expect("a lease");
            }
        }
    })
    .prefill(|clerk| send_mixed(clerk, 5))
    .beside(Bystander::Receives)
    .leases()
    .dies_at(crash_points![MSG_LEASED MSG_RETURNED]),
];
