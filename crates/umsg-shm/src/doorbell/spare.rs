//! What packets come from and go to where all processes that poll a doorbell are to be told: the kernel tells all processes of what is moved between a
//! pipe and something else, and of what is read or written only those whom it may concern.
//!
//! A descriptor each a process, opened when it is needed first, and never closed.

use super::kept_descriptor::{Own, Sighting, raise};
use super::poll_fifo::SIZE;
use rustix::fs::{Mode, OFlags, open};
use rustix::io;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, pipe_with, vmsplice};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// A pipe that holds packets, as many as a doorbell does: they are duplicated.
pub(super) static SOURCE: Spare = Spare::new(source);
/// /dev/null.
pub(super) static SINK: Spare = Spare::new(sink);

/// None yet.
const NONE: RawFd = -1;

/// See the module.
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

    /// The descriptor, at this reading of CLOCK_MONOTONIC_COARSE. None if it can't be opened.
    pub(super) fn file(&self, now: u64) -> Option<BorrowedFd<'_>> {
        // Acquire: what it was seen to be.
        let number = match self.number.load(Ordering::Acquire) {
            NONE => self.find()?,
            known if self.sighting.is_still(known, now) => known,
            other => {
                // The program has closed it.
                let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = self.number.compare_exchange(other, NONE, success, failure);
                self.find()?
            }
        };
        // SAFETY: open, as nobody of ours closes it.
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
                // SAFETY: just taken out of its owner, and kept nowhere.
                drop(unsafe { Own::at(number) });
                Some(other)
            }
        }
    }
}

fn source() -> io::Result<OwnedFd> {
    /// In memory that no process writes: the kernel takes the packets from where they are.
    static PACKET: [u8; 1] = *b".";
    let (source, filler) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let all = [(); SIZE].map(|()| IoSliceRaw::from_slice(&PACKET));
    // SAFETY: nobody ever writes there.
    unsafe { vmsplice(&filler, &all, SpliceFlags::empty()) }?;
    Ok(source)
}

fn sink() -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    open("/dev/null", flags, Mode::empty())
}
