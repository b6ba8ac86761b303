//! Accepting an offer without the lock, while another thread withdraws the offer.
//!
//! | a defect | its effect here |
//! |---|---|
//! | `accept` has no release, or `state` no acquire | a race on the writes of the slot's next user |
//! | `settle` has no release | a race on the data next to the node |
//! | `accept` does not check that the offer still exists, or stores instead of comparing | a message is received twice |

use super::stage::{DIRECTOR, Slices, explore};
use crate::lock::tokens::ReceiverHeld;
use crate::model::segment::Segment;
use crate::model::thread;
use crate::sync::{AtomicU64, Guarded64, Ordering};
use crate::waiters::{self, List, State, Waiters};
use std::sync::Arc;

/// The message that is offered first.
const OFFERED: u64 = 1;
/// The next message for which the slot is used.
const NEXT: u64 = 2;

/// A node with data next to it, and a slot.
struct Place {
    segment: Segment,
    /// The outcome, next to the node. A process that has seen the node's word may read the outcome.
    outcome: Guarded64,
    /// The slot's message. The word is atomic, because a thread may read it and lose the offer meanwhile.
    message: AtomicU64,
    /// A word that only the next user of the slot writes, after every valid reader has finished.
    reader: Guarded64,
}

impl Place {
    fn new() -> Place {
        Place {
            segment: Segment::new(1, 1),
            outcome: Guarded64::default(),
            message: AtomicU64::new(0),
            reader: Guarded64::default(),
        }
    }
}

#[test]
fn a_copy_without_the_lock_has_the_message_whole_or_not_at_all() {
    explore("waiters: accept", 3, Slices::Endless, || {
        let place = Arc::new(Place::new());
        // The director keeps the lock until the end of the model.
        let index = thread::live(1, |me| {
            let waiters = Waiters::of(&place.segment);
            let (index, _) = waiters
                .claim(ReceiverHeld::in_test(), me, 0, 0)
                .unwrap()
                .unwrap();
            waiters
                .insert(ReceiverHeld::in_test(), List::Receivers, index)
                .unwrap();
            index
        })
        .expect("nobody kills it");
        let owner = Arc::clone(&place);
        let receiver = thread::spawn(1, move |_| {
            let node = owner.segment.node(index).unwrap();
            while waiters::state(node) != State::Settled {
                if waiters::state(node) == State::Waiting
                    && owner.message.load(Ordering::Relaxed) != 0
                {
                    // The message was offered and the offer withdrawn, or the message is about to be offered: the thread may check again later.
                    return None;
                }
                crate::sync::spin_hint();
            }
            assert_eq!(owner.outcome.get(), OFFERED);
            let copied = owner.message.load(Ordering::Relaxed);
            owner.reader.get();
            waiters::accept(node).then_some(copied)
        });
        let is_back = thread::live(DIRECTOR, |_| {
            let node = place.segment.node(index).unwrap();
            place.message.store(OFFERED, Ordering::Relaxed);
            place.outcome.set(OFFERED);
            assert!(waiters::settle(node));
            let is_back = waiters::unsettle(node);
            if !is_back {
                assert_eq!(waiters::state(node), State::Accepted);
                place.reader.set(NEXT);
            }
            place.message.store(NEXT, Ordering::Relaxed);
            is_back
        })
        .expect("nobody kills it");
        let received = thread::join(receiver).expect("nobody kills it");
        assert_eq!(received, (!is_back).then_some(OFFERED));
    });
}
