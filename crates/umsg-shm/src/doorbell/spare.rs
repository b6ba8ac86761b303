//! The source and the sink of packets that wake all pollers. The kernel wakes all pollers for data that is moved between a pipe and another file
//! (tee(2), splice(2)). For reads and writes, the kernel wakes only pollers of the matching event.
//!
//! Each process has one descriptor of the source and one of the sink. The process opens these descriptors at their first use, and never closes them.

use super::poll_fifo::SIZE;
use crate::sys::kept_descriptor::{Own, Sighting, raise};
use rustix::fs::{Mode, OFlags, open};
use rustix::io;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, pipe_with, vmsplice};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// A pipe with as many packets as a doorbell holds, which tee(2) duplicates.
pub(super) static SOURCE: Spare = Spare::new(source);
/// The file /dev/null.
pub(super) static SINK: Spare = Spare::new(sink);

/// The value of `number` as long as there is no descriptor.
const NONE: RawFd = -1;

/// A descriptor that the process opens at its first use.
pub(super) struct Spare {
    number: AtomicI32,
    sighting: Sighting,
    open: fn() -> io::Result<OwnedFd>,
}

impl Spare {
    const fn new(open: fn() -> io::Result<OwnedFd>) -> Spare {
        Spare {
            number: AtomicI32::new(NONE),
            sighting: Sighting::none(),
            open,
        }
    }

    /// Returns the descriptor at time `now` (CLOCK_MONOTONIC_COARSE). None if it can't be opened.
    pub(super) fn file(&self, now: u64) -> Option<BorrowedFd<'_>> {
        // Acquire: makes the record of the descriptor's file visible.
        let number = match self.number.load(Ordering::Acquire) {
            NONE => self.find()?,
            known if self.sighting.is_still(known, now) => known,
            other => {
                // The program has closed the descriptor, and its number may belong to another file.
                let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = self.number.compare_exchange(other, NONE, success, failure);
                self.find()?
            }
        };
        // SAFETY: the descriptor is open, because the library never closes it.
        Some(unsafe { BorrowedFd::borrow_raw(number) })
    }

    #[cold]
    fn find(&self) -> Option<RawFd> {
        let own = raise((self.open)().ok()?).ok()?;
        self.sighting.begin(&own).ok()?;
        let number = own.into_number();
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        match self.number.compare_exchange(NONE, number, success, failure) {
            Ok(_) => Some(number),
            Err(other) => {
                // SAFETY: this function has just taken the number out of its owner, and no other value keeps the number.
                drop(unsafe { Own::at(number) });
                Some(other)
            }
        }
    }
}

fn source() -> io::Result<OwnedFd> {
    /// The byte of a packet, in read-only memory: the kernel refers to the packets in place.
    static PACKET: [u8; 1] = *b".";
    let (source, filler) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let all = [(); SIZE].map(|()| IoSliceRaw::from_slice(&PACKET));
    // SAFETY: the memory is never written.
    unsafe { vmsplice(&filler, &all, SpliceFlags::empty()) }?;
    Ok(source)
}

fn sink() -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    open("/dev/null", flags, Mode::empty())
}
