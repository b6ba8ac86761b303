//! Victims that begin to wait, wait, or are woken.

use super::acts::*;
use super::stage::{Scenario, WANTED};
use crate::chaos::clerk::Clerk;
use crate::chaos::journal::How;
use crate::chaos::killing::{Batches, Bystander, Nudge};
use crate::crash_points;
use std::time::Duration;
use umsg::sysv::Want;

/// Points of a process that begins to wait.
const BEGINNING: &[&str] = crash_points![MSG_CLAIMED MSG_LISTED WAIT_UNNAMED MSG_NAMED];

/// Points of a sender that begins to wait: it first leaves its message in a slot.
const PARKING: &[&str] = crash_points![
    MSG_FILLED MSG_PARKED MSG_CLAIMED MSG_LISTED WAIT_UNNAMED MSG_NAMED
];

fn wait_for_room(clerk: &mut Clerk<'_>) {
    let _ = clerk.send(How::Block, 2, 200);
}

fn wait_for_room_for_a_batch(clerk: &mut Clerk<'_>) {
    let _ = clerk.send_batch(How::Block, &[(2, 200); 3]);
}

pub const ALL: &[Scenario] = &[
    Scenario::new("is woken with a message to lease", |clerk| {
        let lease = clerk
            .lease(How::Block, Want::Exactly(3))
            .expect("a message");
        clerk.acknowledge(lease).expect("a lease");
    })
    .nudge(Nudge::Send)
    .leases()
    .dies_at(crash_points![MSG_WOKEN MSG_LEASED MSG_ACKNOWLEDGED]),
    Scenario::new("begins to wait for a message", |clerk| {
        let _ = clerk.receive(How::Block, Want::Any);
    })
    .dies_at(BEGINNING),
    Scenario::new(
        "begins to wait for a message behind another receiver",
        |clerk| {
            let _ = clerk.receive(How::Block, Want::Exactly(WANTED.into()));
        },
    )
    .prefill(|clerk| send_mixed(clerk, 5))
    .beside(Bystander::Receives)
    .dies_at(BEGINNING),
    Scenario::new("is woken with a message", |clerk| {
        let _ = clerk.receive(How::Block, Want::Exactly(WANTED.into()));
        let _ = clerk.send(How::Try, 2, 16);
    })
    .prefill(|clerk| send_mixed(clerk, 5))
    .nudge(Nudge::Send)
    .dies_at(crash_points![MSG_WOKEN MSG_TAKEN_UP MSG_REAPED]),
    Scenario::new("waits for a message until its time is over", |clerk| {
        let _ = clerk.receive(How::Within(Duration::from_millis(20)), Want::Any);
    })
    .timed()
    .dies_at(crash_points![MSG_LISTED MSG_NAMED MSG_WOKEN]),
    Scenario::new(
        "waits for a message until its time is over, behind another receiver",
        |clerk| {
            let want = Want::Exactly(WANTED.into());
            let _ = clerk.receive(How::Within(Duration::from_millis(20)), want);
        },
    )
    .beside(Bystander::Receives)
    .timed()
    .dies_at(crash_points![MSG_WOKEN]),
    Scenario::new("begins to wait for room", wait_for_room)
        .prefill(fill)
        .dies_at(PARKING),
    Scenario::new(
        "begins to wait for room behind another sender, with a message that needs a new block",
        |clerk| {
            let len = 1000 + 100 * (clerk.journal.used() % 20);
            let _ = clerk.send(How::Block, 2, len);
        },
    )
    .prefill(fill)
    .beside(Bystander::Sends)
    .dies_at(PARKING),
    Scenario::new("is woken with room", wait_for_room)
        .prefill(fill)
        .nudge(Nudge::Receive)
        .dies_at(crash_points![MSG_WOKEN]),
    Scenario::new("waits for room until its time is over", |clerk| {
        let _ = clerk.send(How::Within(Duration::from_millis(20)), 2, 200);
    })
    .prefill(fill)
    .timed()
    .dies_at(crash_points![MSG_PARKED MSG_WOKEN MSG_ENDED]),
    Scenario::new(
        "begins to wait for room for a batch",
        wait_for_room_for_a_batch,
    )
    .prefill(fill)
    .batches(Batches::Sends)
    .dies_at(BEGINNING),
    Scenario::new(
        "begins to wait for room for a batch behind another",
        wait_for_room_for_a_batch,
    )
    .prefill(fill)
    .beside(Bystander::SendsBatches)
    .batches(Batches::Sends)
    .dies_at(BEGINNING),
    Scenario::new("is woken with room for a batch", |clerk| {
        let _ = clerk.send_batch(How::Block, &[(2, 200), (4, 16)]);
    })
    .prefill(fill)
    .nudge(Nudge::Receive)
    .batches(Batches::Sends)
    .dies_at(crash_points![MSG_WOKEN MSG_BATCH_FILLED MSG_BATCH_SENT MSG_LINKED]),
];
