//! Queues in event loops.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use umsg::Edges;

use crate::error::{Failure, answer};
use crate::handle::{self, umsg_mqd_t};

/// Tell when the queue becomes readable or writable.
pub const UMSG_EDGES_CHANGES: c_int = 0;
/// Tell who polls for messages after each send and receive that leaves some, too.
pub const UMSG_EDGES_MESSAGES: c_int = 1;
/// Tell who polls for room after each that leaves some, too.
pub const UMSG_EDGES_ALL: c_int = 2;

/// Tells the descriptor of a queue, for poll(2), select(2) and epoll(7).
///
/// It is readable (`POLLIN`) while there is a message, and writable (`POLLOUT`) while there is room, whatever the handle may do. All
/// processes that have it are shown the same: it may be inherited over fork(2) and passed on.
///
/// `edges` says what a poller with `EPOLLET` is told; to others it makes no difference:
///
/// - `UMSG_EDGES_CHANGES`: when the queue becomes readable, and when it becomes writable. That is enough for who goes on
///   until a call fails with `EAGAIN`, and costs the least: one system call where a send or a receive fills or empties the queue,
///   or ends that, none otherwise.
/// - `UMSG_EDGES_MESSAGES`: besides, who polls for `EPOLLIN` is told after each send and each receive that leaves a message, as of
///   the kernel's queues. Each costs a system call.
/// - `UMSG_EDGES_ALL`: besides, who polls for `EPOLLOUT` is told after each that leaves room.
///
/// What was asked for stays in force until no process has the descriptor open any more. The descriptor is the library's, one a handle,
/// opened by the first call: it must not be read, written or closed, and umsg_mq_close(3) closes it.
///
/// # Return value
/// The descriptor, the same each time; or -1 with errno set.
///
/// # Errors
/// - `EACCES`: the caller may make no files in the namespace's directory.
/// - `EAGAIN`: a process was stopped inside of an operation on the queue.
/// - `EBADF`: `mqdes` is no handle of an open queue.
/// - `EBADMSG`: the queue is damaged.
/// - `EINVAL`: `edges` is none of the three.
/// - `EMFILE`, `ENFILE`: there are too many open files.
/// - `ENOSPC`, `ENOMEM`: there is no room for a file.
/// - `EOPNOTSUPP`: the queue is another user's, and the file system has no access control lists.
///
/// # If the process dies
/// The system closes the descriptor. Who sends and receives notices after some hundred messages that nobody polls any more.
///
/// # See also
/// umsg_mq_open(3), umsg_msg_pollfd(3), umsg_ring_descriptor(3), poll(2), epoll(7)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_pollfd(mqdes: umsg_mqd_t, edges: c_int) -> c_int {
    let tell = || {
        let edges = of(edges)?;
        let held = handle::hold(mqdes)?;
        let descriptor = held.queue.pollable_with(edges).map_err(Failure::Poll)?;
        Ok(descriptor.as_raw_fd())
    };
    answer(tell())
}

/// What a number of C means.
pub(crate) fn of(edges: c_int) -> Result<Edges, Failure> {
    match edges {
        UMSG_EDGES_CHANGES => Ok(Edges::Changes),
        UMSG_EDGES_MESSAGES => Ok(Edges::Messages),
        UMSG_EDGES_ALL => Ok(Edges::All),
        _ => Err(Failure::Invalid(
            "what to be told is one of UMSG_EDGES_CHANGES, UMSG_EDGES_MESSAGES and UMSG_EDGES_ALL",
        )),
    }
}
