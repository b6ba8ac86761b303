//! open and fopen of the files that describe queues ([`crate::procfs`]). Calls on other files are passed on.

use std::ffi::{CStr, c_char, c_int};

use libc::{FILE, mode_t};

use crate::procfs::{self, File};
use crate::{errno, kernel, mqueue, next, start};

/// Exports a function of libc that opens a file by its path. Calls before this library's constructor go to the kernel: the caller may be an allocator
/// that is starting, so the function must not call dlsym.
macro_rules! opens {
    ($($(#[$doc:meta])* fn $name:ident([$($directory:ident)?] $($mode:ident)?);)*) => {
        $(
            $(#[$doc])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(
                $($directory: c_int,)?
                path: *const c_char,
                flags: c_int,
                $($mode: mode_t,)?
            ) -> c_int {
                // SAFETY: the caller makes the promises that libc's function requires.
                unsafe {
                    let from = [$($directory,)? libc::AT_FDCWD][0];
                    if let Some(place) = mqueue::at(from, path) {
                        let mode = [$($mode,)? 0][0];
                        return place.open(flags, mode).unwrap_or_else(errno::fail);
                    }
                    match procfs::wanted(path, flags) {
                        Some(file) => answer(file, flags),
                        None if start::is_done() => next::$name($($directory,)? path, flags $(, $mode)?),
                        None => {
                            let mode = [$($mode,)? 0][0];
                            early(from, path, flags, mode)
                        }
                    }
                }
            }
        )*
    };
}

opens! {
    /// Opens a file.
    fn open([] mode);
    /// The variant of open for programs compiled for files larger than 2 GB.
    fn open64([] mode);
    /// Opens a file at a path relative to a directory.
    fn openat([directory] mode);
    /// The variant of openat for programs compiled for files larger than 2 GB.
    fn openat64([directory] mode);
    /// The variant of open that programs compiled with _FORTIFY_SOURCE call.
    fn __open_2([]);
    /// The variant of open64 that programs compiled with _FORTIFY_SOURCE call.
    fn __open64_2([]);
    /// The variant of openat that programs compiled with _FORTIFY_SOURCE call.
    fn __openat_2([directory]);
    /// The variant of openat64 that programs compiled with _FORTIFY_SOURCE call.
    fn __openat64_2([directory]);
}

#[cold]
fn answer(file: File, flags: c_int) -> c_int {
    file.open(flags).unwrap_or_else(errno::fail)
}

/// # Safety
/// The conditions of libc's openat.
#[cold]
unsafe fn early(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let [directory, flags, mode] = [directory, flags, mode.cast_signed()].map(|word| word as usize);
    let arguments = [directory, path.expose_provenance(), flags, mode, 0, 0];
    // SAFETY: by this function's contract. A descriptor fits into an int.
    unsafe { kernel::call(libc::SYS_openat, arguments) }
        .map_or_else(errno::fail, |opened| opened as c_int)
}

/// Opens a file as a stream.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller makes the promises that libc's fopen requires.
    unsafe { stream(path, mode).unwrap_or_else(|| next::fopen(path, mode)) }
}

/// The variant of fopen for programs compiled for files larger than 2 GB.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller makes the promises that libc's fopen64 requires.
    unsafe { stream(path, mode).unwrap_or_else(|| next::fopen64(path, mode)) }
}

/// Opens a stream of a file that the drop-in provides. Returns `None` for any other file.
///
/// # Safety
/// The conditions of libc's fopen.
#[inline(always)]
unsafe fn stream(path: *const c_char, mode: *const c_char) -> Option<*mut FILE> {
    // SAFETY: by this function's contract.
    if let Some(place) = unsafe { mqueue::at(libc::AT_FDCWD, path) } {
        // SAFETY: by this function's contract.
        return Some(unsafe { super::mqueue::stream(place, mode) });
    }
    // SAFETY: by this function's contract.
    let file = unsafe { procfs::wanted(path, libc::O_RDONLY)? };
    // SAFETY: by this function's contract.
    unsafe { stream_of(file, mode) }
}

/// # Safety
/// `mode` is a C string.
#[cold]
unsafe fn stream_of(file: File, mode: *const c_char) -> Option<*mut FILE> {
    // SAFETY: by this function's contract.
    let letters = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let reads = letters.first() == Some(&b'r') && !letters.contains(&b'+');
    if !reads && file == File::Queues {
        return None;
    }
    let access = match letters.first() {
        _ if letters.contains(&b'+') => libc::O_RDWR,
        Some(b'r') => libc::O_RDONLY,
        _ => libc::O_WRONLY,
    };
    let close_on_exec = if letters.contains(&b'e') {
        libc::O_CLOEXEC
    } else {
        0
    };
    Some(match file.open(access | close_on_exec) {
        // SAFETY: this call owns the descriptor, and the mode is a C string.
        Ok(descriptor) => unsafe {
            let stream = libc::fdopen(descriptor, mode);
            if !reads {
                super::stream::note(stream);
            }
            stream
        },
        Err(errno) => {
            errno::set(errno);
            std::ptr::null_mut()
        }
    })
}
