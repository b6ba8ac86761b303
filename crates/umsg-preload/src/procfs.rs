//! Files of /proc that describe queues, as the kernel would write them for its own queues.
//!
//! ipcs and lsipc read /proc/sysvipc/msg and, for the limits, files below /proc/sys. If a program opens one of these files for reading by its full
//! path, it gets a file in memory with a snapshot. The limits can be opened for writing, too: see [`crate::knobs`]. All other calls on these paths go
//! to the kernel, which also has the files.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::IntoRawFd;

use umsg::kernel_files::limit::Limit;
use umsg::kernel_files::{snapshot, sysv_table};
use umsg_shm::sys::stack::roomy;

use crate::{debug, fd, home, knobs, pointer};

/// The common beginning of the paths of these files. Most other paths already differ in these bytes.
const BEGINNING: &[u8] = b"/proc/sys";

/// A file whose contents the drop-in provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// The table of all queues, one line for each queue.
    Queues,
    /// The file of a limit.
    Limit(Limit),
}

/// Returns the file of [`File`] that a path names. None for other paths, and for flags that the drop-in does not serve, such as writing to
/// /proc/sysvipc/msg.
///
/// # Safety
/// `path` is a C string, or an address that a pointer check refuses.
#[inline(always)]
pub(crate) unsafe fn wanted(path: *const c_char, flags: c_int) -> Option<File> {
    // SAFETY: by this function's contract.
    if unsafe { begins(path) } {
        // SAFETY: by this function's contract: a path with this beginning is a C string.
        named(unsafe { CStr::from_ptr(path) }.to_bytes(), flags)
    } else {
        None
    }
}

/// # Safety
/// The conditions of [`wanted`].
#[inline(always)]
unsafe fn begins(path: *const c_char) -> bool {
    !pointer::is_bad(path)
        && (0..BEGINNING.len()).all(|index| {
            // SAFETY: the bytes before this one do not end the string.
            let byte = unsafe { *path.cast::<u8>().add(index) };
            byte == BEGINNING[index]
        })
}

#[cold]
fn named(path: &[u8], flags: c_int) -> Option<File> {
    const OTHERS: c_int = libc::O_DIRECTORY | libc::O_PATH;
    let file = match path {
        path if path == sysv_table::PATH.as_bytes() => File::Queues,
        _ => File::Limit(Limit::named(path)?),
    };
    let is_answered = file != File::Queues || !writes(flags);
    (is_answered && flags & OTHERS == 0).then_some(file)
}

/// Returns whether an opening with these flags permits writing, or changes the file at once.
fn writes(flags: c_int) -> bool {
    flags & crate::table::ACCESS_MODE != libc::O_RDONLY
        || flags & (libc::O_EXCL | libc::O_TRUNC) != 0
}

impl File {
    /// Opens the file for the program, on the lowest free descriptor number.
    #[cold]
    pub(crate) fn open(self, flags: c_int) -> Result<c_int, c_int> {
        roomy(|| self.write_and_open(flags))
    }

    fn write_and_open(self, flags: c_int) -> Result<c_int, c_int> {
        if let File::Limit(limit) = self {
            let file = knobs::open(limit, flags, writes(flags))?;
            return Ok(fd::lowest(file, flags & libc::O_CLOEXEC != 0).into_raw_fd());
        }
        let text = queues()?;
        let flags = flags & (libc::O_CLOEXEC | libc::O_NONBLOCK);
        let file =
            snapshot("umsg", text.as_bytes(), flags).map_err(|error| error.raw_os_error())?;
        Ok(fd::lowest(file, flags & libc::O_CLOEXEC != 0).into_raw_fd())
    }
}

/// Returns the table of all queues.
fn queues() -> Result<String, c_int> {
    let namespace = home::namespace().map_err(|error| {
        debug::explain("open", b"/proc/sysvipc/msg", &error);
        error.errno()
    })?;
    sysv_table::text(namespace).map_err(|error| error.errno())
}

#[cfg(test)]
mod tests {
    use super::{File, Limit, wanted};
    use std::ffi::CStr;

    fn of(path: &CStr, flags: i32) -> Option<File> {
        // SAFETY: the argument is a C string.
        unsafe { wanted(path.as_ptr(), flags) }
    }

    #[test]
    fn full_paths_for_reading_are_recognised() {
        assert_eq!(
            of(c"/proc/sysvipc/msg", libc::O_CLOEXEC),
            Some(File::Queues)
        );
        assert_eq!(
            of(c"/proc/sys/kernel/msgmni", 0),
            Some(File::Limit(Limit::Msgmni))
        );
        for other in [
            c"/proc/sysvipc/sem",
            c"/proc/sys/kernel/msgmax2",
            c"/proc/sys",
            c"/proc",
            c"msg",
            c"",
        ] {
            assert_eq!(of(other, 0), None, "{other:?}");
        }
    }

    #[test]
    fn limits_are_answered_for_writing_too() {
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_TRUNC] {
            let limit = of(c"/proc/sys/kernel/msgmnb", flags | libc::O_CREAT);
            assert_eq!(limit, Some(File::Limit(Limit::Msgmnb)));
        }
        assert_eq!(of(c"/proc/sys/kernel/msgmnb", libc::O_PATH), None);
    }

    #[test]
    fn what_else_is_not_for_reading_is_the_kernels() {
        for flags in [
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_DIRECTORY,
            libc::O_PATH,
        ] {
            assert_eq!(of(c"/proc/sysvipc/msg", flags), None);
        }
        // SAFETY: the function refuses these addresses without reading them.
        assert_eq!(unsafe { wanted(std::ptr::null(), 0) }, None);
    }
}
