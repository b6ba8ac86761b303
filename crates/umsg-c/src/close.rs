//! POSIX queues: closing a queue for sending, the end of a stream of messages.

use std::ffi::c_int;

use crate::error::answer;
use crate::handle::{self, umsg_mqd_t};

/// Closes a queue for sending.
///
/// The queue is closed in all processes: all sends, also blocked ones, fail with `EPIPE`. Receivers get the remaining messages, and then `EPIPE`;
/// blocked receivers are woken. While a message is leased (umsg_mq_lease(3)), receivers wait, because the message may come back. A reservation
/// (umsg_mq_reserve(3)) can no longer be committed. A poller finds the closed queue writable, and at the end of the
/// stream also readable. A process that is registered for a notification (umsg_mq_notify(3)) is notified if the queue is empty.
///
/// The queue stays closed for sending until umsg_mq_reopen_send(3) opens it again. `send_closed` of umsg_mq_status(3) tells whether it is closed.
///
/// # Return value
/// On success, the call returns 1 if the queue was open for sending, and 0 if it was already closed for sending. On error, -1 is returned, and errno
/// is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for sending.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
///
/// # If the process dies
/// Before the call returns, the queue is either closed or open for sending. If the queue is closed for sending, waiters that were not woken notice
/// this within a tenth of a second.
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
/// Undoes umsg_mq_close_send(3). A receiver that got `EPIPE` is not notified; its next call waits for messages.
///
/// # Return value
/// On success, the call returns 1 if the queue was closed for sending, and 0 if it was already open for sending. On error, -1 is returned, and errno
/// is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_close_send(3).
///
/// # If the process dies
/// Before the call returns, the queue is either closed or open for sending.
///
/// # See also
/// umsg_mq_close_send(3), umsg_mq_send(3), umsg_mq_status(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_reopen_send(mqdes: umsg_mqd_t) -> c_int {
    let open = || Ok(c_int::from(handle::hold(mqdes)?.queue.reopen_send()?));
    answer(open())
}

/// Counts the calling process as a producer of a queue.
///
/// The call is for a queue that was created with `UMSG_CLOSE_WITH_LAST_PRODUCER` (umsg_mq_open_with(3)). While the queue has a living producer, the
/// queue stays open for sending. After the last umsg_mq_end_producing(3), or the death of the last producer, the queue is closed as by
/// umsg_mq_close_send(3). A process that makes the call several times is counted several times. For other queues, the call has no effect. A call of
/// the parent does not make a child of fork(2) a producer.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_close_send(3), and these:
///
/// - `EPIPE`: the queue is closed for sending.
/// - `EUSERS`: 32 other living processes are already producers of the queue.
///
/// # If the process dies
/// The process is no longer counted as a producer. A receiver that finds the queue empty notices the death within some milliseconds, and a blocked
/// receiver or a poller within a tenth of a second.
///
/// # See also
/// umsg_mq_close_send(3), umsg_mq_end_producing(3), umsg_mq_open_with(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_begin_to_produce(mqdes: umsg_mqd_t) -> c_int {
    let begin = || {
        handle::hold(mqdes)?.queue.begin_to_produce()?;
        Ok(0)
    };
    answer(begin())
}

/// Ends one count of the calling process as a producer of a queue.
///
/// Undoes one call of umsg_mq_begin_to_produce(3). If the call ends the queue's last producer, the queue is closed for sending.
///
/// # Return value
/// On success, the call returns 1 if the process was counted as a producer, and 0 if it was not. On error, -1 is returned, and errno is set to
/// indicate the error.
///
/// # Errors
/// The errors of umsg_mq_close_send(3).
///
/// # If the process dies
/// The process is no longer counted as a producer.
///
/// # See also
/// umsg_mq_begin_to_produce(3), umsg_mq_close_send(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_end_producing(mqdes: umsg_mqd_t) -> c_int {
    let end = || Ok(c_int::from(handle::hold(mqdes)?.queue.end_producing()?));
    answer(end())
}
