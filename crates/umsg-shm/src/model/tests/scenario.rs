//! A scenario of a death: a victim sends or receives and dies at a point, while bystanders continue.
//!
//! If the send of a message has returned, the message is received exactly once, by a bystander or at the end. The message that the victim was sending
//! or receiving is received whole, and at most once. No slot is lost, and the queue still works.

use super::stage::{LATER, alive};
use super::subject::{Subject, explore_death};
use crate::crash::Point;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::waiters::wait::Refused;

/// The action of a thread of a scenario: it sends this message, or receives the message that it wants.
#[derive(Clone, Copy)]
pub(super) enum Act<Message, Want> {
    Send(Message),
    Receive(Want),
}
use Act::{Receive, Send};

/// The fate of the message that the victim was sending or receiving.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The message is in the queue.
    There,
    /// The message is not in the queue.
    Gone,
    /// The message may be in the queue or not: this depends on the earlier steps of the other threads.
    Either,
}
use Fate::{Gone, There};

type ActOn<Q> = Act<<Q as Subject>::Message, <Q as Subject>::Want>;
type Outcome<Q> = Result<Option<<Q as Subject>::Message>, Refused<<Q as Subject>::Own>>;

/// A queue, the threads that use it, and the point at which one of them dies.
pub(super) struct Scenario<Q: Subject> {
    pub(super) name: &'static str,
    pub(super) queue: fn() -> Q,
    /// The initial messages of the queue.
    pub(super) before: &'static [Q::Message],
    pub(super) victim: ActOn<Q>,
    pub(super) bystanders: &'static [ActOn<Q>],
    pub(super) preemptions: usize,
}

impl<Q: Subject> Clone for Scenario<Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: Subject> Copy for Scenario<Q> {}

impl<Q: Subject> Scenario<Q>
where
    Scenario<Q>: std::marker::Send + Sync,
{
    /// Explores the victim's death at each of the points.
    pub(super) fn dies_at(self, points: &[(Point, Fate)]) {
        for &(point, fate) in points {
            self.dies(Death::At(point), fate, format!("{point:?}"));
        }
    }

    pub(super) fn dies(self, death: Death, fate: Fate, at: String) {
        let name = format!("death: {} at {at}", self.name);
        explore_death(&name, self.preemptions, move || self.play(death, fate));
    }

    /// Runs one execution. Returns whether the victim died.
    fn play(self, death: Death, fate: Fate) -> bool {
        let queue = (self.queue)().filled(self.before);
        world::doom(1, death, 1);
        let spawn = |tid, act| queue.spawn(tid, move |queue, me| act_on(act, queue, me));
        let victim = spawn(1, self.victim);
        let bystanders: Vec<_> = (2..)
            .zip(self.bystanders)
            .map(|(tid, &act)| (act, spawn(tid, act)))
            .collect();
        let victims = thread::join(victim);
        let is_dead = victims.is_none();
        let mut outcomes = vec![(self.victim, victims)];
        for (act, bystander) in bystanders {
            outcomes.push((act, Some(alive(bystander))));
        }
        let left = queue.empty();
        let mut expected = self.before.to_vec();
        let mut found = left.clone();
        for (act, outcome) in outcomes {
            match (act, outcome) {
                (Send(message), Some(Ok(_))) => expected.push(message),
                (Receive(_), Some(Ok(message))) => found.extend(message),
                (_, Some(Err(refused))) => assert_eq!(refused, Refused::TimedOut),
                (_, None) => {}
            }
        }
        expected.sort_unstable();
        found.sort_unstable();
        if is_dead {
            check_fate::<Q>(self.victim, fate, &mut expected, &mut found);
        }
        assert_eq!(found, expected, "left in the queue: {left:?}");
        queue.audit();
        is_dead
    }
}

/// Checks the fate of the victim's own message. A message that the victim may have taken is not counted.
fn check_fate<Q: Subject>(
    victim: ActOn<Q>,
    fate: Fate,
    expected: &mut Vec<Q::Message>,
    found: &mut Vec<Q::Message>,
) {
    match victim {
        Send(message) => {
            let is_there = found.contains(&message);
            assert!(fate != There || is_there, "a message that was sent is lost");
            assert!(
                fate != Gone || !is_there,
                "a message was received that was never sent"
            );
            if let Some(index) = found.iter().position(|&other| other == message) {
                found.remove(index);
            }
        }
        Receive(_) => {
            let missing = expected.len().checked_sub(found.len());
            let missing = missing.expect("a message was received twice");
            let most = usize::from(fate != There);
            assert!(missing <= most, "a message is lost");
            assert!(fate != Gone || missing == 1, "a message was received twice");
            if missing == 1 {
                expected.retain(|message| found.contains(message));
            }
        }
    }
}

/// Performs an act. Returns the message that the thread received; None for no message.
fn act_on<Q: Subject>(act: ActOn<Q>, queue: &Q, me: &Thread) -> Outcome<Q> {
    match act {
        Send(message) => queue.send_one(me, message, LATER).map(|()| None),
        Receive(want) => queue.receive_one(me, want, LATER).map(Some),
    }
}
