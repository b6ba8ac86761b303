//! The comparison of System V queues.
//!
//! Each history has a new namespace, so the identifiers and the totals have to be the same on both sides. Without permission for a new namespace of
//! the kernel, the comparison numbers identifiers and process ids in the order in which they first occur, and histories omit the totals.
//!
//! Two differences are by design, because umsg's queues are files. First, a user without any access to a queue can't map its memory, and so can't see
//! its counts. Therefore only root asks for totals and for the status of an index. Second, when root has given a queue to a new owner, the new owner
//! can change the queue, because the new owner can change the queue's file. The old creator can't change it any more, unless the creator is root.
//! Therefore histories omit the calls by which an old creator would change a queue.
//!
//! Answers that the kernel leaves undefined are not compared. `IPC_SET` makes all waiters check the queue again. Waiters that have to continue then
//! join the wait queue in the order in which they happened to run. If several senders find room at the same time, any of them may be first. So the
//! comparison interrupts all but one of the waiting calls before or after such a step.

mod call;
mod generate;
mod hand;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use serde::{Deserialize, Serialize};

pub use call::{Call, Target};

use super::SystemV;
use super::backend::Backend;
use crate::backend::Kind;
use crate::compare::{Comparable, Setup, Shared, Waiting};
use crate::sys::{self, Forked};
use generate::{Bounds, Generator};
use hand::Hand;

/// The keys of one side's queues. Calls contain the index of a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Names {
    /// The keys of queues.
    keys: Vec<i32>,
    /// True if the namespace contains no queues of processes outside the history.
    alone: bool,
}

/// Returns whether a process can have a private IPC namespace.
fn can_be_alone() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| match sys::fork() {
        Ok(Forked::Child) => {
            let alone = sys::enter_private_ipc_namespace().is_some();
            sys::leave(i32::from(!alone))
        }
        Ok(Forked::Parent(child)) => {
            sys::wait(child, crate::children::PATIENCE) == Some(sys::End::Exit(0))
        }
        Err(_) => false,
    })
}

/// Returns the workers that wait for a queue in a call that meets a condition, except the first of these workers.
fn all_but_one(
    waiting: &[Waiting<Call>],
    queue: u32,
    is_meant: impl Fn(Call) -> bool,
) -> impl Iterator<Item = usize> {
    waiting
        .iter()
        .filter(move |waiting| waiting.queue == queue && is_meant(waiting.call))
        .skip(1)
        .map(|waiting| waiting.worker)
}

fn sends(call: Call) -> bool {
    matches!(call, Call::Send { .. })
}

fn receives(call: Call) -> bool {
    matches!(call, Call::Receive { .. })
}

impl Comparable for SystemV {
    const NAME: &'static str = "sysv";
    const GOES_ON_AFTER_HANDLERS: bool = false;
    const WORDS: usize = hand::WORDS;
    type Call = Call;
    type Names = Names;
    type Hand<'a> = Hand<'a>;
    type Histories = Generator;

    fn names(side: char) -> Names {
        let start = 0x4d00_0000 | (sys::pid() & 0x7fff) << 8 | (side as i32 & 0xf) << 4;
        Names {
            keys: (start..).take(generate::KEYS).collect(),
            alone: can_be_alone(),
        }
    }

    fn has_numbers(_: &dyn Backend) -> bool {
        can_be_alone()
    }

    fn begin(side: &Setup<SystemV>) {
        if side.kind.needs_directory() {
            // The loops remove the files of queues, and the file with each user's next identifier. So the next history starts with the first
            // identifier. The errors of missing files are ignored.
            let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
            for entry in entries(&side.directory.join("msg")) {
                let _ = fs::remove_file(entry.path());
            }
            for user in entries(&side.directory.join("own")) {
                let _ = fs::remove_file(user.path().join("next"));
            }
        }
    }

    fn prepare(kind: &Kind<SystemV>) {
        if !kind.needs_directory() {
            sys::enter_private_ipc_namespace();
        }
        sys::give_up_raised_limits();
    }

    fn hand<'a>(shared: &Shared<'a, SystemV>) -> Hand<'a> {
        Hand::new(shared)
    }

    fn histories(seed: u64, [_, other]: &[Setup<SystemV>; 2]) -> Result<Generator, String> {
        let bounds = Bounds {
            users: sys::is_root(),
            alone: can_be_alone(),
            strangers: !other.backend.is_library(),
            pointers: other.backend.functions().is_ok(),
        };
        Ok(Generator::new(seed, bounds))
    }

    fn remove_queues(side: &Setup<SystemV>, words: &[AtomicU32]) {
        if side.names.alone && !side.kind.needs_directory() {
            // The kernel removed the queues with their private namespace. In the namespace of this process, the same identifiers may belong to queues
            // of other processes.
            return;
        }
        for id in hand::identifiers(words) {
            let _ = side.backend.remove(id);
        }
    }

    fn left_behind(directory: &Path) -> Option<String> {
        let entries = fs::read_dir(directory.join("msg")).ok()?;
        let mut names = entries.flatten().map(|entry| entry.file_name());
        let left = names.next()?;
        Some(format!(
            "a file is left when every queue is removed: {left:?}"
        ))
    }

    fn queue_of(call: Call, kernels_words: &[AtomicU32]) -> u32 {
        call.target()
            .map_or(0, |target| hand::identifier(target, kernels_words) as u32)
    }

    fn unforeseeable_before(
        call: Call,
        waiting: &[Waiting<Call>],
        words: &[AtomicU32],
    ) -> Vec<usize> {
        let queue = Self::queue_of(call, words);
        match call {
            Call::Receive { .. } => all_but_one(waiting, queue, sends).collect(),
            Call::Set { .. } => {
                let senders = all_but_one(waiting, queue, sends);
                // If the change makes room for a blocked sender's message, the message may reach a blocked receiver before the sender checks the
                // queue again.
                let there = |waiting: &&Waiting<Call>| waiting.queue == queue;
                let mut here = waiting.iter().filter(there);
                let sends = here.any(|waiting| sends(waiting.call));
                let receivers = waiting
                    .iter()
                    .filter(there)
                    .filter(|waiting| sends && receives(waiting.call))
                    .map(|waiting| waiting.worker);
                senders.chain(receivers).collect()
            }
            _ => Vec::new(),
        }
    }

    fn unforeseeable_after(
        call: Call,
        waiting: &[Waiting<Call>],
        words: &[AtomicU32],
    ) -> Vec<usize> {
        match call {
            Call::Set { .. } => {
                all_but_one(waiting, Self::queue_of(call, words), receives).collect()
            }
            _ => Vec::new(),
        }
    }
}
