//! The helpers that this process needs while it polls: one that passes the level on to the polled FIFO, and one for deadlines.

use super::super::helper::{self, Feed, Hears};
use super::{Doorbell, NONE};
use crate::sys::file_lock::{self, Lock};
use crate::sys::{clock, mask, process};
use rustix::io::{self, Errno};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The first pause between two checks whether processes poll without a helper, in nanoseconds. A helper makes these checks.
const FIRST_PAUSE: u64 = 100_000_000;
/// The longest pause between two checks whether processes poll without a helper, in nanoseconds.
const LONGEST_PAUSE: u64 = 60_000_000_000;

impl Doorbell {
    /// Records that the polled FIFO needs a helper.
    pub(crate) fn need_help(&self) {
        self.needs_help.store(true, Ordering::Relaxed);
    }

    /// Returns whether the process needs a helper and has none, for example after a fork.
    #[inline]
    pub(super) fn lacks_help(&self) -> bool {
        self.needs_help.load(Ordering::Relaxed)
            && self.helped_in.load(Ordering::Relaxed) != process::epoch()
    }

    /// Returns whether this process polls a private FIFO because the shared FIFO belongs to another user. The caller holds the queue's lock.
    pub(crate) fn polls_privately(&self) -> bool {
        // Relaxed: the words change only under the queue's lock.
        self.polled.load(Ordering::Relaxed) != NONE && self.polled_name.load(Ordering::Relaxed) == 0
    }

    /// Returns the private FIFO for a helper, if the process polls a private FIFO.
    pub(crate) fn private_feed(&self) -> Option<Feed> {
        self.polls_privately().then(|| self.feed(0)).flatten()
    }

    /// Returns the polled FIFO for a helper, if the FIFO needs a helper.
    pub(super) fn feed(&self, wanted: u32) -> Option<Feed> {
        let number = self.polled.load(Ordering::Relaxed);
        let name = self.polled_name.load(Ordering::Acquire);
        let all = wanted | self.asked.load(Ordering::Relaxed);
        (number != NONE && self.needs_help.load(Ordering::Relaxed))
            .then(|| Feed::new(number, self.polled_file.copy(), name, all))
    }

    /// Shows the level in the polled FIFO for the first time, by `hear`, if the FIFO needs a helper. The caller holds the queue's lock.
    pub(crate) fn feed_first(&self, wanted: u32, hear: impl FnOnce(&Feed) -> u32) {
        if let Some(feed) = self.feed(wanted) {
            // Relaxed: only the thread that starts the helper reads the value, and this thread starts the helper.
            self.called.store(hear(&feed), Ordering::Relaxed);
        }
    }

    /// Starts the helper that the polled FIFO needs, or starts it again for new flags. The caller does not hold the queue's lock.
    ///
    /// # Errors
    /// EAGAIN if no thread can be started, and the polled FIFO needs a helper.
    pub(crate) fn get_help(&self, queue: impl FnOnce() -> Arc<dyn Hears>) -> io::Result<()> {
        let Some(feed) = self.feed(0) else {
            return Ok(());
        };
        let is_private = feed.name == 0;
        self.end_help();
        match helper::begin(queue(), Some(feed), self.called.load(Ordering::Relaxed)) {
            Some((ticket, epoch)) => {
                let other = self.ticket.swap(ticket, Ordering::AcqRel);
                if other != 0 {
                    helper::end(other);
                }
                self.helped_in.store(epoch, Ordering::Release);
                Ok(())
            }
            None if is_private => Err(Errno::AGAIN),
            None => {
                self.helped_in.store(process::epoch(), Ordering::Release);
                Ok(())
            }
        }
    }

    /// Returns whether the polled FIFO needs a helper. A process whose FIFO needs a helper also gets a helper for deadlines.
    pub(crate) fn needs_help(&self) -> bool {
        // Relaxed: the word is set under the queue's lock before the FIFO is polled, and never cleared.
        self.needs_help.load(Ordering::Relaxed)
    }

    /// Returns whether this process polls and has no helper for deadlines.
    pub(crate) fn polls_without_time(&self) -> bool {
        // Relaxed: a thread that has just begun to poll starts the helper itself.
        self.polled.load(Ordering::Relaxed) != NONE && self.lacks_time()
    }

    /// Returns whether the calling thread may start a helper, which takes memory from malloc. If the calling thread masks a signal that a requesting
    /// thread did not mask, then the calling thread may run in the handler of that signal. This handler may have interrupted malloc.
    pub(crate) fn may_start_helper(&self) -> bool {
        // Relaxed: as in `polled_after`.
        mask::current() & !self.masked.load(Ordering::Relaxed) == 0
    }

    /// Locks the polled FIFO if this process has no helper for deadlines. The lock tells other processes that the helper is missing. If the FIFO
    /// can't be locked, this process learns of due messages and expired leases only when another process next uses the queue. The caller holds the
    /// queue's lock, under which other processes check the lock of the FIFO.
    pub(crate) fn note_lack_of_helper(&self) {
        if !self.needs_help() && self.lacks_time() {
            self.lock_polled(Lock::Shared);
        }
    }

    fn lock_polled(&self, lock: Lock) {
        // Relaxed: the number is checked before it is used, and publishes no other data.
        let number = self.polled.load(Ordering::Relaxed);
        if number != NONE && self.polled_file.is_still(number, clock::monotonic_coarse()) {
            // SAFETY: this doorbell owns the descriptor, and keeps it open as long as `self`.
            let _ = file_lock::set(unsafe { BorrowedFd::borrow_raw(number) }, lock);
        }
    }

    /// Runs `lack` from time to time, for a helper for deadlines, and returns the time of the next run. `lack` returns whether processes poll
    /// without a helper, and shows such processes events after which they check the queue. The pauses between runs double. Once `lack` returns false,
    /// the runs end, because later pollers have a helper from the start.
    pub(crate) fn look_for_lack(&self, now: u64, lack: impl FnOnce() -> bool) -> u64 {
        // Relaxed: one helper reads and writes these words, under the queue's lock.
        let (at, pause) = (&self.lack_asked_at, &self.lack_pause);
        let next = match (at.load(Ordering::Relaxed), pause.load(Ordering::Relaxed)) {
            (next, _) if next > now => next,
            (0, _) => now.saturating_add(FIRST_PAUSE),
            (_, pause) if lack() => now.saturating_add(pause.min(LONGEST_PAUSE)),
            _ => u64::MAX,
        };
        if at.swap(next, Ordering::Relaxed) != next {
            let before = pause.load(Ordering::Relaxed).max(FIRST_PAUSE / 2);
            pause.store(before.saturating_mul(2), Ordering::Relaxed);
        }
        next
    }

    /// Returns whether this process has no helper for deadlines.
    #[inline]
    pub(super) fn lacks_time(&self) -> bool {
        // Relaxed: a thread that reads an old value starts a second helper, which replaces the first one.
        self.timed_in.load(Ordering::Relaxed) != process::epoch()
    }

    /// Starts a helper for deadlines, unless this process has one. If no thread can be started, a poller learns of delayed messages from the
    /// next call of any process. The caller does not hold the queue's lock.
    pub(crate) fn keep_time(&self, queue: impl FnOnce() -> Arc<dyn Hears>) {
        if !self.lacks_time() {
            return;
        }
        let begun = helper::begin(queue(), None, 0);
        if let Some((ticket, _)) = begun {
            // Acquire, Release: the thread that takes a ticket from this word finds its helper in the table. The earlier ticket belongs to a helper
            // of the parent process, or to a helper that another thread started at the same time.
            let other = self.time_ticket.swap(ticket, Ordering::AcqRel);
            if other != 0 {
                helper::end(other);
            }
        }
        let epoch = begun.map_or_else(process::epoch, |(_, epoch)| epoch);
        // Relaxed: as in `lacks_time`.
        self.timed_in.store(epoch, Ordering::Relaxed);
        self.lock_polled(Lock::None);
    }

    pub(super) fn end_time(&self) {
        // Relaxed, Acquire and Release: as in `keep_time`.
        self.timed_in.store(0, Ordering::Relaxed);
        let ticket = self.time_ticket.swap(0, Ordering::AcqRel);
        if ticket != 0 {
            helper::end(ticket);
        }
    }

    pub(super) fn end_help(&self) {
        let ticket = self.ticket.swap(0, Ordering::AcqRel);
        if ticket != 0 {
            helper::end(ticket);
        }
    }
}
