//! Sums of counts that a process keeps: over all queues of a namespace (MSG_INFO).
//!
//! A process that adds up the counts of all queues marks the lock of each queue as *counted* ([`crate::lock`]). A namespace has a number, which grows
//! before the counts of a marked queue change, and a log of the last queues for which it grew ([`crate::announcements`]). So a process finds out,
//! without reading the queues, whether its sums are still valid, and which queues it has to read again:
//!
//! | a process that sends or receives | a process that adds up |
//! |---|---|
//! | takes the lock, which removes the mark: MSG_UNCOUNTED | loads the number (Acquire) |
//! | adds one to the number (Release), and logs the queue: MSG_ANNOUNCED | of each queue: takes the lock, marks it, unlocks; or finds the mark (Acquire) |
//! | changes the counts | reads the counts |
//! | unlocks without the mark: later calls announce nothing | later: the same number (Acquire)? The sums hold. Otherwise it reads the queues in the log again, or all |
//!
//! Without a mark, a send or a receive does nothing for the sums. With a mark, the compare-and-swap of the fast path fails, as for a lock that is
//! held.
//!
//! The mark is removed before the number grows. Otherwise a process could load the new number, and then find the mark of a queue whose counts are
//! about to change. The number grows before the counts change. So a process that has read the new counts and the old number only reads the counts
//! once too often.
//!
//! If a lock can't be marked, the process reads the counts of this queue each time.
//!
//! | a process is killed | then |
//! |---|---|
//! | with the lock of a queue that it marks: MSG_COUNTING | no mark; the next owner repairs |
//! | at MSG_UNCOUNTED | the sums of others hold: nothing was changed. The next owner repairs, and a repair always announces |
//! | after the number has grown, before the log shows the queue: MSG_NUMBERED | others find another number in the log, and read all queues |
//! | at MSG_ANNOUNCED or later | others read the queue each time, until its repair: an orphaned lock has no mark |

use super::Engine;
use crate::crash::crash_point;
use crate::lock::Lock;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::liveness::Liveness;
use crate::sys::thread::Thread;

impl Engine {
    /// Announces that the counts of the queue may change from now on.
    #[cold]
    pub(super) fn announce_counts(&self, _: ReceiverHeld<'_>) {
        crash_point!(MSG_UNCOUNTED);
        self.segment.announce_counts();
        crash_point!(MSG_ANNOUNCED);
    }
}

/// Reads the counts of a queue, and marks its lock as counted. Returns the counts, and whether the lock was marked: a lock that is held, orphaned or
/// in shared form can't be marked. Returns None, and marks nothing, if `is_live` returns false under the lock.
pub(crate) fn read_counts<T>(
    lock: &Lock,
    me: &Thread,
    lives: &dyn Liveness,
    is_live: impl FnOnce() -> bool,
    read: impl FnOnce() -> T,
) -> Option<(T, bool)> {
    let is_marked = lock.is_counted()
        || match lock.lock_if_free(me, lives) {
            None => false,
            Some(held) if is_live() => {
                crash_point!(MSG_COUNTING);
                held.unlock_counted();
                true
            }
            Some(held) => {
                held.unlock();
                return None;
            }
        };
    // This thread no longer holds the lock. A process that changes the counts of a marked queue meanwhile raises the namespace's number first.
    Some((read(), is_marked))
}
