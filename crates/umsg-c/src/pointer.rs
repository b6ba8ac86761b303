//! Pointers that a program passes. Certainly bad pointers give EFAULT, see [`is_bad`].

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;

use crate::error::Failure;

pub(crate) use umsg_shm::sys::arguments::is_bad;

/// Refuses an address that can't be one of user space; `what` names its purpose in the error.
#[inline(always)]
pub(crate) fn check<T: ?Sized>(pointer: *const T, what: &'static str) -> Result<(), Failure> {
    if is_bad(pointer) {
        return Err(Failure::BadAddress(what));
    }
    Ok(())
}

/// Checks an address of `n` items: it is not NULL and is aligned, and the items together are not longer than the longest possible object.
pub(crate) fn check_array<T>(
    things: *const T,
    n: usize,
    what: &'static str,
) -> Result<(), Failure> {
    check(things, what)?;
    if !things.is_aligned() || n > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::BadAddress(what));
    }
    Ok(())
}

/// Reads a structure, which need not be aligned, as in the kernel. None for NULL.
///
/// # Safety
/// `pointer` is readable, or an address that [`is_bad`] refuses.
pub(crate) unsafe fn read<T: Copy>(
    pointer: *const T,
    what: &'static str,
) -> Result<Option<T>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    check(pointer, what)?;
    // SAFETY: by this function's contract.
    Ok(Some(unsafe { pointer.read_unaligned() }))
}

/// Reads from a structure of `size` bytes the members that both the program and the library know. Members that only the library knows become zero.
/// Members that only the program knows must be zero.
///
/// # Safety
/// `options` has `size` readable bytes, and zero is a valid value of every member.
pub(crate) unsafe fn read_as_far_as_known<T: Copy>(
    options: *const T,
    size: usize,
) -> Result<T, Failure> {
    // SAFETY: by this function's contract.
    let mut known: T = unsafe { std::mem::zeroed() };
    let common = size.min(size_of::<T>());
    // SAFETY: the program's structure has `size` bytes, and the library's structure has its own size. `common` bytes are in both structures, which
    // do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut known).cast::<u8>(), common);
    }
    // SAFETY: by this function's contract, all bytes up to `size` are readable; bytes need no alignment.
    let unknown =
        unsafe { std::slice::from_raw_parts(options.cast::<u8>().add(common), size - common) };
    match unknown.iter().all(|&byte| byte == 0) {
        true => Ok(known),
        false => Err(Failure::TooNew),
    }
}

/// Writes a structure to the address that the program passed.
///
/// # Safety
/// `pointer` is writable, or an address that [`is_bad`] refuses.
pub(crate) unsafe fn write<T>(
    pointer: *mut T,
    value: T,
    what: &'static str,
) -> Result<(), Failure> {
    check(pointer, what)?;
    // SAFETY: by this function's contract.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Returns a C string.
///
/// # Safety
/// `text` is a string that ends with NUL and outlives the result, or an address that [`is_bad`] refuses.
pub(crate) unsafe fn text<'a>(
    text: *const c_char,
    what: &'static str,
) -> Result<&'a OsStr, Failure> {
    check(text, what)?;
    // SAFETY: by this function's contract.
    Ok(OsStr::from_bytes(
        unsafe { CStr::from_ptr(text) }.to_bytes(),
    ))
}
