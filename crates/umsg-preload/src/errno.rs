//! Reports failures as libc does: errno and -1.

use std::ffi::c_int;

/// Sets the calling thread's errno.
pub(crate) fn set(errno: c_int) {
    // SAFETY: libc returns the address of the calling thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the calling thread's errno.
pub(crate) fn get() -> c_int {
    // SAFETY: libc returns the address of the calling thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// Sets errno, and returns -1, the result of a failed call.
#[cold]
pub(crate) fn fail<T: From<i8>>(errno: c_int) -> T {
    set(errno);
    T::from(-1)
}

/// Converts the result of a C function: -1 to the errno, any other value to a success.
pub(crate) fn result<T: PartialEq + From<i8>>(outcome: T) -> Result<T, c_int> {
    if outcome == T::from(-1) {
        Err(get())
    } else {
        Ok(outcome)
    }
}
