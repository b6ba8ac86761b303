//! Where the owner dies, and what it does.

use super::NAME;
use crate::support::place::Place;
use std::time::Duration;
use umsg::ring::{Options, Ring, Until, Waiting};

/// See the module.
pub struct Reign {
    pub point: &'static str,
    pub nth: u32,
    pub reign: fn(&Place),
    /// A dead owner's ring is there before.
    pub after_another: bool,
}

impl Reign {
    /// A reign that ends when the owner passes a point for the `nth` time.
    const fn until(point: &'static str, nth: u32, reign: fn(&Place)) -> Reign {
        Reign {
            point,
            nth,
            reign,
            after_another: false,
        }
    }

    const fn after_another(mut self) -> Reign {
        self.after_another = true;
        self
    }
}

pub fn create(place: &Place) -> Ring {
    let mut options = Options::new();
    options.entries(2).overflow(2).disabled(true);
    options.create_in(&place.namespace, NAME).unwrap()
}

/// Receives a message each millisecond.
pub fn reign(place: &Place) {
    let mut ring = create(place);
    ring.enable();
    loop {
        let _ = ring.receive();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Receives some messages together each millisecond.
pub fn reign_in_batches(place: &Place) {
    let mut ring = create(place);
    ring.enable();
    loop {
        ring.drain_some(3, |_| ()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Closes the ring after a while.
fn reign_briefly(place: &Place) {
    let ring = create(place);
    ring.enable();
    std::thread::sleep(Duration::from_millis(20));
    drop(ring);
}

pub const OWNERS: &[Reign] = &[
    Reign::until("RING_NAMED", 1, |place| drop(create(place))),
    Reign::until("RING_MADE", 1, |place| drop(create(place))),
    Reign::until("RING_CLEARED", 1, |place| drop(create(place))).after_another(),
    Reign::until("RING_ENABLED", 1, reign),
    Reign::until("RECEIVE_COPIED", 20, reign),
    Reign::until("RECEIVE_TAKEN", 1, reign),
    Reign::until("RECEIVE_FREED", 20, reign),
    Reign::until("RECEIVE_ADMITTED", 20, reign),
    Reign::until("ADMIT_ACCEPTED", 5, reign),
    Reign::until("RING_ARMED", 1, |place| {
        let mut ring = create(place);
        ring.set_waiting(Waiting::Blocking);
        let _ = ring.wait(1, Until::Forever);
    }),
    Reign::until("RING_CLOSED", 1, reign_briefly),
    Reign::until("RING_UNHUNG", 1, reign_briefly),
    Reign::until("DRAIN_MARKED", 5, reign),
    Reign::until("DRAIN_LINKED", 5, reign),
    Reign::until("RECEIVE_UNSTORED", 5, reign),
    Reign::until("RECEIVE_RETURNED", 5, reign),
    Reign::until("RECEIVE_COPIED", 5, reign_in_batches),
    Reign::until("RECEIVE_BATCH_TAKEN", 5, reign_in_batches),
    Reign::until("RECEIVE_FREED", 5, reign_in_batches),
    Reign::until("BATCH_TURN", 5, reign_in_batches),
];
