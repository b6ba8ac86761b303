//! System V queues: sending several messages in one call.

use std::ffi::{c_int, c_long, c_void};

use libc::{IPC_NOWAIT, size_t, timespec};
use umsg::sysv::{Outgoing, SendError};

use super::refusal::{Refusal, find};
use super::until;
use crate::error::{Failure, answer};
use crate::messages::Messages;
use crate::time;

/// One of several messages. Sending reads `data`, `len` and `mtype`; receiving reads `data` and `size`, and sets `len` and `mtype`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_msg_message {
    /// The message's bytes, or the place to which a receive copies them; NULL if there are none. Sending does not change the bytes.
    pub data: *mut c_void,
    /// The length of the buffer at `data`, in bytes: for receiving.
    pub size: size_t,
    /// The length of the message, in bytes.
    pub len: size_t,
    /// The message's type.
    pub mtype: c_long,
}

/// Sends several messages to a System V queue as one: all of them or none.
///
/// A receiver finds all of the `n` messages at once. The call takes one lock and makes at most one round of wake-ups. The messages arrive in the
/// given order. If the queue has no room for all messages, the call waits; with `IPC_NOWAIT` in `msgflg`, it fails. There is no other flag. The
/// messages must not change during the call.
///
/// A call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error; nothing was sent.
///
/// # Errors
/// - `EACCES`: the queue's mode does not let the caller send.
/// - `EAGAIN`: there is no room for all messages, and `msgflg` has `IPC_NOWAIT`.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `messages`, the `data` of one of them, or `abs_timeout` is at an address that can't be read.
/// - `EIDRM`: the queue was removed during the call.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed; a type is below 1; a message is longer than the value of `msgmax` at
///   the creation of the queue; `msgflg` has other flags; or `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to
///   999,999,999.
/// - `EMSGSIZE`: there are more messages, or more bytes, than the queue can hold (`msg_qbytes`).
/// - `ENOMEM`: the system has no memory for the messages, or the namespace's file system is full or its limit of bytes is
///   reached.
/// - `ETIMEDOUT`: the deadline passed before there was room for all messages.
///
/// # If the process dies
/// Before the call returns, either all messages were sent or none.
///
/// # See also
/// umsg_msg_receive_batch(3), umsg_msgsnd(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_send_batch(
    msqid: c_int,
    messages: *const umsg_msg_message,
    n: size_t,
    msgflg: c_int,
    abs_timeout: *const timespec,
) -> c_int {
    let send = || {
        // SAFETY: the caller promises NULL or a readable timespec.
        let deadline = unsafe { time::deadline(abs_timeout)? };
        check_flags(msgflg, IPC_NOWAIT)?;
        // SAFETY: the caller promises `n` readable messages.
        let messages = unsafe { Messages::new(messages, n)? };
        let queue = find(msqid)?;
        let max = queue.msgmax();
        messages.check(max, |len| {
            Refusal::from(SendError::TooLong { len, max }).into()
        })?;
        let sent = queue.send_all_of(&messages, until(msgflg, deadline));
        sent.map_err(Refusal::from)?;
        Ok(0)
    };
    answer(send())
}

/// Refuses unknown flags, so that a later version can give them a meaning.
pub(super) fn check_flags(flags: c_int, known: c_int) -> Result<(), Failure> {
    match flags & !known {
        0 => Ok(()),
        _ => Err(Failure::Invalid(
            "msgflg has flags that this call does not support",
        )),
    }
}

impl Outgoing for Messages<'_, umsg_msg_message> {
    #[inline(always)]
    fn count(&self) -> usize {
        Messages::count(self)
    }

    #[inline(always)]
    fn at(&self, index: usize) -> (i64, &[u8]) {
        let (message, bytes) = Messages::at(self, index);
        (message.mtype, bytes)
    }
}
