//! Processes that a coordinator controls. The coordinator sends a process an operation, and waits until the process has answered or is blocked.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Reply;
use crate::sys::{self, Pause, Pid};

/// The time to wait for an event that must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The state of a process that was given a step.
pub enum Settled {
    /// The process sleeps in the call.
    Blocked,
    /// The process has answered.
    Answered(Reply),
}

/// The processes of one side during one history. Each process has a number.
pub struct Party {
    /// The name of a process in errors, before its number.
    name: String,
    sockets: Vec<OwnedFd>,
    /// For each process: one more than the number of the last step that the process has begun.
    words: &'static [AtomicU32],
    processes: Vec<Option<Pid>>,
    patience: Duration,
}

impl Party {
    /// Starts a party with its first process. `patience` is the longest wait for an answer that the other side has already given.
    pub fn new(
        name: String,
        sockets: Vec<OwnedFd>,
        words: &'static [AtomicU32],
        first: Pid,
        patience: Duration,
    ) -> Party {
        let mut processes = vec![None; sockets.len()];
        processes[0] = Some(first);
        Party {
            name,
            sockets,
            words,
            processes,
            patience,
        }
    }

    /// Returns the longest wait for an answer that the other side has already given.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns the memory that the processes share.
    pub fn words(&self) -> &'static [AtomicU32] {
        self.words
    }

    /// Returns the living processes.
    pub fn living(&self) -> Vec<Pid> {
        self.processes.iter().flatten().copied().collect()
    }

    fn process(&self, number: usize) -> Pid {
        self.processes[number].expect("a living process")
    }

    fn fault(&self, number: usize, what: &str) -> String {
        format!("{}{number} {what}", self.name)
    }

    /// Adds a process that was forked.
    pub fn adopt(&mut self, number: usize, process: Pid) {
        self.processes[number] = Some(process);
    }

    /// Sends a process the description of an operation.
    pub fn tell(&self, number: usize, what: &[u8]) -> Result<(), String> {
        sys::write_record(self.sockets[number].as_raw_fd(), what)
            .map_err(|error| self.fault(number, &format!("can't be told anything: {error}")))
    }

    fn read(&self, number: usize) -> Result<Reply, String> {
        let mut buffer = vec![0; 128 * 1024];
        let length = sys::read_record(self.sockets[number].as_raw_fd(), &mut buffer).unwrap_or(0);
        Reply::decode(&buffer[..length]).ok_or_else(|| self.fault(number, "gave no proper answer"))
    }

    fn has_answered(&self, number: usize) -> bool {
        sys::readable(self.sockets[number].as_raw_fd(), Duration::ZERO)
    }

    /// Waits for the answer of a process that does not block.
    pub fn answer(&self, number: usize) -> Result<Reply, String> {
        self.answer_within(number, self.patience)
    }

    /// Does the same as [`answer`](Self::answer), but waits at most for `time`.
    pub fn answer_within(&self, number: usize, time: Duration) -> Result<Reply, String> {
        let socket = self.sockets[number].as_raw_fd();
        let mut pause = Pause::new(time);
        loop {
            if sys::readable(socket, Duration::from_millis(50)) {
                return self.read(number);
            }
            if sys::is_gone(self.process(number)) && !self.has_answered(number) {
                return Err(self.fault(number, "died"));
            }
            if !pause.again() {
                let state = sys::state(self.process(number)).map_or('?', char::from);
                let what = format!("gave no answer within {time:?} (its state is {state})");
                return Err(self.fault(number, &what));
            }
        }
    }

    /// Waits until a process has answered or sleeps in the call of this step.
    pub fn settle(&self, number: usize, step: usize) -> Result<Settled, String> {
        let mut pause = Pause::new(PATIENCE);
        loop {
            if self.has_answered(number) {
                return self.read(number).map(Settled::Answered);
            }
            let begun = self.words[number].load(Ordering::Acquire) == step as u32 + 1;
            match sys::state(self.process(number)) {
                None | Some(b'Z' | b'X') => return Err(self.fault(number, "died")),
                // The process may have answered between the check of its socket and the check of its state.
                Some(b'S') if begun && !self.has_answered(number) => return Ok(Settled::Blocked),
                _ if !pause.again() => {
                    return Err(self.fault(number, "neither answers nor sleeps"));
                }
                _ => {}
            }
        }
    }

    /// Sends a process a signal.
    pub fn signal(&self, number: usize, signal: i32) {
        sys::kill(self.process(number), signal);
    }

    /// Stops and continues a process.
    pub fn stop_and_continue(&self, number: usize) -> Result<(), String> {
        let process = self.process(number);
        sys::kill(process, libc::SIGSTOP);
        let mut pause = Pause::new(PATIENCE);
        while sys::state(process) != Some(b'T') {
            if !pause.again() || sys::is_gone(process) {
                return Err(self.fault(number, "can't be stopped"));
            }
        }
        sys::kill(process, libc::SIGCONT);
        Ok(())
    }

    /// Waits for the end of a process that exits or was killed.
    pub fn bury(&mut self, number: usize) -> Result<(), String> {
        if !sys::wait_until_gone(self.process(number), PATIENCE) {
            return Err(self.fault(number, "does not end"));
        }
        self.processes[number] = None;
        Ok(())
    }

    /// Kills all processes, and waits until they have ended. Only the first process is a child of the calling process.
    pub fn end(&mut self) {
        let processes = self.living();
        for &process in &processes {
            sys::kill(process, libc::SIGKILL);
        }
        for &process in &processes {
            sys::wait_until_gone(process, PATIENCE);
            sys::wait(process, PATIENCE);
        }
    }
}
