//! Operations on descriptors: pipes and sockets, their data, and their numbers.

use super::check;
use crate::errno::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// Makes a pipe that is closed on exec. Returns its reading end and its writing end.
///
/// # Errors
/// The errors of `pipe2`.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    // SAFETY: the pointer leads to room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok(owned(ends))
}

/// Makes a pair of connected sockets that are closed on exec. The sockets preserve the boundaries of records.
///
/// # Errors
/// The errors of `socketpair`.
pub fn sockets() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the pointer leads to room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    Ok(owned(ends))
}

/// Passes a descriptor through a socket. Returns the new descriptor of the same open file description, which is closed on exec.
///
/// # Errors
/// The errors of `socketpair`, `sendmsg` and `recvmsg`.
pub fn through_a_socket(fd: RawFd) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        fd: RawFd,
    }
    let (from, to) = sockets()?;
    let mut byte = [0_u8; 1];
    let mut bytes = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let length = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
    let header = libc::cmsghdr {
        cmsg_len: length,
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    let mut control = Control { header, fd };
    // SAFETY: the structure consists of integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut bytes;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(&mut control).cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: `message` points to one byte and one control message with one descriptor, all alive during the call.
    check(unsafe { libc::sendmsg(from.as_raw_fd(), &message, 0) } as i32)?;
    // SAFETY: the call writes to the byte and the control message that `message` points to, all alive during the call.
    check(unsafe { libc::recvmsg(to.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) } as i32)?;
    // SAFETY: the descriptor is new in this process, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(control.fd) })
}

fn owned(ends: [RawFd; 2]) -> (OwnedFd, OwnedFd) {
    // SAFETY: the call above has just made the descriptors, and they have no other owner.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

/// Writes one record. If a signal interrupts the call, repeats it.
///
/// # Errors
/// The errors of `write`.
pub fn write_record(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    loop {
        // SAFETY: the pointer and the length are those of a live slice. The code makes the system call directly, so that no preloaded library sees
        // the descriptors of the tests.
        let written = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
        if written >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reads one record, or the available bytes if the descriptor does not preserve records. Returns the number of bytes, or 0 at the end of the data. If
/// a signal interrupts the call, repeats it.
///
/// # Errors
/// The errors of `read`.
pub fn read_record(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the pointer and the length are those of a live slice.
        let read = unsafe { libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len()) };
        if read >= 0 {
            return Ok(read as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Waits at most for `patience`. Returns whether data are readable or the other end is closed.
pub fn readable(fd: RawFd, patience: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = patience.as_millis().try_into().unwrap_or(i32::MAX);
    // SAFETY: the call takes one valid entry.
    unsafe { libc::poll(&mut poll, 1, milliseconds) == 1 }
}

/// Returns an `fd_set` with these descriptors, which are below FD_SETSIZE.
pub fn set_of(fds: &[RawFd]) -> libc::fd_set {
    // SAFETY: the structure consists of bits, for which zero is valid.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    for &fd in fds {
        assert!((0..libc::FD_SETSIZE as RawFd).contains(&fd));
        // SAFETY: the number lies within the set.
        unsafe { libc::FD_SET(fd, &mut set) };
    }
    set
}

/// Returns whether a descriptor below FD_SETSIZE is in a set.
pub fn is_in(fd: RawFd, set: &libc::fd_set) -> bool {
    assert!((0..libc::FD_SETSIZE as RawFd).contains(&fd));
    // SAFETY: the number lies within the set.
    unsafe { libc::FD_ISSET(fd, set) }
}

/// Makes `number` a duplicate of a descriptor. The duplicate stays open on exec.
///
/// # Errors
/// The errors of `dup3`.
pub fn place(fd: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
    // SAFETY: the caller has no descriptor at that number that it still uses.
    check(unsafe { libc::syscall(libc::SYS_dup3, fd.as_raw_fd(), number, 0) } as i32).map(drop)
}

/// Makes a file in memory that is closed on exec.
///
/// # Errors
/// The errors of `memfd_create`.
pub fn memory_file() -> Result<std::fs::File, Errno> {
    // SAFETY: the name ends with a NUL.
    let fd = check(unsafe { libc::memfd_create(c"umsg-conformance".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the call above has just made the descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Takes ownership of the open descriptor with this number, which must have no other owner.
pub fn take(number: RawFd) -> OwnedFd {
    // SAFETY: the caller got the descriptor from the process that started this program, so it has no other owner.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Closes every descriptor in a range.
///
/// Only a child may call this function, at its start, when no code uses the descriptors yet.
pub fn close_all(first: u32, last: u32) {
    // SAFETY: a child calls this function at its start, when no code uses the descriptors yet.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Gives up ownership of a descriptor without closing it. The descriptor is already closed, or must stay open.
pub fn forget(fd: OwnedFd) {
    std::mem::forget(fd);
}
