//! The hook of msgget.

use std::ffi::c_int;

use libc::key_t;
use umsg::NamespaceError;
use umsg::sysv::{OpenError, raw};
use umsg_shm::sys::stack::roomy;
use umsg_trace::Function;

use crate::trace::{self, Copied, Described, Target};
use crate::{debug, errno, home, signals};

/// Returns the identifier of a key's System V queue. Creates the queue if the flags request that.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn msgget(key: key_t, flags: c_int) -> c_int {
    trace::recorded(
        || get(key, flags),
        Function::Msgget,
        |result| Described {
            arguments: [key.into(), flags.into(), 0, 0, 0],
            queue: Target::SystemV(result as c_int),
            data: Copied::default(),
        },
    )
}

#[inline(always)]
fn get(key: key_t, flags: c_int) -> c_int {
    home::notice_child();
    if let Some(id) = raw::known(key, flags) {
        return id;
    }
    signals::announce();
    if let Some(id) = raw::revived(key, flags) {
        return id;
    }
    roomy(|| {
        raw::get(key, flags).unwrap_or_else(|error| {
            debug::explain("msgget", format!("{key:#x}").as_bytes(), &error);
            errno::fail(errno_of(&error, key, flags))
        })
    })
}

/// Returns the errno of a failure. A creation never fails with ENOENT. If only the owner or root can prepare the namespace, the errno says that the
/// caller lacks a permission.
fn errno_of(error: &OpenError, key: key_t, flags: c_int) -> c_int {
    let creates = key == libc::IPC_PRIVATE || flags & libc::IPC_CREAT != 0;
    match error {
        OpenError::Namespace(NamespaceError::NoQueuesDirectory { .. }) if creates => libc::EACCES,
        other => other.errno(),
    }
}
