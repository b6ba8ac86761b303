//! Locks of whole files that belong to an open file description (fcntl(2), F_OFD_SETLK).

use crate::kernel;
use libc::flock;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// The kinds of locks of an open file description.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    Exclusive,
    Shared,
    None,
}

impl Lock {
    fn kind(self) -> libc::c_int {
        match self {
            Lock::Exclusive => libc::F_WRLCK,
            Lock::Shared => libc::F_RDLCK,
            Lock::None => libc::F_UNLCK,
        }
    }
}

/// Changes the lock of this open file description.
///
/// # Errors
/// The errors of fcntl(2): EAGAIN if another description's lock forbids this lock.
pub(crate) fn set(file: BorrowedFd<'_>, lock: Lock) -> Result<(), Errno> {
    call(file, libc::F_OFD_SETLK, lock).map(drop)
}

/// Returns whether the lock of another open file description forbids a lock of this kind.
///
/// # Errors
/// The errors of fcntl(2).
pub(crate) fn is_forbidden(file: BorrowedFd<'_>, lock: Lock) -> Result<bool, Errno> {
    let found = call(file, libc::F_OFD_GETLK, lock)?;
    Ok(found.l_type != libc::F_UNLCK as libc::c_short)
}

/// Makes the system call directly, because the drop-in's fcntl reports the library's descriptors as closed. libc's syscall would lead through the
/// drop-in, too, and take hundreds of bytes of the stack.
fn call(file: BorrowedFd<'_>, command: libc::c_int, lock: Lock) -> Result<flock, Errno> {
    // SAFETY: the structure consists of integers, for which zero is a valid value. Zeroes mean the whole file.
    let mut found: flock = unsafe { std::mem::zeroed() };
    found.l_type = lock.kind() as libc::c_short;
    let arguments = [
        file.as_raw_fd() as usize,
        command as usize,
        (&raw mut found).expose_provenance(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads and writes the structure, which outlives the call.
    unsafe { kernel::call(libc::SYS_fcntl, arguments) }.map_err(Errno::from_raw_os_error)?;
    Ok(found)
}
