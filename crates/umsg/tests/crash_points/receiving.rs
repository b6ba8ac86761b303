//! Victims that receive.

use super::acts::*;
use super::stage::{SHALLOW, Scenario};
use crate::chaos::journal::How;
use crate::chaos::killing::{Batches, Bystander, STUCK};
use crate::crash_points;

/// The points of a receiver that takes a message from the store, and so makes room for a blocked sender.
const ADMITTING: &[&str] = crash_points![
    RECEIVE_UNSTORED RECEIVE_RETURNED RECEIVE_ADMITTED ADMIT_ACCEPTED
];

/// The points of a receive that serves a blocked batch.
const TURNING: &[&str] = crash_points![
    RECEIVE_BATCH_TAKEN RECEIVE_FREED RECEIVE_ADMITTED BATCH_TURN
];

pub const ALL: &[Scenario] = &[
    Scenario::new("receives what the dead held", |actor| {
        // If another process has checked the holders within this tick of the clock, this call has to wait for the next tick.
        let _ = actor.receive(How::Within(STUCK));
        receive(actor, 3);
    })
    .prefill(|actor| {
        send_mixed(actor, 4);
        leave_leases(actor);
    })
    .passes(3)
    .dies_at(crash_points![RETURN_MARKED RECEIVE_RETURNED RECEIVE_FREED]),
    Scenario::new("receives from the ring", |actor| receive(actor, 20))
        .prefill(|actor| send_alike(actor, 30))
        .passes(20)
        .dies_at(crash_points![
            RECEIVE_COPIED RECEIVE_TAKEN RECEIVE_RETURNED RECEIVE_FREED RECEIVE_ADMITTED
        ]),
    Scenario::new("receives from the store", |actor| receive(actor, 20))
        .prefill(|actor| send_mixed(actor, 40))
        .passes(15)
        .dies_at(crash_points![
            DRAIN_MARKED DRAIN_LINKED RECEIVE_COPIED RECEIVE_UNSTORED RECEIVE_RETURNED
            RECEIVE_FREED RECEIVE_ADMITTED
        ]),
    Scenario::new(
        "receives from a full queue while a sender is blocked",
        |actor| receive(actor, 6),
    )
    .shape(SHALLOW)
    .prefill(fill)
    .beside(Bystander::Sends)
    .alone(crash_points![
        RECEIVE_RETURNED RECEIVE_FREED RECEIVE_ADMITTED ADMIT_ACCEPTED
    ])
    .dies_at(crash_points![
        RECEIVE_COPIED RECEIVE_RETURNED RECEIVE_FREED RECEIVE_ADMITTED ADMIT_ACCEPTED
        DRAIN_MARKED DRAIN_LINKED
    ]),
    Scenario::new(
        "receives from a full queue of mixed messages while a sender is blocked",
        |actor| receive(actor, 6),
    )
    .shape(SHALLOW)
    .prefill(fill_mixed)
    .beside(Bystander::Sends)
    .alone(ADMITTING)
    .dies_at(ADMITTING),
    Scenario::new("receives batches from the ring", |actor| {
        receive_batches(actor, 8, 3)
    })
    .prefill(|actor| send_alike(actor, 40))
    .passes(8)
    .batches(Batches::Receives)
    .dies_at(crash_points![
        RECEIVE_COPIED RECEIVE_TAKEN RECEIVE_RETURNED RECEIVE_BATCH_TAKEN RECEIVE_FREED
        RECEIVE_ADMITTED
    ]),
    Scenario::new("receives batches from the store", |actor| {
        receive_batches(actor, 8, 3)
    })
    .prefill(|actor| send_mixed(actor, 40))
    .passes(8)
    .batches(Batches::Receives)
    .dies_at(crash_points![
        RECEIVE_COPIED RECEIVE_UNSTORED RECEIVE_RETURNED RECEIVE_BATCH_TAKEN RECEIVE_FREED
        RECEIVE_ADMITTED
    ]),
    Scenario::new(
        "receives a batch from a full queue while a batch is blocked",
        |actor| receive_batches(actor, 2, 3),
    )
    .shape(SHALLOW)
    .prefill(fill)
    .beside(Bystander::SendsBatches)
    .batches(Batches::Receives)
    .alone(TURNING)
    .dies_at(TURNING),
    Scenario::new(
        "receives from a full queue while a batch is blocked",
        |actor| receive(actor, 6),
    )
    .shape(SHALLOW)
    .prefill(fill)
    .beside(Bystander::SendsBatches)
    .alone(crash_points![BATCH_TURN])
    .dies_at(crash_points![RECEIVE_TAKEN RECEIVE_FREED RECEIVE_ADMITTED BATCH_TURN]),
];
