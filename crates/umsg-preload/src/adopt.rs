//! Descriptors that the table does not know: inherited over exec, received over a socket, opened through /proc.

use std::ffi::{OsStr, OsString, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use umsg::SegmentError;

use rustix::fs::FileType;
use rustix::io::Errno;
use umsg::posix::{OpenError, Queue, name_of_file};
use umsg_shm::sys::stack::roomy;

use crate::attachments::{self, Attached};
use crate::table::{self, Held};
use crate::{fd, process, signals};

/// Attaches to the queue of a descriptor, and enters the descriptor into the table.
///
/// Returns `Ok(None)` if the descriptor is not a queue of umsg. An error is an errno: the descriptor is a queue, but can't be used.
#[cold]
pub(crate) fn adopt(number: c_int) -> Result<Option<Held>, c_int> {
    let Some(descriptor) = fd::borrow(number) else {
        return Ok(None);
    };
    let Ok(status) = rustix::fs::fstat(descriptor) else {
        return Ok(None);
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    roomy(|| adopt_file(number, descriptor))
}

/// Does the same as [`adopt`], for a call that fails with EBADF if the descriptor is not a queue. `Ok(None)` means that the kernel decides. A queue
/// of the kernel is a regular file. So if the descriptor is another kind of file, or is not open, the function returns EBADF without a further
/// system call.
#[cold]
pub(crate) fn adopt_queue(number: c_int) -> Result<Option<Held>, c_int> {
    let descriptor = fd::borrow(number).ok_or(libc::EBADF)?;
    match rustix::fs::fstat(descriptor) {
        Ok(status) if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile => {
            Err(libc::EBADF)
        }
        Ok(_) => roomy(|| adopt_file(number, descriptor)),
        Err(Errno::BADF) => Err(libc::EBADF),
        Err(_) => Ok(None),
    }
}

fn adopt_file(number: c_int, descriptor: BorrowedFd<'_>) -> Result<Option<Held>, c_int> {
    let Some(name) = name_of(number) else {
        return Ok(None);
    };
    signals::announce();
    // `look_at_all` may have entered this descriptor into the table, together with all other inherited ones.
    if process::owns_table()
        && let Some(held) = table::hold(number)
    {
        return Ok(Some(held));
    }
    // A descriptor with O_PATH refers to the file of a queue, but is not a queue's descriptor.
    let flags = fd::status_flags(descriptor).map_err(|_| libc::EBADF)?;
    if flags & libc::O_PATH != 0 {
        return Ok(None);
    }
    match Queue::from_fd(descriptor) {
        Ok(queue) => hold_new(flags, number, Attached::new(queue, &name)).map(Some),
        // `NotFound` and `SegmentError::System` mean that another thread has closed the descriptor meanwhile.
        Err(
            OpenError::Segment(SegmentError::NotAQueue(_))
            | OpenError::NotFound
            | OpenError::Segment(SegmentError::System { .. }),
        ) => Ok(None),
        Err(error) => Err(error.errno()),
    }
}

fn hold_new(flags: c_int, number: c_int, attached: Attached) -> Result<Held, c_int> {
    let attachment = attachments::attach(attached).ok_or(libc::ENOMEM)?;
    let held = Held::counted(attachment, flags);
    // A vfork child has its own descriptors, but no table.
    if process::owns_table() {
        table::enter_duplicate(number, &held);
    }
    Ok(held)
}

/// Returns the name of the queue, with its slash, from the path of the descriptor's file. The file is either in the `mq` directory of a namespace, or
/// it is the file `queue` in the directory of a transient queue. The function touches no other file.
fn name_of(number: c_int) -> Option<Vec<u8>> {
    let target = rustix::fs::readlink(format!("/proc/self/fd/{number}"), Vec::new()).ok()?;
    let target = target.as_bytes();
    let target = target.strip_suffix(b" (deleted)").unwrap_or(target);
    name_of_file(Path::new(OsStr::from_bytes(target))).map(OsString::into_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_queue_that_goes_has_its_own_name_and_not_that_of_its_file() {
        let path = format!("/dev/shm/umsg-test-adopt-{}", std::process::id());
        let namespace = Path::new(&path);
        for name in ["mq", "jobs"] {
            let queue = namespace.join("mq").join(name);
            std::fs::create_dir_all(&queue).unwrap();
            std::fs::create_dir_all(namespace.join("msg")).unwrap();
            let file = File::create(queue.join("queue")).unwrap();
            let whole = format!("/{name}").into_bytes();
            assert_eq!(name_of(file.as_raw_fd()).as_ref(), Some(&whole));
            std::fs::remove_dir_all(&queue).unwrap();
            assert_eq!(name_of(file.as_raw_fd()), Some(whole));
        }
        std::fs::remove_dir_all(namespace).unwrap();
        let other = File::open("/dev/null").unwrap();
        assert_eq!(name_of(other.as_raw_fd()), None);
    }
}
