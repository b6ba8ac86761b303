//! A process's descriptors of a queue's doorbell: one that the process polls, and one that it rings.
//!
//! Atomic words hold both descriptors as numbers. A thread rings under the queue's lock, but a hostile process can overwrite the lock. Therefore a
//! thread removes the descriptor from its word while it rings, and a thread that finds no descriptor opens another.

use super::Lookup;
use super::helper::{self, Feed, Hears};
pub(crate) use super::poll_fifo::PollFifo;
use super::poll_fifo::{FOREIGN, SIZE};
use crate::memory::{FifoName, Format, Host, NOT_OURS, Segment};
use crate::sys::file::FileIdentity;
use crate::sys::file_lock::{self, Lock};
use crate::sys::kept_descriptor::{Own, Sighting, raise};
use crate::sys::random::random;
use crate::sys::stack::roomy;
use crate::sys::{clock, mask, process};
use rustix::fs::{FlockOperation, OFlags, fcntl_setfl, flock};
use rustix::io::{self, Errno};
use rustix::param::page_size;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::geteuid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// In place of a descriptor's number, if there is no descriptor.
const NONE: RawFd = -1;
/// If a doorbell could not be opened: the time until the next attempt, in nanoseconds.
const BLIND: u64 = 100_000_000;
/// A process checks whether a queue is still polled: at its first operation, at every operation whose number is a multiple of `LOOK`, and after
/// [`LOOK_TIME`].
const LOOK: u32 = 256;
/// The time, in nanoseconds, after which a process checks again whether a queue is still polled.
const LOOK_TIME: u64 = 1_000_000_000;
/// A helper checks whether processes poll without a helper. This is the first pause between two such checks, in nanoseconds.
const FIRST_PAUSE: u64 = 100_000_000;
/// The longest pause between two such checks, in nanoseconds.
const LONGEST_PAUSE: u64 = 60_000_000_000;

/// The descriptors of a queue's doorbell in a process.
#[derive(Debug)]
pub(crate) struct Doorbell {
    host: Option<Arc<dyn Host>>,
    /// The identity of the queue's file.
    file: FileIdentity,
    /// The descriptor that this process polls, or [`NONE`]. It is opened at the first poll, and closed with the queue.
    polled: AtomicI32,
    /// The number in the name of the polled FIFO; 0 for a private FIFO.
    polled_name: AtomicU64,
    /// The flags that this process has requested: see [`super::LEVELS`].
    asked: AtomicU32,
    polled_file: Sighting,
    /// The state of the helper that feeds the polled FIFO: whether the FIFO needs a helper, the epoch of the helper's process, and the ticket that
    /// stops the helper.
    needs_help: AtomicBool,
    helped_in: AtomicU64,
    ticket: AtomicU64,
    /// The epoch of the process whose helper keeps the time.
    timed_in: AtomicU64,
    /// The ticket that stops the helper which keeps the time.
    time_ticket: AtomicU64,
    /// The signals that every thread masked which has requested a descriptor.
    masked: AtomicU64,
    /// The reading of the monotonic clock at which a helper that keeps the time next checks whether processes poll without a helper, and the pause
    /// after that check. The time is 0 before the first check.
    lack_asked_at: AtomicU64,
    lack_pause: AtomicU64,
    /// The value on which the helper sleeps: that of the word `calls` when the FIFO last showed the level.
    called: AtomicU32,
    /// The descriptor of the FIFO that this process rings without polling it. The lower half is its number plus one, the upper half is half of the
    /// FIFO's name. 0 for no descriptor.
    rung: AtomicU64,
    rung_file: Sighting,
    /// The name of a FIFO that could not be opened.
    blind_name: AtomicU64,
    /// The time (CLOCK_MONOTONIC_COARSE) of the next attempt to open this FIFO. FIFOs of other names are opened at once.
    blind_until: AtomicU64,
    operations: AtomicU32,
    /// The time of the last check whether a process polls (CLOCK_MONOTONIC_COARSE).
    looked_at: AtomicU64,
    /// The number of operations in a row that found no message or no room.
    vain: AtomicU32,
}

/// A doorbell that no process polls any more. This process has locked the FIFO exclusively, or the FIFO does not exist.
pub(crate) struct Left<'a> {
    host: &'a Arc<dyn Host>,
    name: FifoName,
    locked: Option<OwnedFd>,
}

impl Left<'_> {
    /// Removes the FIFO's name.
    pub(crate) fn remove(self) {
        if self.locked.is_some() {
            self.host.remove_fifo(self.name);
        }
    }
}

impl Doorbell {
    /// Returns the doorbell of this process's handle of a queue.
    pub(crate) fn of<F: Format>(segment: &Segment<F>) -> Doorbell {
        Doorbell {
            host: segment.counted_in().cloned(),
            file: segment.file(),
            polled: AtomicI32::new(NONE),
            polled_name: AtomicU64::new(0),
            asked: AtomicU32::new(0),
            polled_file: Sighting::none(),
            needs_help: AtomicBool::new(false),
            helped_in: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            timed_in: AtomicU64::new(0),
            time_ticket: AtomicU64::new(0),
            masked: AtomicU64::new(u64::MAX),
            lack_asked_at: AtomicU64::new(0),
            lack_pause: AtomicU64::new(0),
            called: AtomicU32::new(0),
            rung: AtomicU64::new(0),
            rung_file: Sighting::none(),
            blind_name: AtomicU64::new(0),
            blind_until: AtomicU64::new(0),
            operations: AtomicU32::new(0),
            looked_at: AtomicU64::new(0),
            vain: AtomicU32::new(0),
        }
    }

    /// Makes this doorbell ring the FIFOs that another handle of the same queue rings.
    pub(crate) fn ring_as(&mut self, other: &Doorbell) {
        self.host.clone_from(&other.host);
    }

    /// Returns the polled descriptor, if the process has requested these flags and has the helpers that it needs.
    #[inline]
    fn polled(&self, wanted: u32, needs_time: bool) -> Option<BorrowedFd<'_>> {
        // Acquire: a thread that sees a requested flag also sees the descriptor, which was opened before.
        if wanted & !self.asked.load(Ordering::Acquire) != 0
            || self.lacks_help()
            || needs_time && self.lacks_time()
        {
            return None;
        }
        match self.polled.load(Ordering::Relaxed) {
            NONE => None,
            number
                if self.polled_file.is_doubtful()
                    && !self.polled_file.is_still(number, clock::monotonic_coarse()) =>
            {
                self.forget_polled(number);
                None
            }
            // SAFETY: this doorbell owns the descriptor, and keeps it open as long as `self`.
            number => Some(unsafe { BorrowedFd::borrow_raw(number) }),
        }
    }

    /// Returns the polled descriptor. If the process has not requested these flags yet, calls `begin` first. Before the first poll of a process,
    /// which may create a FIFO, the function removes some unused FIFOs. The caller does not hold the queue's lock.
    #[inline]
    pub(crate) fn polled_after(
        &self,
        wanted: u32,
        needs_time: bool,
        begin: impl FnOnce() -> io::Result<()>,
    ) -> std::io::Result<BorrowedFd<'_>> {
        if let Some(polled) = self.polled(wanted, needs_time) {
            return Ok(polled);
        }
        // Relaxed: later calls of this thread and calls of other threads read the value. For them, both the old and the new value are right.
        self.masked.fetch_and(mask::current(), Ordering::Relaxed);
        roomy(|| {
            if self.polled.load(Ordering::Relaxed) == NONE
                && let Some(host) = &self.host
            {
                host.sweep_fifos();
            }
            begin()
        })?;
        self.polled(wanted, false)
            .ok_or_else(|| Errno::AGAIN.into())
    }

    /// Makes this FIFO the polled one if the process polls no FIFO yet. Returns the name of the polled FIFO.
    fn poll(&self, bell: Own, name: u64) -> u64 {
        // If the check can't be recorded, the descriptor will not count as the library's.
        let _ = self.polled_file.begin(&bell);
        let number = bell.into_number();
        let was = self
            .polled
            .compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Relaxed);
        match was {
            Ok(_) => {
                self.polled_name.store(name, Ordering::Release);
                name
            }
            Err(_) => {
                // SAFETY: this function has just taken the number out of its owner, and nothing else keeps it.
                drop(unsafe { Own::at(number) });
                self.polled_name.load(Ordering::Acquire)
            }
        }
    }

    /// Opens or creates the FIFO that this process polls, and locks it. `name` is the number in the segment, 0 for none. Returns the new number for
    /// the segment. If the FIFO belongs to another user, this process polls a private FIFO, and the function returns 0. The caller holds the queue's
    /// lock.
    pub(crate) fn open(&self, name: u64) -> io::Result<u64> {
        if self.polled.load(Ordering::Relaxed) != NONE {
            return Ok(self.polled_name.load(Ordering::Acquire));
        }
        let host = self.host.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let found = match name {
            0 => None,
            _ => match find_locked(host, self.name(name)) {
                Err(NOT_OURS) => return self.open_private(host),
                found => found?,
            },
        };
        let (bell, name) = match found {
            Some(bell) => (bell, name),
            None => {
                let name = random();
                (raise(host.make_fifo(self.name(name))?)?, name)
            }
        };
        prepare(&bell)?;
        if self.file.is_open_to_others || self.file.owner != geteuid().as_raw() {
            self.need_help();
        }
        Ok(self.poll(bell, name))
    }

    fn open_private(&self, host: &Arc<dyn Host>) -> io::Result<u64> {
        let bell = raise(host.make_private_fifo()?)?;
        prepare(&bell)?;
        self.need_help();
        Ok(self.poll(bell, 0))
    }

    fn name(&self, number: u64) -> FifoName {
        FifoName {
            inode: self.file.inode,
            number,
        }
    }

    /// Records that the polled FIFO needs a helper.
    pub(crate) fn need_help(&self) {
        self.needs_help.store(true, Ordering::Relaxed);
    }

    /// Returns whether the process needs a helper and has none, for example after a fork.
    #[inline]
    fn lacks_help(&self) -> bool {
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

    /// Returns the polled FIFO for a helper, if it needs one.
    fn feed(&self, wanted: u32) -> Option<Feed> {
        let number = self.polled.load(Ordering::Relaxed);
        let name = self.polled_name.load(Ordering::Acquire);
        let all = wanted | self.asked.load(Ordering::Relaxed);
        (number != NONE && self.needs_help.load(Ordering::Relaxed))
            .then(|| Feed::new(number, self.polled_file.copy(), name, all))
    }

    /// Shows the level in the polled FIFO for the first time, by `hear`, if the FIFO needs a helper. The caller holds the queue's lock.
    pub(crate) fn feed_first(&self, wanted: u32, hear: impl FnOnce(&Feed) -> u32) {
        if let Some(feed) = self.feed(wanted) {
            // Relaxed: the thread that starts the helper reads the value, and that is this thread.
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

    /// Returns whether the polled FIFO needs a helper. A process whose FIFO needs a helper also gets a helper that keeps the time.
    pub(crate) fn needs_help(&self) -> bool {
        // Relaxed: the word is set under the queue's lock before the FIFO is polled, and never cleared.
        self.needs_help.load(Ordering::Relaxed)
    }

    /// Returns whether this process polls and has no helper that keeps the time.
    pub(crate) fn polls_without_time(&self) -> bool {
        // Relaxed: a thread that has just begun to poll starts the helper itself.
        self.polled.load(Ordering::Relaxed) != NONE && self.lacks_time()
    }

    /// Returns whether the calling thread may start a helper, which takes memory from malloc. If the calling thread masks a signal that no
    /// requesting thread masked, then it may run in the handler of that signal. This handler may have interrupted malloc.
    pub(crate) fn may_start_helper(&self) -> bool {
        // Relaxed: as in `polled_after`.
        mask::current() & !self.masked.load(Ordering::Relaxed) == 0
    }

    /// Locks the polled FIFO if this process has no helper that keeps the time. The lock shows this to other processes. If the FIFO can't be locked,
    /// this process learns of changes by time only when another process next uses the queue. The caller holds the queue's lock, under which other
    /// processes check the lock of the FIFO.
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

    /// Runs `lack` from time to time, for a helper that keeps the time, and returns the time of the next run. `lack` returns whether processes poll
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

    /// Returns whether no helper of this process keeps the time.
    #[inline]
    fn lacks_time(&self) -> bool {
        // Relaxed: a thread that reads an old value starts a second helper, which replaces the first one.
        self.timed_in.load(Ordering::Relaxed) != process::epoch()
    }

    /// Starts a helper that keeps the time, unless this process has one. If no thread can be started, a poller learns of delayed messages from the
    /// next call of any process. The caller does not hold the queue's lock.
    pub(crate) fn keep_time(&self, queue: impl FnOnce() -> Arc<dyn Hears>) {
        if !self.lacks_time() {
            return;
        }
        let begun = helper::begin(queue(), None, 0);
        if let Some((ticket, _)) = begun {
            // Acquire, Release: the thread that takes a ticket from this word finds its helper in the table. The earlier ticket belongs to a helper
            // of the parent process, or to one that another thread started at the same time.
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

    fn end_time(&self) {
        // Relaxed, Acquire and Release: as in `keep_time`.
        self.timed_in.store(0, Ordering::Relaxed);
        let ticket = self.time_ticket.swap(0, Ordering::AcqRel);
        if ticket != 0 {
            helper::end(ticket);
        }
    }

    fn end_help(&self) {
        let ticket = self.ticket.swap(0, Ordering::AcqRel);
        if ticket != 0 {
            helper::end(ticket);
        }
    }

    /// Adds flags that this process has requested.
    pub(crate) fn has_asked(&self, wanted: u32) {
        self.asked.fetch_or(wanted, Ordering::Release);
    }

    /// Returns the FIFO of this name, so that the caller rings it.
    pub(crate) fn fifo(&self, name: u64) -> Lookup<PollFifo<'_>> {
        let now = clock::monotonic_coarse();
        let polled = self.polled.load(Ordering::Relaxed);
        if polled != NONE && name != 0 && self.polled_name.load(Ordering::Acquire) == name {
            if !self.polled_file.is_still(polled, now) {
                self.forget_polled(polled);
                return self.open_poll_fifo(name, now);
            }
            return Lookup::Found(PollFifo::of(self, polled, 0, now));
        }
        // The number is removed from its word, so that no other thread closes the descriptor.
        let place = self.rung.swap(0, Ordering::AcqRel);
        if place != 0 {
            let number = number_of(place);
            if self.rung_file.is_still(number, now) {
                if place >> 32 == name & 0xffff_ffff {
                    return Lookup::Found(PollFifo::of(self, number, place, now));
                }
                // SAFETY: the descriptor belongs to this doorbell, and this function has just taken it out of the only place that had it.
                drop(unsafe { Own::at(number) });
            }
        }
        self.open_poll_fifo(name, now)
    }

    /// Puts the descriptor back into its word after ringing; closes the descriptor that another thread has put there meanwhile.
    pub(super) fn put_back(&self, place: u64) {
        let other = self.rung.swap(place, Ordering::AcqRel);
        if other != 0 {
            // SAFETY: the descriptor belongs to this doorbell, and this function has just taken it out of the only place that had it.
            drop(unsafe { Own::at(number_of(other)) });
        }
    }

    #[cold]
    fn open_poll_fifo(&self, name: u64, now: u64) -> Lookup<PollFifo<'_>> {
        let is_blind = self.blind_name.load(Ordering::Relaxed) == name
            && now < self.blind_until.load(Ordering::Relaxed);
        let (Some(host), false) = (&self.host, is_blind) else {
            return Lookup::Unavailable;
        };
        let opened = match name {
            0 => Err(Errno::NOENT),
            _ => host.open_fifo(self.name(name)).and_then(|bell| {
                let bell = raise(bell)?;
                fcntl_setfl(&bell, OFlags::NONBLOCK | OFlags::DIRECT)?;
                self.rung_file.begin(&bell)?;
                Ok(bell)
            }),
        };
        match opened {
            Ok(bell) => {
                let number = bell.into_number();
                let place = name << 32 | (number as u64 + 1);
                Lookup::Found(PollFifo::of(self, number, place, now))
            }
            Err(error) if is_gone(error) => Lookup::Missing,
            Err(_) => {
                self.blind_name.store(name, Ordering::Relaxed);
                self.blind_until.store(now + BLIND, Ordering::Relaxed);
                Lookup::Unavailable
            }
        }
    }

    /// Records that the program has closed the polled descriptor: this process no longer polls until it requests a descriptor again.
    #[cold]
    fn forget_polled(&self, number: RawFd) {
        self.asked.store(0, Ordering::Relaxed);
        let _ = self
            .polled
            .compare_exchange(number, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Counts an operation. Returns true if the operation has to check whether a process still polls. A process with few operations checks after some
    /// time.
    pub(crate) fn is_time_to_look(&self) -> bool {
        // Relaxed: the caller holds the queue's lock, and an approximate count suffices.
        let count = self.operations.load(Ordering::Relaxed).wrapping_add(1);
        self.operations.store(count, Ordering::Relaxed);
        if self.polled.load(Ordering::Relaxed) != NONE {
            return false;
        }
        let now = clock::monotonic_coarse();
        let looked = self.looked_at.load(Ordering::Relaxed);
        let is_time =
            count == 1 || count.is_multiple_of(LOOK) || now.saturating_sub(looked) > LOOK_TIME;
        if is_time {
            self.looked_at.store(now, Ordering::Relaxed);
        }
        is_time
    }

    /// Counts an operation that found no message or no room. Returns true if the previous operation also found none.
    pub(crate) fn is_in_vain_again(&self) -> bool {
        // Relaxed: the caller holds the queue's lock, and an approximate count suffices.
        let before = self.vain.load(Ordering::Relaxed);
        self.vain.store(before.saturating_add(1), Ordering::Relaxed);
        before != 0
    }

    /// Records that an operation found a message or room.
    pub(crate) fn note_progress(&self) {
        self.vain.store(0, Ordering::Relaxed);
    }

    /// Returns the doorbell for its removal, if no process polls it any more.
    pub(crate) fn left(&self, name: u64) -> Option<Left<'_>> {
        let host = self.host.as_ref()?;
        let name = self.name(name);
        // The FIFO is opened again, because a lock belongs to an open file description, and this process may share the description of an inherited
        // descriptor with other processes.
        let locked = match host.open_fifo(name) {
            Ok(bell) => {
                flock(&bell, FlockOperation::NonBlockingLockExclusive).ok()?;
                Some(bell)
            }
            Err(error) if is_gone(error) => None,
            Err(_) => return None,
        };
        Some(Left { host, name, locked })
    }

    /// Closes the polled descriptor and stops the helpers. Returns true if the process polled.
    pub(crate) fn close_polled(&self) -> bool {
        self.end_help();
        self.end_time();
        self.asked.store(0, Ordering::Relaxed);
        match self.polled.swap(NONE, Ordering::AcqRel) {
            NONE => false,
            number => {
                if self.polled_file.is_still(number, clock::monotonic_coarse()) {
                    // SAFETY: the descriptor belongs to this doorbell, and this function has just taken it out of the only place that had it.
                    drop(unsafe { Own::at(number) });
                }
                true
            }
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.close_polled();
        let place = *self.rung.get_mut();
        let now = clock::monotonic_coarse();
        if place != 0 && self.rung_file.is_still(number_of(place), now) {
            // SAFETY: the descriptor belongs to this doorbell, and this function has just taken it out of the only place that had it.
            drop(unsafe { Own::at(number_of(place)) });
        }
    }
}

fn number_of(place: u64) -> RawFd {
    (place as u32).wrapping_sub(1) as RawFd
}

/// Returns whether the error means that no FIFO has this name.
fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NXIO | Errno::LOOP)
}

/// Opens a FIFO to poll it. Returns None if the FIFO does not exist or is about to be removed: the caller then makes another FIFO. The caller holds
/// the queue's lock, so the name in the segment does not change.
fn find_locked(host: &Arc<dyn Host>, name: FifoName) -> io::Result<Option<Own>> {
    let bell = match host.open_fifo(name) {
        Err(error) if is_gone(error) => return Ok(None),
        other => raise(other?)?,
    };
    match flock(&bell, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(host.leads_to(name, bell.as_fd()).then_some(bell)),
        // The FIFO is exclusively locked: no process polls it, and another process removes it.
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets the FIFO up: packets stay separate, and the FIFO has room for all levels.
fn prepare(bell: &Own) -> io::Result<()> {
    fcntl_setfl(bell, OFlags::NONBLOCK | OFlags::DIRECT)?;
    let size = SIZE * page_size();
    // Setting the size wakes every poller, even if the size stays the same: see `nudge`.
    if fcntl_getpipe_size(bell)? == size {
        return Ok(());
    }
    for _ in 0..FOREIGN {
        match fcntl_setpipe_size(bell, size) {
            // `BUSY`: the FIFO holds more packets than the new size permits. One read makes room.
            Err(Errno::BUSY) => drop(io::read(bell, &mut [0; 64])),
            other => return other.map(drop),
        }
    }
    Err(Errno::BUSY)
}
