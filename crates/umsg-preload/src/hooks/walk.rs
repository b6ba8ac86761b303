//! nftw, ftw and glob below /dev/mqueue ([`crate::mqueue`]). These functions of libc list the directory without a call that the drop-in can
//! intercept.
//!
//! libc's nftw walks the namespace's directory, and calls a function of the drop-in for each entry. The drop-in's function replaces the path by the
//! entry's name below /dev/mqueue, and the status by the queue's status. Then it calls the program's function. glob gets the drop-in's functions for
//! directories.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use umsg_shm::sys::stack::roomy;

use crate::errno;
use crate::mqueue::{PATH, Place, at};

/// The program's function, which nftw calls for each entry.
type Visit = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut Level) -> c_int;

/// The position of an entry in the walked directory tree. Source: `struct FTW` in ftw.h.
#[repr(C)]
pub struct Level {
    base: c_int,
    level: c_int,
}

/// The walk that this thread is performing.
#[derive(Clone, Copy)]
struct Walk {
    visit: Visit,
    /// The length of the path of the namespace's directory. The paths that libc passes begin with that path.
    len: usize,
}

thread_local! {
    static WALK: Cell<Option<Walk>> = const { Cell::new(None) };
}

hooks! {
    /// Walks a directory tree.
    fn [nftw, nftw64](path: *const c_char, visit: *const c_void, descriptors: c_int, flags: c_int) -> c_int {
        next => match at(libc::AT_FDCWD, path) {
            Some(place) => walk(place, visit, |path| {
                next(path, named_with_level as *const c_void, descriptors, flags)
            }),
            None => next(path, visit, descriptors, flags),
        }
    }

    /// Walks a directory tree.
    fn [ftw, ftw64](path: *const c_char, visit: *const c_void, descriptors: c_int) -> c_int {
        next => match at(libc::AT_FDCWD, path) {
            Some(place) => walk(place, visit, |path| next(path, named as *const c_void, descriptors)),
            None => next(path, visit, descriptors),
        }
    }
}

/// Walks the namespace's directory, or visits one queue's file in it.
///
/// # Safety
/// `visit` is a function of the type that nftw or ftw requires.
#[cold]
unsafe fn walk(
    place: Place<'_>,
    visit: *const c_void,
    call: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    let found = roomy(|| {
        let directory = Place::Directory.path_to_open()?;
        Ok((place.path()?, directory.as_bytes().len()))
    });
    let (path, len) = match found {
        Ok(found) => found,
        Err(error) => return errno::fail(error),
    };
    // SAFETY: by this function's contract. The function of ftw does not read the fourth argument.
    let visit = unsafe { std::mem::transmute::<*const c_void, Visit>(visit) };
    let outer = WALK.replace(Some(Walk { visit, len }));
    let outcome = call(path.as_ptr());
    WALK.set(outer);
    outcome
}

unsafe extern "C" fn named(path: *const c_char, status: *const libc::stat, kind: c_int) -> c_int {
    // SAFETY: libc has passed the arguments.
    unsafe { pass_on(path, status, kind, 0) }
}

unsafe extern "C" fn named_with_level(
    path: *const c_char,
    status: *const libc::stat,
    kind: c_int,
    level: *const Level,
) -> c_int {
    // SAFETY: libc has passed the arguments.
    unsafe { pass_on(path, status, kind, (*level).level) }
}

/// Calls the program's function for an entry, with the entry's path below /dev/mqueue.
///
/// # Safety
/// The arguments are those that libc passes to the function of a walk.
unsafe fn pass_on(
    path: *const c_char,
    status: *const libc::stat,
    kind: c_int,
    level: c_int,
) -> c_int {
    /// Room for a slash, a name, and the file in the directory of a transient queue. The program's stack may be small.
    const ROOM: usize = 1 + 255 + 1 + 255;
    let Some(walk) = WALK.get() else {
        return 0;
    };
    // SAFETY: libc passes a C string, which begins with the path of the directory.
    let rest = unsafe { CStr::from_ptr(path) }.to_bytes();
    let rest = rest.get(walk.len..).unwrap_or_default();
    // SAFETY: the status is from libc.
    let mut shown = unsafe { *status };
    let mut base = PATH.iter().rposition(|&byte| byte == b'/').unwrap_or(0) + 1;
    if let [b'/', name @ ..] = rest {
        base = PATH.len() + 1;
        let _ = Place::Name(name).stat(&raw mut shown);
    }
    let mut path = [0_u8; PATH.len() + ROOM + 1];
    let (begin, end) = path.split_at_mut(PATH.len());
    begin.copy_from_slice(PATH);
    let len = rest.len().min(ROOM);
    end[..len].copy_from_slice(&rest[..len]);
    let base = base as c_int;
    let mut here = Level { base, level };
    // The program's function may itself walk, so this walk is removed during the call, and set again after the call.
    WALK.set(None);
    // SAFETY: the program has passed this function for calls with these arguments.
    let outcome =
        unsafe { (walk.visit)(path.as_ptr().cast(), &raw const shown, kind, &raw mut here) };
    WALK.set(Some(walk));
    outcome
}

/// The arguments and the result of glob. Source: `glob_t` in glob.h of glibc.
#[cfg(target_env = "gnu")]
#[repr(C)]
pub struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    close: *const c_void,
    read: *const c_void,
    open: *const c_void,
    lstat: *const c_void,
    stat: *const c_void,
}

#[cfg(target_env = "gnu")]
hooks! {
    /// Finds the paths that match a pattern.
    fn [glob, glob64](pattern: *const c_char, flags: c_int, failed: *const c_void, found: *mut Glob) -> c_int {
        next => if begins(pattern) && flags & libc::GLOB_ALTDIRFUNC == 0 {
            let found = &mut *found;
            found.close = libc::closedir as *const c_void;
            found.read = libc::readdir as *const c_void;
            found.open = super::mqueue::opendir as *const c_void;
            found.lstat = super::mqueue::lstat as *const c_void;
            found.stat = super::mqueue::stat as *const c_void;
            next(pattern, flags | libc::GLOB_ALTDIRFUNC, failed, std::ptr::from_mut(found).cast())
        } else {
            next(pattern, flags, failed, found.cast())
        }
    }
}

/// Returns whether a pattern begins with the path of /dev/mqueue.
///
/// # Safety
/// The conditions of [`at`](crate::mqueue::at).
#[cfg(target_env = "gnu")]
unsafe fn begins(pattern: *const c_char) -> bool {
    // SAFETY: by this function's contract.
    unsafe { crate::mqueue::begins(pattern) }
}
