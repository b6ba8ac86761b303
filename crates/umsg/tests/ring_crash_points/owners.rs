//! The actions of an owner of a ring, and the points at which it dies.

use super::NAME;
use crate::crash_points;
use crate::support::place::Place;
use std::time::Duration;
use umsg::ring::{Options, Ring, Until, Waiting};

/// The operations of an owner until it dies, and the points at which it dies.
pub struct Reign {
    pub points: &'static [&'static str],
    pub nth: u32,
    pub reign: fn(&Place),
    /// True if the ring of an earlier, dead owner exists when this owner begins.
    pub after_another: bool,
}

impl Reign {
    /// Returns a reign that ends when the owner passes one of the points for the `nth` time.
    const fn until(points: &'static [&'static str], nth: u32, reign: fn(&Place)) -> Reign {
        Reign {
            points,
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

/// Makes a ring, and receives a message each millisecond.
pub fn reign(place: &Place) {
    let mut ring = create(place);
    ring.enable();
    loop {
        let _ = ring.receive();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a ring, and receives up to three messages at once each millisecond.
pub fn reign_in_batches(place: &Place) {
    let mut ring = create(place);
    ring.enable();
    loop {
        ring.drain_some(3, |_| ()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a ring, and closes it after 20 milliseconds.
fn reign_briefly(place: &Place) {
    let ring = create(place);
    ring.enable();
    std::thread::sleep(Duration::from_millis(20));
    drop(ring);
}

pub const OWNERS: &[Reign] = &[
    Reign::until(crash_points![RING_NAMED RING_MADE], 1, |place| {
        drop(create(place))
    }),
    Reign::until(crash_points![RING_CLEARED], 1, |place| drop(create(place))).after_another(),
    Reign::until(crash_points![RING_ENABLED RECEIVE_TAKEN], 1, reign),
    Reign::until(
        crash_points![RECEIVE_COPIED RECEIVE_FREED RECEIVE_ADMITTED],
        20,
        reign,
    ),
    Reign::until(crash_points![RING_ARMED], 1, |place| {
        let mut ring = create(place);
        ring.set_waiting(Waiting::Blocking);
        let _ = ring.wait(1, Until::Forever);
    }),
    Reign::until(crash_points![RING_CLOSED RING_UNHUNG], 1, reign_briefly),
    Reign::until(
        crash_points![
            ADMIT_ACCEPTED DRAIN_MARKED DRAIN_LINKED RECEIVE_UNSTORED RECEIVE_RETURNED
        ],
        5,
        reign,
    ),
    Reign::until(
        crash_points![
            RECEIVE_COPIED RECEIVE_BATCH_TAKEN RECEIVE_FREED BATCH_TURN
        ],
        5,
        reign_in_batches,
    ),
];
