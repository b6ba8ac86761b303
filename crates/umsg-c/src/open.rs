//! Opening, closing and unlinking POSIX queues.

use std::ffi::{OsStr, c_char, c_int};
use umsg::QueueError;

use libc::mode_t;
use umsg::Namespace;
use umsg::posix::{self, OpenError, OpenOptions};

use crate::attributes::umsg_mq_attr;
use crate::error::{Failure, answer, fail};
use crate::flag::Flag;
use crate::handle::{self, Open, umsg_mqd_t};
use crate::pointer;

/// The return value of a function that fails to open a queue.
const NO_QUEUE: umsg_mqd_t = std::ptr::without_provenance_mut(usize::MAX);

/// Opens a queue, or creates it.
///
/// `name` is a slash and up to 255 bytes. `oflag` is one of `O_RDONLY` (to receive), `O_WRONLY` (to send) and `O_RDWR`,
/// with any of these:
///
/// - `O_CREAT`: create the queue if no queue has this name. Two further arguments follow: `mode_t mode`, the permission bits before the
///   umask, and `const struct umsg_mq_attr *attr`, whose members `mq_maxmsg` and `mq_msgsize` are used. With NULL the queue gets the
///   defaults of the namespace: 10 messages of 8192 bytes if its owner has not changed them. An existing queue keeps its attributes.
/// - `O_EXCL`: with `O_CREAT`, fail if a queue has this name.
/// - `O_NONBLOCK`: calls on the handle fail with `EAGAIN` where they would wait.
///
/// A queue belongs to a namespace, which is a directory. The environment variable `UMSG_DIR` names the directory. Without `UMSG_DIR`, it is
/// /dev/shm/umsg if root owns that directory, or else the user's own directory /dev/shm/umsg-UID, which is created at its first use. The owner of the
/// namespace sets its limits; `umsg limits` shows and sets them.
///
/// The permission bit r grants receiving, and w grants sending. Both senders and receivers map the queue's file for writing. The kernel
/// therefore enforces access to the queue as a whole. The library, not the kernel, enforces send-only and receive-only access: a process
/// that writes to the file directly can bypass it. If senders must not read or change each other's messages, give each sender its own queue
/// with mode 0600, or 0660 and a group of two. The kernel enforces these modes.
///
/// The handle is not a descriptor, and does not count for the process's limit of descriptors. A child made by fork(2) may continue to use it;
/// execve(2) ends it.
///
/// # Return value
/// On success, the call returns a handle. On error, `(umsg_mqd_t)-1` is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode or its directory denies the access; the mode of a new queue lets some users only send or only receive, in a namespace
///   that refuses such modes (umsg-limits(1)); the name has a second slash; or the namespace is not trusted. umsg_last_error(3) tells the reason.
/// - `EAGAIN`: the queue was created with `UMSG_REMOVE_ON_LAST_CLOSE`, and a process has been removing it for a second: it was stopped, or
///   got no processor.
/// - `EBADMSG`: the queue's file is corrupted.
/// - `EEXIST`: the queue exists, and `oflag` has `O_CREAT` and `O_EXCL`.
/// - `EFAULT`: `name` or `attr` is at an address that can't be read.
/// - `EFBIG`: the queue's file would be longer than the process's limit for files (`RLIMIT_FSIZE`), although most of the file takes no memory.
/// - `EINVAL`: `name` does not begin with a slash; `oflag` has no access mode; the attributes are not from 1 to the namespace's limits; or the file
///   of this name is not a queue, or belongs to another version of umsg.
/// - `EMFILE`, `ENFILE`: the process or the system has no free descriptor, which the call needs while it opens the queue, or the process has 65,536
///   queues open.
/// - `ENAMETOOLONG`: `name` has more than 255 bytes after its slash.
/// - `ENOENT`: no queue has this name, and `oflag` lacks `O_CREAT`; or `UMSG_DIR` names a directory that does
///   not exist.
/// - `ENOMEM`: there is no memory, or no address space to map the queue.
/// - `ENOSPC`: the namespace has as many queues or bytes as its limits allow, or its file system is full.
/// - `ENOTEMPTY`: the directory that `UMSG_DIR` names is not a namespace and holds other files, so that it can't become one.
///
/// # If the process dies
/// If the process dies while it creates a queue, there is either no queue or a complete queue. A queue and its messages stay until umsg_mq_unlink(3).
///
/// # See also
/// umsg_mq_close(3), umsg_mq_open_with(3), umsg_mq_unlink(3), umsg(1), mq_open(3), mq_overview(7)
// On x86-64 and aarch64, a variadic call passes integer arguments in the same registers as any other call, so fixed parameters receive them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_open(
    name: *const c_char,
    oflag: c_int,
    mode: mode_t,
    attr: *const umsg_mq_attr,
) -> umsg_mqd_t {
    let creates = oflag & libc::O_CREAT != 0;
    let open = || {
        // SAFETY: the caller promises a string; and, with O_CREAT only, a fourth argument that is NULL or a readable structure.
        let (name, attributes) = unsafe {
            let name = pointer::text(name, "name")?;
            let attr = if creates { attr } else { std::ptr::null() };
            (name, pointer::read(attr, "attr")?)
        };
        let mut options = options_for(oflag, if creates { mode } else { 0 });
        if let Some(attributes) = attributes {
            // An invalid value becomes 0, which no queue can have. The library checks the value only if the call creates the queue.
            options.max_messages(u32::try_from(attributes.mq_maxmsg).unwrap_or(0));
            options.message_size(u32::try_from(attributes.mq_msgsize).unwrap_or(0));
        }
        enter(options.open(name).map_err(with_directory)?, name, oflag)
    };
    handle_or_none(open())
}

/// Closes a handle.
///
/// The queue and its messages stay. Calls of other threads that use the handle continue. The queue's memory is unmapped when the last of these
/// calls returns. A registration of the process by umsg_mq_notify(3) ends, even if it was made with another handle. A close in a child made by
/// fork(2) does not end the registration of the parent.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue; for example, it is already closed.
///
/// # If the process dies
/// The system closes all handles of the process.
///
/// # See also
/// umsg_mq_notify(3), umsg_mq_open(3), umsg_mq_unlink(3), mq_close(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_close(mqdes: umsg_mqd_t) -> c_int {
    if umsg::posix::has_notifications()
        && let Ok(held) = handle::hold(mqdes)
    {
        umsg::posix::withdraw_notification_at_close(held.queue.identity());
    }
    answer(handle::close(mqdes).map(|()| 0))
}

/// Removes a queue's name.
///
/// From this call on, another queue may get the name. The queue exists until no process has it open. Only the queue's owner and root may remove the
/// name.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the caller is neither the queue's owner nor root, the name has a second slash, or the namespace can't be used; umsg_last_error(3)
///   tells the reason.
/// - `EFAULT`: `name` is at an address that can't be read.
/// - `EINVAL`: `name` does not begin with a slash.
/// - `EMFILE`, `ENFILE`: the queue was created with `UMSG_REMOVE_ON_LAST_CLOSE`, and the process or the system has no descriptor left.
/// - `ENAMETOOLONG`: `name` has more than 255 bytes after its slash.
/// - `ENOENT`: no queue has this name.
/// - `ENOTEMPTY`: the directory that `UMSG_DIR` names is not a namespace and holds other files, so that it can't become one.
///
/// # If the process dies
/// Before the call returns, the name was removed or still exists.
///
/// # See also
/// umsg_mq_close(3), umsg_mq_open(3), umsg_mq_unlink_in(3), mq_unlink(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_unlink(name: *const c_char) -> c_int {
    let unlink = || {
        // SAFETY: the caller promises a string.
        let name = unsafe { pointer::text(name, "name")? };
        posix::unlink(name)?;
        Ok(0)
    };
    answer(unlink())
}

/// Removes a queue's name from a namespace.
///
/// Does the same as umsg_mq_unlink(3) in the namespace `directory`, instead of the namespace that the environment selects.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_unlink(3), and these errors of the directory:
///
/// - `EFAULT`: `directory` is at an address that can't be read.
/// - `ELOOP`, `ENOTDIR`: `directory` is a symbolic link, or not a directory.
/// - `ENOTEMPTY`: `directory` is not a namespace and holds other files, so that it can't become one.
///
/// # If the process dies
/// Before the call returns, the name was removed or still exists.
///
/// # See also
/// umsg_mq_open_with(3), umsg_mq_unlink(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_unlink_in(directory: *const c_char, name: *const c_char) -> c_int {
    let unlink = || {
        // SAFETY: the caller promises two strings.
        let (directory, name) = unsafe {
            (
                pointer::text(directory, "directory")?,
                pointer::text(name, "name")?,
            )
        };
        posix::unlink_in(&Namespace::at(directory)?, name)?;
        Ok(0)
    };
    answer(unlink())
}

/// Converts the flags and the mode of umsg_mq_open to options.
pub(crate) fn options_for(oflag: c_int, mode: mode_t) -> OpenOptions {
    let (can_receive, can_send) = access(oflag);
    let mut options = OpenOptions::new();
    options
        .read(can_receive)
        .write(can_send)
        .create(oflag & libc::O_CREAT != 0)
        .exclusive(oflag & libc::O_EXCL != 0)
        .mode(mode & 0o7777)
        .without_access(true);
    options
}

/// Enters an opened queue in the table of handles, and returns its handle.
pub(crate) fn enter(
    queue: posix::Queue,
    name: &OsStr,
    oflag: c_int,
) -> Result<umsg_mqd_t, Failure> {
    let (can_receive, can_send) = access(oflag);
    handle::enter(Open {
        message_size: queue.attributes().message_size,
        queue,
        name: name.to_owned(),
        can_receive,
        can_send,
        nonblocking: Flag::new(oflag & libc::O_NONBLOCK != 0)
            .map_err(|_| OpenError::Queue(QueueError::NoMemory))?,
    })
}

/// Returns whether the flags request receiving, and whether they request sending. A value of O_ACCMODE that is none of the three access modes
/// requests neither.
fn access(oflag: c_int) -> (bool, bool) {
    let access = oflag & libc::O_ACCMODE;
    (
        matches!(access, libc::O_RDONLY | libc::O_RDWR),
        matches!(access, libc::O_WRONLY | libc::O_RDWR),
    )
}

/// Converts the error of a failed opening. If no queue has the name, the error also names the directory in which the call has looked: the usual cause
/// is that the program was started with another environment.
fn with_directory(error: OpenError) -> Failure {
    match (error, Namespace::resolve()) {
        (OpenError::NotFound, Ok(namespace)) => Failure::NotFound(namespace.path().to_owned()),
        (error, _) => error.into(),
    }
}

/// Returns the handle of an opened queue, or (umsg_mqd_t)-1 after a failure.
pub(crate) fn handle_or_none(opened: Result<umsg_mqd_t, Failure>) -> umsg_mqd_t {
    opened.unwrap_or_else(|failure| {
        fail(failure);
        NO_QUEUE
    })
}
