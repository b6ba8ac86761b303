//! The problems of a queue in words, with advice.

use super::findings::{Finding, Findings};
use super::locks::{Lock, Owner};
use super::process::{Life, Process};
use super::{Diagnosis, Hold, HoldKind};

/// A problem of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The problem, as a sentence.
    pub what: String,
    /// The advice, as a sentence.
    pub advice: String,
    /// The place in the file, if the problem is about bytes.
    pub finding: Option<Finding>,
}

/// The kinds of problems, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Corruption: byte values that no operation can have written. Calls that read such bytes fail with EBADMSG.
    Damaged,
    /// A thread holds a lock and does not continue, or the lock names an impossible thread. Calls that need the lock wait, or fail after a second.
    Stuck,
    /// The receiver of a ring is stopped. Messages wait in the ring until the receiver continues.
    Stopped,
    /// A process died. The next call that finds the unfinished work of the dead process repairs the queue.
    Died,
    /// Messages are set aside for a dead-letter queue that the caller can't send to.
    Undelivered,
}

impl Diagnosis {
    /// Returns the diagnosis of a queue with a corrupted header. Without the header, no other word can be checked or repaired.
    pub(super) fn of_header(findings: Findings) -> Diagnosis {
        let (list, _) = findings.into_parts();
        Diagnosis {
            problems: list
                .into_iter()
                .map(|finding| damage(finding, REMOVE))
                .collect(),
            ..Diagnosis::default()
        }
    }

    /// Adds the problems that follow from the other parts of the diagnosis.
    pub(super) fn conclude(&mut self, findings: Findings, is_stuck: impl Fn(&Lock) -> bool) {
        let mut problems: Vec<Problem> = Vec::new();
        let (list, more) = findings.into_parts();
        problems.extend(list.into_iter().map(|finding| damage(finding, REPAIR)));
        if more != 0 {
            problems.push(Problem::new(
                ProblemKind::Damaged,
                format!("{more} more places are corrupted"),
                REPAIR.to_owned(),
            ));
        }
        if let Some(damage) = &self.damage {
            problems.push(Problem::new(
                ProblemKind::Damaged,
                format!("process {} found corrupted bytes", damage.by.pid),
                format!("{REPAIR}; if it finds no corruption, it clears the corruption mark"),
            ));
        }
        problems.extend(
            self.locks
                .iter()
                .filter_map(|lock| of_lock(lock, &is_stuck)),
        );
        problems.extend(self.of_waiters());
        problems.extend(self.of_holders());
        problems.extend(self.of_redrives());
        problems.extend(self.of_receiver());
        problems.sort_by_key(|problem| problem.kind);
        self.problems = problems;
    }

    /// Adds the problem of messages that stay set aside, and its reason.
    pub(crate) fn note_undelivered(&mut self, messages: usize, why: &str) {
        self.problems.push(Problem::new(
            ProblemKind::Undelivered,
            format!(
                "{} set aside for the dead-letter queue can't be moved, because {why}",
                counted(messages, "message")
            ),
            UNDELIVERED.to_owned(),
        ));
    }

    fn of_waiters(&self) -> Option<Problem> {
        let dead = self
            .blocked
            .iter()
            .filter(|blocked| blocked.who.life == Life::Dead);
        let count = dead.count();
        (count != 0).then(|| Problem::new(
            ProblemKind::Died,
            format!("the wait queue still has {} that died in a call", counted(count, "thread")),
            format!("no action is needed: the next call that finds the dead waiters removes them; {NOW}"),
        ))
    }

    fn of_holders(&self) -> Option<Problem> {
        let is_dead = |who: &Process| who.life == Life::Dead;
        let of_dead = self.holds.iter().filter(|record| {
            let is_held = matches!(record.kind, HoldKind::Leased | HoldKind::Reserved);
            is_held && record.who.as_ref().is_some_and(is_dead)
        });
        let (leased, reserved): (Vec<_>, Vec<_>) =
            of_dead.partition(|record| record.kind == HoldKind::Leased);
        (leased.len() + reserved.len() != 0).then(|| Problem::new(
            ProblemKind::Died,
            format!(
                "dead processes hold {} and {}",
                counted(leased.len(), "lease"),
                counted(reserved.len(), "reservation")
            ),
            format!("no action is needed: the next call that finds the queue empty or full returns the messages and frees the room; {NOW}"),
        ))
    }

    fn of_redrives(&self) -> Option<Problem> {
        let is_left = |record: &&Hold| {
            let who = record.who.as_ref();
            record.kind == HoldKind::Redriven && who.is_some_and(|who| who.life == Life::Dead)
        };
        let left = self.holds.iter().filter(is_left).count();
        (left != 0).then(|| {
            Problem::new(
                ProblemKind::Died,
                format!(
                    "{} that a dead process was sending back to another queue {} held",
                    counted(left, "message"),
                    if left == 1 { "is" } else { "are" }
                ),
                "redrive the queue: that finds out whether the messages have arrived, and returns the others to the queue".to_owned(),
            )
        })
    }

    fn of_receiver(&self) -> Option<Problem> {
        let receiver = self.receiver.as_ref()?;
        let pid = receiver.pid;
        match receiver.life {
            Life::Alive => None,
            Life::Stopped => Some(Problem::new(
                ProblemKind::Stopped,
                format!(
                    "{}, the receiver of this ring, is stopped: messages wait until the process continues, and if the ring is full, sends wait or fail",
                    name(Some(receiver))
                ),
                format!("continue the process (kill -CONT {pid})"),
            )),
            Life::Dead => Some(Problem::new(
                ProblemKind::Died,
                format!("process {pid}, the receiver of this ring, is dead, so sends fail"),
                "remove the ring with `umsg rm`, or start its program again: the new ring replaces this one"
                    .to_owned(),
            )),
        }
    }
}

const REPAIR: &str = "`umsg doctor QUEUE --repair` rebuilds the queue from its intact messages";
const REMOVE: &str =
    "`umsg rm` removes the queue with its messages: no repair can restore the header";
const UNDELIVERED: &str = "`umsg stat` names the dead-letter queue. The next receive moves the messages if that queue exists and permits sending, and if one user owns both queues and this queue's label (.dead-* in the namespace's directory)";
const UNSEEN: &str = "the lock may name the wrong process. Before you end the process, run the command again as root, in the process's PID namespace; `umsg rm` removes the queue in any case";
const NOW: &str = "`umsg doctor QUEUE --repair` does this now";

impl Problem {
    fn new(kind: ProblemKind, what: String, advice: String) -> Problem {
        Problem {
            kind,
            what,
            advice,
            finding: None,
        }
    }
}

fn damage(finding: Finding, advice: &str) -> Problem {
    let what = format!(
        "corrupted at byte {}: expected {}, found {} (rule: {})",
        finding.offset, finding.expected, finding.found, finding.check
    );
    Problem {
        kind: ProblemKind::Damaged,
        what,
        advice: advice.to_owned(),
        finding: Some(finding),
    }
}

fn of_lock(lock: &Lock, is_stuck: impl Fn(&Lock) -> bool) -> Option<Problem> {
    let side = lock.side.name();
    match &lock.owner {
        Owner::Nobody | Owner::Receiver => None,
        Owner::Died(who) => Some(Problem::new(
            ProblemKind::Died,
            format!(
                "{} died in the middle of a call, holding the lock of {side}",
                name(who.as_ref())
            ),
            format!("no action is needed: the next call repairs the queue; {NOW}"),
        )),
        Owner::Thread(who) => of_owner(lock, who, side, is_stuck),
        Owner::Impossible => {
            let says = match lock.is_lent() {
                true => "is marked as lent, but no thread has lent it".to_owned(),
                false => format!("holds {:#010x}, which is an impossible thread id", lock.word),
            };
            Some(Problem::new(
                ProblemKind::Stuck,
                format!("the lock of {side} {says}: a process has overwritten it"),
                format!("no action is needed: the next call takes the lock after a tenth of a second; {NOW}"),
            ))
        }
        Owner::Stranger(who) => Some(Problem::new(
            ProblemKind::Stuck,
            format!(
                "the lock of {side} names {}, which does not use the queue: another process has overwritten the lock",
                name(Some(who))
            ),
            "`umsg doctor QUEUE --repair` takes the lock from the process; do not end the process, because it does not use the queue".to_owned(),
        )),
    }
}

fn of_owner(
    lock: &Lock,
    who: &Process,
    side: &str,
    is_stuck: impl Fn(&Lock) -> bool,
) -> Option<Problem> {
    let pid = who.pid;
    let thread = name(Some(who));
    match who.life {
        // Perhaps the process does not use the queue at all, so the advice does not say to end the process.
        Life::Stopped if lock.mapped.is_none() => Some(Problem::new(
            ProblemKind::Stuck,
            format!(
                "the lock of {side} names {thread}, which is stopped: other calls may wait for that process"
            ),
            format!("continue it (kill -CONT {pid}); {UNSEEN}"),
        )),
        Life::Alive if lock.mapped.is_none() => is_stuck(lock).then(|| {
            Problem::new(
                ProblemKind::Stuck,
                format!("the lock of {side} has named {thread} for a second without progress"),
                UNSEEN.to_owned(),
            )
        }),
        Life::Stopped => Some(Problem::new(
            ProblemKind::Stuck,
            format!(
                "{thread} is stopped in the middle of a call, holding the lock of {side}: other calls wait for it"
            ),
            format!(
                "continue it (kill -CONT {pid}), or end it (kill -KILL {pid}): then the next call repairs the queue"
            ),
        )),
        Life::Dead => Some(Problem::new(
            ProblemKind::Stuck,
            format!(
                "the lock of {side} names thread {}, which does not exist: it ran on another system or in another namespace, or a process has overwritten the lock",
                who.thread.unwrap_or(0)
            ),
            "`umsg doctor QUEUE --repair` takes the lock from it".to_owned(),
        )),
        Life::Alive if is_stuck(lock) => Some(Problem::new(
            ProblemKind::Stuck,
            format!("{thread} has held the lock of {side} for a second without progress"),
            format!(
                "inspect the process with a debugger or /proc/{pid}/stack. If the process is not in a call on this queue, another process has overwritten the lock; `umsg rm` removes the queue in any case"
            ),
        )),
        Life::Alive => None,
    }
}

/// Returns a number with its noun, which gets an `s` for all numbers but 1.
fn counted(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

fn name(who: Option<&Process>) -> String {
    let Some(who) = who else {
        return "a thread".to_owned();
    };
    let mut name = format!("process {}", who.pid);
    if let Some(program) = &who.program {
        name.push_str(&format!(" ({program})"));
    }
    match who.thread {
        Some(thread) if thread != who.pid => format!("thread {thread} of {name}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Side;
    use super::*;

    #[test]
    fn no_process_is_to_be_ended_that_may_not_use_the_queue() {
        for life in [Life::Alive, Life::Stopped] {
            let who = Process {
                pid: 1,
                thread: Some(1),
                program: Some("init".to_owned()),
                life,
                elsewhere: false,
            };
            let mut lock = Lock {
                life: None,
                side: Side::Whole,
                owner: Owner::Thread(who),
                offset: 256,
                word: 1,
                mapped: None,
            };
            let told = of_lock(&lock, |_| true).unwrap();
            assert!(told.advice.contains(UNSEEN) && !told.advice.contains("-KILL"));
            lock.mapped = Some(true);
            let told = of_lock(&lock, |_| true).unwrap();
            assert_eq!(told.advice.contains("-KILL"), life == Life::Stopped);
        }
    }
}
