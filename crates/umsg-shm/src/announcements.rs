//! Announces that the counts of a System V queue may change. Processes that keep sums of the counts of all queues in a namespace read the
//! announcements. The protocol is in `sysv_engine/counted.rs`.

use crate::crash::crash_point;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The number of announcements in the log.
const LOGGED: usize = if cfg!(loom) { 2 } else { 64 };

/// The announcements of all queues of a namespace.
#[repr(C)]
#[derive(Default)]
pub struct Announcements {
    /// The number of the last announcement, which wraps around on overflow.
    number: AtomicU32,
    _unused: AtomicU32,
    log: Log,
}

/// The last announcements. The entry of announcement `number` lies at `number` modulo the length. The upper half of an entry is the number, the lower
/// half is the index of the queue.
#[repr(C)]
struct Log([AtomicU64; LOGGED]);

impl Default for Log {
    fn default() -> Log {
        Log(std::array::from_fn(|_| AtomicU64::default()))
    }
}

impl Log {
    fn at(&self, number: u32) -> &AtomicU64 {
        &self.0[number as usize % LOGGED]
    }
}

impl Announcements {
    /// Returns the number of the last announcement. A process that adds up counts loads this number before it reads a queue.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Acquire)
    }

    /// Announces that the counts of the queue with this index may change from now on.
    pub fn announce(&self, index: u32) {
        // AcqRel: a process that sees this number also sees that the lock of the queue is no longer marked as counted.
        let number = self.number.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        crash_point!(MSG_NUMBERED);
        let entry = u64::from(number) << 32 | u64::from(index);
        // Release: a process that sees this entry, and then loads `number`, also sees the new number.
        self.log.at(number).store(entry, Ordering::Release);
    }

    /// Calls `each` with the index of each queue that was announced after number `then`, up to number `now`. Returns false if the log no longer has
    /// all these announcements, or if `each` returns false.
    pub fn between(&self, then: u32, now: u32, mut each: impl FnMut(u32) -> bool) -> bool {
        let count = now.wrapping_sub(then);
        count as usize <= LOGGED
            && (1..=count).all(|ahead| {
                let number = then.wrapping_add(ahead);
                let entry = self.log.at(number).load(Ordering::Acquire);
                (entry >> 32) as u32 == number && each(entry as u32)
            })
    }
}
