//! mq_unlink.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use umsg_shm::sys::stack::roomy;

use umsg::Namespace;

use crate::{debug, errno, home, kept, names, vacated};

/// Removes a name. The queue lives on until its last descriptor is closed.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_unlink(name: *const c_char) -> c_int {
    // SAFETY: the caller promises a C string, as to libc's function.
    let name = unsafe { names::bytes(name) };
    // Only a namespace that is known already: to determine the namespace takes more stack than a small thread has.
    let is_vacated = |namespace| is_name(name) && kept::vacate(namespace, name);
    if Namespace::known_of_this_process().is_some_and(is_vacated) {
        return 0;
    }
    roomy(|| unlink(name)).unwrap_or_else(errno::fail)
}

fn is_name(name: &[u8]) -> bool {
    names::leading_slash(name).is_ok_and(|rest| names::check(rest).is_ok())
}

fn unlink(name: &[u8]) -> Result<c_int, c_int> {
    names::check(names::leading_slash(name)?)?;
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
