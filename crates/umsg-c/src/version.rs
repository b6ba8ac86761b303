//! The version of the library.

use std::ffi::{CStr, c_char};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL in it"),
    };

/// Returns the version of the library that the program uses.
///
/// `UMSG_VERSION` of `umsg.h` is the version with which the program was compiled. A library of the same major version, from 1.0 on,
/// serves programs that were compiled with an older version.
///
/// # Return value
/// The call returns a text such as "0.1.0". The text stays valid.
///
/// # Errors
/// None.
///
/// # If the process dies
/// The call has no further effect.
///
/// # See also
/// umsg_mq_open(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_version() -> *const c_char {
    VERSION.as_ptr()
}
