//! Victims that hold leases.

use super::acts::*;
use super::stage::{SHALLOW, Scenario};
use crate::chaos::journal::How;
use crate::chaos::killing::Bystander;
use crate::crash_points;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario::new("leases one message after the other", |actor| {
        let _held: Vec<_> = (0..20).map(|_| actor.lease(How::Try)).collect();
    })
    .prefill(|actor| send_alike(actor, 30))
    .passes(20)
    .leases()
    .dies_at(crash_points![LEASE_HELD RECEIVE_TAKEN LEASE_TAKEN]),
    Scenario::new("leases from the ring", |actor| lease(actor, 8))
        .prefill(|actor| send_alike(actor, 40))
        .passes(8)
        .leases()
        .dies_at(crash_points![
            LEASE_HELD LEASE_TAKEN LEASE_ENDED RETURN_MARKED RETURN_ENDED RECEIVE_RETURNED
        ]),
    Scenario::new("leases from the store", |actor| lease(actor, 8))
        .prefill(|actor| send_mixed(actor, 40))
        .passes(8)
        .leases()
        .dies_at(crash_points![
            LEASE_HELD LEASE_TAKEN LEASE_ENDED RETURN_MARKED RETURN_ENDED DRAIN_MARKED DRAIN_LINKED
            RECEIVE_UNSTORED RECEIVE_RETURNED
        ]),
    Scenario::new(
        "leases from a full queue while a sender is blocked",
        |actor| lease(actor, 4),
    )
    .shape(SHALLOW)
    .prefill(fill_mixed)
    .beside(Bystander::Sends)
    .leases()
    .alone(crash_points![LEASE_ENDED RECEIVE_RETURNED ADMIT_ACCEPTED])
    .dies_at(crash_points![
        LEASE_HELD LEASE_TAKEN LEASE_ENDED RETURN_MARKED RETURN_ENDED RECEIVE_RETURNED
        ADMIT_ACCEPTED
    ]),
    Scenario::new(
        "leases and waits for another message until its time is over",
        |actor| {
            let _first = actor.lease(How::Try).expect("a message");
            let _ = actor.lease(How::Within(Duration::from_millis(30)));
        },
    )
    .prefill(|actor| send_alike(actor, 1))
    .timed()
    .leases()
    .dies_at(crash_points![WAIT_LISTED WAIT_NAMED WAIT_WOKEN]),
];
