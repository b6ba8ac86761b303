//! The diagnosis of a queue: blocked processes, the owners of its locks and whether they live, past repairs, wrong bytes, and advice.
//!
//! A diagnosis examines a private copy of the queue's file. The diagnosis takes no lock and changes nothing. If the queue is in use, the
//! diagnosis waits a moment for a state at rest. The file may hold any bytes, and may be truncated meanwhile.
//!
//! ```text
//!   file --pread--> copy --+--> locks, blocked threads, leases, registrations --/proc--> their processes: names, alive or dead
//!                          |
//!                          +--> checks: the input of repairs (cursors, stamps, entries)   a wrong value is corruption
//!                               the output of repairs (store, lists, counts)              checked only if no owner is in a call
//! ```
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("umsg-diagnosis-{}", std::process::id()));
//! # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
//! # let namespace = umsg::Namespace::at(&dir)?;
//! use umsg::posix::{self, OpenOptions};
//!
//! let mut options = OpenOptions::new();
//! let queue = options.read(true).write(true).create(true).namespace(&namespace).open("/orders")?;
//! let diagnosis = posix::diagnose(&namespace, "/orders")?;
//! assert!(diagnosis.is_healthy() && diagnosis.blocked.is_empty());
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// The modules: `examination` and `repair` have the steps. `subject` is their interface to a queue; `posix` and `sysv` implement it. The checks of
// both kinds of queues are in `header`, `view` (a copy of the queue, made while no process changes it), `slots`, `nodes`, `leases`, `arena` and
// `rehearsal`; those of POSIX queues in `ring`, `store` and `hints`; those of System V queues in `types`. The results are in `findings`, `problems`,
// `locks`, `repairs`, `pollers`, `process` and `users`. `refused` finds the system calls that the kernel or a sandbox refuses, and needs no queue.
mod arena;
mod examination;
mod findings;
mod header;
mod hints;
mod leases;
mod locks;
mod nodes;
mod pollers;
pub(crate) mod posix;
mod problems;
mod process;
mod refused;
mod rehearsal;
mod repair;
mod repairs;
mod ring;
mod slots;
mod store;
mod subject;
pub(crate) mod sysv;
mod types;
mod users;
mod view;

pub use findings::Finding;
pub use leases::{Hold, HoldKind};
pub use locks::{Lock, Owner, Side};
pub use nodes::{Blocked, Wait};
pub use problems::{Problem, ProblemKind};
pub use process::{Life, Process};
pub use refused::{RefusedCall, refused_calls};
pub use repair::Repaired;
pub use repairs::{Damage, Repair, Repairs};

use crate::notification::NotifyKind;

/// The result of a diagnosis.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The contents of the queue. None if the header is corrupted: then nothing else was checked.
    pub contents: Option<Contents>,
    /// The locks, and their owners.
    pub locks: Vec<Lock>,
    /// Threads that wait in a call, in the order of service: first those that wait for messages, then those that wait for room.
    pub blocked: Vec<Blocked>,
    /// Messages, and room for messages, that processes hold.
    pub holds: Vec<Hold>,
    /// Processes that are registered for a notification, or were notified and have not run since.
    pub registrations: Vec<Registration>,
    /// Processes that poll the queue.
    pub pollers: Vec<Process>,
    /// Living processes that have a producer of the queue. Empty unless the queue was created so that the end of its last producer closes it.
    pub producers: Vec<Process>,
    /// The process that receives, if the queue is a ring.
    pub receiver: Option<Process>,
    /// Past repairs after deaths, one entry for each lock.
    pub repairs: Vec<Repairs>,
    /// The corruption mark of the queue, if it has one: the process that found the corruption, and the time.
    pub damage: Option<Damage>,
    /// True if the queue was in use at each attempt, so that the diagnosis skipped the checks that need a queue at rest.
    pub busy: bool,
    /// All problems, the worst first.
    pub problems: Vec<Problem>,
}

/// The contents of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// The number of queued messages.
    pub messages: u64,
    /// The number of bytes in the queued messages; for a ring, in their payloads.
    pub bytes: u64,
    /// The queue's capacity: in messages for a POSIX queue or a ring, in bytes for a System V queue.
    pub capacity: u64,
}

/// A process that is registered for a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registration {
    /// The registered process.
    pub who: Process,
    /// The kind of the notification.
    pub kind: NotifyKind,
    /// True if the process was notified, and has not run since.
    pub told: bool,
}

impl Diagnosis {
    /// Returns whether the diagnosis found no problem.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// assert!(umsg::posix::diagnose(&namespace, "/q")?.is_healthy());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }
}
