//! Plays a history on both sides, step by step, and compares the answers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::act::{Act, PROCESSES, Step, succeeded};
use super::gaps::{Gap, Ledger};
use super::side::{Queues, Side};
use crate::compare::party::Settled;
use crate::compare::{Leeway, Outcome, Reply};
use crate::sys::Pause;

/// For each call and each result, the number of such calls.
pub type Seen = BTreeMap<(&'static str, String), u64>;

/// The way in which the play of a history ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Every answer was the same.
    Agreed,
    /// An answer differed. The text describes the difference.
    Differed(String),
    /// An answer differed, and a known gap explains the difference.
    Masked(Gap),
    /// The history could not begin.
    Impossible(String),
}

/// A completed step and its answers, as text.
struct Line {
    step: Step,
    answers: Vec<String>,
}

/// The result of playing a history.
pub struct Played {
    /// The way in which the play ended.
    pub end: End,
    /// The number of acts that both sides performed.
    pub operations: u64,
    /// The number of these acts that blocked.
    pub blocked: u64,
    /// For each call and each result, the number of such calls.
    pub seen: Seen,
    lines: Vec<Line>,
}

struct Lockstep {
    sides: [Side; 2],
    alive: [bool; PROCESSES],
    /// For each process that is blocked: the number of the step, and the act.
    blocked: [Option<(usize, Act)>; PROCESSES],
    ledger: Ledger,
    played: Played,
}

const LEEWAY: Leeway = Leeway {
    numbers: true,
    seconds: 0,
};

/// The longest wait for an answer of the drop-in if a known gap allows its process to sleep. Without an answer in this time, the process counts as
/// asleep.
const ASLEEP: Duration = Duration::from_secs(2);

/// Plays a history.
pub fn play(program: &Path, sides: &[Queues; 2], steps: &[Step], patience: Duration) -> Played {
    let played = Played {
        end: End::Agreed,
        operations: 0,
        blocked: 0,
        seen: Seen::new(),
        lines: Vec::new(),
    };
    let start = |queues| Side::start(program, queues, patience);
    let sides = match (start(&sides[0]), start(&sides[1])) {
        (Ok(kernel), Ok(other)) => [kernel, other],
        (Err(why), _) | (_, Err(why)) => {
            return Played {
                end: End::Impossible(why),
                ..played
            };
        }
    };
    let mut alive = [false; PROCESSES];
    alive[0] = true;
    let mut lockstep = Lockstep {
        sides,
        alive,
        blocked: [None; PROCESSES],
        ledger: Ledger::default(),
        played,
    };
    for (number, &step) in steps.iter().enumerate() {
        if let Err(end) = lockstep.take(number, step) {
            lockstep.played.end = end;
            break;
        }
    }
    lockstep.played
}

fn differed(why: String) -> End {
    End::Differed(why)
}

impl Lockstep {
    /// Performs a step, if its process can perform it now.
    fn take(&mut self, number: usize, step: Step) -> Result<(), End> {
        self.let_one_act()?;
        if !self.can(step) {
            return Ok(());
        }
        let Step { process, act } = step;
        self.played.operations += 1;
        self.played.lines.push(Line {
            step,
            answers: Vec::new(),
        });
        match act {
            Act::Kill => {
                self.see(act, "ok");
                self.signal(process, libc::SIGKILL);
                self.bury(process)?;
            }
            Act::Interrupt | Act::Disturb | Act::StopAndContinue => self.disturb(process, act)?,
            _ => {
                self.ledger.before(number, process, act);
                self.call(number, process, act)?;
            }
        }
        self.look_at_the_blocked()
    }

    fn can(&self, Step { process, act }: Step) -> bool {
        let is_blocked = self.blocked[process].is_some();
        self.alive[process]
            && match act {
                Act::Kill => self.alive.iter().filter(|&&alive| alive).count() > 1,
                Act::Exit => !is_blocked && self.alive.iter().filter(|&&alive| alive).count() > 1,
                Act::Fork { child } => !is_blocked && !self.alive[child],
                act => is_blocked == act.is_done_to_the_blocked(),
            }
    }

    /// If all processes are blocked, interrupts the first living process.
    fn let_one_act(&mut self) -> Result<(), End> {
        let living = || (0..PROCESSES).filter(|&process| self.alive[process]);
        if living().any(|process| self.blocked[process].is_none()) {
            return Ok(());
        }
        let Some(process) = living().next() else {
            return Ok(());
        };
        self.played.lines.push(Line {
            step: Step {
                process,
                act: Act::Interrupt,
            },
            answers: Vec::new(),
        });
        self.disturb(process, Act::Interrupt)?;
        self.look_at_the_blocked()
    }

    fn disturb(&mut self, process: usize, act: Act) -> Result<(), End> {
        self.see(act, "blocked");
        self.ledger.disturbed(process, act);
        match act {
            Act::Interrupt => self.signal(process, libc::SIGUSR1),
            Act::Disturb => self.signal(process, libc::SIGUSR2),
            _ => {
                for side in &self.sides {
                    side.stop_and_continue(process).map_err(differed)?;
                }
            }
        }
        Ok(())
    }

    fn signal(&self, process: usize, signal: i32) {
        for side in &self.sides {
            side.signal(process, signal);
        }
    }

    fn bury(&mut self, process: usize) -> Result<(), End> {
        for side in &mut self.sides {
            side.bury(process).map_err(differed)?;
        }
        self.alive[process] = false;
        self.blocked[process] = None;
        self.ledger.ended(process);
        Ok(())
    }

    /// Makes a process perform an act on both sides.
    fn call(&mut self, number: usize, process: usize, act: Act) -> Result<(), End> {
        for side in &self.sides {
            side.command(process, number, act).map_err(differed)?;
        }
        let kernel = if act.may_block() {
            self.sides[0].settle(process, number)
        } else {
            self.sides[0].answer(process).map(Settled::Answered)
        };
        match kernel.map_err(differed)? {
            Settled::Blocked => self.expect_blocked(number, process, act),
            Settled::Answered(kernel) => {
                let other = self.answer_beside(process, act, &kernel)?;
                let other = self.ask_again(number, process, act, &kernel, other)?;
                self.compare(process, act, &kernel, &other)?;
                self.after(process, act, [&kernel, &other])
            }
        }
    }

    /// Repeats a call that collects notifications on the other side: the signal may arrive a little later on that side.
    fn ask_again(
        &self,
        number: usize,
        process: usize,
        act: Act,
        kernel: &Reply,
        mut other: Reply,
    ) -> Result<Reply, End> {
        let mut pause = Pause::new(self.sides[1].patience());
        while act == Act::Notices && !kernel.agrees(&other, LEEWAY) && pause.again() {
            self.sides[1]
                .command(process, number, act)
                .map_err(differed)?;
            other = self.sides[1].answer(process).map_err(differed)?;
        }
        Ok(other)
    }

    /// The process is blocked in the kernel. Checks that it is blocked on the other side, too.
    fn expect_blocked(&mut self, number: usize, process: usize, act: Act) -> Result<(), End> {
        match self.sides[1].settle(process, number).map_err(differed)? {
            Settled::Blocked => {
                self.played.blocked += 1;
                self.blocked[process] = Some((number, act));
                self.ledger.blocked(process, act);
                self.see(act, "blocks");
                self.note(process, "blocks".to_string());
                Ok(())
            }
            Settled::Answered(other) => {
                self.note(process, format!("kernel: blocks, drop-in: {other}"));
                let gap = self.ledger.gap(process, act, None, Some(&other));
                Err(gap.map_or_else(
                    || differed(format!("p{process} should be blocked")),
                    End::Masked,
                ))
            }
        }
    }

    fn see(&mut self, act: Act, answer: &str) {
        let key = (act.kind(), answer.to_string());
        *self.played.seen.entry(key).or_default() += 1;
    }

    fn note(&mut self, process: usize, text: String) {
        if let Some(line) = self.played.lines.last_mut() {
            line.answers.push(format!("p{process}: {text}"));
        }
    }

    /// Returns the drop-in's answer to a call that the kernel has answered. If a known gap allows the drop-in's process to sleep, the function waits
    /// only a short time.
    fn answer_beside(&mut self, process: usize, act: Act, kernel: &Reply) -> Result<Reply, End> {
        let gap = self.ledger.gap(process, act, Some(kernel), None);
        let answer = match gap {
            Some(_) => self.sides[1].answer_within(process, ASLEEP),
            None => self.sides[1].answer(process),
        };
        answer.map_err(|why| {
            self.note(process, format!("kernel: {kernel}, drop-in: {why}"));
            gap.map_or_else(|| differed(why), End::Masked)
        })
    }

    fn compare(
        &mut self,
        process: usize,
        act: Act,
        kernel: &Reply,
        other: &Reply,
    ) -> Result<(), End> {
        match kernel.outcome {
            Outcome::Failed(errno) => self.see(act, &errno.to_string()),
            _ => self.see(act, "ok"),
        }
        if kernel.agrees(other, LEEWAY) {
            self.note(process, kernel.to_string());
            self.ledger.answered(process, act, kernel);
            return Ok(());
        }
        self.note(process, format!("kernel: {kernel}, drop-in: {other}"));
        let gap = self.ledger.gap(process, act, Some(kernel), Some(other));
        Err(gap.map_or_else(
            || differed(format!("the answers to p{process} differ")),
            End::Masked,
        ))
    }

    /// Updates the records of processes after an act to which both sides gave the same answer.
    fn after(&mut self, process: usize, act: Act, replies: [&Reply; 2]) -> Result<(), End> {
        match act {
            Act::Exit => self.bury(process),
            Act::Fork { child } if succeeded(replies[0].outcome) => {
                for (side, reply) in self.sides.iter_mut().zip(replies) {
                    side.adopt(child, reply.child);
                }
                self.alive[child] = true;
                for side in &self.sides {
                    side.answer(child).map_err(differed)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the other side has ended the blocked calls that the kernel has ended, and no other blocked call.
    fn look_at_the_blocked(&mut self) -> Result<(), End> {
        for process in 0..PROCESSES {
            let Some((number, act)) = self.blocked[process] else {
                continue;
            };
            let settled = self.sides[0].settle(process, number).map_err(differed)?;
            if let Settled::Answered(kernel) = settled {
                self.blocked[process] = None;
                let other = self.answer_beside(process, act, &kernel)?;
                self.compare(process, act, &kernel, &other)?;
            }
        }
        for process in 0..PROCESSES {
            let Some((number, act)) = self.blocked[process] else {
                continue;
            };
            let settled = self.sides[1].settle(process, number).map_err(differed)?;
            if let Settled::Answered(other) = settled {
                self.note(process, format!("kernel: blocks, drop-in: {other}"));
                let gap = self.ledger.gap(process, act, None, Some(&other));
                return Err(gap.map_or_else(
                    || differed(format!("p{process} should still be blocked")),
                    End::Masked,
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Line { step, answers }) in (1..).zip(&self.lines) {
            writeln!(f, "{number:4}  {step}")?;
            for answer in answers {
                writeln!(f, "          {answer}")?;
            }
        }
        match &self.end {
            End::Agreed => writeln!(f, "      both sides agree"),
            End::Differed(how) | End::Impossible(how) => writeln!(f, "      {how}"),
            End::Masked(gap) => writeln!(f, "      a known gap: {}", gap.row()),
        }
    }
}
