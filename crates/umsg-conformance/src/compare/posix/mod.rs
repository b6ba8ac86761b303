//! The comparison of POSIX queues.
//!
//! One behaviour of the kernel is not compared. After a stop, the kernel restarts a blocked call. The restarted call waits behind all other processes
//! and reads `O_NONBLOCK` again. In umsg, the caller keeps its place. A backend without descriptors differs in the same way after a handler with
//! SA_RESTART.
//!
//! In addition to the calls of queues, histories watch the queues in three ways: by `poll` and `select`, by epoll sets, and by registrations for
//! notification. Histories add, remove and change the members of a set; the members are level- or edge-triggered, one-shot or exclusive. A worker
//! reads a set after every call, or from time to time. The order of the reported members is not compared. For registrations, the comparison includes
//! the arguments of the signal handlers. Histories leave out some combinations:
//!
//! - after a fork, a queue that two processes share is added to a set only if it was a member of a set before the fork (`watch.rs`);
//! - in histories with sets and several users, all processes may open every queue: a process that has inherited a queue, but whose user may not
//!   open it, can't notify the processes that watch the queue;
//! - in histories with notifications and several users, no call blocks: a thread of the notified process raises the signal a little later, and the
//!   signal may interrupt the next call of the process;
//! - no notification starts a thread (SIGEV_THREAD): the cases test such notifications.
//!
//! If the kernel has no room for the queue that a history would create, the history creates a smaller queue and counts the omission.

mod call;
mod generate;
mod hand;
pub mod notices;
mod watch;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use call::Call;

use super::{Comparable, Outcome, Setup, Shared};
use crate::backend::{Backend, Kind, Posix};
use crate::errno::Errno;
use crate::sys::{self, Forked};
use generate::{Bounds, Generator};
use hand::Hand;

/// The largest depth of a queue in the kernel namespace that the comparison makes, in messages.
const DEEPEST: i64 = 200;

/// The time to wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a private namespace for the kernel's queues, and sets its limits as high as possible. Returns `None` if the system does not permit a private
/// namespace.
fn keep() -> Option<OwnedFd> {
    let (reading, writing) = sys::pipe().ok()?;
    match sys::fork().ok()? {
        Forked::Child => {
            drop(reading);
            sys::die_with_parent();
            let ready = sys::enter_private_ipc_namespace()
                .and_then(|()| fs::write("/proc/sys/fs/mqueue/msg_max", DEEPEST.to_string()).ok());
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
            sys::wait(child, PATIENCE);
            let made = matches!(read, Ok(1)) && ready == [1];
            namespace.ok().filter(|_| made).map(OwnedFd::from)
        }
    }
}

/// Returns a limit on queues of the IPC namespace of this process.
fn kernel_limit(name: &str) -> i64 {
    let text = fs::read_to_string(Path::new("/proc/sys/fs/mqueue").join(name)).unwrap_or_default();
    text.trim().parse().unwrap_or(10)
}

/// Returns the names of queues, followed by invalid names, and the number of valid names. `side` distinguishes two sides that both use the kernel.
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

impl Comparable for Posix {
    const NAME: &'static str = "posix";
    const GOES_ON_AFTER_HANDLERS: bool = true;
    const WORDS: usize = hand::WORDS;
    type Call = Call;
    type Names = Vec<CString>;
    type Hand<'a> = Hand<'a>;
    type Histories = Generator;

    fn names(side: char) -> Vec<CString> {
        names(side).0
    }

    fn keep() -> Option<OwnedFd> {
        keep()
    }

    fn has_numbers(backend: &dyn Backend) -> bool {
        backend.has_descriptors()
    }

    fn prepare(kind: &Kind) {
        if matches!(kind, Kind::Preloaded(_)) {
            sys::give_up_raised_limits();
        }
    }

    fn hand<'a>(shared: &Shared<'a, Posix>) -> Hand<'a> {
        Hand::new(shared)
    }

    fn histories(seed: u64, [kernel, other]: &[Setup<Posix>; 2]) -> Result<Generator, String> {
        let bounds = Bounds {
            max_messages: kernel
                .namespace
                .as_ref()
                .map_or_else(|| kernel_limit("msg_max"), |_| DEEPEST),
            max_message_size: kernel_limit("msgsize_max"),
            // If both sides use the kernel, the queues of both sides and of other tests share the user's RLIMIT_MSGQUEUE.
            budget: 150_000,
            users: sys::is_root(),
            descriptors: other.numbers,
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
        Ok(Generator::new(seed, bounds))
    }

    fn remove_queues(side: &Setup<Posix>, _: &[AtomicU32]) {
        for name in &side.names {
            let _ = side.backend.unlink(name);
        }
    }

    // A history ends with all names unlinked and all processes ended, so the directory must be empty.
    fn left_behind(directory: &Path) -> Option<String> {
        let mut entries = fs::read_dir(directory.join("mq")).ok()?;
        let entry = entries.next()?.ok()?;
        Some(format!(
            "a file is left when every queue is unlinked: {:?}",
            entry.file_name()
        ))
    }

    fn is_refused(call: Call, outcome: Outcome) -> bool {
        matches!(call, Call::Open { .. }) && outcome == Outcome::Failed(Errno::EMFILE)
    }

    // If a sender belongs to another user, a thread of the registered process raises the notification's signal later. Similarly, a thread of a
    // polling process passes on the sends and receives of other users later.
    fn may_come_late(call: Call, users: bool) -> bool {
        match call {
            Call::Notices => true,
            Call::Poll { .. } | Call::Select { .. } => users,
            _ => false,
        }
    }

    fn legend(names: &Vec<CString>, calls: &[Call]) -> String {
        let named = |call: &Call| match *call {
            Call::Open { name, .. } | Call::Unlink { name } => Some(name),
            _ => None,
        };
        let numbers: BTreeSet<usize> = calls.iter().filter_map(named).collect();
        numbers
            .iter()
            .map(|&number| format!("      name {number} is {:?}\n", names[number]))
            .collect()
    }
}
