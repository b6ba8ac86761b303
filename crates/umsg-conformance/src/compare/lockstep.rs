//! Plays one history on both sides, step by step.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use super::operation::{Call, Operation, Step, WORKERS};
use super::party::Settled;
use super::reply::{Leeway, Outcome, Reply};
use super::side::{Setup, Side};
use super::{Comparable, Waiting};
use crate::sys::Pause;

/// A call whose result may come late is repeated for a side's patience divided by this number.
const LATENESS: u32 = 10;

/// The events of one step.
#[derive(Debug, Clone)]
pub struct Line<C> {
    /// The step.
    pub step: Step<C>,
    /// The answers of both sides to this step. If the step ended a blocked call of another worker, the answers to that call follow.
    pub answers: Vec<Both>,
}

/// The answers of both sides to one call.
#[derive(Debug, Clone)]
pub struct Both {
    /// The worker that made the call.
    pub worker: usize,
    /// The answers of both sides, as text.
    pub words: [String; 2],
}

/// The way in which the play of a history ended.
#[derive(Debug, Clone)]
pub enum End {
    /// Both sides agreed in all steps.
    Agreed,
    /// The answers differed in the last line; the text describes the difference.
    Differed(String),
    /// The kernel had no room for a queue, so the rest of the history could not be compared.
    KernelRefused,
}

/// For each call and each result, such as "mq_send" and "EAGAIN", the number of such calls.
pub type Seen = BTreeMap<(&'static str, String), u64>;

/// The result of playing a history.
#[derive(Debug, Clone)]
pub struct Played<C> {
    /// The way in which the play ended.
    pub end: End,
    /// The number of operations that both sides performed.
    pub operations: u64,
    /// The number of these operations that blocked.
    pub blocked: u64,
    /// For each call and each result, the number of such calls.
    pub seen: Seen,
    /// The completed steps, with their answers.
    pub lines: Vec<Line<C>>,
}

/// The reason why a history is not played to its end.
enum Stop {
    Differed(String),
    KernelRefused,
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Differed(text)
    }
}

/// Both sides while a history is played.
struct Lockstep<'a, F: Comparable> {
    sides: [Side<'a, F>; 2],
    steps: &'a [Step<F::Call>],
    alive: [bool; WORKERS],
    /// For each worker: the number of the step in which the worker is blocked.
    blocked_in: [Option<usize>; WORKERS],
    /// For each worker: the queue for which the worker waits, if the family distinguishes queues.
    blocked_on: [u32; WORKERS],
    /// For each worker: true if other calls may have changed the state for which the worker waits since it blocked.
    changed: [bool; WORKERS],
    numbers: bool,
    /// True if the workers belong to several users.
    has_users: bool,
    /// The time that the slowest step took.
    slowest: Duration,
    played: Played<F::Call>,
}

/// Plays a history. `memory` contains the words that each side shares with its workers. The other side must repeat a step of the kernel within the
/// time `patience`.
pub fn play<F: Comparable>(
    setups: &[Setup<F>; 2],
    steps: &[Step<F::Call>],
    memory: [&'static [AtomicU32]; 2],
    patience: Duration,
) -> Played<F::Call> {
    let sides = [
        Side::start(&setups[0], steps, memory[0], patience),
        Side::start(&setups[1], steps, memory[1], patience),
    ];
    let numbers = sides.iter().all(Side::has_numbers);
    let mut lockstep = Lockstep {
        sides,
        steps,
        alive: [true, false, false, false],
        blocked_in: [None; WORKERS],
        blocked_on: [0; WORKERS],
        changed: [false; WORKERS],
        numbers,
        has_users: false,
        slowest: Duration::ZERO,
        played: Played {
            end: End::Agreed,
            operations: 0,
            blocked: 0,
            seen: Seen::new(),
            lines: Vec::new(),
        },
    };
    for number in 0..steps.len() {
        let began = Instant::now();
        let taken = lockstep.take(number);
        lockstep.slowest = lockstep.slowest.max(began.elapsed());
        match taken {
            Ok(()) => {}
            Err(Stop::Differed(how)) => {
                lockstep.played.end = End::Differed(how);
                break;
            }
            Err(Stop::KernelRefused) => {
                lockstep.played.end = End::KernelRefused;
                break;
            }
        }
    }
    lockstep.played
}

impl<F: Comparable> Lockstep<'_, F> {
    /// Performs a step, if its worker can perform it now.
    fn take(&mut self, number: usize) -> Result<(), Stop> {
        let Step { worker, operation } = self.steps[number];
        self.let_somebody_act()?;
        let is_blocked = self.blocked_in[worker].is_some();
        let can = self.alive[worker]
            && match operation {
                Operation::Kill => worker != 0,
                Operation::Exit => worker != 0 && !is_blocked,
                Operation::Fork { child, .. } => !is_blocked && !self.alive[child],
                Operation::Disturb if F::GOES_ON_AFTER_HANDLERS => {
                    is_blocked && (self.numbers || self.may_be_restarted(worker))
                }
                Operation::StopAndContinue => self.may_be_restarted(worker),
                operation => is_blocked == operation.is_done_to_the_blocked(),
            };
        if !can {
            return Ok(());
        }
        if let Operation::Call(call) = operation {
            self.interrupt(F::unforeseeable_before(
                call,
                &self.waiting(),
                self.sides[0].own_words(),
            ))?;
        }
        self.played.operations += 1;
        if operation.is_done_to_the_blocked() || operation == Operation::Kill {
            self.see(operation, if is_blocked { "blocked" } else { "idle" });
        }
        self.played.lines.push(Line {
            step: self.steps[number],
            answers: Vec::new(),
        });
        if matches!(operation, Operation::Call(call) if call.changes_the_waiting()) {
            self.changed = [true; WORKERS];
        }
        match operation {
            Operation::Kill => self.kill(worker)?,
            Operation::Interrupt => self.signal(worker, libc::SIGUSR1),
            Operation::Disturb => self.signal(worker, libc::SIGUSR2),
            Operation::StopAndContinue => {
                for side in &self.sides {
                    side.stop_and_continue(worker)?;
                }
            }
            _ => self.call(number, worker, operation)?,
        }
        self.look_at_the_blocked()?;
        let Operation::Call(call) = operation else {
            return Ok(());
        };
        let waiting = self.waiting();
        self.interrupt(F::unforeseeable_after(
            call,
            &waiting,
            self.sides[0].own_words(),
        ))
    }

    /// Returns the blocked processes and their calls, in the order of the steps that blocked them.
    fn waiting(&self) -> Vec<Waiting<F::Call>> {
        let mut blocked: Vec<(usize, usize)> = (0..WORKERS)
            .filter_map(|worker| Some((self.blocked_in[worker]?, worker)))
            .collect();
        blocked.sort_unstable();
        let waiting = blocked.into_iter().filter_map(|(number, worker)| {
            let Operation::Call(call) = self.steps[number].operation else {
                return None;
            };
            Some(Waiting {
                worker,
                call,
                queue: self.blocked_on[worker],
            })
        });
        waiting.collect()
    }

    /// Sends each of these workers a signal that ends its wait, one worker after the other.
    fn interrupt(&mut self, workers: Vec<usize>) -> Result<(), Stop> {
        for worker in workers {
            let operation = Operation::Interrupt;
            self.played.lines.push(Line {
                step: Step { worker, operation },
                answers: Vec::new(),
            });
            self.signal(worker, libc::SIGUSR1);
            self.look_at_the_blocked()?;
        }
        Ok(())
    }

    /// Returns whether the kernel may restart a blocked call without a visible effect.
    ///
    /// After a handler with SA_RESTART, or after a stop, the kernel restarts the call. A restarted call waits behind all other processes, and reads
    /// `O_NONBLOCK` again. After a handler, the drop-in does the same. After a stop, or in a backend without descriptors, a caller of umsg keeps its
    /// place among the waiters. This difference is not compared.
    fn may_be_restarted(&self, worker: usize) -> bool {
        let alone = self.blocked_in.iter().flatten().count() == 1;
        self.blocked_in[worker].is_some() && alone && !self.changed[worker]
    }

    /// If all processes are blocked, interrupts the first worker.
    fn let_somebody_act(&mut self) -> Result<(), Stop> {
        if (0..WORKERS).any(|worker| self.alive[worker] && self.blocked_in[worker].is_none()) {
            return Ok(());
        }
        self.interrupt(vec![0])
    }

    fn signal(&self, worker: usize, signal: i32) {
        for side in &self.sides {
            side.signal(worker, signal);
        }
    }

    fn bury(&mut self, worker: usize) -> Result<(), String> {
        for side in &mut self.sides {
            side.bury(worker)?;
        }
        self.alive[worker] = false;
        self.blocked_in[worker] = None;
        Ok(())
    }

    fn kill(&mut self, worker: usize) -> Result<(), String> {
        self.signal(worker, libc::SIGKILL);
        self.bury(worker)
    }

    /// Makes a worker perform a call on both sides, and compares the answers.
    fn call(
        &mut self,
        number: usize,
        worker: usize,
        operation: Operation<F::Call>,
    ) -> Result<(), Stop> {
        for side in &self.sides {
            side.command(worker, number)?;
        }
        let kernel = if operation.may_block() {
            self.sides[0].settle(worker, number)?
        } else {
            Settled::Answered(self.sides[0].answer(worker)?)
        };
        match kernel {
            Settled::Blocked => self.expect_blocked(worker, number),
            Settled::Answered(kernel) => {
                let mut other = self.sides[1].answer(worker)?;
                if let Operation::Call(call) = operation
                    && F::may_come_late(call, self.has_users)
                {
                    other = self.ask_again(number, worker, &kernel, other)?;
                }
                self.compare(worker, number, &kernel, &other)?;
                self.after(operation, worker, [&kernel, &other])
            }
        }
    }

    /// Repeats the call on the other side until that side gives the kernel's answer, or until a time limit.
    fn ask_again(
        &self,
        number: usize,
        worker: usize,
        kernel: &Reply,
        mut other: Reply,
    ) -> Result<Reply, Stop> {
        let mut pause = Pause::new(self.sides[1].patience() / LATENESS);
        while !kernel.agrees(&other, self.leeway()) && pause.again() {
            self.sides[1].command(worker, number)?;
            other = self.sides[1].answer(worker)?;
        }
        Ok(other)
    }

    /// The kernel's worker is blocked in this call. Waits until the other side's worker is blocked in it or answers. If the result of the call may
    /// come late, repeats the call for some time.
    fn settle_other(&self, worker: usize, number: usize) -> Result<Settled, Stop> {
        let may_come_late = matches!(
            self.steps[number].operation,
            Operation::Call(call) if F::may_come_late(call, self.has_users)
        );
        let mut pause = Pause::new(self.sides[1].patience() / LATENESS);
        loop {
            let settled = self.sides[1].settle(worker, number)?;
            if matches!(settled, Settled::Blocked) || !may_come_late || !pause.again() {
                return Ok(settled);
            }
            self.sides[1].command(worker, number)?;
        }
    }

    /// Expects the other side's worker to be blocked, because the kernel's worker is blocked.
    fn expect_blocked(&mut self, worker: usize, number: usize) -> Result<(), Stop> {
        match self.settle_other(worker, number)? {
            Settled::Blocked => {
                self.played.blocked += 1;
                self.blocked_in[worker] = Some(number);
                self.changed[worker] = false;
                if let Operation::Call(call) = self.steps[number].operation {
                    self.blocked_on[worker] = F::queue_of(call, self.sides[0].own_words());
                }
                self.see(self.steps[number].operation, "blocks");
                self.note(worker, ["blocks".to_string(), "blocks".to_string()]);
                Ok(())
            }
            Settled::Answered(reply) => {
                self.note(worker, ["blocks".to_string(), reply.to_string()]);
                Err(Stop::Differed(format!("w{worker} should be blocked")))
            }
        }
    }

    fn see(&mut self, operation: Operation<F::Call>, answer: &str) {
        *self
            .played
            .seen
            .entry((operation.kind(), answer.to_string()))
            .or_default() += 1;
    }

    fn note(&mut self, worker: usize, words: [String; 2]) {
        if let Some(line) = self.played.lines.last_mut() {
            line.answers.push(Both { worker, words });
        }
    }

    /// Compares the answers of the two sides to a call.
    fn compare(
        &mut self,
        worker: usize,
        number: usize,
        kernel: &Reply,
        other: &Reply,
    ) -> Result<(), Stop> {
        self.note(worker, [kernel.to_string(), other.to_string()]);
        match kernel.outcome {
            Outcome::Failed(errno) => self.see(self.steps[number].operation, &errno.to_string()),
            Outcome::Unsupported => self.see(self.steps[number].operation, "not asked"),
            _ => self.see(self.steps[number].operation, "ok"),
        }
        if kernel.agrees(other, self.leeway()) {
            return Ok(());
        }
        if let Operation::Call(call) = self.steps[number].operation
            && F::is_refused(call, kernel.outcome)
        {
            return Err(Stop::KernelRefused);
        }
        Err(Stop::Differed(format!("the answers to w{worker} differ")))
    }

    /// Returns the allowed differences between the answers. Times may differ, because the two sides read their clocks one after the other.
    fn leeway(&self) -> Leeway {
        Leeway {
            numbers: self.numbers,
            seconds: 1 + self.slowest.as_secs(),
        }
    }

    /// Updates the coordinator's records of processes after a call to which both sides gave the same answer.
    fn after(
        &mut self,
        operation: Operation<F::Call>,
        worker: usize,
        replies: [&Reply; 2],
    ) -> Result<(), Stop> {
        match operation {
            Operation::Exit => self.bury(worker)?,
            Operation::Fork { child, user } if matches!(replies[0].outcome, Outcome::Value(_)) => {
                self.has_users |= user.is_some();
                for (side, reply) in self.sides.iter_mut().zip(replies) {
                    side.adopt(child, reply.child);
                }
                self.alive[child] = true;
                let ready = [self.sides[0].answer(child)?, self.sides[1].answer(child)?];
                if !ready[0].agrees(&ready[1], self.leeway()) {
                    return Err(Stop::Differed(format!(
                        "w{child} could not begin on one side"
                    )));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// After a step, checks that the other side has ended the blocked calls that the kernel has ended, and no other blocked call.
    fn look_at_the_blocked(&mut self) -> Result<(), Stop> {
        for worker in 0..WORKERS {
            let Some(number) = self.blocked_in[worker] else {
                continue;
            };
            if let Settled::Answered(kernel) = self.sides[0].settle(worker, number)? {
                self.blocked_in[worker] = None;
                let other = match self.sides[1].answer(worker) {
                    Ok(other) => other,
                    Err(text) => {
                        self.note(worker, [kernel.to_string(), "blocks".to_string()]);
                        return Err(Stop::Differed(text));
                    }
                };
                self.compare(worker, number, &kernel, &other)?;
            }
        }
        for worker in 0..WORKERS {
            let Some(number) = self.blocked_in[worker] else {
                continue;
            };
            if let Settled::Answered(reply) = self.sides[1].settle(worker, number)? {
                self.note(worker, ["blocks".to_string(), reply.to_string()]);
                return Err(Stop::Differed(format!("w{worker} should still be blocked")));
            }
        }
        Ok(())
    }
}

impl<C: Call> fmt::Display for Played<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in (1..).zip(&self.lines) {
            writeln!(f, "{number:4}  {}", line.step)?;
            for Both {
                worker,
                words: [kernel, other],
            } in &line.answers
            {
                let whose = if *worker == line.step.worker {
                    String::new()
                } else {
                    format!("w{worker}: ")
                };
                if kernel == other {
                    writeln!(f, "          {whose}{kernel}")?;
                } else {
                    writeln!(
                        f,
                        "          {whose}kernel: {kernel}\n          {whose}other:  {other}"
                    )?;
                }
            }
        }
        match &self.end {
            End::Agreed => writeln!(f, "both sides agree"),
            End::Differed(how) => writeln!(f, "      {how}"),
            End::KernelRefused => writeln!(f, "      the kernel had no room for the queue"),
        }
    }
}
