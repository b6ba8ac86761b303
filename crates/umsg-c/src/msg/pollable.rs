//! System V queues in event loops.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use super::refusal::find;
use crate::error::{Failure, answer};
use crate::pollable;

/// Returns the descriptor of a System V queue, for poll(2), select(2) and epoll(7).
///
/// The descriptor is readable (`POLLIN`) while the queue has a message of any type, and writable (`POLLOUT`) while it has room for a byte. After the
/// removal of the queue, the descriptor is readable and writable, so that pollers detect the removal. To wait for messages of certain types while the
/// queue has other messages, or for more room than one byte, poll with `EPOLLET` and select events with `edges`.
///
/// `edges` is one of `UMSG_EDGES_CHANGES`, `UMSG_EDGES_MESSAGES` and `UMSG_EDGES_ALL`. umsg_mq_pollfd(3) describes them and their costs.
///
/// The descriptor belongs to the library, which opens one for each queue and process at the first call. The program must not read, write or
/// close it. When the library detaches from a removed queue, it closes the descriptor.
///
/// # Return value
/// On success, the call returns the descriptor, the same each time. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode grants the caller no access, or the caller may not create files in the namespace's directory.
/// - `EAGAIN`: a process was stopped inside an operation on the queue.
/// - `EBADMSG`: the queue is corrupted.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed; or `edges` is not one of the three values `UMSG_EDGES_*`.
/// - `EMFILE`, `ENFILE`: there are too many open files.
/// - `ENOSPC`, `ENOMEM`: there is no room for a file.
/// - `EOPNOTSUPP`: the queue belongs to another user, and the file system has no access control lists.
///
/// # If the process dies
/// The system closes the descriptor. After some hundred messages, senders and receivers detect that no process polls any more.
///
/// # See also
/// umsg_mq_pollfd(3), umsg_msgget(3), poll(2), epoll(7)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msg_pollfd(msqid: c_int, edges: c_int) -> c_int {
    let tell = || {
        let edges = pollable::of(edges)?;
        let queue = find(msqid)?;
        let descriptor = queue.pollable_with(edges).map_err(Failure::Poll)?;
        Ok(descriptor.as_raw_fd())
    };
    answer(tell())
}
