//! Opening a queue by a descriptor that the caller has, and finding the name of a queue's file.

use super::access::Access;
use super::open::identity;
use super::queue::Queue;
use crate::error::{OpenError, SegmentError};
use crate::last_close::LastClose;
use crate::namespace::{Hold, Namespace, QueueName, hold, whereabouts};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use umsg_shm::posix_engine::segment;

impl Queue {
    /// Attaches to the queue whose file is open as `descriptor`, for the access that the descriptor's access mode allows. The caller keeps the
    /// descriptor. The descriptor may be inherited, received over a socket, or made by
    /// [`OpenOptions::open_with_descriptor`](super::OpenOptions::open_with_descriptor).
    ///
    /// The handle of a queue with [`remove_on_last_close`](super::OpenOptions::remove_on_last_close) counts as an open handle if the caller can open
    /// the file again. The handle does not count in three cases: the caller may not open the file, for example because the descriptor came from
    /// another user; the process has no free descriptor; or the descriptor is the one with which the queue was created.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use std::os::fd::AsFd;
    /// use umsg::posix::{OpenOptions, Queue};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let (queue, descriptor) = options.open_with_descriptor("/q", false)?;
    /// queue.send(b"job", 0)?;
    /// let same = Queue::from_fd(descriptor.as_fd())?;
    /// assert_eq!(same.receive_vec()?.data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SegmentError::NotAQueue`](crate::SegmentError::NotAQueue) if the descriptor does not belong to a queue; otherwise the errors of
    /// [`OpenOptions::open`](super::OpenOptions::open).
    pub fn from_fd(descriptor: BorrowedFd<'_>) -> Result<Queue, OpenError> {
        let flags =
            rustix::fs::fcntl_getfl(descriptor).map_err(|e| OpenError::from_errno("fcntl", e))?;
        let mode = flags & OFlags::RWMODE;
        let access = Access {
            read: mode != OFlags::WRONLY,
            write: mode != OFlags::RDONLY,
        };
        let stat = rustix::fs::fstat(descriptor).map_err(|e| OpenError::from_errno("fstat", e))?;
        let found = found(descriptor);
        let goes = found.as_ref().is_some_and(|found| found.goes);
        let is_enough = access.read && access.write;
        // This value is declared before the file, so that the file is dropped first.
        let mut last_close = None;
        let file = match is_enough && !goes {
            true => None,
            false => match reopen(descriptor, &stat) {
                // The caller may be unable to open the file again, for example after a change of its user. The descriptor is enough to use the queue,
                // but the new handle does not count as an open handle.
                Err(_) if is_enough => None,
                file => Some(file?),
            },
        };
        if let (Some(found), Some(file)) = (&found, &file)
            && found.goes
            && let Some(name) = &found.name
            && hold(file.as_fd()) == Ok(Hold::Held)
        {
            last_close = Some(LastClose::new(&found.namespace, name));
        }
        let mut segment = segment::attach(file.as_ref().map_or(descriptor, AsFd::as_fd))?;
        if let Some(last_close) = last_close {
            segment.set_last_close(Box::new(last_close));
        }
        if let Some(found) = &found {
            segment.join(found.namespace.host())?;
        }
        let namespace = found.as_ref().map(|found| &found.namespace);
        let name = found
            .as_ref()
            .and_then(|found| Some(found.name.as_ref()?.with_slash()));
        Ok(Queue::new(segment, (namespace, name), access, &stat))
    }
}

/// Opens the file of a descriptor again, for reading and writing.
fn reopen(descriptor: BorrowedFd<'_>, stat: &Stat) -> Result<OwnedFd, OpenError> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let open = |access: OFlags| {
        rustix::fs::open(&path, access | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| OpenError::from_errno("open", e))
    };
    // Only a regular file is opened for the check: opening a device or a FIFO may have effects.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::Segment(SegmentError::NotAQueue(
            "not a regular file",
        )));
    }
    segment::check(open(OFlags::RDONLY)?.as_fd())?;
    let file = open(OFlags::RDWR)?;
    if identity(file.as_fd())? != (stat.st_dev, stat.st_ino) {
        return Err(OpenError::Segment(SegmentError::NotAQueue(
            "the descriptor changed meanwhile",
        )));
    }
    Ok(file)
}

/// The namespace of a queue's file, and the file's name if it is known.
struct FileLocation {
    namespace: Namespace,
    /// `None` for the descriptor with which the queue was created: the file had no name at that time, and /proc shows no name for the descriptor.
    name: Option<QueueName>,
    /// True if the queue is removed on the last close.
    goes: bool,
}

/// Returns the namespace and the name of a queue's file. `None` if the queue has no name any more, or the caller may not read the directory.
fn found(descriptor: BorrowedFd<'_>) -> Option<FileLocation> {
    // The link is not read by libc's readlink, because the drop-in would return a queue's name instead.
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    let found = whereabouts(Path::new(OsStr::from_bytes(path.as_bytes())))?;
    let name = QueueName::parse(&slashed(found.name)).ok();
    if found.goes && name.is_none() {
        return None;
    }
    Some(FileLocation {
        namespace: Namespace::existing(found.namespace).ok()?,
        name,
        goes: found.goes,
    })
}

fn slashed(name: &OsStr) -> OsString {
    let mut whole = OsString::from("/");
    whole.push(name);
    whole
}

/// Returns the name, with its slash, of the queue whose file has this path. Does not inspect the file.
#[doc(hidden)]
#[must_use]
pub fn name_of_file(path: &Path) -> Option<OsString> {
    whereabouts(path).map(|found| slashed(found.name))
}
