//! The hook of mq_unlink.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use umsg_shm::sys::stack::roomy;

use umsg::Namespace;
use umsg_trace::Function;

use crate::names::{Room, Slashed};
use crate::trace::{self, Described, Target};
use crate::{debug, errno, home, kept, names, vacated};

/// Removes a name. The queue exists until its last descriptor is closed.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_unlink(name: *const c_char) -> c_int {
    // SAFETY: the caller promises a C string, as libc's function requires.
    let bytes = unsafe { names::bytes(name) };
    trace::recorded(
        || unlink(bytes).unwrap_or_else(errno::fail),
        Function::MqUnlink,
        |_| Described {
            // SAFETY: the caller promises a C string, as libc's function requires.
            queue: unsafe { Target::named(name) },
            ..Described::default()
        },
    )
}

/// Handles the system call mq_unlink. In contrast to libc's function, the system call takes a name without a slash.
///
/// # Safety
/// The conditions of the system call.
pub(super) unsafe fn unlink_bare(name: *const c_char) -> c_int {
    let unlink = || {
        // SAFETY: by this function's contract.
        let name = Slashed::new(unsafe { names::bytes_or_fault(name)? })?;
        unlink_checked(name.bytes())
    };
    trace::recorded(
        || unlink().unwrap_or_else(errno::fail),
        Function::MqUnlink,
        |_| Described {
            // SAFETY: by this function's contract.
            queue: unsafe { Target::named_bare(name) },
            ..Described::default()
        },
    )
}

fn unlink(name: &[u8]) -> Result<c_int, c_int> {
    let rest = names::passed_on(name)?;
    names::check(rest)?;
    let mut room = Room::new();
    unlink_checked(room.with_slash(name, rest))
}

/// Removes the queue's name `name`, which is valid and begins with a slash.
pub(crate) fn unlink_checked(name: &[u8]) -> Result<c_int, c_int> {
    home::notice_child();
    // The short way is taken only if the namespace is already known: to determine it needs more stack than a small thread has.
    let is_vacated = |namespace| kept::vacate(namespace, name);
    if Namespace::known_of_this_process().is_some_and(is_vacated) {
        return Ok(0);
    }
    roomy(|| unlink_whole(name))
}

fn unlink_whole(name: &[u8]) -> Result<c_int, c_int> {
    let namespace = home::namespace().map_err(|error| {
        debug::explain("mq_unlink", name, &error);
        error.errno()
    })?;
    let removed = kept::unlink(namespace, name)
        .unwrap_or_else(|| umsg::posix::unlink_in(namespace, OsStr::from_bytes(name)));
    match removed {
        Ok(()) => {
            kept::forget_removed(name);
            vacated::note_removal(name);
            Ok(0)
        }
        Err(error) => {
            debug::explain("mq_unlink", name, &error);
            Err(error.errno())
        }
    }
}
