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

pub const REIGN: Reign = Reign {
    point: "",
    nth: 1,
    reign: |_| (),
    after_another: false,
};

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

pub const OWNERS: &[Reign] = &[
    Reign {
        point: "RING_NAMED",
        reign: |place| drop(create(place)),
        ..REIGN
    },
    Reign {
        point: "RING_MADE",
        reign: |place| drop(create(place)),
        ..REIGN
    },
    Reign {
        point: "RING_CLEARED",
        reign: |place| drop(create(place)),
        after_another: true,
        ..REIGN
    },
    Reign {
        point: "RING_ENABLED",
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_COPIED",
        nth: 20,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_TAKEN",
        nth: 1,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_FREED",
        nth: 20,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_ADMITTED",
        nth: 20,
        reign,
        ..REIGN
    },
    Reign {
        point: "ADMIT_ACCEPTED",
        nth: 5,
        reign,
        ..REIGN
    },
    Reign {
        point: "RING_ARMED",
        reign: |place| {
            let mut ring = create(place);
            ring.set_waiting(Waiting::Blocking);
            let _ = ring.wait(1, Until::Forever);
        },
        ..REIGN
    },
    Reign {
        point: "RING_CLOSED",
        reign: |place| {
            let ring = create(place);
            ring.enable();
            std::thread::sleep(Duration::from_millis(20));
            drop(ring);
        },
        ..REIGN
    },
    Reign {
        point: "RING_UNHUNG",
        reign: |place| {
            let ring = create(place);
            ring.enable();
            std::thread::sleep(Duration::from_millis(20));
            drop(ring);
        },
        ..REIGN
    },
    Reign {
        point: "DRAIN_MARKED",
        nth: 5,
        reign,
        ..REIGN
    },
    Reign {
        point: "DRAIN_LINKED",
        nth: 5,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_UNSTORED",
        nth: 5,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_RETURNED",
        nth: 5,
        reign,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_COPIED",
        nth: 5,
        reign: reign_in_batches,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_BATCH_TAKEN",
        nth: 5,
        reign: reign_in_batches,
        ..REIGN
    },
    Reign {
        point: "RECEIVE_FREED",
        nth: 5,
        reign: reign_in_batches,
        ..REIGN
    },
    Reign {
        point: "BATCH_TURN",
        nth: 5,
        reign: reign_in_batches,
        ..REIGN
    },
];
