//! Random operations on a kernel queue and on umsg in lockstep.
//!
//! ```text
//!   coordinator ──socket──► w0 ─fork─► w1, w2, w3   (kernel)
//!        │
//!        └───────socket──► w0 ─fork─► w1, w2, w3   (umsg)
//! ```
//!
//! A history is a list of steps: a worker opens, sends, forks, becomes another user, is killed. Each step is taken by
//! the same worker of both sides, and the answers are compared: return value, errno, bytes, priority, attributes,
//! and the descriptor's number. A worker that sleeps in a call is *blocked*; then its fellow of the other side has to
//! be blocked too, and whichever later step lets one go has to let the other go. Nobody waits for ever: what blocks
//! is noticed by the state that `/proc` shows, and all workers are killed when the history ends.
//!
//! One thing that the kernel does is not compared: when a blocked call begins anew after a handler with SA_RESTART or
//! a stop, it waits behind everybody else, and looks at `O_NONBLOCK` again. umsg goes on waiting where it was.
//!
//! Where a queue is wished for that the kernel has no room for, a smaller one is taken and the wish is counted.

mod generate;
mod launch;
mod lockstep;
mod operation;
mod random;
mod reply;
mod shrink;
mod side;
mod worker;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use generate::Unasked;
pub use launch::{WORKER, work};
pub use lockstep::Seen;
pub use random::Random;

use crate::backend::Kind;
use crate::runner::namespace_directory;
use crate::sys::{self, Forked};
use generate::{Bounds, Generator};
use launch::{Launch, Program};
use lockstep::{End, Played};
use operation::{Operation, Step, WORKERS};
use side::Setup;

/// How many steps a history has.
const HISTORY: usize = 250;

/// How long to wait for an answer when a difference is looked at again: often in vain.
const AGAIN: Duration = Duration::from_secs(1);

/// What to compare.
pub struct Config<'a> {
    /// How many operations, at least.
    pub operations: u64,
    /// Where chance begins.
    pub seed: u64,
    /// What to compare the kernel with.
    pub backend: Kind,
    /// The program `compare`, for a backend that has to be preloaded.
    pub program: Option<&'a Path>,
    /// Is told now and then how many operations were done.
    pub progress: Option<&'a dyn Fn(u64)>,
}

/// What was compared.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Operations that both sides performed.
    pub operations: u64,
    /// Histories that they belonged to.
    pub histories: u64,
    /// Operations that blocked.
    pub blocked: u64,
    /// Histories that were given up because the kernel had no room for another queue.
    pub refused: u64,
    /// What the kernel could not be asked.
    pub unasked: Unasked,
    /// How often each call was answered how: "mq_send", "EAGAIN".
    pub seen: Seen,
    /// Whether other users took part.
    pub users: bool,
    /// The deepest queue that the kernel could be asked for.
    pub max_messages: i64,
}

impl Summary {
    fn add(&mut self, played: &Played) {
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
            max_messages,
            ..
        } = self;
        writeln!(
            f,
            "{operations} operations in {histories} histories, {blocked} of them blocking: no difference"
        )?;
        write!(
            f,
            "not asked, because the kernel can't be: {} queues deeper than {max_messages}, ",
            unasked.depth
        )?;
        write!(
            f,
            "{} with longer messages than it allows, ",
            unasked.length
        )?;
        write!(f, "{} beyond its memory limit", unasked.memory)?;
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
    /// Where chance began.
    pub seed: u64,
    /// Which history it was, counted from 0.
    pub history: u64,
    /// How often the difference came again, and in how many attempts.
    pub again: (u32, u32),
    /// The history that shows it, step by step, with all answers.
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

/// Why a comparison came to no result.
#[derive(Debug)]
pub enum Failure {
    /// The two sides are different.
    Difference(Box<Difference>),
    /// It could not be carried out.
    Impossible(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Difference(difference) => difference.fmt(f),
            Failure::Impossible(why) => write!(f, "nothing could be compared: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

/// A place for the kernel's queues that is this comparison's own, with limits as high as they can be set there.
struct Keeper {
    namespace: OwnedFd,
    max_messages: i64,
}

impl Keeper {
    /// Makes it, if that is allowed.
    fn new() -> Option<Keeper> {
        let (reading, writing) = sys::pipe().ok()?;
        match sys::fork().ok()? {
            Forked::Child => {
                drop(reading);
                sys::die_with_parent();
                let ready = sys::enter_private_ipc_namespace()
                    .and_then(|()| fs::write("/proc/sys/fs/mqueue/msg_max", "200").ok());
                let _ = sys::write_record(writing.as_raw_fd(), &[u8::from(ready.is_some())]);
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            Forked::Parent(child) => {
                drop(writing);
                let mut ready = [0];
                let read = sys::read_record(reading.as_raw_fd(), &mut ready);
                let namespace = fs::File::open(format!("/proc/{child}/ns/ipc"));
                sys::kill(child, libc::SIGKILL);
                sys::wait(child, side::PATIENCE);
                let namespace = namespace
                    .ok()
                    .filter(|_| matches!(read, Ok(1)) && ready == [1])?
                    .into();
                Some(Keeper {
                    namespace,
                    max_messages: 200,
                })
            }
        }
    }
}

/// A limit of the kernel in the namespace of this process.
fn kernel_limit(name: &str) -> i64 {
    let text = fs::read_to_string(Path::new("/proc/sys/fs/mqueue").join(name)).unwrap_or_default();
    text.trim().parse().unwrap_or(10)
}

/// The names of queues that can exist, and then of others. `side` keeps two sides in the kernel apart.
fn names(side: char) -> (Vec<CString>, usize) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let start = format!(
        "umsg-compare-{}-{}{side}",
        sys::pid(),
        RUNS.fetch_add(1, Ordering::Relaxed)
    );
    let mut names: Vec<Vec<u8>> = ["a", "b", "c"]
        .iter()
        .map(|name| format!("/{start}{name}").into())
        .collect();
    names.push(format!("/{start:x<255}").into());
    names.push(format!("/.{start}").into());
    names.push(format!("/...{start}").into());
    names.push([b"/", start.as_bytes(), b" \xff\n\x01*"].concat());
    let valid = names.len();
    names.push(format!("/{start:x<256}").into());
    for invalid in [
        "", "/", "//", "/.", "/..", "queue", "/a/b", "/a/", "./a", " /a",
    ] {
        names.push(invalid.into());
    }
    (
        names
            .into_iter()
            .map(|name| CString::new(name).expect("no NUL"))
            .collect(),
        valid,
    )
}

/// Both sides, ready for histories.
struct Comparison<'a> {
    config: &'a Config<'a>,
    setups: [Setup; 2],
    memory: [&'static [AtomicU32]; 2],
    bounds: Bounds,
    /// Where the other side has its queues; removed in the end.
    directory: tempfile::TempDir,
}

/// One side, ready for histories, and its memory.
fn set_up(
    kind: &Kind,
    side: char,
    keeper: Option<&Keeper>,
    directory: &Path,
    program: Option<&Path>,
) -> Result<(Setup, &'static [AtomicU32]), String> {
    let file = sys::memory_file().map_err(|errno| format!("no memory: {errno}"))?;
    file.set_len(4 * WORKERS as u64)
        .map_err(|error| error.to_string())?;
    let memory =
        sys::words_of(file.as_fd(), WORKERS).map_err(|errno| format!("no memory: {errno}"))?;
    let keeper = keeper.filter(|_| !kind.needs_directory());
    let namespace = keeper
        .map(|keeper| keeper.namespace.try_clone())
        .transpose();
    let namespace = namespace.map_err(|error| error.to_string())?;
    let names = names(side).0;
    let label = kind.label();
    if let Kind::Preloaded(library) = kind {
        let (library, directory) = (library.clone(), directory.to_path_buf());
        let backend = Kind::Native.make(&directory)?;
        let program = program
            .ok_or("the program that is to be preloaded is not known")?
            .to_path_buf();
        let launch = Launch::Program(Program {
            program,
            library,
            directory,
            memory: file,
        });
        return Ok((
            Setup {
                backend,
                launch,
                label,
                descriptors: true,
                names,
                namespace,
            },
            memory,
        ));
    }
    let backend = kind.make(directory)?;
    let descriptors = backend.has_descriptors();
    Ok((
        Setup {
            backend,
            launch: Launch::Fork,
            label,
            descriptors,
            names,
            namespace,
        },
        memory,
    ))
}

impl<'a> Comparison<'a> {
    fn new(config: &'a Config<'a>) -> Result<Comparison<'a>, String> {
        let keeper = Keeper::new();
        let directory = namespace_directory();
        let set_up = |kind, side| {
            set_up(
                kind,
                side,
                keeper.as_ref(),
                directory.path(),
                config.program,
            )
        };
        let (kernel, kernels_memory) = set_up(&Kind::Kernel, 'k')?;
        let (other, others_memory) = set_up(&config.backend, 'o')?;
        let bounds = Bounds {
            max_messages: keeper
                .as_ref()
                .map_or_else(|| kernel_limit("msg_max"), |keeper| keeper.max_messages),
            max_message_size: kernel_limit("msgsize_max"),
            // Two sides in the kernel share it, as do other tests.
            budget: 150_000,
            users: sys::is_root(),
            descriptors: other.descriptors,
            valid_names: names('k').1,
            names: kernel.names.len(),
        };
        let limits = (
            u32::try_from(bounds.max_messages),
            u32::try_from(bounds.max_message_size),
        );
        if let (Ok(messages), Ok(size)) = limits {
            let limited = other.backend.limit_sizes(messages, size);
            limited.map_err(|failure| format!("no limits can be set: {failure:?}"))?;
        }
        let memory = [kernels_memory, others_memory];
        Ok(Comparison {
            config,
            setups: [kernel, other],
            memory,
            bounds,
            directory,
        })
    }

    fn play(&self, steps: &[Step], patience: Duration) -> Played {
        let mut played = lockstep::play(&self.setups, steps, self.memory, patience);
        if let (End::Agreed, Some(left)) = (&played.end, self.left_behind()) {
            played.end = End::Differed(left);
        }
        played
    }

    /// What umsg left in its directory after every name was unlinked and every process has ended.
    fn left_behind(&self) -> Option<String> {
        let mut entries = fs::read_dir(self.directory.path().join("mq")).ok()?;
        let entry = entries.next()?.ok()?;
        Some(format!(
            "a file is left when every queue is unlinked: {:?}",
            entry.file_name()
        ))
    }

    /// The difference that a history shows, cut short.
    fn explain(&self, steps: Vec<Step>, history: u64, first: Played) -> Difference {
        let differs = |played: &Played| matches!(played.end, End::Differed(_));
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
        let text = format!("{shortest}{}", self.names_in(&shortest));
        Difference {
            seed: self.config.seed,
            history,
            again: (again, ATTEMPTS),
            text,
        }
    }

    /// The names that a history refers to by number.
    fn names_in(&self, played: &Played) -> String {
        let named = |line: &lockstep::Line| match line.step.operation {
            Operation::Open { name, .. } | Operation::Unlink { name } => Some(name),
            _ => None,
        };
        let numbers: BTreeSet<usize> = played.lines.iter().filter_map(named).collect();
        let names = &self.setups[1].names;
        numbers
            .iter()
            .map(|&number| format!("      name {number} is {:?}\n", names[number]))
            .collect()
    }
}

/// Compares the kernel with something else.
///
/// # Errors
/// The first difference, with a short history that shows it; or why nothing could be compared.
pub fn run(config: &Config<'_>) -> Result<Summary, Failure> {
    let comparison = Comparison::new(config).map_err(Failure::Impossible)?;
    let mut generator = Generator::new(config.seed, comparison.bounds);
    let (users, max_messages) = (comparison.bounds.users, comparison.bounds.max_messages);
    let mut summary = Summary {
        users,
        max_messages,
        ..Summary::default()
    };
    while summary.operations < config.operations {
        let steps = generator.history(HISTORY);
        let played = comparison.play(&steps, side::PATIENCE);
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
        summary.unasked = generator.unasked;
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
