//! Victims that receive.

use super::acts::*;
use super::stage::Scenario;
use crate::chaos::journal::How;
use crate::chaos::killing::{Batches, Bystander, STUCK};
use crate::crash_points;
use umsg::sysv::Want;

pub const ALL: &[Scenario] = &[
    Scenario::new("receives by type and in order of arrival", |clerk| {
        receive(clerk, 30)
    })
    .prefill(|clerk| send_mixed(clerk, 40))
    .passes(30)
    .dies_at(crash_points![MSG_COPIED MSG_ENDED]),
    Scenario::new("receives batches", |clerk| receive_batches(clerk, 8, 3))
        .prefill(|clerk| send_mixed(clerk, 40))
        .passes(24)
        .batches(Batches::Receives)
        .dies_at(crash_points![MSG_ENDED]),
    Scenario::new(
        "receives from a full queue while a sender is blocked",
        |clerk| receive(clerk, 6),
    )
    .prefill(fill)
    .beside(Bystander::Sends)
    .alone(crash_points![MSG_ENDED MSG_ADMITTED MSG_SENT MSG_LINKED])
    .dies_at(crash_points![MSG_COPIED MSG_ENDED MSG_ADMITTED MSG_SENT MSG_LINKED]),
    Scenario::new(
        "receives batches from a full queue while a batch is blocked",
        |clerk| receive_batches(clerk, 4, 3),
    )
    .prefill(fill)
    .beside(Bystander::SendsBatches)
    .batches(Batches::Receives)
    .alone(crash_points![MSG_ENDED])
    .dies_at(crash_points![MSG_ENDED]),
    Scenario::new("receives what the dead had leased", |clerk| {
        // If another process has checked the holders within this tick of the clock, this call has to wait for the next tick.
        let _ = clerk.receive(How::Within(STUCK), Want::Any);
        receive(clerk, 3);
    })
    .prefill(|clerk| {
        send_mixed(clerk, 4);
        leave_leases(clerk);
    })
    .passes(3)
    .dies_at(crash_points![MSG_RETURNED MSG_COPIED MSG_ENDED]),
    Scenario::new(
        "receives what another was offered and did not take",
        |clerk| {
            let _ = clerk.receive(How::Try, Want::Exactly(9));
        },
    )
    .prefill(leave_offer)
    .dies_at(crash_points![MSG_PUT_BACK MSG_COPIED MSG_ENDED]),
];
