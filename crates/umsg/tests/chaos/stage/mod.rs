//! A queue, and the processes that use it and are killed: common to POSIX and System V queues.

mod rounds;
mod scenario;

pub use rounds::{
    expect_kills_at_every_point, kill_and_make_anew, kill_at_every_point, kill_repairers,
};
pub use scenario::Scenario;

use super::journal::{How, Journal, Role};
use super::killing::{
    BYSTANDER, Batches, Bystander, Figures, NEWCOMER, Nudge, OBSERVER, REPAIRER, Repairer, STUCK,
    VICTIM, expect_rebuilt, note_damage,
};
use super::points::Face;
use crate::support::child::{Child, Exit, let_calls_be_interrupted};
use crate::support::place::Place;
use crate::support::shared::Shared;
use crate::support::{now, wait_until};
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use umsg::diagnosis::Repaired;
use umsg::{posix, sysv};
use umsg_shm::crash;

/// A kind of queue.
pub trait Kind: Sized + 'static {
    /// A scenario's settings of its queue, with defaults.
    type Shape: Copy;
    const SHAPE: Self::Shape;
    type Queue;
    type Worker<'a>: Worker;
    const FACE: Face;
    /// The priority or type for which a blocked receiver waits, and that a blocked bystander sends.
    const WANTED: u16;
    const OFFERED: [u16; 2];

    /// Makes a queue whose waits all go through a node: a successful spin would skip the points.
    fn create(place: &Place, shape: Self::Shape) -> Self::Queue;

    /// Opens the queue that [`create`](Self::create) has made.
    fn open(place: &Place) -> Self::Queue;

    fn worker<'a>(
        queue: &'a Self::Queue,
        journal: &'a Journal,
        role: usize,
        shape: Self::Shape,
    ) -> Self::Worker<'a>;

    /// Returns the queue's file, and the offset of the mark of corruption in it.
    fn damage(place: &Place) -> (PathBuf, u64);

    /// Repairs the queue as `umsg doctor --repair` does.
    fn diagnose_and_repair(place: &Place) -> Repaired;

    /// Returns the number of blocked senders, and of blocked receivers.
    fn blocked(queue: &Self::Queue) -> (usize, usize);

    /// Returns the memory in use, in bytes.
    fn memory(queue: &Self::Queue) -> u64;

    /// Returns whether a receiver that dies at this point has taken its message from the queue before.
    fn may_lose(scenario: &Scenario<Self>, point: &str) -> bool;

    /// Judges messages and counts once all processes have ended.
    fn judge(stage: &Stage<'_, Self>, death: &Death, what: &str);

    /// Fails unless exactly as many messages fit as in a new queue.
    fn check_capacity(stage: &Stage<'_, Self>, what: &str);

    /// Fails if a slot was lost.
    fn check_slots(_: &Stage<'_, Self>, _: &str) {}
}

macro_rules! refusals {
    ($($error:ty => $refusal:ident: $of:ident),*) => {
        $(impl From<$error> for Refusal {
            fn from(error: $error) -> Refusal {
                match error {
                    <$error>::Interrupted => Refusal::Interrupted,
                    <$error>::$refusal => Refusal::$of,
                    error => panic!("{error}"),
                }
            }
        })*
    };
}

refusals!(
    posix::SendError => Full: Full,
    posix::ReceiveError => Empty: Empty,
    sysv::SendError => Full: Full,
    sysv::ReceiveError => NoMessage: Empty
);

/// The methods of a [`Worker`] that are the same for all kinds.
#[macro_export]
macro_rules! sending_worker {
    () => {
        fn me(&self) -> &Role {
            self.me()
        }

        fn put(&mut self, how: How, label: u16, len: usize) -> Result<(), Refusal> {
            self.send(how, label, len).map(drop).map_err(Refusal::from)
        }

        fn put_batch(&mut self, how: How, batch: &[(u16, usize)]) -> Result<(), Refusal> {
            self.send_batch(how, batch).map(drop).map_err(Refusal::from)
        }
    };
}

/// The calls of a process on a queue of any kind.
pub trait Worker {
    fn me(&self) -> &Role;

    /// Sends a message of a priority or type.
    fn put(&mut self, how: How, label: u16, len: usize) -> Result<(), Refusal>;

    fn put_batch(&mut self, how: How, batch: &[(u16, usize)]) -> Result<(), Refusal>;

    /// Receives a message; if messages have types, one of this type.
    fn take(&mut self, how: How, label: Option<u16>) -> Result<(), Refusal>;

    /// Takes all locks, and so repairs the data of dead owners.
    fn repair(&mut self);
}

/// The reason why a worker's call failed. Any other error fails the test.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Refusal {
    Interrupted,
    Full,
    Empty,
}

/// The messages that existed when a victim died, and the messages that may be lost with the victim.
pub struct Death {
    /// The number of messages that were sent before any process died.
    pub prefilled: usize,
    /// The number of messages that may be missing.
    pub losses: usize,
    /// The number of messages that had been received.
    pub receipts: u32,
}

/// The queue of a scenario, and the state of the test around it.
pub struct Stage<'a, K: Kind> {
    pub place: Place,
    pub queue: K::Queue,
    pub journal: Shared<Journal>,
    pub scenario: &'a Scenario<K>,
    /// The memory in use after the first rounds, in bytes.
    settled: Option<u64>,
}

impl<'a, K: Kind> Stage<'a, K> {
    pub fn new(scenario: &'a Scenario<K>) -> Stage<'a, K> {
        let place = Place::new();
        Stage {
            queue: K::create(&place, scenario.shape),
            place,
            journal: Shared::new(),
            scenario,
            settled: None,
        }
    }

    pub fn worker(&self, role: usize) -> K::Worker<'_> {
        K::worker(&self.queue, &self.journal, role, self.scenario.shape)
    }

    /// Runs `work` as a process that opens the queue again.
    fn process(&self, role: usize, work: impl FnOnce(&mut K::Worker<'_>)) -> Child {
        Child::run(|| {
            let_calls_be_interrupted();
            let queue = K::open(&self.place);
            let shape = self.scenario.shape;
            work(&mut K::worker(&queue, &self.journal, role, shape));
            0
        })
    }

    /// Kills a victim when it passes a point for the `nth` time, and perhaps a repairer; then judges the result.
    pub fn round(&mut self, point: &str, nth: u32, repairer: Repairer<'_>, figures: &mut Figures) {
        let what = format!("{} / {point} / {nth}{repairer}", self.scenario.name);
        self.journal.reset();
        (self.scenario.prefill)(&mut self.worker(OBSERVER));
        let prefilled = self.journal.used();
        let mut bystander = self.start_bystander(&what);

        let alone = self.scenario.alone.contains(&point);
        if alone {
            // The mark precedes the death: the bystander can continue before the observer learns of the death.
            self.journal.mark.store(now(), SeqCst);
        }
        let mut victim = self.process(VICTIM, |worker| {
            crash::arm(point, nth);
            (self.scenario.victim)(worker);
        });
        self.nudge(&what);
        self.expect_death(&mut victim, point, &what, figures);
        let died_at = now();
        let mut death = Death {
            prefilled,
            losses: self.losses(VICTIM, point),
            receipts: self.journal.receipts.load(SeqCst),
        };
        death.losses += self.repair(repairer, &what, figures);

        if alone {
            self.expect_progress(died_at, &what, figures);
        }
        self.run_newcomer(&what, figures);
        self.end_bystander(&mut bystander, &what, figures);
        K::judge(self, &death, &what);
        for _ in 0..2 {
            self.journal.reset();
            K::check_capacity(self, &what);
        }
        figures.end_round();
    }

    /// Waits for the death of a victim. The victim may also end without passing the point: a blocked bystander checks the
    /// queue in every slice, and may have been faster; or on a busy machine, the victim's time may be over before it waits.
    fn expect_death(&self, victim: &mut Child, point: &str, what: &str, figures: &mut Figures) {
        let may_live = self.scenario.bystander != Bystander::Idle || self.scenario.timed;
        match victim.wait(STUCK) {
            Some(Exit::Signal(libc::SIGKILL)) => figures.note_kill(point),
            Some(Exit::Code(0)) if may_live => {}
            other => panic!("{what}: the victim ended with {other:?}"),
        }
    }

    /// Returns the maximum number of messages that a victim that died at this point may have taken, if it died inside of a
    /// receive.
    fn losses(&self, role: usize, point: &str) -> usize {
        let receiving = self.journal.roles[role].receiving.swap(0, SeqCst) as usize;
        if K::may_lose(self.scenario, point) {
            receiving
        } else {
            0
        }
    }

    /// Runs the repairer, if there is one. Returns the number of messages that it may have taken.
    fn repair(&self, repairer: Repairer<'_>, what: &str, figures: &mut Figures) -> usize {
        match repairer {
            Repairer::Anybody => 0,
            Repairer::Watched(way) => {
                let mut repairer = self.process(REPAIRER, |worker| way.of(|| worker.repair()));
                repairer.expect(Exit::Code(0), what);
                0
            }
            Repairer::DiesAt(point) => {
                let mut repairer = self.process(REPAIRER, |worker| {
                    crash::arm(point, 1);
                    worker.repair();
                });
                // A repairer does not die at some points if another process has repaired first.
                match repairer.wait(STUCK) {
                    Some(Exit::Signal(libc::SIGKILL)) => figures.note_kill(point),
                    exit => assert_eq!(exit, Some(Exit::Code(0)), "{what}"),
                }
                self.losses(REPAIRER, point)
            }
            Repairer::MakesAnew => {
                let (file, offset) = K::damage(&self.place);
                note_damage(&file, offset);
                expect_rebuilt(&K::diagnose_and_repair(&self.place), what);
                0
            }
        }
    }

    pub fn blocked(&self) -> (usize, usize) {
        K::blocked(&self.queue)
    }

    fn start_bystander(&self, what: &str) -> Child {
        let kind = self.scenario.bystander;
        let child = self.process(BYSTANDER, |worker| match kind {
            Bystander::Idle => {
                worker.me().ready.store(1, SeqCst);
                let go = wait_until(STUCK * 2, || worker.me().go.load(SeqCst) != 0);
                assert!(go, "the bystander was forgotten");
                use_both_ways(worker);
            }
            _ => stand_by::<K>(worker, kind),
        });
        let is_there = wait_until(STUCK, || match kind {
            Bystander::Idle => self.journal.roles[BYSTANDER].ready.load(SeqCst) != 0,
            Bystander::Receives => self.blocked().1 == 1,
            Bystander::Sends | Bystander::SendsBatches => self.blocked().0 == 1,
        });
        assert!(is_there, "{what}: the bystander does not start");
        child
    }

    /// Makes the victim's wait succeed, once the victim waits.
    fn nudge(&self, what: &str) {
        if self.scenario.nudge == Nudge::Nothing {
            return;
        }
        let waits = wait_until(STUCK, || self.blocked() != (0, 0));
        assert!(waits, "{what}: the victim does not wait");
        let mut worker = self.worker(OBSERVER);
        // The call fails if another process was faster.
        let _ = match self.scenario.nudge {
            Nudge::Send => worker.put(How::Try, K::WANTED, 90),
            _ => worker.take(How::Try, None),
        };
    }

    fn run_newcomer(&self, what: &str, figures: &mut Figures) {
        let kind = self.scenario.bystander;
        let go = u32::from(kind == Bystander::Idle);
        self.journal.roles[BYSTANDER].go.store(go, SeqCst);
        // The newcomer sets the mark, because it may start late on a busy machine, which is no stall of the bystander.
        self.journal.mark.store(0, SeqCst);
        let first = &self.journal.roles[BYSTANDER].first_after_mark;
        first.store(0, SeqCst);
        let mut newcomer = self.process(NEWCOMER, |worker| {
            self.journal.mark.store(now(), SeqCst);
            match kind {
                Bystander::Idle => use_both_ways(worker),
                Bystander::Receives => {
                    for _ in 0..2 {
                        let sent = worker.put(How::Within(STUCK), K::WANTED, 40);
                        sent.expect("room");
                    }
                }
                Bystander::Sends | Bystander::SendsBatches => {
                    for _ in 0..2 {
                        worker.take(How::Within(STUCK), None).expect("a message");
                    }
                }
            }
        });
        newcomer.expect(Exit::Code(0), what);
        let longest = self.journal.roles[NEWCOMER].longest.load(SeqCst);
        figures.note_stall(longest, &format!("{what}: newcomer"));
    }

    /// Waits until the bystander has continued, and lets it end.
    fn end_bystander(&self, bystander: &mut Child, what: &str, figures: &mut Figures) {
        let me = &self.journal.roles[BYSTANDER];
        if self.scenario.bystander == Bystander::Idle {
            bystander.expect(Exit::Code(0), what);
            figures.note_stall(me.longest.load(SeqCst), &format!("{what}: bystander"));
            return;
        }
        self.expect_progress(self.journal.mark.load(SeqCst), what, figures);
        me.go.store(1, SeqCst);
        let ended = wait_until(STUCK, || {
            bystander.signal(libc::SIGUSR1);
            bystander.wait(Duration::from_millis(2)).is_some()
        });
        assert!(ended, "{what}: the bystander does not end");
        bystander.expect(Exit::Code(0), what);
    }

    /// Waits until the blocked bystander has continued.
    fn expect_progress(&self, since: u64, what: &str, figures: &mut Figures) {
        let me = &self.journal.roles[BYSTANDER];
        let goes_on = wait_until(STUCK, || me.first_after_mark.load(SeqCst) != 0);
        assert!(goes_on, "{what}: the bystander is stuck");
        let stall = me.first_after_mark.load(SeqCst).saturating_sub(since);
        figures.note_stall(stall, &format!("{what}: blocked bystander"));
    }

    /// If the victim was sending a batch, fails unless all of its messages were received, or none.
    pub fn check_batch(&self, death: &Death, what: &str) {
        if death.losses == 0 && self.scenario.batches == Batches::Sends {
            let (received, begun) = self.journal.unfinished(VICTIM);
            let is_whole = received == 0 || received == begun;
            assert!(is_whole, "{what}: {received} of a batch of {begun}");
        }
    }

    /// Fails unless slots and memory stay the same after any number of kills.
    pub fn check_memory(&mut self, round: u32, what: &str) {
        K::check_slots(self, what);
        let memory = K::memory(&self.queue);
        if round < 2 {
            self.settled = Some(memory);
        } else if let Some(settled) = self.settled {
            // The tolerance is two growths of the arena, which grows by 64 KiB: which blocks are free differs in each round.
            assert!(
                memory <= settled + (128 << 10),
                "{what}: grew from {settled} to {memory} bytes in {round} rounds"
            );
        }
    }
}

/// A bystander that is blocked most of the time, until it gets the order to end.
fn stand_by<K: Kind>(worker: &mut K::Worker<'_>, kind: Bystander) {
    let [first, second] = K::OFFERED;
    loop {
        let done = match kind {
            Bystander::Sends => worker.put(How::Block, first, 150),
            Bystander::SendsBatches => worker.put_batch(How::Block, &[(first, 150), (second, 20)]),
            _ => worker.take(How::Block, Some(K::WANTED)),
        };
        match done {
            Err(Refusal::Interrupted) if worker.me().go.load(SeqCst) != 0 => return,
            Ok(()) | Err(Refusal::Interrupted) => {}
            Err(refusal) => panic!("bystander: {refusal:?}"),
        }
    }
}

/// Sends and receives. If the queue is full, receives twice first, because a message of a dead sender may take the place of the first one.
fn use_both_ways(worker: &mut impl Worker) {
    match worker.put(How::Try, 4, 80) {
        Ok(()) => {}
        Err(Refusal::Full) => {
            worker.take(How::Within(STUCK), None).expect("a message");
            worker.take(How::Within(STUCK), None).expect("a message");
            worker.put(How::Within(STUCK), 4, 80).expect("room");
            return;
        }
        Err(refusal) => panic!("{refusal:?}"),
    }
    worker.take(How::Within(STUCK), None).expect("a message");
}
