//! Random operations on a kernel queue and on umsg in lockstep.
//!
//! ```text
//!   coordinator ──socket──► w0 ─fork─► w1, w2, w3   (kernel)
//!        │
//!        └───────socket──► w0 ─fork─► w1, w2, w3   (umsg)
//! ```
//!
//! A history is a list of steps. In each step, a worker makes a call, forks, becomes another user, or is killed. The worker with the same number on
//! each side performs the step, and the coordinator compares the answers: return value, errno, bytes, and the other results of the call. For some
//! sides, the coordinator also compares the numbers of new descriptors and identifiers. A worker that sleeps in a call is *blocked*. Then the worker
//! of the other side has to be blocked too. A later step that unblocks one of these workers has to unblock the other worker. No thread waits for
//! ever: the coordinator sees in `/proc` that a worker is blocked, and kills all workers when the history ends.
//!
//! The subject of a comparison is a [`Comparable`] family of calls: [`posix`] in this module, System V in [`crate::sysv::compare`]. A family defines
//! the calls, the generation of histories, and the answers that the kernel does not determine.

mod launch;
pub mod lists;
mod lockstep;
mod operation;
pub(crate) mod party;
pub mod posix;
pub mod processes;
mod random;
mod reply;
mod shrink;
mod side;
mod worker;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use launch::{WORKER, work};
pub use lockstep::Seen;
pub use operation::{Call, Operation, Step, WORKERS};
pub use random::Random;
pub use reply::{Leeway, Outcome, Reply, plain, returned};
pub use shrink::shrink;
pub use side::Setup;
pub use worker::{Hand, Shared, UNTOUCHED, payload};

use crate::backend::{Family, Kind, Posix};
use crate::runner::namespace_directory;
use crate::sys;
use launch::{Launch, Program};
use lockstep::{End, Played};

/// The number of steps in a history.
const HISTORY: usize = 250;

/// The time to wait for an answer when the coordinator reproduces a difference. The time is short, because often the answer never arrives.
const AGAIN: Duration = Duration::from_secs(1);

/// A worker that is blocked.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<C> {
    /// The number of the worker.
    pub worker: usize,
    /// The call in which the worker is blocked.
    pub call: C,
    /// The queue for which the worker waits, as [`Comparable::queue_of`] numbers it.
    pub queue: u32,
}

/// Makes histories.
pub trait Histories<C> {
    /// Returns the next history, with about this number of steps.
    fn history(&mut self, length: usize) -> Vec<Step<C>>;

    /// Returns a description of the steps that the histories have omitted so far because of the kernel's limits.
    fn unasked(&self) -> String;
}

/// A family of calls that can be compared.
pub trait Comparable: Family {
    /// The name of the family on a command line.
    const NAME: &'static str;

    /// True if the kernel restarts a call after a handler that was installed with SA_RESTART.
    const GOES_ON_AFTER_HANDLERS: bool;

    /// The number of words of memory that the workers of a side share.
    const WORDS: usize;

    /// A call with its arguments.
    type Call: Call;

    /// The names of one side's queues. Calls contain the index of a name.
    type Names: Clone + Serialize + DeserializeOwned;

    /// The part of a worker that makes the calls.
    type Hand<'a>: Hand<Self::Call>;

    /// The generator of histories.
    type Histories: Histories<Self::Call>;

    /// Returns the names of one side's queues. Two sides that both use the kernel have different names.
    fn names(side: char) -> Self::Names;

    /// Makes a private namespace of the kernel for its queues, if this family uses one such namespace for all histories.
    fn keep() -> Option<OwnedFd> {
        None
    }

    /// Returns whether the descriptors or identifiers that this backend assigns must equal those of the other side.
    fn has_numbers(backend: &Self::Backend) -> bool;

    /// Prepares a side for a history, after the queues and processes of the previous history are removed.
    fn begin(_side: &Setup<Self>) {}

    /// Prepares the process from which the workers of a history start. The function is called once for each history, immediately before that process
    /// becomes the first worker.
    fn prepare(kind: &Kind<Self>);

    /// Returns the hand that makes the calls of the first worker.
    fn hand<'a>(shared: &Shared<'a, Self>) -> Self::Hand<'a>;

    /// Returns the generator of histories for these two sides.
    ///
    /// # Errors
    /// The reason why no history is possible for these two sides.
    fn histories(seed: u64, sides: &[Setup<Self>; 2]) -> Result<Self::Histories, String>;

    /// Removes the queues that a history has left, in a process that uses the backend. `words` are the words that the workers share.
    fn remove_queues(side: &Setup<Self>, words: &[AtomicU32]);

    /// Describes the remains of queues in the directory of a namespace after [`remove_queues`](Self::remove_queues).
    fn left_behind(directory: &Path) -> Option<String>;

    /// Returns whether this answer of the kernel means that it has no room for a queue.
    fn is_refused(_call: Self::Call, _outcome: Outcome) -> bool {
        false
    }

    /// Returns whether the result of this call may come a little later on the other side. The coordinator repeats such a call until the results agree
    /// or a time limit passes. The result of a repeated call includes the results of the earlier attempts. `users` says whether the workers belong to
    /// several users.
    fn may_come_late(_call: Self::Call, _users: bool) -> bool {
        false
    }

    /// Returns a number for the queue for which a blocked call waits. Queues that must be distinguished have different numbers.
    fn queue_of(_call: Self::Call, _kernels_words: &[AtomicU32]) -> u32 {
        0
    }

    /// Returns the blocked workers that the coordinator has to interrupt before a call. The kernel does not define the effect of the call on several
    /// of them.
    fn unforeseeable_before(
        _call: Self::Call,
        _waiting: &[Waiting<Self::Call>],
        _kernels_words: &[AtomicU32],
    ) -> Vec<usize> {
        Vec::new()
    }

    /// Returns the blocked workers that the coordinator has to interrupt after a call. The kernel does not define the order in which they continue to
    /// wait.
    fn unforeseeable_after(
        _call: Self::Call,
        _waiting: &[Waiting<Self::Call>],
        _kernels_words: &[AtomicU32],
    ) -> Vec<usize> {
        Vec::new()
    }

    /// Explains the numbers that stand for names in these calls: returns a line with the name for each number.
    fn legend(_names: &Self::Names, _calls: &[Self::Call]) -> String {
        String::new()
    }
}

/// The parameters of a comparison.
pub struct Config<'a, F: Family = Posix> {
    /// The minimum number of operations.
    pub operations: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The backend to compare the kernel with.
    pub backend: Kind<F>,
    /// The path of the program `compare`, for a backend that has to be preloaded.
    pub program: Option<&'a Path>,
    /// A function that the comparison calls from time to time, with the number of operations so far.
    pub progress: Option<&'a dyn Fn(u64)>,
}

/// The extent of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// The number of operations that both sides performed.
    pub operations: u64,
    /// The number of histories.
    pub histories: u64,
    /// The number of operations that blocked.
    pub blocked: u64,
    /// The number of histories that were given up because the kernel had no room for another queue.
    pub refused: u64,
    /// The steps that were omitted because of the kernel's limits, as text.
    pub unasked: String,
    /// For each call and each result, such as "mq_send" and "EAGAIN", the number of such calls.
    pub seen: Seen,
    /// True if some workers ran as other users.
    pub users: bool,
}

impl Summary {
    fn add<C>(&mut self, played: &Played<C>) {
        self.operations += played.operations;
        self.blocked += played.blocked;
        for (what, count) in &played.seen {
            *self.seen.entry(what.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            operations,
            histories,
            blocked,
            unasked,
            ..
        } = self;
        writeln!(
            f,
            "{operations} operations in {histories} histories, {blocked} of them blocking: no difference"
        )?;
        write!(f, "not asked, because the kernel can't be: {unasked}")?;
        if self.refused > 0 {
            write!(
                f,
                "; {} histories were cut short because it had no room left",
                self.refused
            )?;
        }
        if !self.users {
            write!(f, "; other users, because only root can become one")?;
        }
        Ok(())
    }
}

/// A difference, with a short history that shows it.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of the history, counted from 0.
    pub history: u64,
    /// The number of times that the difference occurred again, and the number of attempts to reproduce it.
    pub again: (u32, u32),
    /// The history that shows the difference: each step with all answers, as text.
    pub text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (times, attempts) = self.again;
        writeln!(
            f,
            "a difference, in history {} of seed {}:",
            self.history, self.seed
        )?;
        write!(f, "{}", self.text)?;
        if times < attempts {
            write!(
                f,
                "      it came again in {times} of {attempts} attempts: a matter of timing"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Difference {}

/// The reason why a comparison failed.
#[derive(Debug)]
pub enum Failure<D = Box<Difference>> {
    /// The two sides are different.
    Difference(D),
    /// The comparison could not be carried out, for this reason.
    Impossible(String),
}

impl<D: fmt::Display> fmt::Display for Failure<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Difference(difference) => difference.fmt(f),
            Failure::Impossible(why) => write!(f, "nothing could be compared: {why}"),
        }
    }
}

impl<D: fmt::Debug + fmt::Display> std::error::Error for Failure<D> {}

/// The two sides, ready to play histories.
struct Comparison<'a, F: Comparable> {
    config: &'a Config<'a, F>,
    setups: [Setup<F>; 2],
    memory: [&'static [AtomicU32]; 2],
    /// The directory of the other side's queues, which is removed at the end of the comparison.
    directory: tempfile::TempDir,
}

/// Prepares one side for histories. Returns the side's setup, and the memory that its workers share.
fn set_up<F: Comparable>(
    kind: &Kind<F>,
    side: char,
    kept: Option<&OwnedFd>,
    directory: &Path,
    program: Option<&Path>,
) -> Result<(Setup<F>, &'static [AtomicU32]), String> {
    let file = sys::memory_file().map_err(|errno| format!("no memory: {errno}"))?;
    let count = WORKERS + F::WORDS;
    file.set_len(4 * count as u64)
        .map_err(|error| error.to_string())?;
    let memory =
        sys::words_of(file.as_fd(), count).map_err(|errno| format!("no memory: {errno}"))?;
    let kept = kept.filter(|_| !kind.needs_directory());
    let namespace = kept.map(OwnedFd::try_clone).transpose();
    let namespace = namespace.map_err(|error| error.to_string())?;
    let (backend, launch) = if let Kind::Preloaded(library) = kind {
        // If the drop-in is missing, the loader starts the program without it. Then the workers would use the kernel's shared queues.
        if !library.exists() {
            return Err(format!("{}: no such file", library.display()));
        }
        let program = program.ok_or("the program that is to be preloaded is not known")?;
        let launch = Launch::Program(Program {
            program: program.to_path_buf(),
            library: library.clone(),
            directory: directory.to_path_buf(),
            memory: file,
        });
        (Kind::<F>::Native.make(directory)?, launch)
    } else {
        (kind.make(directory)?, Launch::Fork)
    };
    let setup = Setup {
        kind: kind.clone(),
        numbers: matches!(kind, Kind::Preloaded(_)) || F::has_numbers(&backend),
        backend,
        launch,
        names: F::names(side),
        namespace,
        directory: directory.to_path_buf(),
    };
    Ok((setup, memory))
}

impl<'a, F: Comparable> Comparison<'a, F> {
    fn new(config: &'a Config<'a, F>) -> Result<Comparison<'a, F>, String> {
        let kept = F::keep();
        let directory = namespace_directory();
        let set_up =
            |kind, side| set_up(kind, side, kept.as_ref(), directory.path(), config.program);
        let (kernel, kernels_memory) = set_up(&Kind::Kernel, 'k')?;
        let (other, others_memory) = set_up(&config.backend, 'o')?;
        Ok(Comparison {
            config,
            setups: [kernel, other],
            memory: [kernels_memory, others_memory],
            directory,
        })
    }

    fn play(&self, steps: &[Step<F::Call>], patience: Duration) -> Played<F::Call> {
        let mut played = lockstep::play(&self.setups, steps, self.memory, patience);
        if let (End::Agreed, Some(left)) = (&played.end, F::left_behind(self.directory.path())) {
            played.end = End::Differed(left);
        }
        played
    }

    /// Returns the difference that a history shows, after the steps that are unnecessary for the difference are removed.
    fn explain(
        &self,
        steps: Vec<Step<F::Call>>,
        history: u64,
        first: Played<F::Call>,
    ) -> Difference {
        let differs = |played: &Played<F::Call>| matches!(played.end, End::Differed(_));
        const ATTEMPTS: u32 = 5;
        let again = (0..ATTEMPTS)
            .filter(|_| differs(&self.play(&steps, AGAIN)))
            .count() as u32;
        let mut shortest = first;
        if again == ATTEMPTS {
            shrink::shrink(steps, |steps| {
                let played = self.play(steps, AGAIN);
                let still = differs(&played);
                if still {
                    shortest = played;
                }
                still
            });
        }
        let calls = shortest
            .lines
            .iter()
            .filter_map(|line| match line.step.operation {
                Operation::Call(call) => Some(call),
                _ => None,
            });
        let legend = F::legend(&self.setups[1].names, &calls.collect::<Vec<_>>());
        let text = format!("{shortest}{legend}");
        Difference {
            seed: self.config.seed,
            history,
            again: (again, ATTEMPTS),
            text,
        }
    }
}

/// Compares the kernel with another side.
///
/// # Errors
/// The first difference, with a short history that shows it, or the reason why no history could be compared.
pub fn run<F: Comparable>(config: &Config<'_, F>) -> Result<Summary, Failure> {
    let comparison = Comparison::new(config).map_err(Failure::Impossible)?;
    let mut histories =
        F::histories(config.seed, &comparison.setups).map_err(Failure::Impossible)?;
    let mut summary = Summary {
        users: sys::is_root(),
        ..Summary::default()
    };
    while summary.operations < config.operations {
        let steps = histories.history(HISTORY);
        let played = comparison.play(&steps, party::PATIENCE);
        summary.add(&played);
        match played.end {
            End::Agreed => {}
            End::KernelRefused => summary.refused += 1,
            End::Differed(_) => {
                let difference = comparison.explain(steps, summary.histories, played);
                return Err(Failure::Difference(Box::new(difference)));
            }
        }
        summary.histories += 1;
        summary.unasked = histories.unasked();
        if summary.refused > 20 && summary.refused * 2 > summary.histories {
            return Err(Failure::Impossible(
                "the kernel has no room for queues".to_string(),
            ));
        }
        if let Some(progress) = config.progress {
            progress(summary.operations);
        }
    }
    Ok(summary)
}
