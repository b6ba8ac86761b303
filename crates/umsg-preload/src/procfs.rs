//! Files of /proc that describe queues, as the kernel would write them for its own queues.
//!
//! ipcs and lsipc read /proc/sysvipc/msg and, for the limits, files below /proc/sys. If a program opens one of these files for reading by its full
//! path, it gets a file in memory with a snapshot. The limits can be opened for writing, too: see [`crate::knobs`]. The kernel, which also has
//! these paths, handles all other calls on them.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use umsg::sysv::{self, Entry, raw};
use umsg_shm::sys::stack::roomy;

use crate::knobs::Knob;
use crate::{debug, fd, home, pointer};

/// The common beginning of the paths, which few other paths have: a check that does not read a whole path.
const BEGINNING: &[u8] = b"/proc/sys";

/// A file whose contents the drop-in provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// All queues, a line each.
    Queues,
    /// A limit.
    Limit(Knob),
}

/// Returns which of the files a path names, if the flags open it only for reading, or if the file is a limit.
///
/// # Safety
/// `path` is a C string, or an address that a pointer check refuses.
#[inline(always)]
pub(crate) unsafe fn wanted(path: *const c_char, flags: c_int) -> Option<File> {
    // SAFETY: by this function's contract.
    if unsafe { begins(path) } {
        // SAFETY: the caller promises a C string if the path has this beginning.
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
            // SAFETY: the bytes before this one are none that ends the string.
            let byte = unsafe { *path.cast::<u8>().add(index) };
            byte == BEGINNING[index]
        })
}

#[cold]
fn named(path: &[u8], flags: c_int) -> Option<File> {
    const OTHERS: c_int = libc::O_DIRECTORY | libc::O_PATH;
    let file = match path {
        b"/proc/sysvipc/msg" => File::Queues,
        _ => File::Limit(Knob::named(path)?),
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
        if let File::Limit(knob) = self {
            let file = knob.open(flags, writes(flags))?;
            return Ok(fd::lowest(file, flags & libc::O_CLOEXEC != 0).into_raw_fd());
        }
        let text = queues()?;
        let filled = filled(text.as_bytes()).map_err(|error| error.raw_os_error())?;
        // The file is opened once more, because the first descriptor can be written to.
        let path = format!("/proc/self/fd/{}", filled.as_raw_fd());
        let flags = flags & (libc::O_CLOEXEC | libc::O_NONBLOCK);
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let file = rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())
            .map_err(|error| error.raw_os_error())?;
        drop(filled);
        Ok(fd::lowest(file, flags.contains(OFlags::CLOEXEC)).into_raw_fd())
    }
}

/// Returns the table of all queues.
fn queues() -> Result<String, c_int> {
    let namespace = home::namespace().map_err(|error| {
        debug::explain("open", b"/proc/sysvipc/msg", &error);
        error.errno()
    })?;
    let mut entries = sysv::list(namespace).map_err(|error| error.errno())?;
    entries.sort_unstable_by_key(|entry| entry.id % INDICES);
    Ok(table(&entries))
}

/// The maximum number of queues in a namespace; an identifier modulo this number is the queue's index.
const INDICES: i32 = 32_768;

/// Creates a file in memory with this text.
fn filled(text: &[u8]) -> Result<OwnedFd, rustix::io::Errno> {
    let file = rustix::fs::memfd_create("umsg", MemfdFlags::CLOEXEC)?;
    let mut rest = text;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(file)
}

/// Returns the text of the table. Source: `sysvipc_msg_proc_show` in ipc/msg.c of the kernel.
fn table(entries: &[Entry]) -> String {
    let mut text = String::from(
        "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n",
    );
    for entry in entries {
        let [sent, received, changed] =
            [entry.last_send, entry.last_receive, entry.changed].map(raw::seconds);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:10} {:10}  {:4o}  {:10} {:10} {:5} {:5} {:5} {:5} {:5} {:5} {sent:10} {received:10} {changed:10}",
            entry.key,
            entry.id,
            entry.mode,
            entry.bytes,
            entry.messages,
            entry.last_sender,
            entry.last_receiver,
            entry.uid,
            entry.gid,
            entry.cuid,
            entry.cgid,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{File, Knob, wanted};
    use std::ffi::CStr;

    fn of(path: &CStr, flags: i32) -> Option<File> {
        // SAFETY: a C string.
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
            Some(File::Limit(Knob::Msgmni))
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
            assert_eq!(limit, Some(File::Limit(Knob::Msgmnb)));
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
        // SAFETY: addresses that are refused.
        assert_eq!(unsafe { wanted(std::ptr::null(), 0) }, None);
    }
}
