//! The limits of message queues, which are files in /proc/sys: the reads and writes of these files concern the limits of the namespace
//! ([`umsg::Limits`]).
//!
//! A descriptor for writing refers to a file in memory, which each process that inherits the descriptor recognises ([`umsg::kernel_files::limit`]).
//! The library parses a write to the file as the kernel does, and the write takes effect before it returns. libc's streams write without a call of
//! this library. The text that they have written takes effect in fflush, fclose, fseek or rewind, or at the end of the process.

use std::ffi::c_int;
use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{iovec, off_t, ssize_t};
use rustix::fs::{SeekFrom, Stat};
use umsg::Namespace;
use umsg::kernel_files::limit::{self, Limit, SetError};
use umsg_shm::sys::stack::roomy;

use crate::table::ACCESS_MODE;
use crate::{debug, errno, fd, home, pointer};

/// Set once the process has opened a limit's file for writing, or has inherited such a descriptor.
#[unsafe(link_section = ".data.umsg")]
static ANY: AtomicBool = AtomicBool::new(false);

/// Notes a file that the program has inherited, if it is the file of a limit.
pub(crate) fn note_arrival(status: &Stat) {
    if limit::has_mark(status) {
        ANY.store(true, Ordering::Relaxed);
    }
}

/// Returns whether the process may have a descriptor that writes to a limit.
#[inline(always)]
pub(crate) fn are_there() -> bool {
    // Relaxed: a thread that has such a descriptor sees that `ANY` is set.
    ANY.load(Ordering::Relaxed)
}

/// Returns the limit to which a descriptor writes.
#[inline(always)]
pub(crate) fn of(number: c_int) -> Option<Limit> {
    // Relaxed: a thread that has such a descriptor sees that `ANY` is set.
    if ANY.load(Ordering::Relaxed) {
        identify(number)
    } else {
        None
    }
}

#[cold]
fn identify(number: c_int) -> Option<Limit> {
    let descriptor = fd::borrow(number)?;
    let status = rustix::fs::fstat(descriptor).ok()?;
    let user = rustix::process::geteuid().as_raw();
    if !limit::is_marked(&status, user) {
        return None;
    }
    roomy(|| Limit::of_file(descriptor))
}

/// Opens a file in memory that represents the limit.
pub(crate) fn open(limit: Limit, flags: c_int, may_write: bool) -> Result<OwnedFd, c_int> {
    let namespace = namespace(limit)?;
    if may_write && !namespace.may_set_limits() {
        let error = "only the namespace's owner and root can set its limits";
        debug::explain("open", limit.path().as_bytes(), &error);
        return Err(libc::EACCES);
    }
    let access = flags & ACCESS_MODE;
    let others = flags & (libc::O_CLOEXEC | libc::O_NONBLOCK);
    let file = limit.open(namespace, access, others)?;
    if access != libc::O_RDONLY {
        ANY.store(true, Ordering::Relaxed);
    }
    Ok(file)
}

fn namespace(limit: Limit) -> Result<&'static Namespace, c_int> {
    home::namespace().map_err(|error| {
        debug::explain("open", limit.path().as_bytes(), &error);
        error.errno()
    })
}

/// Sets a limit to the number at the start of a text. Returns the number of bytes that were used.
fn set(limit: Limit, text: &[u8]) -> Result<usize, c_int> {
    limit.set(namespace(limit)?, text).map_err(|error| {
        if let SetError::Namespace(error) = &error {
            debug::explain("write", limit.path().as_bytes(), error);
        }
        error.errno()
    })
}

/// Answers a write to a limit, at an offset or at the position of the descriptor. Returns `None` for any other file.
///
/// # Safety
/// Each part has the number of readable bytes that it states, or an address that a pointer check refuses.
#[inline(always)]
pub(crate) unsafe fn written(
    number: c_int,
    parts: &[iovec],
    offset: Option<off_t>,
) -> Option<ssize_t> {
    let limit = of(number)?;
    // SAFETY: by this function's contract.
    Some(unsafe { write(limit, number, parts, offset) }.unwrap_or_else(errno::fail))
}

/// # Safety
/// The conditions of [`written`].
#[cold]
unsafe fn write(
    limit: Limit,
    number: c_int,
    parts: &[iovec],
    offset: Option<off_t>,
) -> Result<ssize_t, c_int> {
    let descriptor = fd::borrow(number).ok_or(libc::EBADF)?;
    if fd::status_flags(descriptor).map_err(|_| libc::EBADF)? & ACCESS_MODE == libc::O_RDONLY {
        return Err(libc::EBADF);
    }
    // SAFETY: by this function's contract.
    let text = unsafe { gather(parts)? };
    if text.is_empty() {
        return Ok(0);
    }
    let position = match offset {
        Some(offset) => u64::try_from(offset).map_err(|_| libc::EINVAL)?,
        None => rustix::fs::tell(descriptor).map_err(|error| error.raw_os_error())?,
    };
    // The kernel ignores a write that does not begin at offset 0.
    let used = match position {
        0 => roomy(|| set(limit, &text).inspect(|_| show(limit, descriptor)))?,
        _ => text.len(),
    };
    if offset.is_none() {
        let _ = rustix::fs::seek(descriptor, SeekFrom::Start(position + used as u64));
    }
    Ok(used.cast_signed())
}

/// # Safety
/// The conditions of [`written`].
unsafe fn gather(parts: &[iovec]) -> Result<Vec<u8>, c_int> {
    /// The maximum number of bytes that the kernel reads of a write.
    const MOST: usize = 4095;
    let mut text = Vec::new();
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        if pointer::is_bad(part.iov_base) {
            return Err(libc::EFAULT);
        }
        let len = part.iov_len.min(MOST - text.len());
        // SAFETY: by this function's contract.
        text.extend_from_slice(unsafe { std::slice::from_raw_parts(part.iov_base.cast(), len) });
    }
    Ok(text)
}

/// Replaces the file's content by the limit's present value, or by nothing if the descriptor can't read.
fn show(limit: Limit, descriptor: BorrowedFd<'_>) {
    let access = fd::status_flags(descriptor).unwrap_or(0) & ACCESS_MODE;
    let text = match namespace(limit)
        .and_then(|namespace| limit.text(namespace).map_err(|error| error.errno()))
    {
        Ok(text) if access == libc::O_RDWR => text,
        _ => String::new(),
    };
    // If these calls fail, the file keeps its old content. The limit itself does not depend on this content.
    let _ = rustix::fs::ftruncate(descriptor, text.len() as u64);
    let _ = rustix::io::pwrite(descriptor, text.as_bytes(), 0);
    limit::mark_unwritten(descriptor);
}

/// Sets a limit from the text that a stream has written to the limit's file.
pub(crate) fn settle(number: c_int) -> Result<(), c_int> {
    let (Some(limit), Some(descriptor)) = (of(number), fd::borrow(number)) else {
        return Ok(());
    };
    let access = fd::status_flags(descriptor).unwrap_or(0) & ACCESS_MODE;
    // The number of bytes to read. In a file that can also be read, the old text follows the bytes that a stream has written at the beginning.
    let len = match access {
        libc::O_WRONLY => 4095,
        libc::O_RDWR if limit::is_written(descriptor) => rustix::fs::tell(descriptor).unwrap_or(0),
        _ => return Ok(()),
    };
    roomy(|| {
        let mut text = Vec::new();
        let file = File::open(format!("/proc/self/fd/{number}")).map_err(|_| libc::EIO)?;
        file.take(len.min(4095))
            .read_to_end(&mut text)
            .map_err(|_| libc::EIO)?;
        if access == libc::O_WRONLY {
            let _ = rustix::fs::ftruncate(descriptor, 0);
        }
        // The text is empty if no stream has written, or if a hooked write has already set the limit. If the first byte is zero, a stream has not
        // written at the beginning of the file, and its text is ignored.
        let outcome = match text.first() {
            None | Some(0) => Ok(()),
            Some(_) => set(limit, &text).map(drop),
        };
        if access == libc::O_RDWR {
            show(limit, descriptor);
        }
        outcome
    })
}
