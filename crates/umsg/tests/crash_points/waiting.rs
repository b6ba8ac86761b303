//! Victims that begin to wait, wait, or are woken.

use super::acts::*;
use super::stage::{SHALLOW, Scenario};
use crate::chaos::actor::Actor;
use crate::chaos::journal::How;
use crate::chaos::killing::{Batches, Bystander, Nudge};
use crate::crash_points;
use std::time::Duration;

/// Points of a receiver that begins to wait.
const BEGINNING: &[&str] = crash_points![WAIT_NODE_FILLED WAIT_LISTED WAIT_UNNAMED WAIT_NAMED];

/// Points of a sender that begins to wait: it first leaves its message in a slot.
const PARKING: &[&str] = crash_points![
    GROW_LENT PARK_SLOT_TAKEN PARK_FILLED WAIT_NODE_FILLED WAIT_LISTED WAIT_UNNAMED
    WAIT_NAMED
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
    Scenario::new("is woken with a message to lease", |actor| {
        let lease = actor.lease(How::Block).expect("a message");
        actor.acknowledge(lease).expect("a lease");
    })
    .nudge(Nudge::Send)
    .leases()
    .dies_at(crash_points![WAIT_WOKEN LEASE_HELD LEASE_ENDED]),
    Scenario::new("begins to wait for a message", wait_for_a_message).dies_at(BEGINNING),
    Scenario::new(
        "begins to wait for a message behind another receiver",
        wait_for_a_message,
    )
    .beside(Bystander::Receives)
    .dies_at(BEGINNING),
    Scenario::new("is woken with a message", wait_for_a_message)
        .nudge(Nudge::Send)
        .dies_at(crash_points![WAIT_WOKEN RECEIVE_RETURNED]),
    Scenario::new(
        "waits for a message until its time is over",
        wait_for_a_message_in_vain,
    )
    .timed()
    .dies_at(crash_points![WAIT_LISTED WAIT_NAMED WAIT_WOKEN]),
    Scenario::new(
        "waits for a message until its time is over, behind another receiver",
        wait_for_a_message_in_vain,
    )
    .beside(Bystander::Receives)
    .timed()
    .dies_at(crash_points![WAIT_WOKEN]),
    Scenario::new("begins to wait for room", wait_for_room)
        .shape(SHALLOW)
        .prefill(fill)
        .dies_at(PARKING),
    Scenario::new(
        "begins to wait for room behind another sender, with a message that needs a new block",
        |actor| {
            let len = 1000 + 100 * (actor.journal.used() % 20);
            let _ = actor.send(How::Block, 3, len);
        },
    )
    .shape(SHALLOW)
    .prefill(fill_mixed)
    .beside(Bystander::Sends)
    .dies_at(PARKING),
    Scenario::new("is woken with room", wait_for_room)
        .shape(SHALLOW)
        .prefill(fill)
        .nudge(Nudge::Receive)
        .dies_at(crash_points![WAIT_WOKEN]),
    Scenario::new(
        "begins to wait for room for a batch",
        wait_for_room_for_a_batch,
    )
    .shape(SHALLOW)
    .prefill(fill)
    .batches(Batches::Sends)
    .dies_at(crash_points![
        GROW_LENT WAIT_NODE_FILLED WAIT_LISTED WAIT_UNNAMED WAIT_NAMED
    ]),
    Scenario::new(
        "begins to wait for room for a batch behind another",
        wait_for_room_for_a_batch,
    )
    .shape(SHALLOW)
    .prefill(fill)
    .beside(Bystander::SendsBatches)
    .batches(Batches::Sends)
    .dies_at(crash_points![WAIT_LISTED WAIT_UNNAMED WAIT_NAMED]),
    Scenario::new("is woken with room for a batch", |actor| {
        let _ = actor.send_batch(How::Block, &[(3, 200), (3, 16)]);
    })
    .shape(SHALLOW)
    .prefill(|actor| {
        fill(actor);
        receive(actor, 1);
    })
    .nudge(Nudge::Receive)
    .batches(Batches::Sends)
    .dies_at(crash_points![
        WAIT_WOKEN BATCH_NOTED BATCH_STAMPED BATCH_PUBLISHED BATCH_COUNTED SEND_COUNTED
    ]),
    Scenario::new(
        "waits for room for a batch until its time is over",
        |actor| {
            let time = Duration::from_millis(3);
            let _ = actor.send_batch(How::Within(time), &[(3, 200); 2]);
        },
    )
    .shape(SHALLOW)
    .prefill(fill)
    .timed()
    .batches(Batches::Sends)
    .dies_at(crash_points![WAIT_WOKEN]),
    Scenario::new("waits for room until its time is over", |actor| {
        let _ = actor.send(How::Within(Duration::from_millis(3)), 3, 200);
    })
    .shape(SHALLOW)
    .prefill(fill)
    .timed()
    .dies_at(crash_points![PARK_FILLED WAIT_WOKEN RECEIVE_RETURNED]),
];
