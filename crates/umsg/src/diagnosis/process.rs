//! Identifies the process or thread that a segment names, with the help of /proc.

use umsg_shm::producers::Producers;
use umsg_shm::sys::liveness::{self, Liveness};
use umsg_shm::sys::stat::Stat;
use umsg_shm::sys::{exists, process, thread};

/// A process or thread that uses a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// The thread id, if the queue records it.
    pub thread: Option<u32>,
    /// The program's name in /proc: up to 15 bytes of any value. None if the process is gone or may not be inspected.
    pub program: Option<String>,
    /// The state of the process.
    pub life: Life,
    /// True if the process may live in another PID namespace. If so, the numbers are valid in that namespace, and the program and the state of the
    /// process are unknown.
    pub elsewhere: bool,
}

/// The state of a process. A process of unknown state is reported as living.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Life {
    /// The process runs, or sleeps.
    Alive,
    /// The process is stopped, by a signal or a debugger, and may continue.
    Stopped,
    /// The process has ended, or another process has the process id now.
    Dead,
}

/// Returns the living processes that count as producers.
pub(super) fn producers(lives: &dyn Liveness, producers: &Producers) -> Vec<Process> {
    let named = producers.recorded();
    let processes = named.map(|(pid, birth, _)| Process::of(lives, pid, birth));
    processes
        .filter(|process| process.life != Life::Dead)
        .collect()
}

impl Process {
    /// Describes a process of which only the process id is known.
    pub(crate) fn numbered(pid: u32) -> Process {
        let life = match process::is_dead(pid, 0) {
            true => Life::Dead,
            false => life(Stat::of_process(pid)),
        };
        Process::new(pid, None, life)
    }

    /// Returns the process that a record names; `birth` is the birth of the process as [`liveness::birth`] returns it, or 0 if it is unknown.
    pub(crate) fn of(lives: &dyn Liveness, pid: u32, birth: u64) -> Process {
        if let Some(known) = Process::by_life(lives, pid, None, birth) {
            return known;
        }
        let life = match process::is_dead(pid, birth) {
            true => Life::Dead,
            false => life(Stat::of_process(pid)),
        };
        Process::new(pid, None, life)
    }

    /// Returns the thread that a node names.
    pub(crate) fn of_thread(lives: &dyn Liveness, pid: u32, tid: u32, birth: u64) -> Process {
        if let Some(known) = Process::by_life(lives, pid, Some(tid), birth) {
            return known;
        }
        let life = match thread::is_dead(pid, tid, birth) {
            true => Life::Dead,
            false => life(Stat::of_thread(pid, tid)),
        };
        Process::new(pid, Some(tid), life)
    }

    /// Returns the process that a record identifies by a liveness id. None if the record identifies the process in another way.
    fn by_life(lives: &dyn Liveness, pid: u32, thread: Option<u32>, birth: u64) -> Option<Process> {
        let number = liveness::life_of(birth)?;
        let life = match lives.is_over(number) {
            true => Life::Dead,
            false if lives.is_plain() || has_life(pid, number) => life(Stat::of_process(pid)),
            // In this PID namespace, another process may have this process id.
            false => return Some(Process::elsewhere(pid, thread)),
        };
        Some(Process::new(pid, thread, life))
    }

    /// Returns a process of another PID namespace, with its process id and thread id in that namespace.
    pub(crate) fn elsewhere(pid: u32, thread: Option<u32>) -> Process {
        Process {
            pid,
            thread,
            program: None,
            life: Life::Alive,
            elsewhere: true,
        }
    }

    /// Returns the thread that a lock names, with its process. If there is no such thread, the result is a dead thread of `last`, the process that
    /// took the lock last.
    pub(crate) fn of_owner(tid: u32, last: u32) -> Process {
        match leader(tid) {
            Some(pid) => Process::new(pid, Some(tid), life(Stat::of_thread(pid, tid))),
            // /proc may hide the processes of other users, so a thread may exist although /proc does not show it.
            None if exists::thread(tid) => Process::new(tid, Some(tid), Life::Alive),
            None => Process::new(last, Some(tid), Life::Dead),
        }
    }

    fn new(pid: u32, thread: Option<u32>, life: Life) -> Process {
        let program = match life {
            Life::Dead => None,
            Life::Alive | Life::Stopped => program(pid),
        };
        Process {
            pid,
            thread,
            program,
            life,
            elsewhere: false,
        }
    }
}

/// Returns whether the process with this id in the caller's PID namespace maps the life file of this number. The mappings of other users' processes
/// can't be read.
fn has_life(pid: u32, number: u32) -> bool {
    let file = format!("/.life-{number:08x}");
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut lines = maps.split(|byte| *byte == b'\n');
    lines.any(|line| line.ends_with(file.as_bytes()))
}

fn life(stat: Option<Stat>) -> Life {
    match stat.map(|stat| stat.state) {
        Some(b'T' | b't') => Life::Stopped,
        Some(b'Z' | b'X') => Life::Dead,
        _ => Life::Alive,
    }
}

fn program(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Returns the process of a thread. None if there is no such thread.
fn leader(tid: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{tid}/status")).ok()?;
    let text = String::from_utf8_lossy(&status);
    let line = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_home() -> umsg_shm::posix_engine::segment::Segment {
        umsg_shm::posix_engine::segment::testing::segment(1, 8)
    }

    #[test]
    fn this_thread_lives_and_belongs_to_this_process() {
        let me = thread::current();
        let found = Process::of_owner(me.tid(), 0);
        assert_eq!((found.pid, found.life), (me.pid(), Life::Alive));
        assert_eq!(
            Process::of_thread(&at_home(), me.pid(), me.tid(), me.birth()),
            found
        );
        assert!(found.program.is_some_and(|name| !name.is_empty()));
        assert_eq!(
            Process::of(&at_home(), me.pid(), process::birth(me.pid())).life,
            Life::Alive
        );
    }

    #[test]
    fn a_process_that_is_gone_or_was_replaced_is_dead() {
        let me = thread::current();
        assert_eq!(Process::of_owner(0x3fff_fffe, 7).life, Life::Dead);
        assert_eq!(Process::of_owner(0x3fff_fffe, 7).pid, 7);
        assert_eq!(
            Process::of_thread(&at_home(), me.pid(), me.tid(), 1).life,
            Life::Dead
        );
        assert_eq!(Process::numbered(0x3fff_fffe).life, Life::Dead);
    }
}
