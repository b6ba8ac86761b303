//! Proofs of registrations: a sender and the registered process decide which of them raises the signal.
//!
//! | a defect | its effect here |
//! |---|---|
//! | taking or reclaiming without a compare-and-swap | both raise the signal |
//! | a weaker order of `offer` or `take` | a sender raises a signal that nobody has registered |
//! | the process does not reclaim from the dead | the signal of a dead sender's message is lost |

use super::stage::{Slices, explore};
use crate::crash::Point;
use crate::model::thread;
use crate::model::world::{self, Death};
use crate::proof::{Proof, ProofPage, Reclaimed};
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;

const SENDER: u32 = 1;

fn proof(ticket: u64) -> Proof {
    Proof {
        ticket,
        queue: (3, ticket),
        signal: ticket as i32,
        value: 7,
    }
}

/// The page, and how often the signal was raised.
#[derive(Default)]
struct Stage {
    page: ProofPage,
    raised: AtomicU32,
}

impl Stage {
    fn raise(&self) {
        // Relaxed: counted at the end, after all threads.
        self.raised.fetch_add(1, Ordering::Relaxed);
    }

    /// As a sender does with the record of that registration.
    fn send(&self, ticket: u64) {
        let slot = self.page.slot(1).expect("there is one");
        if let Some(found) = slot.take(ticket, (3, ticket), SENDER) {
            assert_eq!(found, proof(ticket));
            self.raise();
            slot.finish(ticket, SENDER);
        }
    }

    /// As the registered process does when its registration is fired. False: later.
    fn see_to(&self, ticket: u64) -> bool {
        let slot = self.page.slot(1).expect("there is one");
        match slot.reclaim(ticket) {
            Reclaimed::Own => self.raise(),
            Reclaimed::Raised => {}
            Reclaimed::Taken(by) => {
                if !thread::is_process_dead(by, 0) {
                    return false;
                }
                if slot.reclaim_from_dead(ticket, by) {
                    self.raise();
                }
            }
        }
        true
    }

    fn raised(&self) -> u32 {
        self.raised.load(Ordering::Relaxed)
    }
}

#[test]
fn a_sender_or_the_process_raises_the_signal_and_never_both() {
    explore("proof: raise", 3, Slices::Endless, || {
        let stage = Arc::new(Stage::default());
        stage.page.offer(&proof(1)).expect("it is free");
        let theirs = Arc::clone(&stage);
        let sender = thread::spawn(SENDER, move |_| theirs.send(1));
        let is_seen_to = stage.see_to(1);
        assert!(thread::join(sender).is_some());
        assert!(is_seen_to || stage.see_to(1));
        assert_eq!(stage.raised(), 1);
    });
}

#[test]
fn a_slot_that_is_used_again_proves_the_present_registration() {
    explore("proof: use again", 3, Slices::Endless, || {
        let stage = Arc::new(Stage::default());
        stage.page.offer(&proof(1)).expect("it is free");
        let theirs = Arc::clone(&stage);
        // With the record of the first registration, then that of the second.
        let sender = thread::spawn(SENDER, move |_| {
            theirs.send(1);
            theirs.send(2);
        });
        if stage.see_to(1) {
            let is_offered = stage.page.offer(&proof(2)).is_some();
            assert!(thread::join(sender).is_some());
            if is_offered {
                assert!(stage.see_to(2));
                assert_eq!(stage.raised(), 2);
            }
        } else {
            assert!(thread::join(sender).is_some());
            assert_eq!(stage.raised(), 1);
        }
    });
}

#[test]
fn the_signal_of_a_dead_sender_is_raised() {
    for point in [Point::PROOF_TAKEN, Point::PROOF_RAISED] {
        explore(
            &format!("proof: {point:?}"),
            3,
            Slices::Endless,
            move || {
                let stage = Arc::new(Stage::default());
                stage.page.offer(&proof(1)).expect("it is free");
                world::doom(SENDER, Death::At(point), 1);
                let theirs = Arc::clone(&stage);
                let sender = thread::spawn(SENDER, move |_| theirs.send(1));
                let is_seen_to = stage.see_to(1);
                let has_died = thread::join(sender).is_none();
                assert!(is_seen_to || stage.see_to(1));
                // Twice only if the sender died after it had raised it.
                let may_be_two = has_died && point == Point::PROOF_RAISED;
                assert!(stage.raised() == 1 || (may_be_two && stage.raised() == 2));
            },
        );
    }
}
