//! A queue, and all that is used to kill around it.

use super::acts::status;
use super::scenario::{KEY, Scenario, WANTED};
use crate::support::child::{Child, Exit, let_calls_be_interrupted};
use crate::support::clerk::Clerk;
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
use umsg::sysv::{Queue, ReceiveError, SendError, Waiting, Want};

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
        let queue = place.create_typed(KEY);
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

    pub(super) fn clerk(&self, role: usize) -> Clerk<'_> {
        Clerk::new(&self.queue, &self.journal, role)
    }

    /// A process that opens the queue anew and works on it.
    fn process(&self, role: usize, work: impl FnOnce(&mut Clerk<'_>)) -> Child {
        Child::run(|| {
            let_calls_be_interrupted();
            let queue = self.place.open_typed(KEY);
            queue.set_waiting(Waiting::Blocking);
            work(&mut Clerk::new(&queue, &self.journal, role));
            0
        })
    }

    /// Kills a victim at a point, when it comes by for the `nth` time, and perhaps a repairer; then judges everything.
    pub fn round(&mut self, point: &str, nth: u32, repairer: Repairer<'_>, figures: &mut Figures) {
        let what = format!("{} / {point} / {nth}{repairer}", self.scenario.name);
        self.journal.reset();
        (self.scenario.prefill)(&mut self.clerk(OBSERVER));
        let prefilled = self.journal.used();
        let mut bystander = self.start_bystander(&what);

        let alone = self.scenario.alone.contains(&point);
        if alone {
            // Before the death: a bystander may go on faster than the observer learns of it.
            self.journal.mark.store(now(), SeqCst);
        }
        let mut victim = self.process(VICTIM, |clerk| {
            crash::arm(point, nth);
            (self.scenario.victim)(clerk);
        });
        self.nudge(&what);
        self.expect_death(&mut victim, point, &what, figures);
        let died_at = now();
        let mut losses = self.losses(VICTIM, point);
        match repairer {
            Repairer::Anybody => {}
            Repairer::Watched(way) => {
                let mut repairer = self.process(REPAIRER, |clerk| way.of(|| repair(clerk)));
                repairer.expect(Exit::Code(0), &what);
            }
            Repairer::DiesAt(second) => {
                let mut repairer = self.process(REPAIRER, |clerk| {
                    crash::arm(second, 1);
                    repair(clerk);
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
            let first = &self.journal.roles[BYSTANDER].first_after_mark;
            first.store(0, SeqCst);
        }
        self.journal.mark.store(now(), SeqCst);
        self.run_newcomer(&what, figures);
        self.end_bystander(&mut bystander, &what, figures);
        self.judge(prefilled, losses, &what);
        self.check_capacity(&what);
        figures.end_round();
    }

    /// Waits for the death of a victim. It may have had nothing to do: a blocked bystander looks at the queue every slice, and
    /// may have been faster; and where the machine is busy, its time may be over before it waits.
    fn expect_death(&self, victim: &mut Child, point: &str, what: &str, figures: &mut Figures) {
        let may_live = self.scenario.bystander != Bystander::Idle
            || self.scenario.name.contains("until its time is over");
        match victim.wait(STUCK) {
            Some(Exit::Signal(libc::SIGKILL)) => figures.note_kill(point),
            Some(Exit::Code(0)) if may_live => {}
            other => panic!("{what}: the victim ended with {other:?}"),
        }
    }

    /// How many messages a victim that died at this point inside of a receive may have taken. Up to MSG_COPIED a message is
    /// still the queue's, and one that was offered goes back.
    fn losses(&self, role: usize, point: &str) -> usize {
        let receiving = self.journal.roles[role].receiving.swap(0, SeqCst) as usize;
        let taken = ["MSG_ENDED", "MSG_ADMITTED", "MSG_SENT", "MSG_LINKED"];
        if taken.contains(&point) { receiving } else { 0 }
    }

    pub(super) fn blocked(&self) -> (usize, usize) {
        let status = status(&self.queue);
        (status.blocked_senders, status.blocked_receivers)
    }

    fn start_bystander(&self, what: &str) -> Child {
        let kind = self.scenario.bystander;
        let child = self.process(BYSTANDER, |clerk| match kind {
            Bystander::Idle => {
                clerk.me().ready.store(1, SeqCst);
                let go = wait_until(STUCK * 2, || clerk.me().go.load(SeqCst) != 0);
                assert!(go, "the bystander was forgotten");
                use_both_ways(clerk);
            }
            Bystander::Receives => loop {
                match clerk.receive(How::Block, Want::Exactly(WANTED.into())) {
                    Ok(_) => {}
                    Err(ReceiveError::Interrupted) if clerk.me().go.load(SeqCst) != 0 => return,
                    Err(ReceiveError::Interrupted) => {}
                    Err(error) => panic!("bystander: {error}"),
                }
            },
            Bystander::Sends | Bystander::SendsBatches => loop {
                let sent = match kind {
                    Bystander::Sends => clerk.send(How::Block, 6, 150),
                    _ => clerk.send_batch(How::Block, &[(6, 150), (7, 20)]),
                };
                match sent {
                    Ok(_) => {}
                    Err(SendError::Interrupted) if clerk.me().go.load(SeqCst) != 0 => return,
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
        let mut clerk = self.clerk(OBSERVER);
        match self.scenario.nudge {
            Nudge::Send => {
                let _ = clerk.send(How::Try, WANTED, 90);
            }
            _ => {
                let _ = clerk.receive(How::Try, Want::Any);
            }
        }
    }

    fn run_newcomer(&self, what: &str, figures: &mut Figures) {
        let kind = self.scenario.bystander;
        let go = u32::from(kind == Bystander::Idle);
        self.journal.roles[BYSTANDER].go.store(go, SeqCst);
        let mut newcomer = self.process(NEWCOMER, |clerk| match kind {
            Bystander::Idle => use_both_ways(clerk),
            Bystander::Receives => {
                for _ in 0..2 {
                    clerk.send(How::Within(STUCK), WANTED, 40).expect("room");
                }
            }
            Bystander::Sends | Bystander::SendsBatches => {
                for _ in 0..2 {
                    let received = clerk.receive(How::Within(STUCK), Want::Any);
                    received.expect("a message");
                }
            }
        });
        newcomer.expect(Exit::Code(0), what);
        let longest = self.journal.roles[NEWCOMER].longest.load(SeqCst);
        figures.note_stall(longest, &format!("{what}: newcomer"));
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

/// What takes the lock, and repairs.
fn repair(clerk: &mut Clerk<'_>) {
    let _ = clerk.queue.status();
    let _ = clerk.send(How::Try, 1, 16);
}

/// A send and a receive; of a full queue two receives first, because a message of the dead may take the place of one.
fn use_both_ways(clerk: &mut Clerk<'_>) {
    let receive = |clerk: &mut Clerk<'_>| {
        let received = clerk.receive(How::Within(STUCK), Want::Any);
        received.expect("a message");
    };
    match clerk.send(How::Try, 4, 80) {
        Ok(_) => receive(clerk),
        Err(SendError::Full) => {
            receive(clerk);
            receive(clerk);
            clerk.send(How::Within(STUCK), 4, 80).expect("room");
        }
        Err(error) => panic!("{error}"),
    }
}
