//! Paths of programs, in buffers on the stack, and the search in PATH.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

use super::static_program::File;
use super::{environ, variable};
use crate::kernel;

pub(super) const LONGEST_PATH: usize = 4096;

/// The directories that libc searches if PATH is not set.
const DEFAULT_PATH: &[u8] = match cfg!(target_env = "musl") {
    true => b"/usr/local/bin:/bin:/usr/bin",
    false => b"/bin:/usr/bin",
};

/// The errors after which libc tries the next directory of PATH. musl continues only after the first three errors.
const PASSED_OVER: &[c_int] = match cfg!(target_env = "musl") {
    true => &[libc::EACCES, libc::ENOENT, libc::ENOTDIR],
    false => &[
        libc::EACCES,
        libc::ENOENT,
        libc::ENOTDIR,
        libc::ESTALE,
        libc::ENODEV,
        libc::ETIMEDOUT,
    ],
};

/// The path of a program, in a buffer of fixed size, with a zero byte at the end.
pub(super) struct Path([u8; LONGEST_PATH]);

/// The path of a program that the caller names by a descriptor. The path may refer to a duplicate of the descriptor. The drop of this value, after an
/// exec that failed, closes the duplicate.
pub(in crate::hooks) struct Named {
    pub(super) path: Path,
    pub(super) _duplicate: Option<File>,
}

impl Named {
    pub(super) fn by(path: Path) -> Named {
        Named {
            path,
            _duplicate: None,
        }
    }

    pub(in crate::hooks) fn start(&self) -> *const c_char {
        self.path.start()
    }
}

impl Path {
    pub(super) fn new() -> Path {
        Path([0; LONGEST_PATH])
    }

    pub(super) fn joined(parts: &[&[u8]]) -> Option<Path> {
        let mut path = Path::new();
        path.join(parts).then_some(path)
    }

    /// Replaces the path by the joined parts. Returns false if the joined parts are too long.
    pub(super) fn join(&mut self, parts: &[&[u8]]) -> bool {
        let mut at = 0;
        for part in parts {
            let end = at + part.len();
            // The last byte is for the zero byte after the path.
            let Some(room) = self.0[..LONGEST_PATH - 1].get_mut(at..end) else {
                return false;
            };
            room.copy_from_slice(part);
            at = end;
        }
        self.0[at] = 0;
        true
    }

    /// Looks a name up in PATH, as execvp does. An empty directory means the working directory. The search ends at an error after which execvp does
    /// not try the next directory. Returns false if no directory has such a program. Source: posix/execvpe.c of glibc, src/process/execvp.c of musl.
    pub(super) fn look_up(&mut self, name: &[u8]) -> bool {
        // SAFETY: the process's environment ends with a null pointer.
        let list = unsafe { variable(environ, b"PATH=") };
        // SAFETY: a value is a string.
        let list = list.map_or(DEFAULT_PATH, |list| unsafe {
            CStr::from_ptr(list).to_bytes()
        });
        for directory in list.split(|byte| *byte == b':') {
            let is_joined = match directory {
                b"" => self.join(&[b"./", name]),
                directory => self.join(&[directory, b"/", name]),
            };
            // libc skips a directory whose path is too long.
            match is_joined.then(|| executable(self.start())) {
                Some(Ok(true)) => return true,
                // A directory or a device can't be executed (EACCES), so the search continues.
                Some(Ok(false)) | None => {}
                Some(Err(errno)) if PASSED_OVER.contains(&errno) => {}
                Some(Err(_)) => return false,
            }
        }
        false
    }

    /// Returns the path `/proc/self/fd/NUMBER` of a descriptor. None for a negative number.
    pub(super) fn of_number(fd: c_int) -> Option<Path> {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = u32::try_from(fd).ok()?;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Path::joined(&[b"/proc/self/fd/", &digits[at..]])
    }

    pub(super) fn start(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

pub(super) fn is_executable(path: *const c_char) -> bool {
    executable(path) == Ok(true)
}

/// Returns whether a path refers to a file that the process may execute. False means a directory or another object. An error is the error for the
/// path.
fn executable(path: *const c_char) -> Result<bool, c_int> {
    let at = libc::AT_FDCWD as usize;
    let (path, access) = (path.expose_provenance(), libc::X_OK as usize);
    // Like exec, SYS_faccessat2 checks the effective ids. The fallback SYS_faccessat checks the real ids. The fallback is needed before Linux 5.8,
    // and in containers whose filters refuse the new call with EPERM.
    let effective = [at, path, access, libc::AT_EACCESS as usize, 0, 0];
    // SAFETY: the argument is a C string.
    let checked = unsafe { kernel::call(libc::SYS_faccessat2, effective) };
    match checked {
        // SAFETY: the argument is a C string.
        Err(libc::ENOSYS | libc::EPERM) => unsafe { kernel::call(libc::SYS_faccessat, effective)? },
        other => other?,
    };
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let arguments = [at, path, found.as_mut_ptr().expose_provenance(), 0, 0, 0];
    // SAFETY: the arguments are a C string, and room for the result.
    unsafe { kernel::call(libc::SYS_newfstatat, arguments)? };
    // SAFETY: the kernel has written the status.
    Ok(unsafe { found.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFREG)
}
