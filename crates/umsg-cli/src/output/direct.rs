//! Standard output without a buffer, for received messages: after each call, the command knows which bytes were written.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::streams;

/// Standard output, open for writing.
#[derive(Clone, Copy, Debug)]
pub struct Direct(());

impl Direct {
    pub fn open() -> io::Result<Direct> {
        streams::check_output()?;
        Ok(Direct(()))
    }

    fn stream(self) -> BorrowedFd<'static> {
        rustix::stdio::stdout()
    }

    /// Returns whether the reader of the pipe has ended, or the terminal is closed. Further output would be lost.
    pub fn is_abandoned(self) -> bool {
        let stream = self.stream();
        let mut polled = [PollFd::new(&stream, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let lost = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(lost)
    }

    /// If the output is a pipe, reduces its capacity to one page, so that [`Self::wait_until_taken`] works. Returns false if the output is not a
    /// pipe, or if the pipe already holds more than a page.
    pub fn step_by_step(self) -> bool {
        let is_pipe = rustix::fs::fstat(self.stream())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        is_pipe
            && rustix::pipe::fcntl_setpipe_size(self.stream(), rustix::param::page_size()).is_ok()
    }

    /// Waits until the reader has read all bytes from the pipe. The pipe has a capacity of one page, so it is ready for output only when it is empty.
    /// Fails with BrokenPipe if the reader ends first.
    pub fn wait_until_taken(self) -> io::Result<()> {
        let stream = self.stream();
        loop {
            let mut polled = [PollFd::new(&stream, PollFlags::OUT)];
            match poll(&mut polled, None) {
                Ok(_) if polled[0].revents().contains(PollFlags::ERR) => {
                    // The reader may have read all bytes before it ended, so the bytes in the pipe are counted.
                    return match rustix::io::ioctl_fionread(stream) {
                        Ok(0) => Ok(()),
                        _ => Err(io::ErrorKind::BrokenPipe.into()),
                    };
                }
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until standard input has bytes or ends. Returns false if the reader of the output ends first.
    pub fn wait_for_input(self) -> bool {
        let (stream, input) = (self.stream(), rustix::stdio::stdin());
        let mut polled = [
            PollFd::new(&input, PollFlags::IN),
            PollFd::new(&stream, PollFlags::empty()),
        ];
        while poll(&mut polled, None) == Err(Errno::INTR) {}
        !polled[0].revents().is_empty() || polled[1].revents().is_empty()
    }

    /// Writes all bytes, and waits for room in the pipe.
    pub fn write_all(self, bytes: &[u8]) -> io::Result<()> {
        if self.would_exceed_limit(bytes.len()) {
            return Err(Errno::FBIG.into());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(self.stream(), rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                // Another process that shares the pipe has set O_NONBLOCK, so the write does not wait by itself.
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait_for_room(self) -> io::Result<()> {
        let stream = self.stream();
        match poll(&mut [PollFd::new(&stream, PollFlags::OUT)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether `more` bytes would exceed the limit of file sizes (`ulimit -f`). Without this check, the system would write a part of the
    /// message and refuse the rest.
    fn would_exceed_limit(self, more: usize) -> bool {
        let Some(limit) = getrlimit(Resource::Fsize).current else {
            return false;
        };
        self.end_of_file()
            .is_some_and(|end| end.saturating_add(more as u64) > limit)
    }

    /// Returns the file offset at which the next byte is written.
    fn end_of_file(self) -> Option<u64> {
        let stat = rustix::fs::fstat(self.stream()).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let flags = rustix::fs::fcntl_getfl(self.stream()).ok()?;
        match flags.contains(OFlags::APPEND) {
            true => u64::try_from(stat.st_size).ok(),
            false => rustix::fs::tell(self.stream()).ok(),
        }
    }
}
