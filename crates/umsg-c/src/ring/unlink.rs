//! Rings: removing the name of a dead owner's ring.

use std::ffi::{c_char, c_int};

use umsg::ring;

use super::Refusal;
use super::create::namespace;
use crate::error::{Failure, answer};
use crate::pointer;

/// Removes the name of a ring whose owner has died.
///
/// A living owner removes the name by umsg_ring_free(3). This function removes a name that a killed owner has left behind. The function looks for the
/// name in the namespace that umsg_mq_open(3) describes.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the caller is neither the owner of the ring's file nor root, or may not read the file; the name has a second slash; or the namespace
///   can't be used; umsg_last_error(3) tells the reason.
/// - `EBUSY`: the ring's owner lives.
/// - `EFAULT`: `name` is at an address that can't be read.
/// - `EINVAL`: `name` does not begin with a slash, or the ring was created by another version of umsg.
/// - `ENAMETOOLONG`: `name` has more than 255 bytes after its slash.
/// - `ENOENT`: no ring has this name.
/// - `ENOTEMPTY`: the directory that `UMSG_DIR` names is not a namespace and holds other files, so that it can't become one.
///
/// # If the process dies
/// Before the call returns, the name was removed or still exists.
///
/// # See also
/// umsg_ring_create(3), umsg_ring_free(3), umsg_ring_unlink_in(3), umsg(1)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_unlink(name: *const c_char) -> c_int {
    // SAFETY: the caller promises a string.
    answer(unsafe { unlink(std::ptr::null(), name) })
}

/// Removes from a namespace the name of a ring whose owner has died.
///
/// Does the same as umsg_ring_unlink(3) in the namespace `directory`, instead of the namespace that the environment selects.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_ring_unlink(3), and these errors of the directory:
///
/// - `EFAULT`: `directory` is at an address that can't be read.
/// - `ELOOP`, `ENOTDIR`: `directory` is a symbolic link, or not a directory.
/// - `ENOTEMPTY`: `directory` is not a namespace and holds other files, so that it can't become one.
///
/// # If the process dies
/// Before the call returns, the name was removed or still exists.
///
/// # See also
/// umsg_ring_open_in(3), umsg_ring_unlink(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_unlink_in(
    directory: *const c_char,
    name: *const c_char,
) -> c_int {
    let unlinked = pointer::check(directory, "directory").and_then(|()| {
        // SAFETY: the caller promises two strings.
        unsafe { unlink(directory, name) }
    });
    answer(unlinked)
}

/// # Safety
/// `directory` is NULL or a string, `name` is a string, or they are addresses that a pointer check refuses.
unsafe fn unlink(directory: *const c_char, name: *const c_char) -> Result<c_int, Failure> {
    // SAFETY: by this function's contract.
    let (name, namespace) = unsafe { (pointer::text(name, "name")?, namespace(directory)?) };
    ring::unlink_in(&namespace, name).map_err(Refusal::from)?;
    Ok(0)
}
