//! System V queues: the end of a stream of messages.

use std::ffi::c_int;

use super::refusal::{Refusal, find};
use crate::error::answer;

/// Closes a System V queue for sending.
///
/// The queue is closed in all processes. All sends by functions of this library, also blocked ones, fail with `EPIPE`. Receivers get the remaining
/// messages. A receiver gets `EPIPE` when no matching message is left; blocked receivers are woken. While a message is leased (umsg_msg_lease(3)) or
/// delayed (umsg_msg_send_after(3)), receivers wait, because the leased or delayed message may match their selection. A poller finds the closed queue
/// writable, and at the end of the stream also readable.
///
/// msgsnd(2) and msgrcv(2) of a program under `umsg run` ignore that a queue is closed, because the kernel's calls have no error for a closed
/// queue: msgsnd sends, and msgrcv waits.
///
/// The queue stays closed for sending until umsg_msg_reopen_send(3) opens it again. `send_closed` of umsg_msg_status(3) tells whether it is closed.
///
/// # Return value
/// On success, the call returns 1 if the queue was open for sending, and 0 if it was already closed for sending. On error, -1 is returned, and errno
/// is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode does not let the caller send.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EIDRM`: the queue was removed during the call.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed.
///
/// # If the process dies
/// Before the call returns, the queue is either closed or open for sending. If the queue is closed for sending, waiters that were not woken notice
/// this within a tenth of a second.
///
/// # See also
/// umsg_msg_begin_to_produce(3), umsg_msg_reopen_send(3), umsg_msg_status(3), umsg_msgrcv(3), umsg_msgsnd(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msg_close_send(msqid: c_int) -> c_int {
    let close = || {
        let closed = find(msqid)?.close_send().map_err(Refusal::from)?;
        Ok(c_int::from(closed))
    };
    answer(close())
}

/// Opens a System V queue for sending again.
///
/// Undoes umsg_msg_close_send(3). A receiver that got `EPIPE` is not notified; its next call waits for messages.
///
/// # Return value
/// On success, the call returns 1 if the queue was closed for sending, and 0 if it was already open for sending. On error, -1 is returned, and errno
/// is set to indicate the error.
///
/// # Errors
/// The errors of umsg_msg_close_send(3).
///
/// # If the process dies
/// Before the call returns, the queue is either closed or open for sending.
///
/// # See also
/// umsg_msg_close_send(3), umsg_msg_status(3), umsg_msgsnd(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msg_reopen_send(msqid: c_int) -> c_int {
    let open = || {
        let opened = find(msqid)?.reopen_send().map_err(Refusal::from)?;
        Ok(c_int::from(opened))
    };
    answer(open())
}

/// Counts the calling process as a producer of a System V queue.
///
/// The call is for a queue that was created with `UMSG_CLOSE_WITH_LAST_PRODUCER` (umsg_msgget_with(3)). While the queue has a living producer, the
/// queue stays open for sending. After the last umsg_msg_end_producing(3), or the death of the last producer, the queue is closed as by
/// umsg_msg_close_send(3). A process that makes the call several times is counted several times. For other queues, the call has no effect. A call of
/// the parent does not make a child of fork(2) a producer.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_msg_close_send(3), and these:
///
/// - `EPIPE`: the queue is closed for sending.
/// - `EUSERS`: 32 other living processes are already producers of the queue.
///
/// # If the process dies
/// The process is no longer counted as a producer. A receiver or a poller of this library notices the death within a tenth of a second.
///
/// # See also
/// umsg_msg_close_send(3), umsg_msg_end_producing(3), umsg_msgget_with(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msg_begin_to_produce(msqid: c_int) -> c_int {
    let begin = || {
        find(msqid)?.begin_to_produce().map_err(Refusal::from)?;
        Ok(0)
    };
    answer(begin())
}

/// Ends one count of the calling process as a producer of a System V queue.
///
/// Undoes one call of umsg_msg_begin_to_produce(3). If the call ends the queue's last producer, the queue is closed for sending.
///
/// # Return value
/// On success, the call returns 1 if the process was counted as a producer, and 0 if it was not. On error, -1 is returned, and errno is set to
/// indicate the error.
///
/// # Errors
/// The errors of umsg_msg_close_send(3).
///
/// # If the process dies
/// The process is no longer counted as a producer.
///
/// # See also
/// umsg_msg_begin_to_produce(3), umsg_msg_close_send(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msg_end_producing(msqid: c_int) -> c_int {
    let end = || {
        let ended = find(msqid)?.end_producing().map_err(Refusal::from)?;
        Ok(c_int::from(ended))
    };
    answer(end())
}
