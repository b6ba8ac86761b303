//! `umsg recv --exec`: leases each message, runs a command for it, and acknowledges or returns the message by the exit code.
//!
//! Each of the `--jobs` threads receives a message, runs the command and waits for its end. Only one thread at a time waits in the queue.

mod command;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::patience::Patience;
use crate::ending::Ending;
use crate::failure::{Code, Failure, Result, say};
use crate::inlet::{Held, Inlet};
use crate::output::direct::Direct;
use crate::output::json::Picked;
use crate::values::RetryDelay;
pub use command::input;
use command::{Broken, End, Job, Trouble};

/// The first pause of a thread after a failed command. Without pauses, a command that fails at once would use up the permitted deliveries of all
/// messages within moments.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause of a thread after several failed commands in a row.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The number of failures that the result lists.
const LISTED: usize = 1000;

/// The options of `umsg recv` that control the work.
pub struct Plan<'a> {
    /// The queue's name, for the texts that umsg prints.
    pub name: String,
    pub command: &'a [OsString],
    pub environment: Vec<(&'static str, OsString)>,
    pub jobs: usize,
    pub time: Option<Duration>,
    pub patience: &'a Patience,
    /// The maximum number of messages; None without a limit.
    pub count: Option<u64>,
    /// Whether the work ends when the queue is empty.
    pub all: bool,
    /// Whether the message of a failed command returns at once. Otherwise it returns when umsg ends.
    pub follow: bool,
    /// The delay before a returned message is delivered again; None for the delay that the queue has.
    pub retry_delay: Option<RetryDelay>,
    pub quiet: bool,
}

/// The result of `umsg recv --exec`, as --json prints it.
#[derive(Serialize)]
pub struct Summary {
    queue: String,
    acknowledged: u64,
    returned: u64,
    seconds: f64,
    /// The last messages that returned to the queue, with the reasons.
    failures: VecDeque<Failed>,
}

/// A message that returned to the queue.
#[derive(Serialize)]
struct Failed {
    #[serde(flatten)]
    message: Which,
    /// The exit code or the signal of the command. Both are None if the command did not run.
    exit_code: Option<i32>,
    signal: Option<i32>,
    why: String,
}

/// Identifies a message in the texts about failures.
#[derive(Serialize)]
struct Which {
    /// POSIX only: the message's ID, as `umsg peek` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(flatten)]
    rank: Picked,
    deliveries: u32,
}

impl Which {
    fn of(message: &Held<'_>) -> Which {
        Which {
            id: message.id(),
            rank: message.rank().into(),
            deliveries: message.deliveries(),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id, &self.rank) {
            (Some(id), _) => write!(f, "message {id}")?,
            (None, Picked::Type(mtype)) => write!(f, "a message of type {mtype}")?,
            (None, Picked::Priority(priority)) => write!(f, "a message of priority {priority}")?,
        }
        write!(f, ", delivery {}", self.deliveries)
    }
}

impl Summary {
    /// Returns the line that reports this result to the user. `name` is the queue's name as the user gave it.
    pub fn line(&self, name: &str) -> String {
        let (done, back) = (self.acknowledged, self.returned);
        format!(
            "{name}: {done} acknowledged, {back} returned, in {:.1} s",
            self.seconds
        )
    }
}

/// Works until all messages of the plan are handled, a signal arrives, or the queue fails. Returns the outcome and the counts.
pub fn work(plan: &Plan<'_>, from: &Inlet<'_>, queue: String) -> Result<(Summary, Result)> {
    let job = Job::new(plan.command, &plan.environment, plan.time)?;
    let ending = Ending::prepare().map_err(|error| {
        Failure::new(Code::Failed, format_args!("signals can't be read: {error}"))
    })?;
    let start = Instant::now();
    let crew = Crew {
        plan,
        from,
        job,
        ending,
        turn: Mutex::new(Turn {
            left: plan.count,
            outcome: Some(Ok(())),
            is_over: false,
        }),
        kept: Mutex::new(Vec::new()),
        failure: Mutex::new(None),
        failures: Mutex::new(VecDeque::new()),
        acknowledged: AtomicU64::new(0),
        returned: AtomicU64::new(0),
        running: AtomicU64::new(plan.jobs as u64),
    };
    thread::scope(|scope| {
        for _ in 0..plan.jobs {
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, || crew.serve()) {
                crew.fail(Failure::new(
                    Code::Failed,
                    format_args!("a thread can't be started: {error}; use fewer --jobs"),
                ));
                crew.leave();
            }
        }
        crew.ending.supervise();
    });
    crew.release();
    // Once a thread has failed, a wait that ends is no failure. So a failure to receive came first.
    let received = lock(&crew.turn).outcome.take().unwrap_or(Ok(()));
    let outcome = received.and(match lock(&crew.failure).take() {
        Some(failure) => Err(failure),
        None => Ok(()),
    });
    // Relaxed: the threads have ended, and `thread::scope` has joined them.
    let (acknowledged, returned) = (
        crew.acknowledged.load(Ordering::Relaxed),
        crew.returned.load(Ordering::Relaxed),
    );
    let summary = Summary {
        queue,
        acknowledged,
        returned,
        seconds: start.elapsed().as_secs_f64(),
        failures: std::mem::take(&mut *lock(&crew.failures)),
    };
    let outcome = match outcome {
        // A time-out after the last message is no failure if other messages have returned: then the returned messages decide the exit code.
        Err(failure) if returned > 0 && failure.is_of_no_message() => {
            Err(Failure::Reported(Code::Failed))
        }
        Ok(()) if returned > 0 => Err(Failure::Reported(Code::Failed)),
        outcome => outcome,
    };
    Ok((summary, outcome))
}

struct Crew<'a> {
    plan: &'a Plan<'a>,
    from: &'a Inlet<'a>,
    job: Job<'a>,
    ending: Ending,
    turn: Mutex<Turn>,
    /// Messages that return to the queue when umsg ends, so that each message is tried once.
    kept: Mutex<Vec<Held<'a>>>,
    /// The failure that ended the work, apart from a failure to receive.
    failure: Mutex<Option<Failure>>,
    failures: Mutex<VecDeque<Failed>>,
    acknowledged: AtomicU64,
    returned: AtomicU64,
    running: AtomicU64,
}

/// The state of the receiving, behind the lock `Crew::turn`. The thread that holds this lock is the only one that waits in the queue.
struct Turn {
    left: Option<u64>,
    outcome: Option<Result>,
    is_over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew<'_> {
    fn leave(&self) {
        // Relaxed: the count publishes no other data; `thread::scope` joins the threads.
        if self.running.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.ending.finish();
        }
    }

    /// Ends the receiving with this failure, unless another thread has reported a failure before. Another thread may have the turn, and wait in the
    /// queue.
    fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        self.ending.ask();
    }
}

impl Turn {
    fn end(&mut self, outcome: Result) {
        if !self.is_over {
            (self.is_over, self.outcome) = (true, Some(outcome));
        }
    }
}

impl<'a> Crew<'a> {
    fn serve(&self) {
        let mut failures = 0;
        while let Some(message) = self.next() {
            match self.handle(message) {
                true => failures = 0,
                false => {
                    self.end_without_reader();
                    self.pause(failures);
                    failures += 1;
                }
            }
        }
        self.leave();
    }

    /// Ends the receiving if the reader of standard output has ended. The caller has returned a message to the queue: the commands that print would
    /// fail again and again.
    fn end_without_reader(&self) {
        if Direct::open().is_ok_and(Direct::is_abandoned) {
            self.fail(Failure::new(
                Code::Failed,
                format_args!(
                    "{}: the reader of standard output has ended, and a message went back to the queue; restart the program that reads the output",
                    self.plan.name
                ),
            ));
        }
    }

    fn pause(&self, failures: u32) {
        // A returned message that waits for its delay uses up no deliveries, so no pause is needed.
        let waits = self.plan.retry_delay.is_some() || self.from.delays_retries();
        if self.plan.follow && !waits {
            let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures));
            self.ending.sleep(pause.min(LONGEST_PAUSE));
        }
    }

    /// Receives the next message. Returns None if no further message is to be received.
    fn next(&self) -> Option<Held<'a>> {
        let mut turn = lock(&self.turn);
        if turn.left == Some(0) || self.ending.is_asked() {
            turn.end(Ok(()));
        }
        if turn.is_over {
            return None;
        }
        let received = {
            let _receiving = self.ending.receiving();
            self.receive()
        };
        match received {
            Ok(Some(message)) => {
                turn.left = turn.left.map(|left| left - 1);
                return Some(message);
            }
            Ok(None) => turn.end(Ok(())),
            // A signal to umsg, or the failure of another thread, interrupted the wait.
            Err(_) if self.ending.is_asked() => turn.end(Ok(())),
            Err(failure) => turn.end(Err(failure)),
        }
        None
    }

    fn receive(&self) -> Result<Option<Held<'a>>> {
        if self.plan.all {
            return self.from.take();
        }
        let go_on = || match self.ending.is_asked() {
            true => Err(Failure::ReaderGone),
            false => Ok(()),
        };
        let message = self.from.receive(self.plan.patience, go_on)?;
        match (message, self.plan.follow) {
            (None, false) => Err(self.from.ended()),
            (message, _) => Ok(message),
        }
    }

    /// Runs the command for a message. Returns whether the command has completed the message.
    fn handle(&self, message: Held<'a>) -> bool {
        let trouble = match self.job.run(&message, &self.ending) {
            Ok(End::Done) => return self.acknowledge(message),
            Ok(End::Failed(trouble)) => trouble,
            Err(Broken { code, why }) => {
                self.fail(Failure::new(
                    code,
                    format_args!("{}: {why}", self.plan.name),
                ));
                Trouble { why, status: None }
            }
        };
        let which = Which::of(&message);
        let what = match self.plan.follow {
            true => self.from.give_back(message, self.plan.retry_delay),
            false => {
                let place = match self.from.is_exhausted(&message) {
                    true => "goes to the dead-letter queue",
                    false => "returns to the queue",
                };
                lock(&self.kept).push(message);
                format!("the message {place} when umsg ends")
            }
        };
        self.note(which, trouble, &what);
        false
    }

    fn acknowledge(&self, message: Held<'a>) -> bool {
        let which = Which::of(&message);
        match message.acknowledge() {
            Ok(()) => {
                // Relaxed: the count publishes no other data.
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(error) => {
                let why = "the command is done".to_owned();
                let what = format!("the message may be delivered again: {error}");
                self.note(which, Trouble { why, status: None }, &what);
                false
            }
        }
    }

    /// Counts a message that has returned to the queue, and reports it.
    fn note(&self, which: Which, trouble: Trouble, what: &str) {
        // Relaxed: the count publishes no other data.
        self.returned.fetch_add(1, Ordering::Relaxed);
        let Trouble { why, status } = trouble;
        if !self.plan.quiet {
            say(format_args!("{}: {which}: {why}; {what}", self.plan.name));
        }
        let mut failures = lock(&self.failures);
        if failures.len() == LISTED {
            failures.pop_front();
        }
        failures.push_back(Failed {
            message: which,
            exit_code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            why,
        });
    }

    /// Returns the kept messages to the queue.
    fn release(&self) {
        for message in lock(&self.kept).drain(..) {
            self.from.give_back(message, self.plan.retry_delay);
        }
    }
}
