//! The death of a sender, and perhaps of a process that repairs after it, and the checks afterwards.

use super::NAME;
use super::judge::Judge;
use super::senders::{Life, Lives, Owner, Scenario};
use crate::chaos::killing::{Figures, Repairer, STUCK, expect_rebuilt, note_damage};
use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::shared::Shared;
use crate::support::wait_until;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use umsg::ring::{self, Options, Post, Ring, Sender, Waiting};
use umsg_shm::crash;

/// The ring of a scenario, and the state of the test around it.
struct Stage<'a> {
    scenario: &'a Scenario,
    place: Place,
    lives: Shared<Lives>,
    judge: Judge,
    what: String,
}

impl Stage<'_> {
    fn new(scenario: &Scenario, what: String) -> Stage<'_> {
        let place = Place::new();
        let mut options = Options::new();
        options
            .entries(scenario.entries)
            .overflow(scenario.overflow);
        options.longest(scenario.longest);
        let ring = options.create_in(&place.namespace, NAME).unwrap();
        ring.set_waiting(Waiting::Blocking);
        let mut judge = Judge::new(ring);
        if scenario.owner == Owner::Polls {
            judge.ring.pollable();
        }
        Stage {
            scenario,
            place,
            lives: Shared::new(),
            judge,
            what,
        }
    }

    fn sender(&self, work: impl FnOnce(&Sender)) -> Child {
        Child::run(|| {
            work(&Sender::open_in(&self.place.namespace, NAME).unwrap());
            0
        })
    }

    fn start_bystander(&self) -> Child {
        let life = &self.lives[1];
        self.sender(|sender| stand_by(sender, life))
    }

    /// Runs the victim. Meanwhile the owner receives as the scenario says, or with `alone`, only from the victim. Returns the victim's process id,
    /// and whether the victim died.
    fn kill_victim(&mut self, point: &str, nth: u32, alone: bool) -> (u32, bool) {
        let mut victim = self.sender(|sender| {
            crash::arm(point, nth);
            (self.scenario.victim)(sender, &self.lives[0]);
        });
        let end = Instant::now() + STUCK;
        while victim.wait(Duration::ZERO).is_none() {
            assert!(Instant::now() < end, "{}: the victim is stuck", self.what);
            match self.scenario.owner {
                Owner::Dawdles => std::thread::sleep(Duration::from_millis(1)),
                owner if alone => {
                    let _ = self.judge.receive_within(owner, Duration::from_millis(20));
                }
                owner => self.judge.receive(owner),
            }
        }
        (victim.pid() as u32, self.has_died(&mut victim))
    }

    /// Returns whether the child was killed. On a busy machine the owner may find each message while it yields, and never sleep. Then no process
    /// passes the point.
    fn has_died(&self, child: &mut Child) -> bool {
        let died = child.wait(STUCK) == Some(Exit::Signal(libc::SIGKILL));
        if !died {
            child.expect(Exit::Code(0), &self.what);
        }
        died
    }

    /// Lets another sender repair the ring before any further process uses the ring. Returns this sender's process id.
    fn repair(&self, repairer: Repairer<'_>, figures: &mut Figures) -> Option<u32> {
        let life = &self.lives[2];
        let mut child = match repairer {
            Repairer::Anybody => return None,
            Repairer::Watched(way) => self.sender(|sender| way.of(|| life.try_send(sender))),
            Repairer::DiesAt(second) => self.sender(|sender| {
                crash::arm(second, 1);
                life.try_send(sender);
            }),
            Repairer::MakesAnew => {
                note_damage(&self.place.path().join("ring").join(&NAME[1..]), 48);
                let repaired = ring::repair(&self.place.namespace, NAME);
                expect_rebuilt(&repaired.expect("a repair"), &self.what);
                return None;
            }
        };
        if let (true, Repairer::DiesAt(second)) = (self.has_died(&mut child), repairer) {
            figures.note_kill(second);
        }
        Some(child.pid() as u32)
    }

    /// Fails unless the bystander's next messages arrive and the bystander can end.
    fn expect_bystander_to_go_on(&mut self, mut bystander: Child) {
        let (pid, life) = (bystander.pid() as u32, &self.lives[1]);
        let enough = life.sent.load(SeqCst) + 5;
        while self.judge.of(pid) < enough {
            self.judge.receive(self.scenario.owner);
        }
        life.end.store(1, SeqCst);
        let ends = wait_until(STUCK, || {
            self.judge.empty();
            bystander.wait(Duration::ZERO).is_some()
        });
        assert!(ends, "{}: the bystander is stuck", self.what);
        bystander.expect(Exit::Code(0), &self.what);
        use_the_ring(&self.place, &mut self.judge, &self.what);
        // The newcomer's send has counted the messages that dead senders had not counted, so the owner has received these messages, too.
        let (received, sent) = (self.judge.of(pid), self.lives[1].sent.load(SeqCst));
        assert_eq!(received, sent, "{}: of the bystander", self.what);
    }

    /// Fails unless all messages arrived whose send had returned in the dead sender. Of the messages of its unfinished send, either all or none may
    /// arrive.
    fn check_messages_of(&self, pid: u32, life: &Life) {
        let (sent, sending) = (life.sent.load(SeqCst), life.sending.load(SeqCst));
        let received = self.judge.of(pid);
        assert!(
            received == sent || received == sent + sending,
            "{}: {received} received of {sent} sent and {sending} begun",
            self.what
        );
    }
}

/// Sends until it gets the order to end. Waits for room in a full ring.
fn stand_by(sender: &Sender, life: &Life) {
    while life.end.load(SeqCst) == 0 {
        life.send(1, |posts| sender.send(&posts[0]));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills a sender that passes a point for the `nth` time, and perhaps the process that repairs; then checks the ring and all messages. If another
/// process repairs, the bystander starts only after the repair.
pub fn kill_a_sender(
    scenario: &Scenario,
    point: &str,
    nth: u32,
    repairer: Repairer<'_>,
    figures: &mut Figures,
) {
    let what = format!("{} / {point} / {nth}{repairer}", scenario.name);
    let mut stage = Stage::new(scenario, what.clone());
    let early = matches!(repairer, Repairer::Anybody).then(|| stage.start_bystander());
    let (victim, died) = stage.kill_victim(point, nth, early.is_none());
    let second = stage.repair(repairer, figures);
    let bystander = early.unwrap_or_else(|| stage.start_bystander());
    stage.expect_bystander_to_go_on(bystander);
    stage.check_messages_of(victim, &stage.lives[0]);
    if let Some(second) = second {
        stage.check_messages_of(second, &stage.lives[2]);
    }
    check_capacity(&mut stage.judge.ring, scenario, &what);
    if died {
        figures.note_kill(point);
        figures.note_stall(stage.judge.longest.as_nanos() as u64, &what);
        figures.end_round();
    }
}

/// Fails unless a newcomer finds the ring and sends.
fn use_the_ring(place: &Place, judge: &mut Judge, what: &str) {
    let life = Shared::<Lives>::new();
    let mut newcomer = Child::run(|| {
        let sender = Sender::open_in(&place.namespace, NAME).unwrap();
        (0..5).for_each(|_| life[0].send(1, |posts| sender.send(&posts[0])));
        0
    });
    newcomer.expect(Exit::Code(0), what);
    judge.empty();
    assert_eq!(judge.of(newcomer.pid() as u32), 5, "{what}");
}

fn check_capacity(ring: &mut Ring, scenario: &Scenario, what: &str) {
    let most = (scenario.entries + scenario.overflow) as usize;
    let sender = ring.sender();
    for _ in 0..2 {
        let fit = (0..=most)
            .take_while(|_| sender.try_send(&Post::new(1)).is_ok())
            .count();
        assert_eq!(fit, most, "{what}");
        assert_eq!(ring.drain(|_| ()).unwrap(), most as u64, "{what}");
    }
}
