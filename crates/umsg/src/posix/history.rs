//! The history of a dead letter.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::SystemTime;
use umsg_shm::posix_engine::segment;
use umsg_shm::sys::clock;

pub use umsg_shm::posix_engine::segment::Reason as DeadReason;

/// The history of a dead letter: its source, its deliveries, and the reason why it is in a dead-letter queue.
///
/// A message keeps its history when it is [sent back](super::Queue::redrive), and the history grows if the message becomes a dead letter
/// again. The bytes of the message do not change.
///
/// Every process that may use the queue can forge a history. So a process must not trust the name of the source:
/// [`Queue::redrive`](super::Queue::redrive) checks that the source has the same owner and names this queue as its dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// A number that no other message of the queue has.
    pub id: u64,
    /// The reason why the message left its source.
    pub reason: DeadReason,
    /// The name of the queue that the message comes from, with its slash. `None` if unknown.
    pub source: Option<OsString>,
    /// The process that sent the message first.
    pub pid: u32,
    /// The real user of the process that sent the message first. `None` if unknown: the process had ended when the message left its source, or
    /// belongs to another PID namespace.
    pub uid: Option<u32>,
    /// The time of the call that sent the message first. All times of a history are accurate to a few milliseconds.
    pub sent: SystemTime,
    /// The time of the first delivery on a lease. `None` if there was none.
    pub first_delivery: Option<SystemTime>,
    /// The time of the last delivery on a lease. `None` if there was none.
    pub last_delivery: Option<SystemTime>,
    /// The number of deliveries on a lease, summed over all stays in a source.
    pub deliveries: u32,
    /// The number of times that the message was sent back.
    pub redrives: u32,
    /// The time at which the message left its source last.
    pub dead: SystemTime,
}

impl History {
    /// Converts the history that the segment has. `shown` converts a stored time to a [`SystemTime`].
    pub(super) fn new(
        id: u64,
        history: &segment::History,
        shown: impl Fn(u64) -> SystemTime,
    ) -> History {
        let source = history.source();
        let known = |time: u64| (time != 0).then(|| shown(time));
        History {
            id,
            reason: history.reason,
            source: (!source.is_empty()).then(|| OsString::from_vec(source.to_vec())),
            pid: history.pid,
            uid: history.uid,
            sent: shown(history.sent_at),
            first_delivery: known(history.first_delivery),
            last_delivery: known(history.last_delivery),
            deliveries: history.deliveries,
            redrives: history.redrives,
            dead: shown(history.dead_at),
        }
    }

    /// Returns the history of a message in a queue.
    pub(super) fn of(id: u64, history: &segment::History) -> History {
        History::new(id, history, clock::shown)
    }
}
