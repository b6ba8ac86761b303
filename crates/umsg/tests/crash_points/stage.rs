//! A queue, and all that is used to kill around it.

use super::scenario::Scenario;
use crate::support::actor::Actor;
use crate::support::child::{Child, Exit, let_calls_be_interrupted};
use crate::support::journal::{How, Journal};
use crate::support::killing::{
    BYSTANDER, Bystander, Figures, NEWCOMER, Nudge, OBSERVER, REPAIRER, Repairer, STUCK, VICTIM,
};
use crate::support::place::Place;
use crate::support::shared::Shared;
use crate::support::{now, wait_until};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use umsg::crash;
use umsg::posix::{Queue, ReceiveError, SendError, Waiting};

/// See the module.
pub struct Stage<'a> {
    pub(super) place: Place,
    pub(super) queue: Queue,
    pub(super) journal: Shared<Journal>,
    pub(super) scenario: &'a Scenario,
    /// Bytes in use after the first rounds.
    pub(super) settled: Option<u64>,
}

impl<'a> Stage<'a> {
    pub fn new(scenario: &'a Scenario) -> Stage<'a> {
        let place = Place::new();
        let queue = place.create("/q", scenario.depth, scenario.size);
        // Every wait goes through a node: a spin that pays would pass the points by.
        queue.set_waiting(Waiting::Blocking);
        Stage {
            place,
            queue,
            journal: Shared::new(),
            scenario,
            settled: None,
        }
    }

    pub(super) fn actor(&self, role: usize) -> Actor<'_> {
        Actor::new(
            &self.queue,
            &self.journal,
            role,
            self.scenario.size as usize,
        )
    }

    /// A process that opens the queue anew and works on it.
    fn process(&self, role: usize, work: impl FnOnce(&mut Actor<'_>)) -> Child {
        Child::run(|| {
            let_calls_be_interrupted();
            let queue = self.place.open("/q");
            queue.set_waiting(Waiting::Blocking);
            work(&mut Actor::new(
                &queue,
                &self.journal,
                role,
                self.scenario.size as usize,
            ));
            0
        })
    }

    /// Kills a victim at a point, when it comes by for the `nth` time, and perhaps a repairer; then judges everything.
    pub fn round(&mut self, point: &str, nth: u32, repairer: Repairer<'_>, figures: &mut Figures) {
        let what = format!("{} / {point} / {nth}{repairer}", self.scenario.name);
        self.journal.reset();
        (self.scenario.prefill)(&mut self.actor(OBSERVER));
        let prefilled = self.journal.used();
        let mut bystander = self.start_bystander(&what);

        let alone = self.scenario.alone.contains(&point);
        if alone {
            // Before the death: a bystander may go on faster than the observer learns of it.
            self.journal.mark.store(now(), SeqCst);
        }
        let mut victim = self.process(VICTIM, |actor| {
            crash::arm(point, nth);
            (self.scenario.victim)(actor);
        });
        self.nudge(&what);
        self.expect_death(&mut victim, point, &what, figures);
        let died_at = now();
        let mut losses = self.losses(VICTIM, point);
        let receipts = self.journal.receipts.load(SeqCst);
        match repairer {
            Repairer::Anybody => {}
            Repairer::Watched(way) => {
                let mut repairer = self.process(REPAIRER, |actor| way.of(|| repair(actor)));
                repairer.expect(Exit::Code(0), &what);
            }
            Repairer::DiesAt(second) => {
                let mut repairer = self.process(REPAIRER, |actor| {
                    crash::arm(second, 1);
                    repair(actor);
                });
                // Some points are passed only where nobody else was faster.
                match repairer.wait(STUCK) {
                    Some(Exit::Signal(libc::SIGKILL)) => figures.note_kill(second),
                    exit => assert_eq!(exit, Some(Exit::Code(0)), "{what}"),
                }
                losses += self.losses(REPAIRER, second);
            }
        }

        if alone {
            self.expect_progress(died_at, &what, figures);
            self.journal.roles[BYSTANDER]
                .first_after_mark
                .store(0, SeqCst);
        }
        self.journal.mark.store(now(), SeqCst);
        self.run_newcomer(&what, figures);
        self.end_bystander(&mut bystander, &what, figures);
        self.judge(prefilled, losses, &what);
        // What the dead had leased comes back when somebody looks: others may have been received before.
        if self.scenario.bystander.sends() && !self.scenario.name.starts_with("leases") {
            // One after the other, the newcomer and the observer have received everything since the death.
            let received = self.journal.received_after(receipts);
            self.journal.check_turns(
                &received,
                |one, other| self.came_before(prefilled, one, other),
                &what,
            );
        }
        self.check_capacity(&what);
        figures.end_round();
    }

    /// Waits for the death of a victim. Beside a blocked bystander it may have had nothing to do: that one looks at the
    /// queue every slice, and may have been faster.
    fn expect_death(&self, victim: &mut Child, point: &str, what: &str, figures: &mut Figures) {
        match victim.wait(STUCK) {
            Some(Exit::Signal(libc::SIGKILL)) => figures.note_kill(point),
            Some(Exit::Code(0)) if self.scenario.bystander != Bystander::Idle => {}
            other => panic!("{what}: the victim ended with {other:?}"),
        }
    }

    /// Whether a receiver that dies at this point has taken its message from the queue before.
    fn may_lose(&self, point: &str) -> bool {
        let admits = self.scenario.bystander.sends() && point.starts_with("DRAIN_");
        // Before one of a batch is copied, others were taken.
        let batch = self.scenario.name.starts_with("receives batches");
        let receives = point.starts_with("RECEIVE_") && (point != "RECEIVE_COPIED" || batch);
        admits || receives || point == "ADMIT_ACCEPTED" || point == "BATCH_TURN"
    }

    /// How many messages a victim that died at this point may have taken, if it died inside of a receive.
    fn losses(&self, role: usize, point: &str) -> usize {
        let receiving = self.journal.roles[role].receiving.swap(0, SeqCst) as usize;
        if self.may_lose(point) { receiving } else { 0 }
    }

    pub(super) fn blocked(&self) -> (usize, usize) {
        let status = self.queue.status();
        (status.blocked_senders, status.blocked_receivers)
    }

    fn start_bystander(&self, what: &str) -> Child {
        let kind = self.scenario.bystander;
        let child = self.process(BYSTANDER, |actor| match kind {
            Bystander::Idle => {
                actor.me().ready.store(1, SeqCst);
                let go = wait_until(STUCK * 2, || actor.me().go.load(SeqCst) != 0);
                assert!(go, "the bystander was forgotten");
                use_both_ways(actor);
            }
            Bystander::Receives => loop {
                match actor.receive(How::Block) {
                    Ok(_) => {}
                    Err(ReceiveError::Interrupted) if actor.me().go.load(SeqCst) != 0 => return,
                    Err(ReceiveError::Interrupted) => {}
                    Err(error) => panic!("bystander: {error}"),
                }
            },
            Bystander::Sends | Bystander::SendsBatches => loop {
                let sent = match kind {
                    Bystander::Sends => actor.send(How::Block, 3, 150),
                    _ => actor.send_batch(How::Block, &[(3, 150), (3, 20)]),
                };
                match sent {
                    Ok(_) => {}
                    Err(SendError::Interrupted) if actor.me().go.load(SeqCst) != 0 => return,
                    Err(SendError::Interrupted) => {}
                    Err(error) => panic!("bystander: {error}"),
                }
            },
        });
        let is_there = wait_until(STUCK, || match kind {
            Bystander::Idle => self.journal.roles[BYSTANDER].ready.load(SeqCst) != 0,
            Bystander::Receives => self.blocked().1 == 1,
            Bystander::Sends | Bystander::SendsBatches => self.blocked().0 == 1,
        });
        assert!(is_there, "{what}: the bystander does not start");
        child
    }

    /// Lets the victim's wait succeed, once it waits.
    fn nudge(&self, what: &str) {
        if self.scenario.nudge == Nudge::Nothing {
            return;
        }
        let waits = wait_until(STUCK, || self.blocked() != (0, 0));
        assert!(waits, "{what}: the victim does not wait");
        match self.scenario.nudge {
            Nudge::Send => drop(self.actor(OBSERVER).send(How::Try, 3, 90)),
            _ => drop(self.actor(OBSERVER).receive(How::Try)),
        }
    }

    fn run_newcomer(&self, what: &str, figures: &mut Figures) {
        let kind = self.scenario.bystander;
        self.journal.roles[BYSTANDER]
            .go
            .store(u32::from(kind == Bystander::Idle), SeqCst);
        let mut newcomer = self.process(NEWCOMER, |actor| match kind {
            Bystander::Idle => use_both_ways(actor),
            Bystander::Receives => {
                for _ in 0..2 {
                    actor.send(How::Within(STUCK), 5, 40).expect("room");
                }
            }
            Bystander::Sends | Bystander::SendsBatches => {
                for _ in 0..2 {
                    actor.receive(How::Within(STUCK)).expect("a message");
                }
            }
        });
        newcomer.expect(Exit::Code(0), what);
        figures.note_stall(
            self.journal.roles[NEWCOMER].longest.load(SeqCst),
            &format!("{what}: newcomer"),
        );
    }

    /// Waits until the bystander has gone on, and lets it end.
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

    /// Waits until the blocked bystander has gone on.
    fn expect_progress(&self, since: u64, what: &str, figures: &mut Figures) {
        let me = &self.journal.roles[BYSTANDER];
        let goes_on = wait_until(STUCK, || me.first_after_mark.load(SeqCst) != 0);
        assert!(goes_on, "{what}: the bystander is stuck");
        let stall = me.first_after_mark.load(SeqCst).saturating_sub(since);
        figures.note_stall(stall, &format!("{what}: blocked bystander"));
    }
}

/// What takes both locks, and repairs both sides.
fn repair(actor: &mut Actor<'_>) {
    let _ = actor.queue.attributes();
    let _ = actor.send(How::Try, 0, 16);
}

/// A send and a receive; of a full queue two receives first, because a message of the dead may take the place of one.
fn use_both_ways(actor: &mut Actor<'_>) {
    match actor.send(How::Try, 4, 80) {
        Ok(_) => {}
        Err(SendError::Full) => {
            actor.receive(How::Within(STUCK)).expect("a message");
            actor.receive(How::Within(STUCK)).expect("a message");
            actor.send(How::Within(STUCK), 4, 80).expect("room");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    actor.receive(How::Within(STUCK)).expect("a message");
}
