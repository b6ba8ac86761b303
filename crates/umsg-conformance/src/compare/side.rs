//! One side of the comparison: its workers, and the coordinator's knowledge of them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Comparable;
use super::launch::{Assignment, Launch};
use super::operation::{Step, WORKERS};
use super::reply::Reply;
use super::worker::{FIRST_SOCKET, Shared, Worker};
use crate::backend::{Basics, Kind};
use crate::sys::{self, Forked, Pause, Pid};

/// The time to wait for an event that must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A side that is not as it should be, whatever the other one does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble(pub String);

/// The parts of a side, for every history.
pub struct Setup<F: Comparable> {
    /// Its kind.
    pub kind: Kind<F>,
    /// The backend of the workers; or, if they are another program, the backend for the same queues in this process.
    pub backend: Box<F::Backend>,
    /// How the workers are started.
    pub launch: Launch,
    /// Whether the numbers that it chooses have to be those of the other side.
    pub numbers: bool,
    /// What calls refer to by number.
    pub names: F::Names,
    /// The IPC namespace that it has to itself, if it has one.
    pub namespace: Option<OwnedFd>,
    /// Where it has its queues, if they are in a directory.
    pub directory: PathBuf,
}

impl<F: Comparable> Setup<F> {
    /// Makes the calling process one that uses the backend.
    fn enter(&self) {
        if let Some(namespace) = &self.namespace {
            sys::enter_ipc_namespace(namespace.as_fd()).expect("the namespace made for this");
        }
        self.backend.enter();
    }

    /// Removes whatever a history may have left.
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

/// Returns the answer of a worker, or that it is blocked.
pub enum Settled {
    /// It sleeps in the call.
    Blocked,
    /// It answered.
    Answered(Reply),
}

/// The processes of one side during one history.
pub struct Side<'a, F: Comparable> {
    setup: &'a Setup<F>,
    sockets: Vec<OwnedFd>,
    words: &'static [AtomicU32],
    processes: [Option<Pid>; WORKERS],
    patience: Duration,
}

impl<'a, F: Comparable> Side<'a, F> {
    /// Starts the first worker. `words` is memory for one number a worker, and for the family's; `patience` is how long to
    /// wait for an answer that the other side has given.
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
        Side {
            setup,
            sockets: ours,
            words,
            processes: [Some(first), None, None, None],
            patience,
        }
    }

    /// What to call it.
    pub fn label(&self) -> &'static str {
        self.setup.kind.label()
    }

    /// How long to wait for an answer that the other side has given.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether the numbers that it chooses have to be those of the other side.
    pub fn has_numbers(&self) -> bool {
        self.setup.numbers
    }

    /// The words that belong to the family.
    pub fn own_words(&self) -> &'static [AtomicU32] {
        &self.words[WORKERS..]
    }

    /// The process of a worker.
    fn process(&self, worker: usize) -> Pid {
        self.processes[worker].expect("a living worker")
    }

    /// Takes note of a worker that was forked.
    pub fn adopt(&mut self, worker: usize, process: Pid) {
        self.processes[worker] = Some(process);
    }

    /// Tells a worker to do a step.
    pub fn command(&self, worker: usize, step: usize) -> Result<(), Trouble> {
        // The worker is idle: it may get the same step again.
        self.words[worker].store(0, Ordering::Release);
        let socket = self.sockets[worker].as_raw_fd();
        sys::write_record(socket, &(step as u32).to_le_bytes())
            .map_err(|error| self.fault(worker, &format!("can't be told anything: {error}")))
    }

    fn fault(&self, worker: usize, what: &str) -> Trouble {
        Trouble(format!("on the {}, w{worker} {what}", self.label()))
    }

    fn read(&self, worker: usize) -> Result<Reply, Trouble> {
        let mut buffer = vec![0; 128 * 1024];
        let length = sys::read_record(self.sockets[worker].as_raw_fd(), &mut buffer).unwrap_or(0);
        Reply::decode(&buffer[..length]).ok_or_else(|| self.fault(worker, "gave no proper answer"))
    }

    fn has_answered(&self, worker: usize) -> bool {
        sys::readable(self.sockets[worker].as_raw_fd(), Duration::ZERO)
    }

    /// Waits for the answer of a worker that does not block.
    pub fn answer(&self, worker: usize) -> Result<Reply, Trouble> {
        let socket = self.sockets[worker].as_raw_fd();
        let mut pause = Pause::new(self.patience);
        loop {
            if sys::readable(socket, Duration::from_millis(50)) {
                return self.read(worker);
            }
            if sys::is_gone(self.process(worker)) && !self.has_answered(worker) {
                return Err(self.fault(worker, "died"));
            }
            if !pause.again() {
                let state = sys::state(self.process(worker)).map_or('?', char::from);
                let what = format!(
                    "gave no answer within {:?} (its state is {state})",
                    self.patience
                );
                return Err(self.fault(worker, &what));
            }
        }
    }

    /// Waits until a worker has answered or sleeps in the call of this step.
    pub fn settle(&self, worker: usize, step: usize) -> Result<Settled, Trouble> {
        let mut pause = Pause::new(PATIENCE);
        loop {
            if self.has_answered(worker) {
                return self.read(worker).map(Settled::Answered);
            }
            let begun = self.words[worker].load(Ordering::Acquire) == step as u32 + 1;
            match sys::state(self.process(worker)) {
                None | Some(b'Z' | b'X') => return Err(self.fault(worker, "died")),
                // It may have answered between the two looks.
                Some(b'S') if begun && !self.has_answered(worker) => return Ok(Settled::Blocked),
                _ if !pause.again() => {
                    return Err(self.fault(worker, "neither answers nor sleeps"));
                }
                _ => {}
            }
        }
    }

    /// Sends a worker a signal.
    pub fn signal(&self, worker: usize, signal: i32) {
        sys::kill(self.process(worker), signal);
    }

    /// Stops and continues a worker.
    pub fn stop_and_continue(&self, worker: usize) -> Result<(), Trouble> {
        let process = self.process(worker);
        sys::kill(process, libc::SIGSTOP);
        let mut pause = Pause::new(PATIENCE);
        while sys::state(process) != Some(b'T') {
            if !pause.again() || sys::is_gone(process) {
                return Err(self.fault(worker, "can't be stopped"));
            }
        }
        sys::kill(process, libc::SIGCONT);
        Ok(())
    }

    /// Waits for the end of a worker that exits or was killed.
    pub fn bury(&mut self, worker: usize) -> Result<(), Trouble> {
        if !sys::wait_until_gone(self.process(worker), PATIENCE) {
            return Err(self.fault(worker, "does not end"));
        }
        self.processes[worker] = None;
        Ok(())
    }
}

/// The first worker's process.
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
        let processes: Vec<Pid> = self.processes.iter().flatten().copied().collect();
        for &process in &processes {
            sys::kill(process, libc::SIGKILL);
        }
        for (worker, &process) in processes.iter().enumerate() {
            if worker == 0 {
                sys::wait(process, PATIENCE);
            } else {
                sys::wait_until_gone(process, PATIENCE);
            }
        }
        self.setup.remove_queues(self.own_words());
    }
}
