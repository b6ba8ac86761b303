//! One side of a history, the kernel's queues or the drop-in's: the processes of the side, and what the coordinator has recorded about them.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::act::{Act, PROCESSES};
use super::actor::{ACTOR, FIRST_SOCKET, MAILBOX, MEMORY, WORDS};
use crate::compare::party::Party;
use crate::runner::own_namespace_directory;
use crate::sys::{self, Forked};

/// The queues that the processes of a side use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queues {
    /// The kernel's queues. Each history has its own IPC namespace.
    Kernel,
    /// The queues of the drop-in at this path. Each history has its own directory.
    Dropin(PathBuf),
}

/// The processes of one side during one history.
pub struct Side {
    party: Party,
    /// The directory of the queues, which is removed when the history ends.
    _directory: Option<tempfile::TempDir>,
}

impl Deref for Side {
    type Target = Party;

    fn deref(&self) -> &Party {
        &self.party
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Party {
        &mut self.party
    }
}

impl Side {
    /// Starts the first process of the side. `patience` is the longest wait for an answer that the other side has already given.
    pub fn start(program: &Path, queues: &Queues, patience: Duration) -> Result<Side, String> {
        let fail = |what: &str, why: &dyn std::fmt::Display| format!("{what}: {why}");
        let memory = sys::memory_file().map_err(|errno| fail("memory", &errno))?;
        memory
            .set_len(4 * WORDS as u64)
            .map_err(|error| fail("memory", &error))?;
        let words = sys::words_of(memory.as_fd(), WORDS).map_err(|errno| fail("memory", &errno))?;
        let pairs: Result<Vec<_>, _> = (0..=PROCESSES).map(|_| sys::sockets()).collect();
        let (mut ours, mut theirs): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs
            .map_err(|errno| fail("sockets", &errno))?
            .into_iter()
            .unzip();
        let mailbox = [ours.pop(), theirs.pop()].map(|end| end.expect("one pair more"));
        let mut command = Command::new(program);
        command.args([ACTOR, "0"]);
        let (label, directory) = match queues {
            Queues::Kernel => ("kernel", None),
            Queues::Dropin(library) => {
                let directory = own_namespace_directory();
                command.env("LD_PRELOAD", library);
                command.env("UMSG_DIR", directory.path());
                ("drop-in", Some(directory))
            }
        };
        let first = match sys::fork().map_err(|errno| fail("fork", &errno))? {
            Forked::Parent(first) => first,
            Forked::Child => {
                sys::die_with_parent();
                if directory.is_none() && sys::enter_private_ipc_namespace().is_none() {
                    sys::leave(4);
                }
                let memory = (memory.as_fd(), MEMORY);
                let ends = mailbox.iter().map(AsFd::as_fd).zip(MAILBOX);
                let sockets = theirs.iter().map(AsFd::as_fd).zip(FIRST_SOCKET..);
                for (fd, number) in sockets.chain(ends).chain([memory]) {
                    if sys::place(fd, number).is_err() {
                        sys::leave(5);
                    }
                }
                sys::close_all(3, FIRST_SOCKET as u32 - 1);
                sys::close_all(MEMORY as u32 + 1, u32::MAX);
                let error = command.exec();
                eprintln!("{}: {error}", program.display());
                sys::leave(6);
            }
        };
        let side = Side {
            party: Party::new(format!("{label}: p"), ours, words, first, patience),
            _directory: directory,
        };
        side.answer(0)?;
        Ok(side)
    }

    /// Sends an act to a process, which performs it.
    pub fn command(&self, process: usize, number: usize, act: Act) -> Result<(), String> {
        let text = serde_json::to_vec(&(number as u32, act)).expect("an act as JSON");
        self.tell(process, &text)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.party.end();
        sys::unmap_words(self.party.words());
    }
}
