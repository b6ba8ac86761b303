//! Finds out whether the process of a thread has a queue's file mapped. A process that is inside a call on the queue has the file mapped.
//!
//! If the mappings of the process are unknown, the file is treated as mapped. When a thread dies or runs another program, the kernel marks the
//! thread's lock before it removes the mappings. So if a lock names a thread for a while, and the thread's process does not map the file during that
//! time, the thread does not hold the lock.

use rustix::fd::BorrowedFd;
use std::fs::read_link;
use std::thread::sleep;
use std::time::Duration;
use umsg_shm::sys::liveness::Liveness;
use umsg_shm::sys::map::{Mapping, PAGE};

/// The number of checks of a thread. If no check finds that the thread's process maps the file, the process is considered not to use the queue. One
/// check is not enough, because a program may map the file only now and then.
const LOOKS: u32 = 5;
/// The pause between two checks of a thread.
const PAUSE: Duration = Duration::from_millis(20);

/// The file of a queue, as /proc/PID/maps names the file.
pub(super) struct Users {
    /// True if this process shares the PID namespace with the processes whose thread ids are in the queue.
    are_ours: bool,
    /// The device and the inode number of the file, as /proc/PID/maps shows them. None if they are unknown.
    file: Option<String>,
}

impl Users {
    /// Prepares checks of the threads that may use the queue in `file`.
    pub(super) fn of(file: BorrowedFd<'_>, lives: &dyn Liveness) -> Users {
        let are_ours = numbers_are_ours(lives);
        let file = are_ours.then(|| name(file)).flatten();
        Users { are_ours, file }
    }

    /// Returns whether this process can find every thread by its thread id. If so, a thread id that this process does not find belongs to no thread.
    pub(super) fn are_ours(&self) -> bool {
        self.are_ours
    }

    /// Returns whether a thread's process maps the file. None if that is not known.
    pub(super) fn have(&self, tid: u32) -> Option<bool> {
        let file = self.file.as_ref()?;
        let maps = std::fs::read(format!("/proc/{tid}/maps")).ok()?;
        let mut lines = maps.split(|&byte| byte == b'\n');
        Some(lines.any(|line| what(line) == Some(file.as_bytes())))
    }

    /// Does the same as [`have`](Self::have) for a thread that a lock names. `is_named` returns whether the lock still names the thread. Returns
    /// false only if the thread's process does not map the file in any of several checks.
    pub(super) fn have_for_a_while(&self, tid: u32, is_named: impl Fn() -> bool) -> Option<bool> {
        for look in 0..LOOKS {
            if look != 0 {
                sleep(PAUSE);
            }
            match self.have(tid)? {
                false if is_named() => {}
                false => return None,
                true => return Some(true),
            }
        }
        Some(false)
    }
}

/// Returns whether this process, /proc, and the processes whose thread ids are in a queue in plain form share one PID namespace.
pub(super) fn numbers_are_ours(lives: &dyn Liveness) -> bool {
    let own = read_link("/proc/self").ok();
    lives.is_home() && own.is_some_and(|own| *own == *std::process::id().to_string())
}

/// Returns the device and inode of a mapping of the file in /proc. On some file systems, the device in /proc differs from that of fstat(2).
fn name(file: BorrowedFd<'_>) -> Option<String> {
    let mapping = Mapping::to_look_up(file, 0, PAGE).ok()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let begin = format!("{:08x}-", mapping.base().addr());
    let line = maps.lines().find(|line| line.starts_with(&begin))?;
    let name = what(line.as_bytes())?;
    String::from_utf8(name.to_vec()).ok()
}

/// Returns the device and inode in a line of /proc/PID/maps. Addresses, rights and offset precede the device, and the path follows the inode.
fn what(line: &[u8]) -> Option<&[u8]> {
    let mut spaces = line.iter().enumerate().filter(|(_, byte)| **byte == b' ');
    let begin = spaces.nth(2)?.0 + 1;
    let end = spaces.nth(1).map_or(line.len(), |(at, _)| at);
    line.get(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use umsg_shm::sys::thread;

    /// On some file systems of containers, /proc shows another device for a mapping than fstat(2) shows for the file.
    #[test]
    fn the_processes_that_map_a_file_are_known_in_any_file_system() {
        for directory in ["/dev/shm".into(), std::env::temp_dir()] {
            let home = tempfile::tempdir_in(directory).unwrap();
            let path = home.path().join("file");
            let mut options = std::fs::File::options();
            let options = options.read(true).write(true).create_new(true);
            let file = options.open(path).unwrap();
            let segment = umsg_shm::posix_engine::segment::testing::segment(1, 8);
            let (users, me) = (Users::of(file.as_fd(), &segment), thread::current());
            assert_eq!(users.have_for_a_while(me.tid(), || true), Some(false));
            assert_eq!(users.have_for_a_while(me.tid(), || false), None);
            let mapping = Mapping::of_file(file.as_fd(), 1).unwrap();
            assert_eq!(users.have_for_a_while(me.tid(), || true), Some(true));
            drop(mapping);
            assert_eq!(users.have(me.tid()), Some(false));
            assert_eq!(users.have(u32::MAX), None);
        }
    }
}
