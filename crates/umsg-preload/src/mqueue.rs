//! /dev/mqueue: the directory that mq_overview(7) describes, with umsg's queues.
//!
//! The directory of the namespace's POSIX queues has a file for each queue, with the queue's name. So the drop-in replaces the path /dev/mqueue by
//! the path of that directory. Then the kernel lists the directory, its descriptors are real ones, and inotify(7) watches it. A path below
//! /dev/mqueue refers to the queue of this name. An open does the same as mq_open(3), and an unlink the same as mq_unlink(3). stat(2) returns the
//! queue's mode and size.
//!
//! Before a program opens the directory, the drop-in removes the files that belong to no queue, such as those of vacated queues ([`crate::vacated`]).
//!
//! The drop-in recognises a path by its text. Of a path that does not match, it reads only the first bytes. Paths relative to a descriptor are
//! checked only after the process has opened the directory.
//!
//! `UMSG_DEV_MQUEUE=off` leaves /dev/mqueue to the kernel.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use libc::{gid_t, mode_t, stat, uid_t};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use umsg::Namespace;
pub(crate) use umsg::kernel_files::place::PATH;
use umsg::kernel_files::place::{self, Asker};
use umsg_shm::sys::stack::roomy;

use crate::hooks::{mq_open, mq_unlink, read, stat as stats};
use crate::{debug, fd, home, names, next, pointer, start};

/// Set once the process has opened the directory, or has made it the working directory. Relaxed: as for [`IDENTITY`].
#[unsafe(link_section = ".data.umsg")]
static ANY: AtomicBool = AtomicBool::new(false);

/// The device and the inode of the directory that was opened last. Relaxed: a thread that uses a descriptor of the directory has got its number from
/// the thread that opened it. Values from two different openings match at most one of the two directories.
static IDENTITY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// A path that the drop-in answers: /dev/mqueue, or a queue in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// /dev/mqueue.
    Directory,
    /// A name in the directory, without a slash.
    Name(&'a [u8]),
}

impl<'a> From<place::MqueuePath<'a>> for Place<'a> {
    fn from(place: place::MqueuePath<'a>) -> Place<'a> {
        match place {
            place::MqueuePath::Directory => Place::Directory,
            place::MqueuePath::Name(name) => Place::Name(name),
        }
    }
}

/// Returns the directory or the queue to which a path refers. `None` for a path outside of /dev/mqueue.
///
/// # Safety
/// `path` is a C string, or an address that a pointer check refuses.
#[inline(always)]
pub(crate) unsafe fn at<'a>(directory: c_int, path: *const c_char) -> Option<Place<'a>> {
    // SAFETY: by this function's contract.
    unsafe {
        if begins(path) {
            absolute(CStr::from_ptr(path).to_bytes())
        } else if ANY.load(Ordering::Relaxed) && !pointer::is_bad(path) {
            relative(directory, CStr::from_ptr(path).to_bytes())
        } else {
            None
        }
    }
}

/// # Safety
/// The conditions of [`at`].
#[inline(always)]
pub(crate) unsafe fn begins(path: *const c_char) -> bool {
    !pointer::is_bad(path)
        && (0..PATH.len()).all(|index| {
            // SAFETY: the bytes before this one do not end the string.
            let byte = unsafe { *path.cast::<u8>().add(index) };
            byte == PATH[index]
        })
}

#[cold]
fn absolute(path: &[u8]) -> Option<Place<'_>> {
    let place = place::MqueuePath::absolute(path)?;
    ((start::is_done() || cfg!(test)) && is_on()).then_some(place.into())
}

#[cold]
fn relative(directory: c_int, path: &[u8]) -> Option<Place<'_>> {
    if path.is_empty() || path[0] == b'/' || !is_directory(directory) {
        return None;
    }
    place::MqueuePath::relative(path).map(Place::from)
}

/// Returns whether a descriptor, or the working directory, is the directory that was last opened as /dev/mqueue.
fn is_directory(number: c_int) -> bool {
    let found = match number {
        libc::AT_FDCWD => rustix::fs::stat(".").ok().map(|it| (it.st_dev, it.st_ino)),
        number => fd::identity(number),
    };
    let known = [0, 1].map(|index| IDENTITY[index].load(Ordering::Relaxed));
    found == Some((known[0], known[1]))
}

/// Forgets the opened directory, so that calls on it are left to the kernel: the directory does not belong to the process's current namespace.
pub(crate) fn forget_directory() {
    IDENTITY
        .iter()
        .for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Returns whether the environment leaves /dev/mqueue to the drop-in.
fn is_on() -> bool {
    /// The result of the first check; 0 before it. Relaxed: threads that check at the same time get the same result.
    static ANSWER: AtomicU8 = AtomicU8::new(0);
    const ON: u8 = 1;
    const OFF: u8 = 2;
    let known = ANSWER.load(Ordering::Relaxed);
    if known != 0 {
        return known == ON;
    }
    let is_off = roomy(|| std::env::var_os("UMSG_DEV_MQUEUE").is_some_and(|value| value == "off"));
    ANSWER.store(if is_off { OFF } else { ON }, Ordering::Relaxed);
    !is_off
}

impl Place<'_> {
    fn shared(&self) -> place::MqueuePath<'_> {
        match *self {
            Place::Directory => place::MqueuePath::Directory,
            Place::Name(name) => place::MqueuePath::Name(name),
        }
    }

    /// Returns the path that the directory or the queue has in the namespace. The queue need not exist.
    pub(crate) fn path(self) -> Result<CString, c_int> {
        let path = self.shared().file(namespace()?)?;
        CString::new(path.into_os_string().as_bytes()).map_err(|_| libc::ENOENT)
    }

    /// Returns the path as [`path`](Self::path) does, for a call that opens or watches the directory.
    pub(crate) fn path_to_open(self) -> Result<CString, c_int> {
        let path = self.path()?;
        if self == Place::Directory {
            let namespace = home::namespace().map_err(|error| error.errno())?;
            // If the sweep fails, the program also sees files that belong to no queue.
            let _ = namespace.sweep_files();
            let status = rustix::fs::stat(&path).map_err(|error| error.raw_os_error())?;
            IDENTITY[0].store(status.st_dev, Ordering::Relaxed);
            IDENTITY[1].store(status.st_ino, Ordering::Relaxed);
            ANY.store(true, Ordering::Relaxed);
        }
        Ok(path)
    }

    /// Opens the directory or the queue, as open(2) does.
    #[cold]
    pub(crate) fn open(self, flags: c_int, mode: mode_t) -> Result<c_int, c_int> {
        let Place::Name(name) = self else {
            let path = roomy(|| self.path_to_open())?;
            // SAFETY: the argument is a C string.
            return match unsafe { next::open(path.as_ptr(), flags, mode) } {
                -1 => Err(crate::errno::get()),
                number => Ok(number),
            };
        };
        if flags & libc::O_DIRECTORY != 0 {
            return match find(name) {
                _ if flags & libc::O_CREAT != 0 => Err(libc::EINVAL),
                Ok(_) => Err(libc::ENOTDIR),
                Err(errno) => Err(errno),
            };
        }
        let name = names::Slashed::new(name)?;
        let number = mq_open::open_checked(name.bytes(), flags, mode, None)?;
        if flags & libc::O_CLOEXEC == 0 {
            // SAFETY: this call has made the descriptor, and no other code uses it.
            unsafe { crate::hooks::fcntl::fcntl(number, libc::F_SETFD, 0) };
        }
        Ok(number)
    }

    /// Opens the directory or the queue for a stream of libc, whose reads and writes the drop-in does not see. A stream for reading gets a file with
    /// the current line about the queue. A stream for writing gets a file to which no process can write, because a program can't write to a queue of
    /// the kernel either.
    #[cold]
    pub(crate) fn open_stream(self, flags: c_int, reads_only: bool) -> Result<OwnedFd, c_int> {
        let number = self.open(flags | libc::O_CLOEXEC, 0o666)?;
        let Place::Name(_) = self else {
            // SAFETY: this call has made the descriptor, and no other code uses it.
            return Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) });
        };
        let raw = |error: rustix::io::Errno| error.raw_os_error();
        let file = roomy(|| match reads_only {
            true => {
                let held = crate::ours::file(number).ok_or(libc::EBADF)?;
                let file = rustix::fs::memfd_create("umsg", MemfdFlags::CLOEXEC).map_err(raw)?;
                rustix::io::write(&file, read::line(&held, &mut [0; 96])).map_err(raw)?;
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(raw)
            }
            false => {
                let clock = rustix::time::TimerfdClockId::Monotonic;
                rustix::time::timerfd_create(clock, rustix::time::TimerfdFlags::CLOEXEC)
                    .map_err(raw)
            }
        });
        // SAFETY: this call has made the descriptor, and no other code uses it.
        unsafe { crate::hooks::close::close(number) };
        Ok(fd::lowest(file?, true))
    }

    /// Removes the queue, or refuses to remove the directory, as unlink(2) does.
    #[cold]
    pub(crate) fn unlink(self) -> Result<c_int, c_int> {
        let Place::Name(name) = self else {
            return Err(libc::EISDIR);
        };
        let name = names::Slashed::new(name)?;
        mq_unlink::unlink_checked(name.bytes()).map_err(|errno| match errno {
            // For another user's queue, mq_unlink(3) fails with EACCES, but unlink(2) with EPERM.
            libc::EACCES => libc::EPERM,
            other => other,
        })
    }

    /// Refuses to remove the directory or a queue, as rmdir(2) does.
    #[cold]
    pub(crate) fn remove_directory(self) -> Result<c_int, c_int> {
        match self {
            Place::Directory => Err(libc::EBUSY),
            Place::Name(name) => Err(find(name).map_or_else(|errno| errno, |_| libc::ENOTDIR)),
        }
    }

    /// Fills in the status of the directory or the queue.
    #[cold]
    pub(crate) fn stat(self, out: *mut stat) -> Result<c_int, c_int> {
        let (path, mode) = self.found()?;
        // SAFETY: the path is a C string, and the caller promises a valid `out`.
        let outcome = unsafe { next::fstatat(libc::AT_FDCWD, path.as_ptr(), out, 0) };
        if outcome != 0 {
            return Err(crate::errno::get());
        }
        if let Some(mode) = mode {
            // SAFETY: a successful call has filled `out`.
            stats::disguise(mode, unsafe { &mut *out });
        }
        Ok(0)
    }

    /// Fills in the extended status of the directory or the queue.
    #[cold]
    pub(crate) fn statx(
        self,
        flags: c_int,
        mask: u32,
        out: *mut libc::statx,
    ) -> Result<c_int, c_int> {
        let (path, mode) = self.found()?;
        // SAFETY: the path is a C string, and the caller promises a valid `out`.
        let outcome = unsafe { next::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, out) };
        if outcome != 0 {
            return Err(crate::errno::get());
        }
        if let Some(mode) = mode {
            // SAFETY: a successful call has filled `out`.
            stats::disguise_statx(mode, unsafe { &mut *out });
        }
        Ok(0)
    }

    /// Returns the path that the directory or the queue has in the namespace. The file must exist. For a queue, also returns its mode.
    fn found(self) -> Result<(CString, Option<u32>), c_int> {
        roomy(|| {
            let (path, mode) = self.shared().existing(namespace()?)?;
            let path = CString::new(path.into_os_string().as_bytes()).map_err(|_| libc::ENOENT)?;
            Ok((path, mode))
        })
    }

    /// Checks the caller's permissions, as access(2) does: by the real ids, or by the effective ids.
    #[cold]
    pub(crate) fn access(self, wanted: c_int, effective: bool) -> Result<c_int, c_int> {
        if wanted & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
            return Err(libc::EINVAL);
        }
        let (path, mode) = self.found()?;
        let status = rustix::fs::stat(&path).map_err(|error| error.raw_os_error())?;
        let mode = mode.unwrap_or(status.st_mode & 0o7777);
        let (user, group) = match effective {
            true => (rustix::process::geteuid(), rustix::process::getegid()),
            false => (rustix::process::getuid(), rustix::process::getgid()),
        };
        let asker = Asker {
            user: user.as_raw(),
            group: group.as_raw(),
            is_member: is_member(status.st_gid),
        };
        let owner = (status.st_uid, status.st_gid);
        let is_directory = self == Place::Directory;
        if place::permits(mode, owner, is_directory, asker, wanted.cast_unsigned()) {
            Ok(0)
        } else {
            Err(libc::EACCES)
        }
    }

    /// Sets the owner and the group of the directory or the queue.
    #[cold]
    pub(crate) fn change_owner(self, user: uid_t, group: gid_t) -> Result<c_int, c_int> {
        let path = roomy(|| self.path())?;
        // lchown does not follow a symlink: in a namespace of several users, another user may have replaced a queue's file by a symlink. SAFETY: the
        // argument is a C string.
        match unsafe { next::lchown(path.as_ptr(), user, group) } {
            -1 => Err(crate::errno::get()),
            _ => Ok(0),
        }
    }

    /// Sets the mode of the directory or the queue.
    #[cold]
    pub(crate) fn change_mode(self, mode: mode_t) -> Result<c_int, c_int> {
        let Place::Name(name) = self else {
            let path = self.path()?;
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode))
                .map_err(|error| error.raw_os_error())?;
            return Ok(0);
        };
        roomy(|| place::set_mode(namespace()?, name, mode))?;
        Ok(0)
    }
}

/// Returns the answer to rename(2). At least one of the two paths is /dev/mqueue or below it.
#[cold]
pub(crate) fn rename(from: Option<Place<'_>>, to: Option<Place<'_>>) -> Result<c_int, c_int> {
    match (from, to) {
        (Some(Place::Directory), _) | (_, Some(Place::Directory)) => Err(libc::EBUSY),
        (Some(Place::Name(from)), Some(Place::Name(to))) => {
            find(from)?;
            place::check(to)?;
            if from == to { Ok(0) } else { Err(libc::EPERM) }
        }
        _ => Err(libc::EXDEV),
    }
}

/// Finds a queue by its name.
fn find(name: &[u8]) -> Result<place::FoundQueue, c_int> {
    roomy(|| place::find(namespace()?, name))
}

fn namespace() -> Result<&'static Namespace, c_int> {
    home::namespace().map_err(|error| {
        debug::explain("open", PATH, &error);
        error.errno()
    })
}

fn is_member(group: u32) -> bool {
    rustix::process::getgroups().is_ok_and(|groups| groups.iter().any(|one| one.as_raw() == group))
}

#[cfg(test)]
mod tests {
    use super::{Place, at};
    use std::ffi::CStr;

    fn of(path: &CStr) -> Option<Place<'_>> {
        // SAFETY: the argument is a C string.
        unsafe { at(libc::AT_FDCWD, path.as_ptr()) }
    }

    #[test]
    fn only_paths_below_the_directory_are_places() {
        for path in [
            c"/dev/mqueue",
            c"/dev/mqueue/",
            c"/dev/mqueue//",
            c"/dev/mqueue/.",
        ] {
            assert_eq!(of(path), Some(Place::Directory), "{path:?}");
        }
        for (path, name) in [
            (c"/dev/mqueue/a", b"a".as_slice()),
            (c"/dev/mqueue//.b", b".b"),
        ] {
            assert_eq!(of(path), Some(Place::Name(name)), "{path:?}");
        }
        for path in [
            c"",
            c"/",
            c"/dev",
            c"/dev/mqueu",
            c"/dev/mqueue2",
            c"/dev/mqueue/..",
            c"/dev/mqueue/a/b",
            c"/dev/mqueue/a/",
            c"dev/mqueue",
        ] {
            assert_eq!(of(path), None, "{path:?}");
        }
        // SAFETY: the function refuses this address without reading it.
        assert_eq!(unsafe { at(libc::AT_FDCWD, std::ptr::null()) }, None);
    }
}
