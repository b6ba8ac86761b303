//! A FIFO to ring by.

use super::spare;
use super::{Doorbell, FULL};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io;
use rustix::param::page_size;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice, tee};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::os::fd::{BorrowedFd, RawFd};

/// Its size, in pages: one for each packet.
pub(super) const SIZE: usize = FULL as usize;
/// Packets of a FIFO that was filled by another process are thrown away, at most so many.
pub(super) const FOREIGN: u32 = 64;

/// What a packet is.
const PACKET: &[u8; 1] = b".";

const NOT_WAITING: SpliceFlags = SpliceFlags::NONBLOCK;

/// See the module.
pub(crate) struct PollFifo<'a> {
    bell: &'a Doorbell,
    number: RawFd,
    /// Where it is put back; 0 if it is what the process polls.
    place: u64,
    /// CLOCK_MONOTONIC_COARSE when it was taken.
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
        // SAFETY: it was taken out of its place until `self` is dropped, or stays open as long as the doorbell.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }

    /// Has it hold so many packets instead of so many; one system call, unless others have filled or emptied it. Loudly: every process that
    /// polls is told to look again, whatever for.
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

    /// One packet more. Wakes pollers for messages. False if that was not to be done.
    fn write(&self) -> bool {
        io::write(self.file(), PACKET) == Ok(1)
    }

    /// So many more. Tells all processes: the kernel says of what comes from another pipe only that something has changed.
    fn insert(&self, packets: u32) -> bool {
        let len = packets as usize;
        spare::SOURCE
            .file(self.now)
            .is_some_and(|source| tee(source, self.file(), len, NOT_WAITING) == Ok(len))
    }

    /// So many packets less. Wakes pollers for room if it was full.
    fn read(&self, packets: u32) -> bool {
        let mut left = packets as usize;
        // What was written comes one at a time.
        while left != 0 {
            match io::read(self.file(), &mut [0; SIZE][..left]) {
                Ok(read @ 1..) => left -= read,
                _ => return false,
            }
        }
        true
    }

    /// So many packets less. Tells all processes, as [`insert`](Self::insert) does.
    fn throw_away(&self, packets: u32) -> bool {
        let len = packets as usize;
        spare::SINK
            .file(self.now)
            .is_some_and(|sink| splice(self.file(), None, sink, None, len, NOT_WAITING) == Ok(len))
    }

    /// Tells every process that polls to look again: setting a pipe's size, even to what it is, does.
    pub(crate) fn nudge(&self) {
        let _ = fcntl_setpipe_size(self.file(), SIZE * page_size());
    }

    /// Whether pollers see what so many packets show.
    pub(crate) fn shows(&self, packets: u32) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(
            self.file(),
            PollFlags::IN | PollFlags::OUT,
        )];
        let shown = match poll(&mut polled, Some(&Default::default())) {
            Ok(_) => polled[0].revents(),
            // What can't be looked at is not to be put right.
            Err(_) => return true,
        };
        let has = |flag| shown.contains(flag);
        (has(PollFlags::IN), has(PollFlags::OUT)) == (packets != 0, packets < FULL)
    }

    /// Has it hold so many packets, whatever it held.
    pub(crate) fn hold(&self, packets: u32) {
        self.adjust(packets);
        // Others may have put longer packets there, or changed its size.
        if !self.shows(packets) {
            self.refill(packets);
        }
    }

    /// Throws away what it holds, and puts so many packets there.
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

    /// Has it hold so many bytes, each of which is a packet unless others wrote there. What is right stays.
    fn adjust(&self, packets: u32) {
        let held = || io::ioctl_fionread(self.file()).unwrap_or(0);
        for _ in 0..FOREIGN {
            let more = held().saturating_sub(u64::from(packets));
            if more == 0 {
                break;
            }
            // Others may have put longer ones there.
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
