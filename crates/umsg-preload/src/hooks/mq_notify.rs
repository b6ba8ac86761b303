//! mq_notify: the process is notified when a message arrives at the empty queue.
//!
//! A child of vfork(2) shares its parent's memory, so its call registers or unregisters its parent. A check of the process id would prevent this, but
//! would take as long as the rest of the call. POSIX permits such a child only exec and _exit.

use std::ffi::c_int;

use libc::sigevent;
use umsg::posix::{Notify, sigevent::wanted, withdraw_notification};
use umsg_shm::sys::stack::uncancelled;
use umsg_trace::Function;

use crate::table::{self, Held};
use crate::trace::{self, Copied, Described, Target};
use crate::{debug, errno, next, ours, pointer};

/// Registers the process for a notification, or with NULL withdraws its registration.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_notify(fd: c_int, event: *const sigevent) -> c_int {
    // SAFETY: the caller makes the promises that libc's mq_notify requires.
    unsafe { recorded(fd, event, || notify(fd, event)) }
}

/// # Safety
/// `event` meets the conditions of mq_notify, or is an address that a pointer check refuses. `call` reads it.
#[inline(always)]
unsafe fn recorded(fd: c_int, event: *const sigevent, call: impl FnOnce() -> c_int) -> c_int {
    trace::recorded(call, Function::MqNotify, |_| {
        let [how, signal] = match pointer::is_bad(event) {
            true => [-1, 0],
            // SAFETY: the call has read the event.
            false => unsafe {
                let how = (&raw const (*event).sigev_notify).read_unaligned();
                let signal = (&raw const (*event).sigev_signo).read_unaligned();
                [how, signal]
            },
        };
        Described {
            arguments: [fd.into(), how.into(), signal.into(), 0, 0],
            queue: Target::Descriptor(fd),
            data: Copied::default(),
        }
    })
}

/// # Safety
/// The conditions of libc's mq_notify.
unsafe fn notify(fd: c_int, event: *const sigevent) -> c_int {
    // If the table of descriptors has an entry for `fd`, the call trusts the entry, as mq_send does. The file of the descriptor is checked only
    // without an entry.
    let held = match table::hold(fd) {
        Some(held) => Ok(Some(held)),
        None => ours::checked_queue(fd),
    };
    match held {
        // SAFETY: the caller makes the promises that libc's mq_notify requires.
        Ok(None) => unsafe { next::mq_notify(fd, event) },
        // SAFETY: the caller promises an event that is valid for mq_notify.
        Ok(Some(held)) => unsafe { change(&held, event) }.map_or_else(errno::fail, |()| 0),
        Err(errno) => errno::fail(errno),
    }
}

/// Handles the system call mq_notify for a queue of umsg. SIGEV_THREAD is refused: the kernel would send an event to a socket of libc, and a process
/// can't send such an event.
///
/// # Safety
/// The conditions of libc's mq_notify.
pub(super) unsafe fn notify_bare(fd: c_int, event: *const sigevent) -> c_int {
    let notify = || {
        // SAFETY: by this function's contract. The address is not one that a pointer check refuses.
        if !pointer::is_bad(event) && unsafe { (*event).sigev_notify } == libc::SIGEV_THREAD {
            let error = "SIGEV_THREAD needs libc's function, and syscall was called";
            debug::explain("mq_notify", b"", &error);
            return errno::fail(libc::EINVAL);
        }
        // SAFETY: by this function's contract.
        unsafe { notify(fd, event) }
    };
    // SAFETY: by this function's contract.
    unsafe { recorded(fd, event, notify) }
}

/// # Safety
/// The conditions of [`checked`], or `event` is NULL.
unsafe fn change(held: &Held, event: *const sigevent) -> Result<(), c_int> {
    if event.is_null() {
        uncancelled(|| withdraw_notification(held.identity));
        return Ok(());
    }
    // SAFETY: by this function's contract.
    let how = unsafe { checked(event)? };
    match uncancelled(|| held.queue.register(how)) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.errno()),
    }
}

/// # Safety
/// `event` meets the conditions of mq_notify, or is an address that a pointer check refuses.
unsafe fn checked(event: *const sigevent) -> Result<Notify, c_int> {
    if pointer::is_bad(event) {
        return Err(libc::EFAULT);
    }
    // SAFETY: by this function's contract.
    unsafe { wanted(event) }.map_err(|error| error.errno())
}
