//! One side of a history: its processes, and the coordinator's knowledge of them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::act::{Act, PROCESSES};
use super::actor::{ACTOR, FIRST_SOCKET, MAILBOX, MEMORY, WORDS};
use crate::compare::Reply;
use crate::runner::namespace_directory;
use crate::sys::{self, Forked, Pause, Pid};

/// How long to wait for an event that is certain.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Which queues the processes of a side use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queues {
    /// The kernel's, in an IPC namespace of the history.
    Kernel,
    /// The calls of the drop-in of this directory, with its queues in a directory of the history.
    Dropin(PathBuf),
}

/// The report of a process to the coordinator.
pub enum Settled {
    /// It sleeps in its call.
    Blocked,
    /// It answered.
    Answered(Reply),
}

/// The processes of one side during one history.
pub struct Side {
    label: &'static str,
    sockets: Vec<OwnedFd>,
    words: &'static [AtomicU32],
    processes: [Option<Pid>; PROCESSES],
    patience: Duration,
    /// Removed when the history ends.
    _directory: Option<tempfile::TempDir>,
}

impl Side {
    /// Starts the first process. `patience` is the time for an answer that the other side has given.
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
                let directory = namespace_directory();
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
        let mut processes = [None; PROCESSES];
        processes[0] = Some(first);
        let side = Side {
            label,
            sockets: ours,
            words,
            processes,
            patience,
            _directory: directory,
        };
        side.answer(0)?;
        Ok(side)
    }

    fn process(&self, process: usize) -> Pid {
        self.processes[process].expect("a living process")
    }

    fn fault(&self, process: usize, what: &str) -> String {
        format!("{}: p{process} {what}", self.label)
    }

    /// Enters a process that was forked.
    pub fn adopt(&mut self, process: usize, pid: Pid) {
        self.processes[process] = Some(pid);
    }

    /// Tells a process to act.
    pub fn command(&self, process: usize, number: usize, act: Act) -> Result<(), String> {
        let text = serde_json::to_vec(&(number as u32, act)).expect("an act as JSON");
        sys::write_record(self.sockets[process].as_raw_fd(), &text)
            .map_err(|error| self.fault(process, &format!("takes no command: {error}")))
    }

    fn read(&self, process: usize) -> Result<Reply, String> {
        let mut buffer = vec![0; 16 * 1024];
        let length = sys::read_record(self.sockets[process].as_raw_fd(), &mut buffer).unwrap_or(0);
        Reply::decode(&buffer[..length]).ok_or_else(|| self.fault(process, "gave no proper answer"))
    }

    fn has_answered(&self, process: usize) -> bool {
        sys::readable(self.sockets[process].as_raw_fd(), Duration::ZERO)
    }

    /// Waits for the answer of a process that does not block.
    pub fn answer(&self, process: usize) -> Result<Reply, String> {
        self.answer_within(process, self.patience)
    }

    /// As [`answer`](Self::answer), for a limited time.
    pub fn answer_within(&self, process: usize, time: Duration) -> Result<Reply, String> {
        let mut pause = Pause::new(time);
        loop {
            let socket = self.sockets[process].as_raw_fd();
            if sys::readable(socket, Duration::from_millis(50)) {
                return self.read(process);
            }
            if sys::is_gone(self.process(process)) && !self.has_answered(process) {
                return Err(self.fault(process, "died"));
            }
            if !pause.again() {
                return Err(self.fault(process, "gives no answer, as if blocked"));
            }
        }
    }

    /// Waits until a process has answered or sleeps in the call of this step.
    pub fn settle(&self, process: usize, number: usize) -> Result<Settled, String> {
        let mut pause = Pause::new(PATIENCE);
        loop {
            if self.has_answered(process) {
                return self.read(process).map(Settled::Answered);
            }
            let begun = self.words[process].load(Ordering::Acquire) == number as u32 + 1;
            match sys::state(self.process(process)) {
                None | Some(b'Z' | b'X') => return Err(self.fault(process, "died")),
                // The process may have answered between the two looks.
                Some(b'S') if begun && !self.has_answered(process) => return Ok(Settled::Blocked),
                _ if !pause.again() => {
                    return Err(self.fault(process, "neither answers nor sleeps"));
                }
                _ => {}
            }
        }
    }

    /// Sends a process a signal.
    pub fn signal(&self, process: usize, signal: i32) {
        sys::kill(self.process(process), signal);
    }

    /// Stops and continues a process.
    pub fn stop_and_continue(&self, process: usize) -> Result<(), String> {
        let pid = self.process(process);
        sys::kill(pid, libc::SIGSTOP);
        let mut pause = Pause::new(PATIENCE);
        while sys::state(pid) != Some(b'T') {
            if !pause.again() || sys::is_gone(pid) {
                return Err(self.fault(process, "can't be stopped"));
            }
        }
        sys::kill(pid, libc::SIGCONT);
        Ok(())
    }

    /// Waits for the end of a process that exits or was killed.
    pub fn bury(&mut self, process: usize) -> Result<(), String> {
        if !sys::wait_until_gone(self.process(process), PATIENCE) {
            return Err(self.fault(process, "does not end"));
        }
        self.processes[process] = None;
        Ok(())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        for &pid in self.processes.iter().flatten() {
            sys::kill(pid, libc::SIGKILL);
        }
        for &pid in self.processes.iter().flatten() {
            sys::wait_until_gone(pid, PATIENCE);
            // Only the first process is a child of this one.
            sys::wait(pid, PATIENCE);
        }
        sys::unmap_words(self.words);
    }
}
