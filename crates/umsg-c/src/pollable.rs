//! POSIX queues: event loops.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use umsg::Edges;

use crate::error::{Failure, answer};
use crate::handle::{self, umsg_mqd_t};

/// Notify pollers when the queue becomes readable or writable.
pub const UMSG_EDGES_CHANGES: c_int = 0;
/// Also notify pollers for messages after each send and receive that leaves a message.
pub const UMSG_EDGES_MESSAGES: c_int = 1;
/// Also notify pollers for room after each send and receive that leaves room.
pub const UMSG_EDGES_ALL: c_int = 2;

/// Returns the descriptor of a queue, for poll(2), select(2) and epoll(7).
///
/// The descriptor is readable (`POLLIN`) while there is a message, and writable (`POLLOUT`) while there is room, regardless of the handle's
/// access mode. All processes that have the descriptor see the same state. The descriptor may be inherited over fork(2) and passed on.
///
/// `edges` selects the events of a poller with `EPOLLET`; it does not affect other pollers:
///
/// - `UMSG_EDGES_CHANGES`: when the queue becomes readable, and when it becomes writable. This setting is enough for a program that repeats its calls
///   until a call fails with `EAGAIN`. The setting costs the least: a send or a receive makes one system call if it makes the queue full or empty, or
///   ends that state, and otherwise none.
/// - `UMSG_EDGES_MESSAGES`: also notifies pollers for `EPOLLIN` after each send and each receive that leaves a message, like the
///   kernel's queues. Each notification costs a system call.
/// - `UMSG_EDGES_ALL`: also notifies pollers for `EPOLLOUT` after each send and each receive that leaves room.
///
/// The setting stays in force until no process has the descriptor open any more. The descriptor belongs to the library, which opens one for each
/// handle at the first call. The program must not read, write or close it; umsg_mq_close(3) closes it.
///
/// A message, room or the end of the stream may also come without a call: the delivery time of a delayed message comes, the holder of a lease or of a
/// reservation dies, or the last producer dies. Messages are delayed by umsg_mq_send_after(3), umsg_mq_return_after(3), and `retry_delay` of
/// umsg_mq_open_with(3). A thread of the library checks for these changes, and makes the descriptor ready within a tenth of a second.
///
/// If a process polls before the queue has its first delayed message, lease or reservation, the library does not run the thread for these changes
/// yet. The first delayed message, lease or reservation makes the descriptor ready once, although a receive then finds no message, or a send no room.
/// That receive or send starts the thread.
///
/// # Return value
/// On success, the call returns the descriptor, the same each time. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the caller may not create files in the namespace's directory.
/// - `EAGAIN`: a process was stopped inside an operation on the queue.
/// - `EBADF`: `mqdes` is not the handle of an open queue.
/// - `EBADMSG`: the queue is corrupted.
/// - `EINVAL`: `edges` is not one of the three values `UMSG_EDGES_*`.
/// - `EMFILE`, `ENFILE`: there are too many open files.
/// - `ENOSPC`, `ENOMEM`: there is no room for a file.
/// - `EOPNOTSUPP`: the queue belongs to another user, and the file system has no access control lists.
///
/// # If the process dies
/// The system closes the descriptor. After some hundred messages, senders and receivers detect that no process polls any more.
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

/// Converts a value of `edges`, one of UMSG_EDGES_CHANGES, UMSG_EDGES_MESSAGES and UMSG_EDGES_ALL.
pub(crate) fn of(edges: c_int) -> Result<Edges, Failure> {
    match edges {
        UMSG_EDGES_CHANGES => Ok(Edges::Changes),
        UMSG_EDGES_MESSAGES => Ok(Edges::Messages),
        UMSG_EDGES_ALL => Ok(Edges::All),
        _ => Err(Failure::Invalid(
            "edges must be UMSG_EDGES_CHANGES, UMSG_EDGES_MESSAGES or UMSG_EDGES_ALL",
        )),
    }
}
