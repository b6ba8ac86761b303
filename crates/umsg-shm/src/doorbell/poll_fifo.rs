//! The FIFO of a doorbell.

use super::spare;
use super::{Doorbell, FULL};
use crate::sys::file_lock::{self, Lock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io;
use rustix::param::page_size;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice, tee};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::os::fd::{BorrowedFd, RawFd};

/// The size of the FIFO, in pages: the kernel uses one page for each packet.
pub(super) const SIZE: usize = FULL as usize;
/// The maximum number of packets that one change discards from a FIFO that another process has filled.
pub(super) const FOREIGN: u32 = 64;

/// The contents of a packet.
const PACKET: &[u8; 1] = b".";

const NOT_WAITING: SpliceFlags = SpliceFlags::NONBLOCK;

/// The FIFO of a doorbell while this process uses it.
pub(crate) struct PollFifo<'a> {
    bell: &'a Doorbell,
    number: RawFd,
    /// The value that the drop puts back into the descriptor's word; 0 if the process polls this descriptor.
    place: u64,
    /// The time (CLOCK_MONOTONIC_COARSE) at which the descriptor was taken.
    now: u64,
}

impl PollFifo<'_> {
    pub(super) fn of(bell: &Doorbell, number: RawFd, place: u64, now: u64) -> PollFifo<'_> {
        PollFifo {
            bell,
            number,
            place,
            now,
        }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor stays open as long as `self`. If it is the polled descriptor, it is open as long as the doorbell. Otherwise no other
        // thread can find it, because the descriptor's number has been removed from its word.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }

    /// Changes the number of packets from `from` to `to`. The change takes one system call unless other processes have changed the FIFO. With
    /// `loudly`, the function wakes all pollers for any event.
    pub(crate) fn change(&self, from: u32, to: u32, loudly: bool) {
        let is_done = match (to.cmp(&from), loudly) {
            (Greater, false) if to - from == 1 => self.write(),
            (Greater, _) => self.insert(to - from),
            (Less, false) => self.read(from - to),
            (Less, true) => self.throw_away(from - to),
            (Equal, false) => true,
            (Equal, true) => false,
        };
        if !is_done {
            self.hold(to);
            if loudly {
                self.nudge();
            }
        }
    }

    /// Adds a packet. With `loudly`, wakes all pollers for any event. Returns false on failure.
    pub(crate) fn add(&self, loudly: bool) -> bool {
        match loudly {
            true => self.insert(1),
            false => self.write(),
        }
    }

    /// Removes a packet. With `loudly`, wakes all pollers for any event. Returns false on failure.
    pub(crate) fn remove(&self, loudly: bool) -> bool {
        match loudly {
            true => self.throw_away(1),
            false => self.read(1),
        }
    }

    /// Adds a packet, which wakes the pollers for messages. Returns false on failure.
    fn write(&self) -> bool {
        io::write(self.file(), PACKET) == Ok(1)
    }

    /// Adds packets from another pipe. The transfer wakes all pollers, because the kernel names no event for such a transfer.
    fn insert(&self, packets: u32) -> bool {
        let len = packets as usize;
        spare::SOURCE
            .file(self.now)
            .is_some_and(|source| tee(source, self.file(), len, NOT_WAITING) == Ok(len))
    }

    /// Removes packets. If the FIFO was full, the read wakes the pollers for room.
    fn read(&self, packets: u32) -> bool {
        let mut left = packets as usize;
        // Each read returns one packet.
        while left != 0 {
            match io::read(self.file(), &mut [0; SIZE][..left]) {
                Ok(read @ 1..) => left -= read,
                _ => return false,
            }
        }
        true
    }

    /// Removes packets, and wakes all pollers, as [`insert`](Self::insert) does.
    fn throw_away(&self, packets: u32) -> bool {
        let len = packets as usize;
        spare::SINK
            .file(self.now)
            .is_some_and(|sink| splice(self.file(), None, sink, None, len, NOT_WAITING) == Ok(len))
    }

    /// Wakes every poller by setting the size of the FIFO, even if the size stays the same.
    pub(crate) fn nudge(&self) {
        let _ = fcntl_setpipe_size(self.file(), SIZE * page_size());
    }

    /// Returns whether poll(2) reports the level that this number of packets shows.
    pub(crate) fn shows(&self, packets: u32) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(
            self.file(),
            PollFlags::IN | PollFlags::OUT,
        )];
        let shown = match poll(&mut polled, Some(&Default::default())) {
            Ok(_) => polled[0].revents(),
            // A FIFO that can't be inspected can't be corrected, so its level is assumed to be right.
            Err(_) => return true,
        };
        let has = |flag| shown.contains(flag);
        (has(PollFlags::IN), has(PollFlags::OUT)) == (packets != 0, packets < FULL)
    }

    /// Returns whether other processes poll the FIFO without a helper for deadlines. Such processes hold a lock on the FIFO.
    pub(crate) fn lacks_helpers(&self) -> bool {
        file_lock::is_forbidden(self.file(), Lock::Exclusive).unwrap_or(false)
    }

    /// Sets the number of packets. The FIFO may hold any number of packets before the call.
    pub(crate) fn hold(&self, packets: u32) {
        self.adjust(packets);
        // The sum of bytes may be right although the level is wrong: other processes may have written longer packets, or changed the size.
        if !self.shows(packets) {
            self.refill(packets);
        }
    }

    /// Discards all packets, and adds this number of new packets.
    #[cold]
    fn refill(&self, packets: u32) {
        for _ in 0..FOREIGN {
            if io::read(self.file(), &mut [0; FOREIGN as usize]).is_err() {
                break;
            }
        }
        self.nudge();
        for _ in 0..packets {
            let _ = self.write();
        }
    }

    /// Makes the FIFO hold this number of bytes. Each byte is a packet, unless other processes have written to the FIFO.
    fn adjust(&self, packets: u32) {
        let held = || io::ioctl_fionread(self.file()).unwrap_or(0);
        for _ in 0..FOREIGN {
            let more = held().saturating_sub(u64::from(packets));
            if more == 0 {
                break;
            }
            // A read returns one packet, which may be longer than a byte if another process has written it.
            let most = more.min(FOREIGN.into()) as usize;
            let _ = io::read(self.file(), &mut [0; FOREIGN as usize][..most]);
        }
        for _ in held()..u64::from(packets) {
            let _ = self.write();
        }
    }
}

impl Drop for PollFifo<'_> {
    fn drop(&mut self) {
        if self.place != 0 {
            self.bell.put_back(self.place);
        }
    }
}
