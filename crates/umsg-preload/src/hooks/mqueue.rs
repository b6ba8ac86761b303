//! Functions of libc that take a path, for paths below /dev/mqueue ([`crate::mqueue`]). Calls with other paths are passed on.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libc::{DIR, dirent, gid_t, mode_t, off_t, size_t, ssize_t, uid_t};

use crate::mqueue::{Place, at, rename as answer_rename};
use crate::{errno, next, ours};

const HERE: c_int = libc::AT_FDCWD;

/// Returns the drop-in's answer for a path that is /dev/mqueue or below it (a [`Place`]). For other paths, returns the answer of the next library.
#[inline(always)]
fn either<'a>(
    place: Option<Place<'a>>,
    answer: impl FnOnce(Place<'a>) -> Result<c_int, c_int>,
    next: impl FnOnce() -> c_int,
) -> c_int {
    match place {
        Some(place) => answer(place).unwrap_or_else(errno::fail),
        None => next(),
    }
}

/// Makes a call of the next library. For a path that is /dev/mqueue or below it (a [`Place`]), the call gets the path in the namespace instead.
#[inline(always)]
fn with_path<T>(
    place: Option<Place<'_>>,
    path: *const c_char,
    failed: T,
    call: impl FnOnce(*const c_char) -> T,
) -> T {
    match place {
        Some(place) => match umsg_shm::sys::stack::roomy(|| place.path_to_open()) {
            Ok(path) => call(path.as_ptr()),
            Err(errno) => {
                errno::set(errno);
                failed
            }
        },
        None => call(path),
    }
}

hooks! {
    /// Gets the status of a file.
    fn [stat, stat64, lstat, lstat64](path: *const c_char, out: *mut libc::stat) -> c_int {
        next => either(at(HERE, path), |place| place.stat(out), || next(path, out))
    }

    /// Gets the status of a file, in programs linked against glibc before 2.33.
    fn [__xstat, __xstat64, __lxstat, __lxstat64](version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
        next => either(at(HERE, path), |place| place.stat(out), || next(version, path, out))
    }

    /// Checks the permissions of the real user.
    fn [access](path: *const c_char, wanted: c_int) -> c_int {
        next => either(at(HERE, path), |place| place.access(wanted, false), || next(path, wanted))
    }

    /// Checks the permissions of the effective user.
    fn [eaccess, euidaccess](path: *const c_char, wanted: c_int) -> c_int {
        next => either(at(HERE, path), |place| place.access(wanted, true), || next(path, wanted))
    }

    /// Checks the permissions of a user.
    fn [faccessat](directory: c_int, path: *const c_char, wanted: c_int, flags: c_int) -> c_int {
        next => either(
            at(directory, path),
            |place| place.access(wanted, flags & libc::AT_EACCESS != 0),
            || next(directory, path, wanted, flags),
        )
    }

    /// Removes a file.
    fn [unlink](path: *const c_char) -> c_int {
        next => either(at(HERE, path), |place| place.unlink(), || next(path))
    }

    /// Removes a file, or a directory, at a path relative to a directory.
    fn [unlinkat](directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        next => either(
            at(directory, path),
            |place| match flags & libc::AT_REMOVEDIR {
                0 => place.unlink(),
                _ => place.remove_directory(),
            },
            || next(directory, path, flags),
        )
    }

    /// Removes a directory.
    fn [rmdir](path: *const c_char) -> c_int {
        next => either(at(HERE, path), |place| place.remove_directory(), || next(path))
    }

    /// Removes a file or a directory.
    fn [remove](path: *const c_char) -> c_int {
        next => either(
            at(HERE, path),
            |place| match place {
                Place::Directory => place.remove_directory(),
                Place::Name(_) => place.unlink(),
            },
            || next(path),
        )
    }

    /// Gives a file another name.
    fn [rename](from: *const c_char, to: *const c_char) -> c_int {
        next => match (at(HERE, from), at(HERE, to)) {
            (None, None) => next(from, to),
            (old, new) => answer_rename(old, new).unwrap_or_else(errno::fail),
        }
    }

    /// Gives a file another name, at paths relative to directories.
    fn [renameat](from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char) -> c_int {
        next => match (at(from_directory, from), at(to_directory, to)) {
            (None, None) => next(from_directory, from, to_directory, to),
            (old, new) => answer_rename(old, new).unwrap_or_else(errno::fail),
        }
    }

    /// Gives a file another name, or exchanges two files.
    fn [renameat2](from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint) -> c_int {
        next => match (at(from_directory, from), at(to_directory, to)) {
            (None, None) => next(from_directory, from, to_directory, to, flags),
            (old, new) => answer_rename(old, new).unwrap_or_else(errno::fail),
        }
    }

    /// Sets the mode bits of a file.
    fn [chmod](path: *const c_char, mode: mode_t) -> c_int {
        next => either(at(HERE, path), |place| place.change_mode(mode), || next(path, mode))
    }

    /// Sets the mode bits of a file at a path relative to a directory.
    fn [fchmodat](directory: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        next => either(at(directory, path), |place| place.change_mode(mode), || next(directory, path, mode, flags))
    }

    /// Sets the owner and the group of a file.
    fn [chown, lchown](path: *const c_char, user: uid_t, group: gid_t) -> c_int {
        next => either(at(HERE, path), |place| place.change_owner(user, group), || next(path, user, group))
    }

    /// Sets the owner and the group of a file at a path relative to a directory.
    fn [fchownat](directory: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int {
        next => either(at(directory, path), |place| place.change_owner(user, group), || next(directory, path, user, group, flags))
    }

    /// Creates a file, or empties it.
    fn [creat, creat64](path: *const c_char, mode: mode_t) -> c_int {
        next => either(
            at(HERE, path),
            |place| place.open(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode),
            || next(path, mode),
        )
    }

    /// Opens a directory for reading its entries.
    fn [opendir](path: *const c_char) -> *mut DIR {
        next => match at(HERE, path) {
            Some(place) => opened(place),
            None => next(path),
        }
    }

    /// Reads the entries of a directory.
    fn [scandir, scandir64](path: *const c_char, entries: *mut *mut *mut dirent, select: *const c_void, compare: *const c_void) -> c_int {
        next => with_path(at(HERE, path), path, -1, |path| next(path, entries, select, compare))
    }

    /// Changes the working directory.
    fn [chdir](path: *const c_char) -> c_int {
        next => with_path(at(HERE, path), path, -1, |path| next(path))
    }

    /// Adds a file or directory to the watch list of an inotify instance.
    fn [inotify_add_watch](fd: c_int, path: *const c_char, mask: u32) -> c_int {
        next => with_path(at(HERE, path), path, -1, |path| next(fd, path, mask))
    }

    /// Reads an extended attribute, which no queue has.
    fn [getxattr, lgetxattr](path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        next => match at(HERE, path) {
            Some(_) => errno::fail(libc::EOPNOTSUPP),
            None => next(path, name, value, len),
        }
    }

    /// Lists extended attributes. A queue has none.
    fn [listxattr, llistxattr](path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        next => match at(HERE, path) {
            Some(_) => 0,
            None => next(path, list, len),
        }
    }

    /// Copies from one file to another. For a queue, the call fails with EINVAL. Programs then read and write instead.
    fn [copy_file_range](from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint) -> ssize_t {
        next => match ours::file(from).is_some() || ours::file(to).is_some() {
            true => errno::fail(libc::EINVAL),
            false => next(from, from_offset, to, to_offset, len, flags),
        }
    }

    /// Copies from a file to a descriptor.
    fn [sendfile, sendfile64](to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        next => match ours::file(from).is_some() || ours::file(to).is_some() {
            true => errno::fail(libc::EINVAL),
            false => next(to, from, offset, count),
        }
    }
}

/// Opens /dev/mqueue, or a queue below it, as opendir(3) does.
#[cold]
fn opened(place: Place<'_>) -> *mut DIR {
    let opened = match place {
        Place::Directory => umsg_shm::sys::stack::roomy(|| place.path_to_open()),
        Place::Name(_) => place
            .open(libc::O_RDONLY | libc::O_DIRECTORY, 0)
            .map(|_| c"".to_owned()),
    };
    match opened {
        // SAFETY: the argument is a C string.
        Ok(path) => unsafe { next::opendir(path.as_ptr()) },
        Err(errno) => {
            errno::set(errno);
            std::ptr::null_mut()
        }
    }
}

/// Opens /dev/mqueue, or a queue below it, as fopen(3) does. `mode` has the letters of fopen(3).
///
/// # Safety
/// `mode` is a C string.
#[cold]
pub(super) unsafe fn stream(place: Place<'_>, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: by this function's contract.
    let letters = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let has = |letter| letters.contains(&letter);
    let makes = libc::O_CREAT | if has(b'x') { libc::O_EXCL } else { 0 };
    let flags = match (letters.first(), has(b'+')) {
        (Some(b'r'), false) => libc::O_RDONLY,
        (Some(b'r'), true) => libc::O_RDWR,
        (Some(b'w'), false) => libc::O_WRONLY | libc::O_TRUNC | makes,
        (Some(b'w'), true) => libc::O_RDWR | libc::O_TRUNC | makes,
        (Some(b'a'), false) => libc::O_WRONLY | libc::O_APPEND | makes,
        (Some(b'a'), true) => libc::O_RDWR | libc::O_APPEND | makes,
        _ => {
            errno::set(libc::EINVAL);
            return std::ptr::null_mut();
        }
    };
    match place.open_stream(flags, flags & crate::table::ACCESS_MODE == libc::O_RDONLY) {
        Ok(file) => {
            if !has(b'e') {
                let _ = rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty());
            }
            // SAFETY: this call owns the descriptor, and the mode is a C string.
            unsafe { libc::fdopen(std::os::fd::IntoRawFd::into_raw_fd(file), mode) }
        }
        Err(errno) => {
            errno::set(errno);
            std::ptr::null_mut()
        }
    }
}
