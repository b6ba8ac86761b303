//! System V queues: receiving several messages in one call.

use std::ffi::{c_int, c_long};

use libc::{IPC_NOWAIT, MSG_EXCEPT, size_t, ssize_t, timespec};
use umsg::sysv::raw::Which;
use umsg::sysv::{Incoming, Received, Want};

use super::batch::{check_flags, umsg_msg_message};
use super::refusal::{Refusal, find};
use super::until;
use crate::error::{Failure, answer};
use crate::messages::Places;
use crate::time;

/// Receives several messages from a System V queue.
///
/// Receives up to `n` matching messages under one lock, in the order in which the same number of calls of umsg_msgrcv(3) would receive them. `msgtyp`
/// selects them as in umsg_msgrcv(3), with or without `MSG_EXCEPT` in `msgflg`. Each message is copied to the `data` of one of `messages`, in order,
/// and `len` and `mtype` are set. A message that is longer than the `size` of its element stays in the queue and ends the call.
///
/// If no message matches, the call waits for one message, not for more. With `IPC_NOWAIT` it fails instead. If the call waits, the `size` of the
/// first element of `messages` must be at least the queue's `msgmax`, which umsg_msg_status(3) returns. A call that waits ends at `abs_timeout`, a
/// time of the clock `CLOCK_REALTIME`; NULL means no limit. The buffers at `data` must not overlap. Other users of the queue wait while the call
/// copies messages.
///
/// # Return value
/// On success, the call returns the number of messages received, which is 0 only if `n` is 0. On error, -1 is returned, and errno is set to indicate
/// the error; no message was received.
///
/// # Errors
/// - `E2BIG`: the first message is longer than the `size` of the first element of `messages`; or the call would wait, and the next message could be
///   longer than this `size`.
/// - `EACCES`: the queue's mode does not let the caller receive.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `messages`, the `data` of one of them, or `abs_timeout` is at an address that can't be read or written.
/// - `EIDRM`: the queue was removed during the call.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed; `msgflg` has other flags than `IPC_NOWAIT` and
///   `MSG_EXCEPT`; or `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `ENOMEM`: the system has no memory left.
/// - `ENOMSG`: there is no such message, and `msgflg` has `IPC_NOWAIT`.
/// - `ETIMEDOUT`: the deadline passed before a wanted message came.
///
/// # If the process dies
/// Before the call returns, the messages that were already copied are lost. The other messages are in the queue.
///
/// # See also
/// umsg_msg_lease(3), umsg_msg_send_batch(3), umsg_msgrcv(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_receive_batch(
    msqid: c_int,
    messages: *mut umsg_msg_message,
    n: size_t,
    msgtyp: c_long,
    msgflg: c_int,
    abs_timeout: *const timespec,
) -> ssize_t {
    let receive = || {
        // SAFETY: the caller promises NULL or a readable timespec.
        let deadline = unsafe { time::deadline(abs_timeout)? };
        let want = want(msgtyp, msgflg)?;
        let queue = find(msqid)?;
        // SAFETY: the caller promises `n` writable messages that no other thread uses.
        let mut places = unsafe { Places::new(messages, n, queue.msgmax())? };
        places.check()?;
        let received = queue.receive_into(want, &mut places, n, until(msgflg, deadline));
        Ok(received.map_err(Refusal::from)?.cast_signed())
    };
    answer(receive())
}

/// Converts the arguments of umsg_msgrcv to a selection, for calls that neither truncate nor copy.
pub(super) fn want(msgtyp: c_long, msgflg: c_int) -> Result<Want, Failure> {
    check_flags(msgflg, IPC_NOWAIT | MSG_EXCEPT)?;
    match Which::of(msgtyp, msgflg) {
        Ok(Which::Want(want, _)) => Ok(want),
        _ => Ok(Want::Any),
    }
}

impl Incoming for Places<'_, umsg_msg_message> {
    #[inline(always)]
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        self.room(len)
    }

    #[inline(always)]
    fn taken(&mut self, received: Received) {
        if let Some(message) = self.fill() {
            message.len = received.len;
            message.mtype = received.mtype;
        }
    }
}
