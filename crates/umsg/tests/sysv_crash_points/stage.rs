//! The System V queues of the scenarios.

use super::acts::status;
use crate::chaos::clerk::Clerk;
use crate::chaos::journal::{How, Journal, Role};
use crate::chaos::points::Face;
use crate::chaos::stage::{self, Death, Kind, Refusal, Worker};
use crate::sending_worker;
use crate::support::place::Place;
use std::path::PathBuf;
use umsg::diagnosis::Repaired;
use umsg::sysv::{self, Queue, Waiting, Want};

/// The queue's key, and the maximum of its bytes and of its messages.
pub const KEY: i32 = 0x5e1f;
pub const QBYTES: usize = 16_384;

/// The type of the messages for which a blocked receiver waits.
pub const WANTED: u16 = 3;

pub struct Sysv;

pub type Scenario = stage::Scenario<Sysv>;
pub type Stage<'a> = stage::Stage<'a, Sysv>;

impl Kind for Sysv {
    type Shape = ();
    const SHAPE: () = ();
    type Queue = Queue;
    type Worker<'a> = Clerk<'a>;
    const FACE: Face = Face::Sysv;
    const WANTED: u16 = WANTED;
    const OFFERED: [u16; 2] = [6, 7];

    fn create(place: &Place, _: ()) -> Queue {
        let queue = place.create_sysv(KEY);
        queue.set_waiting(Waiting::Blocking);
        queue
    }

    fn open(place: &Place) -> Queue {
        let queue = place.open_sysv(KEY);
        queue.set_waiting(Waiting::Blocking);
        queue
    }

    fn worker<'a>(queue: &'a Queue, journal: &'a Journal, role: usize, _: ()) -> Clerk<'a> {
        Clerk::new(queue, journal, role)
    }

    fn damage(place: &Place) -> (PathBuf, u64) {
        (place.path().join("msg/0"), 56)
    }

    fn diagnose_and_repair(place: &Place) -> Repaired {
        sysv::repair(&place.namespace, KEY).expect("a repair")
    }

    fn blocked(queue: &Queue) -> (usize, usize) {
        let status = status(queue);
        (status.blocked_senders, status.blocked_receivers)
    }

    fn memory(queue: &Queue) -> u64 {
        status(queue).memory
    }

    /// Up to MSG_COPIED, a message still belongs to the queue: it is not lost, and an offered message goes back.
    fn may_lose(_: &Scenario, point: &str) -> bool {
        ["MSG_ENDED", "MSG_ADMITTED", "MSG_SENT", "MSG_LINKED"].contains(&point)
    }

    fn judge(stage: &Stage<'_>, death: &Death, what: &str) {
        stage.judge(death, what);
    }

    fn check_capacity(stage: &Stage<'_>, what: &str) {
        stage.check_capacity(what);
    }
}

impl Worker for Clerk<'_> {
    sending_worker!();

    fn take(&mut self, how: How, link: Option<u16>) -> Result<(), Refusal> {
        let want = link.map_or(Want::Any, |link| Want::Exactly(link.into()));
        self.receive(how, want).map(drop).map_err(Refusal::from)
    }

    fn repair(&mut self) {
        let _ = self.queue.status();
        let _ = self.send(How::Try, 1, 16);
    }
}
