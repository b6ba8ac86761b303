//! Real processes that work on a queue, and a supervisor that does violence to them at random.
//!
//! ```text
//!   supervisor --- kills, stops, floods with signals, replaces, watches ---> workers, one for each role, leaders of their groups
//!                                                                              |  up to four threads; urgent or idle
//!                                                                              |  half of them die at a named point
//!                                                                              +-- fork children that use the queue, run other
//!                                                                                  programs, become another program themselves
//! ```
//!
//! Each API has its own [`Work`], which makes the calls of the workers. The [`Journal`] records the acts of all processes, in memory that outlives
//! them. The supervisor fails if a process makes no progress for a second in which no process was stopped. It also fails if a call returns more than
//! a second after its limit, even while a process is stopped.

mod aim;
mod calm;
mod crew;
mod figures;
mod leaks;
mod rounds;
mod supervisor;
mod vigil;

pub use calm::{CALM, Sleeper, expect_healthy, expect_prompt, wakes_poller, wakes_sleeper};
pub use crew::commotion;
pub use figures::Figures;
pub use leaks::Leaks;
pub use rounds::soak;
use supervisor::harass;
pub use vigil::Vigilant;

use super::journal::{How, Journal, Kind};
use super::points::Face;
use crate::support::{Random, now};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime};
use umsg::posix::Waiting;

/// The number of threads of a worker. In the journal, a worker has one index for each thread, one for the signal handlers of all threads, and one for
/// the children that it forks.
pub const THREADS: usize = 4;
const HANDLER: usize = THREADS;
const FORKED: usize = THREADS + 1;
const PARTS: usize = THREADS + 2;

/// The number of descriptors that a worker may need: inherited ones, the library's own, and those of its children that have not ended.
const DESCRIPTORS: usize = 64;

/// The supervisor's role in the journal.
pub const SUPERVISOR: usize = super::journal::ROLES - 1;

/// The time limit that replaces an endless wait in calls that may never succeed, in milliseconds.
const TIMED: u64 = 30;

/// A thread of the worker that has a role.
#[derive(Clone, Copy)]
pub struct Part {
    pub role: usize,
    pub thread: usize,
}

impl Part {
    /// Returns the index of the part in the journal.
    pub fn index(self) -> usize {
        self.role * PARTS + self.thread
    }
}

/// Returns whether an index of the journal is that of a thread, whose calls come one after the other.
pub fn is_thread(index: usize) -> bool {
    index % PARTS < THREADS
}

/// The work of the workers on one kind of queue.
pub trait Work: Sync + Sized {
    /// The shared data of a process's threads: the open queue.
    type Tool: Sync;

    /// Returns the number of roles; the first [`senders`](Self::senders) of them send.
    fn workers(&self) -> usize;
    fn senders(&self) -> usize;
    /// Returns the maximum number of threads of a process of this role.
    fn threads(&self, _role: usize) -> usize {
        THREADS
    }
    /// Returns whether the supervisor never ends processes of this role, and these processes do not end by themselves.
    fn spares(&self, _role: usize) -> bool {
        false
    }

    /// Returns the API at whose points the workers die.
    fn face(&self) -> Face;
    /// Returns the maximum number of descriptors of a process of this role.
    fn descriptors(&self, _role: usize) -> usize {
        DESCRIPTORS
    }
    fn journal(&self) -> &Journal;
    /// Returns the record of the senders if the role sends, otherwise that of the receivers.
    fn kind(&self, role: usize) -> &Kind {
        &self.journal().kinds[usize::from(role >= self.senders())]
    }
    fn open(&self, random: &mut Random) -> Self::Tool;
    /// Makes the calls of one thread until the `go` of its role is set.
    fn play(&self, tool: &Self::Tool, part: Part, random: &mut Random);
    /// Makes some calls in a forked child. Each call has a limit of time. The calls are recorded under `index` in the journal.
    fn visit(&self, tool: &Self::Tool, index: usize, random: &mut Random);
    /// Makes some calls in a signal handler. The calls neither wait nor allocate memory. They are recorded under `index` in the journal.
    fn handle(&self, tool: &Self::Tool, index: usize, random: &mut Random);
    /// Returns whether there may be no room to send, and whether there may be nothing to receive: a process that waits for
    /// these is not stuck. None if this can't be determined now.
    fn lacks(&self) -> Option<(bool, bool)>;
    /// Fails if the queue has lost memory. To be called while no process is stopped.
    fn check(&self) {}
    /// Describes the queue if a process is stuck.
    fn describe(&self) -> String;

    /// Judges the queue and the journal after the end of all processes, and records the result of the round.
    fn judge(&self, round: &mut Figures, what: &str);
    /// Removes all objects of the soak, and fails if anything is left.
    fn end(self, leaks: Leaks, what: &str);
}

/// Chooses the way in which a worker makes its next call.
pub fn how(random: &mut Random) -> How {
    match random.below(5) {
        0 => How::Block,
        1 => How::At(some_time(random)),
        _ => briefly(random),
    }
}

/// Chooses the way in which a worker makes a call that may never succeed.
pub fn briefly(random: &mut Random) -> How {
    match random.below(4) {
        0 => How::Within(Duration::from_millis(random.below(TIMED))),
        1 => How::Within(Duration::from_micros(random.below(300))),
        2 => How::At(SystemTime::now() + Duration::from_millis(random.below(TIMED))),
        _ => How::Try,
    }
}

/// Returns a time-out as if it was computed before the clock was set: long past, just now, or never reached.
fn some_time(random: &mut Random) -> SystemTime {
    let year = Duration::from_secs(365 * 24 * 3600);
    match random.below(4) {
        0 => SystemTime::UNIX_EPOCH,
        1 => SystemTime::now() - year,
        2 => SystemTime::now(),
        _ => SystemTime::now() + 100 * year,
    }
}

/// Chooses how long a returned message waits for its next delivery.
pub fn delay(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(5000))
}

pub fn waiting(random: &mut Random) -> Waiting {
    match random.below(3) {
        0 => Waiting::Blocking,
        _ => Waiting::Adaptive,
    }
}

/// True if this process has a higher priority than all other processes: then it has to leave them time to work.
static URGENT: AtomicBool = AtomicBool::new(false);

/// In 0.4 of every 0.6 seconds, this call delays the sender by up to 1.5 ms. So receivers empty the queue, and find the remains of dead processes.
pub fn take_time(random: &mut Random) {
    if !(now() / 200_000_000).is_multiple_of(3) {
        std::thread::sleep(Duration::from_micros(random.below(1500)));
    }
}

/// Sleeps now and then, so that the queue is sometimes full and sometimes empty, and the journal does not fill too early.
pub fn rest(random: &mut Random, worked: bool) {
    let micros = match random.below(50) {
        0 => random.below(3000),
        _ if URGENT.load(SeqCst) => 100 + random.below(300),
        _ if worked => return,
        _ => random.below(100),
    };
    std::thread::sleep(Duration::from_micros(micros));
}
