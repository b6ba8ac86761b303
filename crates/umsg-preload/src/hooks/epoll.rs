//! epoll_ctl: when the program registers a queue, the hook registers the queue's doorbell instead. The events still contain the program's data, so
//! epoll_wait needs no hook.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::epoll_event;
use rustix::event::EventfdFlags;
use umsg::Edges;

use crate::table::Held;
use crate::{doorbells, errno, next, ours, pointer, table};

/// Adds a descriptor to an epoll set, changes its events, or removes it.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller makes the promises that libc's epoll_ctl requires.
    unsafe {
        if table::knows(fd) {
            control_known(set, operation, fd, event)
        } else {
            next::epoll_ctl(set, operation, fd, event)
        }
    }
}

/// # Safety
/// The conditions of libc's epoll_ctl.
#[cold]
unsafe fn control_known(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: by this function's contract, which covers all calls of this closure.
    let control = |doorbell| unsafe { next::epoll_ctl(set, operation, doorbell, event) };
    let Some(held) = ours::file(fd) else {
        return control(fd);
    };
    // SAFETY: by this function's contract.
    let edges = unsafe { edges(event) };
    let doorbell = match operation {
        libc::EPOLL_CTL_ADD => held.doorbells.register(&held, fd, edges),
        libc::EPOLL_CTL_MOD => change(&held, fd, edges),
        _ => Ok(held.doorbells.registered(fd)),
    };
    match doorbell {
        Ok(Some(doorbell)) => control(doorbell),
        Ok(None) => stranger(set).map_or_else(errno::fail, |file| control(file.as_raw_fd())),
        Err(errno) => errno::fail(errno),
    }
}

/// Makes the doorbell of a registered descriptor number also ring for these edges. Returns the doorbell's descriptor number. Returns None if `fd` was
/// never registered.
fn change(held: &Held, fd: c_int, edges: Edges) -> Result<Option<c_int>, c_int> {
    let registered = held.doorbells.registered(fd);
    if registered.is_some() {
        doorbells::doorbell(held, edges)?;
    }
    Ok(registered)
}

/// Returns a file that is not registered in any set. A call with this file makes the kernel report the errors of the program's call.
///
/// The file's number is above the number of the set. Otherwise, if no set is open at that number, the file could get it.
fn stranger(set: c_int) -> Result<OwnedFd, c_int> {
    let file = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(|_| libc::ENOENT)?;
    let above = set.max(0).saturating_add(1);
    // The duplication fails if `above` reaches the limit of descriptors. No set can be open beyond the limit, so the number of the file does not
    // matter.
    Ok(rustix::io::fcntl_dupfd_cloexec(&file, above).unwrap_or(file))
}

/// Returns the edges that a registration requests. With the kernel's queues, each send and each receive is an edge.
///
/// # Safety
/// `event` is readable, or an address that a pointer check refuses.
unsafe fn edges(event: *const epoll_event) -> Edges {
    if pointer::is_bad(event) {
        return Edges::Changes;
    }
    // SAFETY: by this function's contract.
    let events = unsafe { event.read_unaligned() }.events;
    let has = |flags: c_int| events & flags.cast_unsigned() != 0;
    if !has(libc::EPOLLET) {
        Edges::Changes
    } else if has(libc::EPOLLOUT | libc::EPOLLWRNORM) {
        Edges::All
    } else {
        Edges::Messages
    }
}
