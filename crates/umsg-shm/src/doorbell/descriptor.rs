//! A process's descriptors of a queue's doorbell: one that the process polls, and one that it rings.
//!
//! Atomic words hold both descriptors as numbers. A thread rings under the queue's lock, but a hostile process can overwrite the lock. Therefore a
//! thread removes the descriptor from its word while it rings, and a thread that finds no descriptor opens another descriptor.

mod help;
mod rung;

use super::poll_fifo::{FOREIGN, SIZE};
use crate::memory::{FifoName, Format, Host, NOT_OURS, Segment};
use crate::sys::file::FileIdentity;
use crate::sys::kept_descriptor::{Own, Sighting, raise};
use crate::sys::random::random;
use crate::sys::stack::roomy;
use crate::sys::{clock, mask};
use rung::number_of;
use rustix::fs::{FlockOperation, OFlags, fcntl_setfl, flock};
use rustix::io::{self, Errno};
use rustix::param::page_size;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::geteuid;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The value in place of a descriptor's number if there is no descriptor.
const NONE: RawFd = -1;

/// The descriptors of a queue's doorbell in a process.
#[derive(Debug)]
pub(crate) struct Doorbell {
    host: Option<Arc<dyn Host>>,
    /// The identity of the queue's file.
    file: FileIdentity,
    /// The descriptor that this process polls, or [`NONE`]. The descriptor is opened at the first poll, and closed with the queue.
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
    /// The epoch of the process whose helper for deadlines runs.
    timed_in: AtomicU64,
    /// The ticket that stops the helper for deadlines.
    time_ticket: AtomicU64,
    /// The signals that were masked in every thread that has requested a descriptor.
    masked: AtomicU64,
    /// The time, on the monotonic clock, of the next check whether processes poll without a helper, and the pause after that check. A helper for
    /// deadlines makes this check. The time is 0 before the first check.
    lack_asked_at: AtomicU64,
    lack_pause: AtomicU64,
    /// The value of the word `calls` when the FIFO last showed the level. The helper sleeps while `calls` has this value.
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
        // If the descriptor's file can't be recorded, later checks treat the descriptor as closed by the program.
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
                // SAFETY: this function has just taken the number out of its owner, and no other value keeps the number.
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

    /// Adds flags that this process has requested.
    pub(crate) fn has_asked(&self, wanted: u32) {
        self.asked.fetch_or(wanted, Ordering::Release);
    }

    /// Records that the program has closed the polled descriptor: this process no longer polls until it requests a descriptor again.
    #[cold]
    fn forget_polled(&self, number: RawFd) {
        self.asked.store(0, Ordering::Relaxed);
        let _ = self
            .polled
            .compare_exchange(number, NONE, Ordering::AcqRel, Ordering::Relaxed);
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
