//! The descriptor through which the kernel passes system calls to the supervisor. Source: seccomp_unotify(2).

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A system call of a thread that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    id: u64,
    /// The thread that makes the call.
    pub thread: libc::pid_t,
    pub number: libc::c_long,
    pub arguments: [u64; 6],
}

/// The error that the calling thread no longer waits, because it has died.
#[derive(Debug)]
pub struct Gone;

/// The answer to a system call: a value, or an errno.
pub type Answer = Result<i64, i32>;

impl Call {
    #[cfg(test)]
    pub fn new(thread: libc::pid_t, number: libc::c_long, arguments: [u64; 6]) -> Call {
        Call {
            id: 0,
            thread,
            number,
            arguments,
        }
    }
}

#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    pub fn new(descriptor: OwnedFd) -> Listener {
        Listener(descriptor)
    }

    /// Waits for a system call of a supervised thread.
    pub fn receive(&self) -> io::Result<Call> {
        // SAFETY: the structure consists of numbers, for which zero is a valid value. The kernel requires zeroes.
        let mut found: libc::seccomp_notif = unsafe { mem::zeroed() };
        self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, (&raw mut found).cast())?;
        Ok(Call {
            id: found.id,
            thread: found.pid.cast_signed(),
            number: found.data.nr.into(),
            arguments: found.data.args,
        })
    }

    /// Returns whether the thread still waits for the answer. If it does, then memory of its process that was read before this check is indeed the
    /// memory of the caller.
    pub fn waits(&self, call: &Call) -> bool {
        let mut id = call.id;
        self.control(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, (&raw mut id).cast())
            .is_ok()
    }

    /// Gives a waiting thread the answer to its call.
    pub fn answer(&self, call: &Call, answer: Answer) -> Result<(), Gone> {
        let (val, error) = match answer {
            Ok(value) => (value, 0),
            Err(errno) => (0, -errno),
        };
        self.send(call, val, error, 0)
    }

    /// Makes the kernel perform a call. Ignores an error, which means that the thread has died.
    pub fn pass(&self, call: &Call) {
        let _ = self.send(call, 0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
    }

    fn send(&self, call: &Call, val: i64, error: i32, flags: u32) -> Result<(), Gone> {
        let mut response = libc::seccomp_notif_resp {
            id: call.id,
            val,
            error,
            flags,
        };
        self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, (&raw mut response).cast())
            .map(drop)
            .map_err(|_| Gone)
    }

    /// Ends a call: adds a descriptor to the process, and returns its number as the result of the call. On an error, the caller answers the call with
    /// that errno.
    pub fn give(
        &self,
        call: &Call,
        file: BorrowedFd<'_>,
        closes_at_exec: bool,
    ) -> Result<Result<RawFd, i32>, Gone> {
        let flags = if closes_at_exec { libc::O_CLOEXEC } else { 0 };
        let mut gift = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: file.as_raw_fd().cast_unsigned(),
            newfd: 0,
            newfd_flags: flags.cast_unsigned(),
        };
        match self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, (&raw mut gift).cast()) {
            Ok(number) => Ok(Ok(number)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT) => Err(Gone),
                errno => {
                    let errno = errno.unwrap_or(libc::EMFILE);
                    self.answer(call, Err(errno)).map(|()| Err(errno))
                }
            },
        }
    }

    /// Replaces the file of one of the process's descriptors, while the process waits in the call.
    pub fn replace(
        &self,
        call: &Call,
        number: RawFd,
        file: BorrowedFd<'_>,
        closes_at_exec: bool,
    ) -> io::Result<()> {
        let flags = if closes_at_exec { libc::O_CLOEXEC } else { 0 };
        let mut gift = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SETFD as u32,
            srcfd: file.as_raw_fd().cast_unsigned(),
            newfd: number.cast_unsigned(),
            newfd_flags: flags.cast_unsigned(),
        };
        self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, (&raw mut gift).cast())
            .map(drop)
    }

    fn control(&self, request: libc::Ioctl, argument: *mut c_void) -> io::Result<i32> {
        // SAFETY: each caller passes the structure of its request, which lives during the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) } {
            -1 => Err(io::Error::last_os_error()),
            value => Ok(value),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
