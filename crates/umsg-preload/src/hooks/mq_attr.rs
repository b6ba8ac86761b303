//! mq_getattr and mq_setattr. One function serves both, as in the kernel.

use std::ffi::{c_int, c_long};

use libc::mq_attr;
use rustix::fs::OFlags;
use umsg_trace::Function;

use crate::table::{self, Held};
use crate::trace::{self, Copied, Described, Target};
use crate::{errno, fd, next, ours, pointer};

/// Reads a queue's attributes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_getattr(fd: c_int, out: *mut mq_attr) -> c_int {
    // SAFETY: the caller makes the promises that libc's mq_getattr requires.
    unsafe { get(fd, out) }
}

/// # Safety
/// The conditions of libc's mq_getattr.
#[inline(always)]
unsafe fn get(fd: c_int, out: *mut mq_attr) -> c_int {
    // SAFETY: by this function's contract.
    let exchange = || unsafe { exchange(fd, std::ptr::null(), out) };
    trace::recorded(
        || exchange().unwrap_or_else(errno::fail),
        Function::MqGetattr,
        |result| {
            let mut arguments = [fd.into(), 0, 0, 0, 0];
            if result == 0 && !out.is_null() {
                // SAFETY: the call has written `out`.
                let now = unsafe { out.read_unaligned() };
                let numbers = [now.mq_flags, now.mq_maxmsg, now.mq_msgsize, now.mq_curmsgs];
                arguments[1..].copy_from_slice(&numbers.map(i64::from));
            }
            Described {
                arguments,
                queue: Target::Descriptor(fd),
                data: Copied::default(),
            }
        },
    )
}

/// Sets O_NONBLOCK, the only attribute that can be set, and returns the previous attributes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_setattr(fd: c_int, new: *const mq_attr, old: *mut mq_attr) -> c_int {
    // SAFETY: the caller makes the promises that libc's mq_setattr requires.
    unsafe { set(fd, new, old) }
}

/// Reads the attributes, and changes them if `new` is not null. The hook of syscall calls this function for the system call mq_getsetattr.
///
/// # Safety
/// The conditions of [`exchange`].
pub(super) unsafe fn exchange_bare(fd: c_int, new: *const mq_attr, old: *mut mq_attr) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        match new.is_null() {
            true => get(fd, old),
            false => set(fd, new, old),
        }
    }
}

/// # Safety
/// The conditions of libc's mq_setattr.
#[inline(always)]
unsafe fn set(fd: c_int, new: *const mq_attr, old: *mut mq_attr) -> c_int {
    // SAFETY: by this function's contract.
    let exchange = || unsafe { exchange(fd, new, old) };
    trace::recorded(
        || exchange().unwrap_or_else(errno::fail),
        Function::MqSetattr,
        |_| {
            let flags = match pointer::is_bad(new) {
                true => 0,
                // SAFETY: the call has read `new`.
                false => unsafe { (&raw const (*new).mq_flags).read_unaligned() },
            };
            Described {
                arguments: [fd.into(), flags, 0, 0, 0],
                queue: Target::Descriptor(fd),
                data: Copied::default(),
            }
        },
    )
}

/// # Safety
/// `new` is readable and `old` writable, or NULL, or addresses that a pointer check refuses.
unsafe fn exchange(fd: c_int, new: *const mq_attr, old: *mut mq_attr) -> Result<c_int, c_int> {
    // SAFETY: by this function's contract.
    let wanted = unsafe { wanted_flags(new)? };
    // To read the attributes, the table's entry is enough, as for a send. For a change, the file is also checked: another file may now have this
    // descriptor number.
    let held = match table::hold(fd).filter(|_| wanted.is_none()) {
        Some(held) => Some(held),
        None => ours::checked_queue(fd)?,
    };
    let Some(held) = held else {
        // SAFETY: by this function's contract.
        return errno::result(unsafe { next::mq_setattr(fd, new, old) });
    };
    let descriptor = fd::borrow(fd).ok_or(libc::EBADF)?;
    let Ok(flags) = rustix::fs::fcntl_getfl(descriptor) else {
        // A bare system call has closed the descriptor. This check removes the descriptor's entry from the table.
        drop(ours::file(fd));
        return Err(libc::EBADF);
    };
    if let Some(wanted) = wanted {
        let all = (flags - OFlags::NONBLOCK) | wanted;
        held.blocking
            .change(descriptor, || rustix::fs::fcntl_setfl(descriptor, all))
            .map_err(|error| error.raw_os_error())?;
    }
    // SAFETY: by this function's contract.
    unsafe { write_attributes(&held, flags & OFlags::NONBLOCK, old) }
}

/// # Safety
/// `new` is readable, or NULL, or an address that a pointer check refuses.
unsafe fn wanted_flags(new: *const mq_attr) -> Result<Option<OFlags>, c_int> {
    if new.is_null() {
        return Ok(None);
    }
    if pointer::is_bad(new) {
        return Err(libc::EFAULT);
    }
    // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
    let flags = unsafe { (&raw const (*new).mq_flags).read_unaligned() };
    match u32::try_from(flags).map(OFlags::from_bits_retain) {
        Ok(flags) if OFlags::NONBLOCK.contains(flags) => Ok(Some(flags)),
        _ => Err(libc::EINVAL),
    }
}

/// # Safety
/// `out` is writable, or NULL, or an address that a pointer check refuses.
unsafe fn write_attributes(held: &Held, flags: OFlags, out: *mut mq_attr) -> Result<c_int, c_int> {
    if out.is_null() {
        return Ok(0);
    }
    if pointer::is_bad(out) {
        return Err(libc::EFAULT);
    }
    let now = held.queue.attributes();
    // SAFETY: mq_attr consists of numbers, for which zero is a valid value. The reserved members stay zero, as in the kernel.
    let mut attributes: mq_attr = unsafe { std::mem::zeroed() };
    attributes.mq_flags = c_long::from(flags.bits());
    attributes.mq_maxmsg = now.max_messages as c_long;
    attributes.mq_msgsize = now.message_size as c_long;
    attributes.mq_curmsgs = now.messages as c_long;
    // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
    unsafe { out.write_unaligned(attributes) };
    Ok(0)
}
