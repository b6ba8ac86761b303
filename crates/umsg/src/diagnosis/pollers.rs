//! The pollers of a queue: the processes that hold a shared flock(2) on its poll FIFO, as /proc/locks lists them.

use super::process::Process;
use crate::namespace::Namespace;
use umsg_shm::memory::FifoName;

/// Returns the processes that poll the queue through the poll FIFO `name`, whose number is 0 if the queue has none. Without /proc/locks, no process
/// is found.
pub(super) fn find(namespace: &Namespace, is_watched: bool, name: FifoName) -> Vec<Process> {
    let has_doorbell = is_watched && name.number != 0;
    let inode = has_doorbell
        .then(|| namespace.poll_fifo_inode(name))
        .flatten();
    let Some(inode) = inode else {
        return Vec::new();
    };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut pids: Vec<u32> = locks
        .lines()
        .filter_map(|line| holder(line, inode))
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().map(Process::numbered).collect()
}

/// Returns the process of a line such as `1: FLOCK  ADVISORY  READ 4711 00:1a:1234 0 EOF`, if the lock is on this inode.
fn holder(line: &str, inode: u64) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace();
    let is_lock = fields.nth(1)? == "FLOCK" && fields.nth(1)? == "READ";
    let pid = fields.next()?.parse().ok()?;
    let found = fields.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
    (is_lock && found == inode).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::holder;

    #[test]
    fn a_line_names_the_holder_of_a_shared_lock_on_the_inode() {
        let line = "1: FLOCK  ADVISORY  READ 4711 00:1a:1234 0 EOF";
        assert_eq!(holder(line, 1234), Some(4711));
        assert_eq!(holder(line, 4), None);
        for other in [
            "",
            "1: POSIX  ADVISORY  READ 4711 00:1a:1234 0 EOF",
            "1: -> FLOCK ADVISORY WRITE 1 00:1a:1234 0 EOF",
        ] {
            assert_eq!(holder(other, 1234), None, "{other}");
        }
    }
}
