//! The POSIX queues of the scenarios.

use crate::chaos::actor::Actor;
use crate::chaos::journal::{How, Journal, Role};
use crate::chaos::killing::Batches;
use crate::chaos::points::Face;
use crate::chaos::stage::{self, Death, Kind, Refusal, Worker};
use crate::sending_worker;
use crate::support::place::Place;
use std::path::PathBuf;
use umsg::diagnosis::Repaired;
use umsg::posix::{self, Queue, Waiting};

pub struct Posix;

pub type Scenario = stage::Scenario<Posix>;
pub type Stage<'a> = stage::Stage<'a, Posix>;

/// The number of messages that a queue holds, and their maximum length.
#[derive(Clone, Copy)]
pub struct Shape {
    pub depth: u32,
    pub size: u32,
}

/// A queue that is soon full.
pub const SHALLOW: Shape = Shape {
    depth: 30,
    ..Posix::SHAPE
};

impl Kind for Posix {
    type Shape = Shape;
    const SHAPE: Shape = Shape {
        depth: 62,
        size: 4096,
    };
    type Queue = Queue;
    type Worker<'a> = Actor<'a>;
    const FACE: Face = Face::Posix;
    const WANTED: u16 = 5;
    const OFFERED: [u16; 2] = [3, 3];

    fn create(place: &Place, shape: Shape) -> Queue {
        let queue = place.create("/q", shape.depth, shape.size);
        queue.set_waiting(Waiting::Blocking);
        queue
    }

    fn open(place: &Place) -> Queue {
        let queue = place.open("/q");
        queue.set_waiting(Waiting::Blocking);
        queue
    }

    fn worker<'a>(queue: &'a Queue, journal: &'a Journal, role: usize, shape: Shape) -> Actor<'a> {
        Actor::new(queue, journal, role, shape.size as usize)
    }

    fn damage(place: &Place) -> (PathBuf, u64) {
        (place.path().join("mq/q"), 48)
    }

    fn diagnose_and_repair(place: &Place) -> Repaired {
        posix::repair(&place.namespace, "/q").expect("a repair")
    }

    fn blocked(queue: &Queue) -> (usize, usize) {
        let status = queue.status();
        (status.blocked_senders, status.blocked_receivers)
    }

    fn memory(queue: &Queue) -> u64 {
        queue.status().memory
    }

    fn may_lose(scenario: &Scenario, point: &str) -> bool {
        let admits = scenario.bystander.sends() && point.starts_with("DRAIN_");
        let batch = scenario.batches == Batches::Receives;
        let receives = point.starts_with("RECEIVE_") && (point != "RECEIVE_COPIED" || batch);
        admits || receives || point == "ADMIT_ACCEPTED" || point == "BATCH_TURN"
    }

    fn judge(stage: &Stage<'_>, death: &Death, what: &str) {
        stage.judge(death, what);
    }

    fn check_capacity(stage: &Stage<'_>, what: &str) {
        stage.check_capacity(what);
    }

    fn check_slots(stage: &Stage<'_>, what: &str) {
        let slots = stage.queue.status().slots;
        let depth = stage.scenario.shape.depth as usize;
        // Slots come into use in pages of 32, or a sixteenth of the depth at a time. Each depth leaves two slots unused: one for a blocked bystander,
        // and one for the victim. A lost slot would use up one of these two slots.
        let most = (depth + 2).next_multiple_of(32).max(depth + depth / 16);
        assert!(slots <= most, "{what}: {slots} slots");
    }
}

impl Worker for Actor<'_> {
    sending_worker!();

    fn take(&mut self, how: How, _: Option<u16>) -> Result<(), Refusal> {
        self.receive(how).map(drop).map_err(Refusal::from)
    }

    /// Takes the locks of both sides.
    fn repair(&mut self) {
        let _ = self.queue.attributes();
        let _ = self.send(How::Try, 0, 16);
    }
}
