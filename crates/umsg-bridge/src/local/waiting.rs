//! The messages that wait in the local queue of an export.

use super::spool;
use crate::config::{Bridge, End};
use rustix::io::Errno;
use umsg::{Namespace, posix, ring, sysv};
use umsg_carry::kernel::posix::{self as kernel, Access};

/// Returns the number of messages that wait at the source of an export: those of the local queue that no process has leased. Delayed messages are
/// among them. For a ring and a queue of the kernel, the messages of the spool count, too. A missing queue counts as empty. None: the queue can't be
/// opened for another reason.
///
/// The function opens the queue each time: it also counts before the export has opened the queue, and after the queue was replaced. A POSIX queue
/// does not get a user by that, and stays even if no process has it open.
#[must_use]
pub fn waiting(namespace: &Namespace, bridge: &Bridge) -> Option<u64> {
    let spool = || in_queue(namespace, &spool::name(bridge));
    match &bridge.queue {
        End::Posix(name) => in_queue(namespace, name),
        End::Key(_) | End::Id(_) => in_sysv(namespace, &bridge.queue),
        End::Ring(name) => Some(in_ring(namespace, name)? + spool()?),
        End::Kernel(name) => Some(in_kernel(name)? + spool()?),
    }
}

fn in_queue(namespace: &Namespace, name: &str) -> Option<u64> {
    let mut options = posix::OpenOptions::new();
    options.read(true).counted(false).remove_unused(false);
    match options.namespace(namespace).open(name) {
        Ok(queue) => {
            let now = queue.glance().attributes;
            Some((now.messages + now.delayed) as u64)
        }
        Err(posix::OpenError::NotFound) => Some(0),
        Err(_) => None,
    }
}

fn in_sysv(namespace: &Namespace, end: &End) -> Option<u64> {
    let mut options = sysv::OpenOptions::new();
    options.namespace(namespace);
    let queue = match end {
        End::Id(id) => options.open_id(*id),
        End::Key(key) => options.open(*key),
        _ => return None,
    };
    match queue {
        Ok(queue) => {
            let now = queue.glance().ok()?;
            Some(now.entry.messages + now.delayed)
        }
        Err(sysv::OpenError::NotFound | sysv::OpenError::NoSuchId) => Some(0),
        Err(_) => None,
    }
}

fn in_ring(namespace: &Namespace, name: &str) -> Option<u64> {
    match ring::find(namespace, name) {
        Ok(ring) => Some(ring.status.messages),
        Err(ring::RingError::NotFound) => Some(0),
        Err(_) => None,
    }
}

fn in_kernel(name: &str) -> Option<u64> {
    match kernel::Queue::open(name.as_bytes(), (Access::Receive, false), None) {
        Ok(queue) => queue.messages().ok(),
        Err(Errno::NOENT) => Some(0),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Direction;
    use std::time::Duration;

    #[test]
    fn queued_and_delayed_messages_wait_and_leased_ones_do_not() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let count = |end: End| {
            let bridge = Bridge::new("a", Direction::Export, (end, "S"));
            waiting(&namespace, &bridge).unwrap()
        };
        let long = Duration::from_secs(1000);
        let posix = || End::Posix("/q".to_owned());
        let missing = [posix(), End::Key(7), End::Id(0), End::Id(7)];
        assert_eq!(missing.map(count), [0; 4]);
        let mut options = posix::OpenOptions::new();
        options.read(true).write(true).create(true);
        let queue = options.namespace(&namespace).open("/q").unwrap();
        let mut options = sysv::OpenOptions::new();
        let typed = options.create(true).namespace(&namespace).open(7).unwrap();
        for n in 0..4 {
            queue.send(&[n], 0).unwrap();
            typed.send(1, &[n]).unwrap();
        }
        let _leases = (
            queue.receive_lease().unwrap(),
            typed.receive_lease(sysv::Want::Any).unwrap(),
        );
        queue.receive_lease().unwrap().return_after(long).unwrap();
        let lease = typed.receive_lease(sysv::Want::Any).unwrap();
        lease.return_after(long).unwrap();
        let ends = [posix(), End::Key(7), End::Id(typed.id())];
        assert_eq!(ends.map(count), [3, 3, 3]);
        let id = typed.id();
        sysv::remove(&namespace, id).unwrap();
        assert_eq!(count(End::Id(id)), 0);
    }

    #[test]
    fn the_count_does_not_remove_a_queue_without_users() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let mut options = posix::OpenOptions::new();
        options.read(true).write(true).create(true).counted(false);
        options.remove_on_last_close(true).namespace(&namespace);
        options.open("/q").unwrap().send(b"job", 0).unwrap();
        let bridge = Bridge::new("a", Direction::Export, (End::Posix("/q".to_owned()), "S"));
        for _ in 0..3 {
            assert_eq!(waiting(&namespace, &bridge), Some(1));
        }
    }

    #[test]
    fn messages_wait_in_the_ring_and_in_its_spool() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let bridge = Bridge::new("a", Direction::Export, (End::Ring("/r".to_owned()), "S"));
        let spool = spool::queue(&namespace, &bridge).unwrap();
        spool.send(&[0; spool::FIELDS], 0).unwrap();
        assert_eq!(waiting(&namespace, &bridge), Some(1));
        let ring = ring::Options::new().create_in(&namespace, "/r").unwrap();
        ring.sender().send(&ring::Post::new(1)).unwrap();
        assert_eq!(waiting(&namespace, &bridge), Some(2));
    }
}
