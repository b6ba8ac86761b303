//! A backend of the kernel with one deliberate mistake. The comparison with the kernel must find the mistake.

use std::ffi::CStr;

use super::{
    AbsTime, Answer, Attributes, Backend, Basics, Called, EpollControl, Failure, Fd,
    OpenAttributes, Ownership, Status,
};
use crate::errno::Errno;

/// A deliberate mistake of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The descriptor is checked before the priority.
    PriorityCheckedLate,
    /// The length of a receive buffer is compared with the message's length, not with the queue's message size.
    SmallBufferAccepted,
    /// The last bit of each received message of more than 4 bytes is inverted.
    BitTurned,
    /// If a queue has more than two messages, the reported number of its messages is too high by one.
    CountTooHigh,
    /// Time-outs fail with `EAGAIN`.
    TimedOutAsWouldBlock,
    /// Priorities above 100 are sent as 100.
    PriorityCut,
    /// `O_EXCL` is ignored.
    ExclusiveIgnored,
    /// The umask is ignored.
    UmaskIgnored,
    /// `mq_setattr` forgets to clear `O_NONBLOCK`.
    NonblockSticks,
    /// `dup` sets close-on-exec for the duplicate.
    DuplicateClosedOnExec,
    /// `mq_unlink` of a missing queue succeeds.
    UnlinkAlwaysSucceeds,
    /// A blocked receive gives up with `EAGAIN`.
    NeverBlocks,
    /// A receive overwrites the byte of the buffer that follows the message.
    BufferScribbledOn,
    /// A full queue is reported as writable.
    FullIsWritable,
    /// `select` reports no descriptor as readable.
    SelectBlind,
    /// `EPOLLET` is ignored.
    EdgesAreLevels,
    /// `EPOLLONESHOT` is ignored.
    TellsMoreThanOnce,
    /// A registration succeeds although another process is registered.
    BusyIsHidden,
    /// `mq_notify` can't end a registration.
    RegistrationSticks,
    /// The value of a notification is lost.
    ValueLost,
}

impl Flaw {
    /// All mistakes.
    pub const ALL: &[Flaw] = &[
        Flaw::PriorityCheckedLate,
        Flaw::SmallBufferAccepted,
        Flaw::BitTurned,
        Flaw::CountTooHigh,
        Flaw::TimedOutAsWouldBlock,
        Flaw::PriorityCut,
        Flaw::ExclusiveIgnored,
        Flaw::UmaskIgnored,
        Flaw::NonblockSticks,
        Flaw::DuplicateClosedOnExec,
        Flaw::UnlinkAlwaysSucceeds,
        Flaw::NeverBlocks,
        Flaw::BufferScribbledOn,
        Flaw::FullIsWritable,
        Flaw::SelectBlind,
        Flaw::EdgesAreLevels,
        Flaw::TellsMoreThanOnce,
        Flaw::BusyIsHidden,
        Flaw::RegistrationSticks,
        Flaw::ValueLost,
    ];
}

/// The kernel with a mistake.
pub struct Flawed<K, F> {
    pub(crate) kernel: K,
    flaw: F,
}

impl<K, F: Copy + PartialEq> Flawed<K, F> {
    /// Returns this kernel with this mistake.
    pub fn new(kernel: K, flaw: F) -> Self {
        Flawed { kernel, flaw }
    }

    pub(crate) fn has(&self, flaw: F) -> bool {
        self.flaw == flaw
    }
}

impl Flawed<Called, Flaw> {
    fn check_first(&self, fd: Fd, priority: u32) -> Answer<()> {
        if self.has(Flaw::PriorityCheckedLate) && priority > 32767 {
            self.kernel.attributes(fd)?;
        }
        Ok(())
    }

    fn cut(&self, priority: u32) -> u32 {
        if self.has(Flaw::PriorityCut) && priority <= 32767 {
            priority.min(100)
        } else {
            priority
        }
    }

    fn time_out<T>(&self, answer: Answer<T>) -> Answer<T> {
        match answer {
            Err(Failure::Errno(Errno::ETIMEDOUT)) if self.has(Flaw::TimedOutAsWouldBlock) => {
                Err(Errno::EAGAIN.into())
            }
            answer => answer,
        }
    }

    /// Receives a message by `receive`, and then makes the mistake in the buffer.
    fn received(
        &self,
        fd: Fd,
        buffer: &mut [u8],
        receive: impl FnOnce(&mut [u8]) -> Answer<(usize, u32)>,
    ) -> Answer<(usize, u32)> {
        if self.has(Flaw::SmallBufferAccepted) && !buffer.is_empty() {
            let size = self
                .kernel
                .attributes(fd)
                .map_or(0, |attributes| attributes.message_size as usize);
            let mut large = vec![0; size.max(buffer.len())];
            let (length, priority) = receive(&mut large)?;
            let length = length.min(buffer.len());
            buffer[..length].copy_from_slice(&large[..length]);
            return Ok((length, priority));
        }
        let (length, priority) = receive(buffer)?;
        if self.has(Flaw::BitTurned) && length > 4 {
            buffer[length - 1] ^= 1;
        }
        if self.has(Flaw::BufferScribbledOn) && length < buffer.len() {
            buffer[length] = 0;
        }
        Ok((length, priority))
    }
}

impl Basics for Flawed<Called, Flaw> {
    fn label(&self) -> &'static str {
        "flawed kernel"
    }
}

impl Backend for Flawed<Called, Flaw> {
    fn open(&self, name: &CStr, flags: i32, mode: u32, attributes: OpenAttributes) -> Answer<Fd> {
        let flags = if self.has(Flaw::ExclusiveIgnored) {
            flags & !libc::O_EXCL
        } else {
            flags
        };
        if !self.has(Flaw::UmaskIgnored) {
            return self.kernel.open(name, flags, mode, attributes);
        }
        let before = crate::sys::umask(0);
        let opened = self.kernel.open(name, flags, mode, attributes);
        crate::sys::umask(before);
        opened
    }

    fn close(&self, fd: Fd) -> Answer<()> {
        self.kernel.close(fd)
    }

    fn unlink(&self, name: &CStr) -> Answer<()> {
        match self.kernel.unlink(name) {
            Err(Failure::Errno(Errno::ENOENT)) if self.has(Flaw::UnlinkAlwaysSucceeds) => Ok(()),
            answer => answer,
        }
    }

    fn send(&self, fd: Fd, message: &[u8], priority: u32) -> Answer<()> {
        self.check_first(fd, priority)?;
        self.kernel.send(fd, message, self.cut(priority))
    }

    fn timed_send(&self, fd: Fd, message: &[u8], priority: u32, deadline: AbsTime) -> Answer<()> {
        self.time_out(
            self.kernel
                .timed_send(fd, message, self.cut(priority), deadline),
        )
    }

    fn receive(&self, fd: Fd, buffer: &mut [u8]) -> Answer<(usize, u32)> {
        self.received(fd, buffer, |buffer| {
            if !self.has(Flaw::NeverBlocks) {
                return self.kernel.receive(fd, buffer);
            }
            match self.kernel.timed_receive(
                fd,
                buffer,
                Some(&libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                }),
            ) {
                Err(Failure::Errno(Errno::ETIMEDOUT)) => Err(Errno::EAGAIN.into()),
                answer => answer,
            }
        })
    }

    fn timed_receive(&self, fd: Fd, buffer: &mut [u8], deadline: AbsTime) -> Answer<(usize, u32)> {
        self.time_out(self.received(fd, buffer, |buffer| {
            self.kernel.timed_receive(fd, buffer, deadline)
        }))
    }

    fn attributes(&self, fd: Fd) -> Answer<Attributes> {
        let mut attributes = self.kernel.attributes(fd)?;
        if self.has(Flaw::CountTooHigh) && attributes.messages > 2 {
            attributes.messages += 1;
        }
        Ok(attributes)
    }

    fn set_attributes(&self, fd: Fd, attributes: &Attributes) -> Answer<Attributes> {
        if self.has(Flaw::NonblockSticks) && attributes.flags == 0 {
            return self.kernel.attributes(fd);
        }
        self.kernel.set_attributes(fd, attributes)
    }

    fn ownership(&self, fd: Fd) -> Answer<Ownership> {
        self.kernel.ownership(fd)
    }

    fn dup(&self, fd: Fd) -> Answer<Fd> {
        if self.has(Flaw::DuplicateClosedOnExec) {
            return self.kernel.fcntl(fd, libc::F_DUPFD_CLOEXEC, 0);
        }
        self.kernel.dup(fd)
    }

    fn close_descriptor(&self, fd: Fd) -> Answer<()> {
        self.kernel.close_descriptor(fd)
    }

    fn dup2(&self, fd: Fd, onto: Fd) -> Answer<Fd> {
        self.kernel.dup2(fd, onto)
    }

    fn fcntl(&self, fd: Fd, command: i32, argument: i32) -> Answer<i32> {
        self.kernel.fcntl(fd, command, argument)
    }

    fn status(&self, fd: Fd) -> Answer<Status> {
        self.kernel.status(fd)
    }

    fn read(&self, fd: Fd, buffer: &mut [u8]) -> Answer<usize> {
        self.kernel.read(fd, buffer)
    }

    fn read_at(&self, fd: Fd, buffer: &mut [u8], offset: i64) -> Answer<usize> {
        self.kernel.read_at(fd, buffer, offset)
    }

    fn poll(&self, descriptors: &mut [libc::pollfd], timeout: i32) -> Answer<usize> {
        let count = self.kernel.poll(descriptors, timeout)?;
        for one in descriptors.iter_mut() {
            if self.has(Flaw::FullIsWritable) && one.revents & libc::POLLIN != 0 {
                one.revents |= one.events & libc::POLLOUT;
            }
        }
        Ok(count)
    }

    fn select(&self, below: Fd, sets: [&mut libc::fd_set; 2]) -> Answer<usize> {
        if self.has(Flaw::SelectBlind) {
            // SAFETY: the pointer leads to a set of descriptors.
            unsafe { libc::FD_ZERO(sets[0]) };
        }
        self.kernel.select(below, sets)
    }

    fn notify(&self, fd: Fd, event: Option<&libc::sigevent>) -> Answer<()> {
        let mut event = event.copied();
        if self.has(Flaw::RegistrationSticks) && event.is_none() {
            return self.kernel.attributes(fd).map(drop);
        }
        if let Some(event) = event.as_mut().filter(|_| self.has(Flaw::ValueLost)) {
            event.sigev_value.sival_ptr = std::ptr::null_mut();
        }
        match self.kernel.notify(fd, event.as_ref()) {
            Err(Failure::Errno(Errno::EBUSY)) if self.has(Flaw::BusyIsHidden) => Ok(()),
            answer => answer,
        }
    }

    fn control_epoll(&self, fd: Fd, control: EpollControl) -> Answer<()> {
        let mut control = control;
        for (flaw, flag) in [
            (Flaw::EdgesAreLevels, libc::EPOLLET),
            (Flaw::TellsMoreThanOnce, libc::EPOLLONESHOT),
        ] {
            if self.has(flaw) {
                control.event.events &= !flag.cast_unsigned();
            }
        }
        self.kernel.control_epoll(fd, control)
    }

    fn write(&self, fd: Fd, bytes: &[u8]) -> Answer<usize> {
        self.kernel.write(fd, bytes)
    }

    fn seek(&self, fd: Fd, offset: i64, whence: i32) -> Answer<i64> {
        self.kernel.seek(fd, offset, whence)
    }

    fn sync(&self, fd: Fd) -> Answer<()> {
        self.kernel.sync(fd)
    }

    fn change_mode(&self, fd: Fd, mode: u32) -> Answer<()> {
        self.kernel.change_mode(fd, mode)
    }

    fn change_owner(&self, fd: Fd, uid: u32, gid: u32) -> Answer<()> {
        self.kernel.change_owner(fd, uid, gid)
    }

    fn map(&self, fd: Fd) -> Answer<()> {
        self.kernel.map(fd)
    }
}
