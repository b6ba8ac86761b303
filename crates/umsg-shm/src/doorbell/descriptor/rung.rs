//! The FIFO that this process rings, and the checks whether a process still polls it.

use super::super::Lookup;
use super::super::poll_fifo::PollFifo;
use super::{Doorbell, NONE, is_gone};
use crate::memory::{FifoName, Host};
use crate::sys::clock;
use crate::sys::kept_descriptor::{Own, raise};
use rustix::fs::{FlockOperation, OFlags, fcntl_setfl, flock};
use rustix::io::Errno;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The pause after a failed attempt to open a doorbell, in nanoseconds.
const BLIND: u64 = 100_000_000;
/// A process checks whether a queue is still polled: at its first operation, at every operation whose number is a multiple of `LOOK`, and after
/// [`LOOK_TIME`].
const LOOK: u32 = 256;
/// The time, in nanoseconds, after which a process checks again whether a queue is still polled.
const LOOK_TIME: u64 = 1_000_000_000;

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

    /// Puts the descriptor back into its word after ringing. Closes the descriptor that another thread has put into the word meanwhile.
    pub(in crate::doorbell) fn put_back(&self, place: u64) {
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

    /// Counts an operation. Returns true if the operation has to check whether a process still polls. A process that has a polled descriptor of the
    /// queue never has to check. Another process checks at its first operation, at each multiple of `LOOK`, and if its last check was more than
    /// [`LOOK_TIME`] ago.
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

    /// Counts an operation that found no message or no room. Returns true if the previous operation also found no message or no room.
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
}

pub(super) fn number_of(place: u64) -> RawFd {
    (place as u32).wrapping_sub(1) as RawFd
}
