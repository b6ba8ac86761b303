//! readlink of /proc/self/fd/N: for a queue's descriptor, the queue's name.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;

use libc::{size_t, ssize_t};

use crate::table::Held;
use crate::{fd, ours, pointer};

/// The text that the kernel appends to the name of an unlinked file.
const DELETED: &[u8] = b" (deleted)";

/// The longest answer: a slash, a name of 255 bytes, and [`DELETED`].
const NAME_ROOM: usize = 1 + 255 + DELETED.len();

hooks! {
    /// Reads a symbolic link.
    fn [readlink](path: *const c_char, buffer: *mut c_char, len: size_t) -> ssize_t {
        next => answer(path, buffer, len).unwrap_or_else(|| next(path, buffer, len))
    }

    /// Reads a symbolic link at a path relative to a directory.
    fn [readlinkat](directory: c_int, path: *const c_char, buffer: *mut c_char, len: size_t) -> ssize_t {
        next => answer(path, buffer, len).unwrap_or_else(|| next(directory, path, buffer, len))
    }

    /// The variant of readlink that programs compiled with _FORTIFY_SOURCE call.
    fn [__readlink_chk](path: *const c_char, buffer: *mut c_char, len: size_t, room: size_t) -> ssize_t {
        next => answer(path, buffer, len.min(room)).unwrap_or_else(|| next(path, buffer, len, room))
    }

    /// The variant of readlinkat that programs compiled with _FORTIFY_SOURCE call.
    fn [__readlinkat_chk](directory: c_int, path: *const c_char, buffer: *mut c_char, len: size_t, room: size_t) -> ssize_t {
        next => answer(path, buffer, len.min(room)).unwrap_or_else(|| next(directory, path, buffer, len, room))
    }
}

/// Copies a queue's name to `buffer` if `path` names a descriptor of the queue, and returns the number of bytes. Returns `None` for any other path.
///
/// # Safety
/// `path` is a C string and `buffer` has `len` writable bytes, or they are addresses that a pointer check refuses.
unsafe fn answer(path: *const c_char, buffer: *mut c_char, len: size_t) -> Option<ssize_t> {
    if pointer::is_bad(path) || pointer::is_bad(buffer) || len == 0 {
        return None;
    }
    // SAFETY: by this function's contract.
    let number = descriptor(unsafe { CStr::from_ptr(path) }.to_bytes())?;
    let held = ours::file(number)?;
    let mut room = [0; NAME_ROOM];
    let name = current_name(&held, number, &mut room)?;
    let len = name.len().min(len);
    // SAFETY: by this function's contract. Both the name and the buffer have at least `len` bytes.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), buffer.cast(), len) };
    Some(len.cast_signed())
}

/// Returns the queue's name, followed by [`DELETED`] if the queue's file is unlinked.
fn current_name<'a>(held: &Held, number: c_int, room: &'a mut [u8; NAME_ROOM]) -> Option<&'a [u8]> {
    let links = rustix::fs::fstat(fd::borrow(number)?).ok()?.st_nlink;
    let deleted = if links == 0 { DELETED } else { b"" };
    let mut rest = room.as_mut_slice();
    rest.write_all(&held.name).ok()?;
    rest.write_all(deleted).ok()?;
    let left = rest.len();
    Some(&room[..NAME_ROOM - left])
}

/// Returns the number in a path that names a descriptor of this process.
fn descriptor(path: &[u8]) -> Option<c_int> {
    let directories: [&[u8]; 3] = [b"/proc/self/fd/", b"/proc/thread-self/fd/", b"/dev/fd/"];
    let number = directories
        .iter()
        .find_map(|directory| path.strip_prefix(*directory))
        .or_else(|| below_own_pid(path.strip_prefix(b"/proc/")?))?;
    decimal(number)
}

fn below_own_pid(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().position(|&byte| byte == b'/')?;
    let (pid, rest) = path.split_at(slash);
    let me = rustix::process::getpid().as_raw_nonzero().get();
    (decimal(pid)? == me).then(|| rest.strip_prefix(b"/fd/"))?
}

fn decimal(digits: &[u8]) -> Option<c_int> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::descriptor;

    #[test]
    fn paths_of_own_descriptors_are_recognised() {
        let own_pid = format!("/proc/{}/fd/8", std::process::id());
        assert_eq!(descriptor(b"/proc/self/fd/5"), Some(5));
        assert_eq!(descriptor(b"/dev/fd/0"), Some(0));
        assert_eq!(descriptor(own_pid.as_bytes()), Some(8));
        for other in [
            "/proc/self/fd/",
            "/proc/self/fd/+5",
            "/proc/1/fd/5",
            "/proc/self/exe",
            "/",
            "",
        ] {
            assert_eq!(descriptor(other.as_bytes()), None, "{other}");
        }
    }
}
