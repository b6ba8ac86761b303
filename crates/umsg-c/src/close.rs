//! Closing a queue for sending: the end of a stream of messages.

use std::ffi::c_int;

use crate::error::answer;
use crate::handle::{self, umsg_mqd_t};

/// Closes a queue for sending.
///
/// The queue is closed in all processes: sends, blocked ones too, fail with `EPIPE`. Receivers get the messages that are left, then `EPIPE`
/// too; blocked receivers are woken. While a message is leased (umsg_mq_lease(3)), receivers wait, because the message may come back. Room
/// that is reserved (umsg_mq_reserve(3)) can't be committed any more. A poller finds the queue readable at its end, and writable. A process
/// that is registered for a notification (umsg_mq_notify(3)) is notified if the queue is empty.
///
/// The queue stays closed until umsg_mq_reopen_send(3) opens it. `send_closed` of umsg_mq_status(3) tells whether it is closed.
///
/// # Return value
/// On success, 1 if the queue was open, and 0 if it was closed before. On error, -1 with errno set to indicate the error.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for sending.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
///
/// # If the process dies
/// Before the call returns: the queue is closed or open. If it is closed, waiters that were not woken notice it within a tenth of a second.
///
/// # See also
/// umsg_mq_receive(3), umsg_mq_reopen_send(3), umsg_mq_send(3), umsg_mq_status(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_close_send(mqdes: umsg_mqd_t) -> c_int {
    let close = || Ok(c_int::from(handle::hold(mqdes)?.queue.close_send()?));
    answer(close())
}

/// Opens a queue for sending again.
///
/// Undoes umsg_mq_close_send(3). A receiver that has got the end of the stream does not notice: its next call waits for messages.
///
/// # Return value
/// On success, 1 if the queue was closed, and 0 if it was open. On error, -1 with errno set to indicate the error.
///
/// # Errors
/// Those of umsg_mq_close_send(3).
///
/// # If the process dies
/// Before the call returns: the queue is closed or open.
///
/// # See also
/// umsg_mq_close_send(3), umsg_mq_send(3), umsg_mq_status(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_reopen_send(mqdes: umsg_mqd_t) -> c_int {
    let open = || Ok(c_int::from(handle::hold(mqdes)?.queue.reopen_send()?));
    answer(open())
}
