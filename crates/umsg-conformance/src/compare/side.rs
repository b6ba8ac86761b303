//! One side of the comparison: its workers, and what the coordinator has recorded about them.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Comparable;
use super::launch::{Assignment, Launch};
use super::operation::{Step, WORKERS};
use super::party::{PATIENCE, Party};
use super::worker::{FIRST_SOCKET, Shared, Worker};
use crate::backend::{Basics, Kind};
use crate::sys::{self, Forked};

/// The parts of a side that remain the same in all histories.
pub struct Setup<F: Comparable> {
    /// The kind of this side's backend.
    pub kind: Kind<F>,
    /// The backend of the workers. If the workers run another program, this backend reaches their queues from this process.
    pub backend: Box<F::Backend>,
    /// The way in which the workers are started.
    pub launch: Launch,
    /// True if descriptors and identifiers of this side must equal those of the other side.
    pub numbers: bool,
    /// The names of the side's queues. Calls contain the index of a name.
    pub names: F::Names,
    /// The private IPC namespace of the side, if it has one.
    pub namespace: Option<OwnedFd>,
    /// The directory of the side's queues, if the queues are in a directory.
    pub directory: PathBuf,
}

impl<F: Comparable> Setup<F> {
    /// Moves the calling process into the side's IPC namespace, if it has one, and prepares the process for the backend.
    fn enter(&self) {
        if let Some(namespace) = &self.namespace {
            sys::enter_ipc_namespace(namespace.as_fd()).expect("the namespace made for this");
        }
        self.backend.enter();
    }

    /// Removes all queues that a history may have left.
    pub fn remove_queues(&self, own_words: &[AtomicU32]) {
        let Ok(forked) = sys::fork() else { return };
        match forked {
            Forked::Parent(child) => {
                if sys::wait(child, PATIENCE).is_none() {
                    sys::kill(child, libc::SIGKILL);
                    sys::wait(child, PATIENCE);
                }
            }
            Forked::Child => {
                self.enter();
                F::remove_queues(self, own_words);
                sys::leave(0);
            }
        }
    }
}

/// The processes of one side during one history.
pub struct Side<'a, F: Comparable> {
    setup: &'a Setup<F>,
    party: Party,
}

impl<F: Comparable> Deref for Side<'_, F> {
    type Target = Party;

    fn deref(&self) -> &Party {
        &self.party
    }
}

impl<F: Comparable> DerefMut for Side<'_, F> {
    fn deref_mut(&mut self) -> &mut Party {
        &mut self.party
    }
}

impl<'a, F: Comparable> Side<'a, F> {
    /// Starts the first worker. `words` has a word for each worker, followed by the words that this family of calls needs. `patience` is the longest
    /// wait for an answer that the other side has already given.
    pub fn start(
        setup: &'a Setup<F>,
        steps: &[Step<F::Call>],
        words: &'static [AtomicU32],
        patience: Duration,
    ) -> Side<'a, F> {
        F::begin(setup);
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        let (ours, theirs): (Vec<OwnedFd>, Vec<OwnedFd>) = (0..WORKERS)
            .map(|_| sys::sockets().expect("sockets"))
            .unzip();
        let first = match sys::fork().expect("a process") {
            Forked::Parent(first) => first,
            Forked::Child => {
                drop(ours);
                begin(setup, steps, words, theirs)
            }
        };
        let name = format!("on the {}, w", setup.kind.label());
        Side {
            setup,
            party: Party::new(name, ours, words, first, patience),
        }
    }

    /// Returns whether descriptors and identifiers of this side must equal those of the other side.
    pub fn has_numbers(&self) -> bool {
        self.setup.numbers
    }

    /// Returns the shared words that the family of calls uses.
    pub fn own_words(&self) -> &'static [AtomicU32] {
        &self.words()[WORKERS..]
    }

    /// Makes a worker perform a step.
    pub fn command(&self, worker: usize, step: usize) -> Result<(), String> {
        // The worker's word is reset first. An idle worker may get the same step a second time, and must not seem to have begun the step already.
        self.words()[worker].store(0, Ordering::Release);
        self.tell(worker, &(step as u32).to_le_bytes())
    }
}

/// Makes the new process the first worker.
fn begin<F: Comparable>(
    setup: &Setup<F>,
    steps: &[Step<F::Call>],
    words: &'static [AtomicU32],
    sockets: Vec<OwnedFd>,
) -> ! {
    sys::die_with_parent();
    for (socket, number) in sockets.iter().zip(FIRST_SOCKET..) {
        sys::place(socket.as_fd(), number).expect("a number for the socket");
    }
    if let Launch::Program(program) = &setup.launch {
        program.become_it::<F>(&Assignment::new(&setup.names, steps));
    }
    setup.enter();
    F::prepare(&setup.kind);
    sys::close_all(3, FIRST_SOCKET as u32 - 1);
    sys::close_all(FIRST_SOCKET as u32 + WORKERS as u32, u32::MAX);
    let shared = Shared::<F> {
        backend: &*setup.backend,
        names: &setup.names,
        steps,
        words,
    };
    Worker::first(&shared).serve()
}

impl<F: Comparable> Drop for Side<'_, F> {
    fn drop(&mut self) {
        self.party.end();
        self.setup.remove_queues(self.own_words());
    }
}
