//! Handles of open queues.

// A handle has the type of a pointer, but is not an address: it consists of a `Number` of `handles` and a mark.
//
// ```text
//  63               32 31      20 19         4 3   0
// +-------------------+----------+------------+-----+
// |    generation     |    0     |   place    |  8  |
// +-------------------+----------+------------+-----+
// ```

use std::ffi::OsString;

use umsg::posix::Queue;

use crate::error::Failure;
use crate::flag::Flag;
use crate::handles::{Handles, Kept, Number};

/// An open queue.
#[repr(C)]
pub struct umsg_mq {
    opaque: [u8; 0],
}

/// A handle of an open queue; `(umsg_mqd_t)-1` is no handle. Threads may share a handle. A child made by fork(2) has the handles of its
/// parent.
pub type umsg_mqd_t = *mut umsg_mq;

/// The open queue to which a handle refers.
pub(crate) struct Open {
    pub(crate) queue: Queue,
    /// The name by which the queue was opened, with its slash.
    pub(crate) name: OsString,
    /// The maximum length of a message, in bytes, which never changes.
    pub(crate) message_size: usize,
    /// True if the handle was opened for receiving.
    pub(crate) can_receive: bool,
    /// True if the handle was opened for sending.
    pub(crate) can_send: bool,
    /// The O_NONBLOCK flag of the handle.
    pub(crate) nonblocking: Flag,
}

/// A queue in use.
pub(crate) type Held = Kept<Open>;

static QUEUES: Handles<Open> = Handles::new();

/// The mark in the lowest bits makes every handle different from NULL and from (umsg_mqd_t)-1.
const MARK: u64 = 8;

fn handle_of(number: Number) -> umsg_mqd_t {
    let bits = u64::from(number.generation) << 32 | u64::from(number.place) << 4 | MARK;
    std::ptr::without_provenance_mut(bits as usize)
}

/// Decodes a handle. Fails if the mark is missing.
#[inline(always)]
fn number_of(mqdes: umsg_mqd_t) -> Result<Number, Failure> {
    let bits = mqdes.addr() as u64;
    let number = Number {
        place: bits as u32 >> 4,
        generation: (bits >> 32) as u32,
    };
    (bits & 0xf == MARK)
        .then_some(number)
        .ok_or(Failure::NotOpen)
}

/// Makes a handle.
pub(crate) fn enter(open: Open) -> Result<umsg_mqd_t, Failure> {
    let number = QUEUES.put(open).ok_or(Failure::TooManyHandles)?;
    Ok(handle_of(number))
}

/// Returns the queue of a handle. The queue stays open until the result is dropped, even if another thread closes the handle meanwhile.
#[inline(always)]
pub(crate) fn hold(mqdes: umsg_mqd_t) -> Result<Held, Failure> {
    QUEUES.get(number_of(mqdes)?).ok_or(Failure::NotOpen)
}

/// Returns the queue as [`hold`] does. The result may outlive the call, for example in a lease.
pub(crate) fn keep(mqdes: umsg_mqd_t) -> Result<Held, Failure> {
    let number = number_of(mqdes)?;
    QUEUES.get_for_long(number).ok_or(Failure::NotOpen)
}

/// Ends a handle. The queue is unmapped when the last call that uses the handle has returned.
pub(crate) fn close(mqdes: umsg_mqd_t) -> Result<(), Failure> {
    let is_ended = QUEUES.end(number_of(mqdes)?);
    is_ended.then_some(()).ok_or(Failure::NotOpen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
    use std::time::{Duration, Instant};
    use tempfile::TempDir;
    use umsg::Namespace;
    use umsg::posix::OpenOptions;

    /// A queue in its own directory, so that a test can see whether the queue is mapped.
    struct Home(TempDir);

    impl Home {
        fn new() -> Home {
            let home = Home(tempfile::tempdir_in("/dev/shm").unwrap());
            home.options().create(true).open("/q").unwrap();
            home
        }

        fn options(&self) -> OpenOptions {
            let mut options = OpenOptions::new();
            let namespace = Namespace::at(self.0.path()).unwrap();
            options.read(true).write(true).namespace(&namespace);
            options
        }

        fn open(&self) -> umsg_mqd_t {
            let queue = self.options().open("/q").unwrap();
            let message_size = queue.attributes().message_size;
            enter(Open {
                queue,
                name: "/q".into(),
                message_size,
                can_receive: true,
                can_send: true,
                nonblocking: Flag::new(false).unwrap(),
            })
            .unwrap()
        }

        /// Waits up to ten seconds, and returns whether the queue is unmapped. A thread of another test may unmap it, because any thread may drop
        /// retired queues.
        fn gets_unmapped(&self) -> bool {
            let end = Instant::now() + Duration::from_secs(10);
            while self.is_mapped() && Instant::now() < end {
                std::thread::yield_now();
            }
            !self.is_mapped()
        }

        fn is_mapped(&self) -> bool {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.contains(self.0.path().to_str().unwrap())
        }
    }

    #[test]
    fn a_closed_handle_leads_nowhere_and_its_queue_is_unmapped() {
        let home = Home::new();
        let handle = home.open();
        assert!(hold(handle).is_ok() && home.is_mapped());
        close(handle).unwrap();
        assert!(hold(handle).is_err() && keep(handle).is_err() && close(handle).is_err());
        assert!(home.gets_unmapped());
    }

    #[test]
    fn what_was_never_a_handle_closes_nothing() {
        let home = Home::new();
        let open = home.open();
        let bits = open.addr();
        let number = number_of(open).unwrap();
        assert_eq!(handle_of(number), open);
        for wrong in [
            0,
            usize::MAX,
            bits - 8,
            bits + 1,
            bits + 16,
            bits + (1 << 20),
            bits - (1 << 32),
            bits + (1 << 32),
        ] {
            let handle = std::ptr::without_provenance_mut(wrong);
            assert!(
                close(handle).is_err() && hold(handle).is_err() && keep(handle).is_err(),
                "{wrong:#x}"
            );
        }
        close(open).unwrap();
    }

    #[test]
    fn a_queue_stays_mapped_while_it_is_noted_or_counted() {
        let home = Home::new();
        for use_it in [hold, keep] {
            let handle = home.open();
            let held = use_it(handle).unwrap();
            close(handle).unwrap();
            assert!(hold(handle).is_err());
            held.queue.try_send(b"still there", 0).unwrap();
            drop(held);
            assert!(home.gets_unmapped());
        }
    }

    #[test]
    fn a_nested_use_keeps_the_queue_mapped_too() {
        let home = Home::new();
        let handle = home.open();
        let outer = hold(handle).unwrap();
        let inner = hold(handle).unwrap();
        close(handle).unwrap();
        drop(outer);
        assert!(home.is_mapped());
        drop(inner);
        assert!(home.gets_unmapped());
    }

    /// Some threads use the current handle while another thread closes the queue and opens it again.
    #[test]
    fn nothing_is_unmapped_under_a_call_and_nothing_stays_mapped() {
        const USERS: usize = 3;
        const ROUNDS: usize = 3_000;
        let home = Home::new();
        let current = AtomicPtr::new(home.open());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..USERS {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        if let Ok(held) = hold(current.load(Ordering::Relaxed)) {
                            assert_eq!(held.queue.attributes().messages, 0);
                        }
                    }
                });
            }
            for _ in 0..ROUNDS {
                let old = current.swap(home.open(), Ordering::Relaxed);
                close(old).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(home.is_mapped());
        close(current.into_inner()).unwrap();
        assert!(home.gets_unmapped());
    }
}
