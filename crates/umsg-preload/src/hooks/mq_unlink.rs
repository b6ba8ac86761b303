//! mq_unlink.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use umsg_shm::sys::stack::roomy;

use crate::{debug, errno, home, kept, names};

/// Removes a name. The queue lives on until its last descriptor is closed.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_unlink(name: *const c_char) -> c_int {
    // SAFETY: the caller promises a C string, as to libc's function.
    let name = unsafe { names::bytes(name) };
    roomy(|| unlink(name)).unwrap_or_else(errno::fail)
}

fn unlink(name: &[u8]) -> Result<c_int, c_int> {
    names::check(names::leading_slash(name)?)?;
    let namespace = home::namespace().map_err(|error| {
        debug::explain("mq_unlink", name, &error);
        error.errno()
    })?;
    match umsg::posix::unlink_in(namespace, OsStr::from_bytes(name)) {
        Ok(()) => {
            kept::forget_removed(name);
            Ok(0)
        }
        Err(error) => Err(error.errno()),
    }
}
