//! dup, dup2, dup3: a further descriptor for the same open file description. posix_spawn_file_actions_adddup2: such a descriptor in a new program.

use std::ffi::c_int;

use libc::posix_spawn_file_actions_t;
use umsg::posix::withdraw_notification_at_close;
use umsg_shm::sys::reserved_descriptors;

use crate::{errno, next, ours, process, table, vacated};

/// Duplicates a descriptor to the lowest free number.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if reserved_descriptors::is(fd) {
        return errno::fail(libc::EBADF);
    }
    // The description is marked as shared before the call, because another thread may close the descriptor during the call.
    share(fd);
    // SAFETY: the caller makes the promises that libc's dup requires.
    let new = unsafe { next::dup(fd) };
    enter_duplicate(fd, new);
    new
}

/// Duplicates a descriptor to a number of the caller's choice. If that number is open, the call closes it first.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup2(fd: c_int, new: c_int) -> c_int {
    // SAFETY: the caller makes the promises that libc's dup2 requires.
    replace(fd, new, || unsafe { next::dup2(fd, new) })
}

/// Duplicates a descriptor as dup2 does, with O_CLOEXEC on request.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller makes the promises that libc's dup3 requires.
    replace(fd, new, || unsafe { next::dup3(fd, new, flags) })
}

/// If `fd` is a queue's descriptor, enters its duplicate `new` into the table.
#[inline(always)]
pub(super) fn enter_duplicate(fd: c_int, new: c_int) {
    if new >= 0 && table::knows(fd) {
        enter_known_duplicate(fd, new);
    }
}

#[cold]
fn enter_known_duplicate(fd: c_int, new: c_int) {
    share(fd);
    if !process::owns_table() {
        return;
    }
    if let Some(held) = ours::file(fd) {
        table::enter_duplicate(new, &held);
    }
}

/// Adds an action to those of posix_spawn: the new program gets a duplicate of a descriptor.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut posix_spawn_file_actions_t,
    fd: c_int,
    new: c_int,
) -> c_int {
    // The program may open a queue under this descriptor number later.
    vacated::note_spawned(fd);
    share(fd);
    // SAFETY: the caller makes the promises that libc's function requires.
    unsafe { next::posix_spawn_file_actions_adddup2(actions, fd, new) }
}

/// Notes that another process may get a descriptor of the same description: a duplicate stays open over exec.
#[cold]
pub(super) fn share(fd: c_int) {
    if let Some(held) = table::hold(fd) {
        held.blocking.share();
    }
}

#[inline(always)]
fn replace(fd: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if reserved_descriptors::is(fd) {
        return errno::fail(libc::EBADF);
    }
    if reserved_descriptors::is(new) {
        return replace_own(fd, new, call);
    }
    if fd == new || !(table::knows(fd) || table::knows(new)) {
        return call();
    }
    replace_known(fd, new, call)
}

/// Duplicates a descriptor to a number at which the library has its own descriptor. The program gets the number. The library opens another descriptor
/// when it needs one.
#[cold]
fn replace_own(fd: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !process::owns_table() {
        // This is a vfork child: in its parent, the number still belongs to the library.
        return call();
    }
    let mut outcome = 0;
    let replace = || {
        outcome = call();
        outcome >= 0
    };
    if !reserved_descriptors::give(new, replace) {
        return errno::fail(libc::EBADF);
    }
    enter_duplicate(fd, outcome);
    outcome
}

#[cold]
fn replace_known(fd: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    share(fd);
    if !process::owns_table() {
        return call();
    }
    let closed = table::hold(new).map(|held| held.identity);
    let replaced = table::take(new);
    let outcome = call();
    if outcome >= 0 {
        closed.into_iter().for_each(withdraw_notification_at_close);
    }
    match replaced {
        // The call failed, so `new` is still open.
        Some(word) if outcome < 0 => table::put_back(new, word),
        Some(word) => word.release(),
        None => {}
    }
    enter_duplicate(fd, outcome);
    outcome
}
