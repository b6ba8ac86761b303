//! POSIX queues: sending several messages in one call.

use std::ffi::{c_int, c_uint, c_void};
use std::time::SystemTime;

use libc::{size_t, ssize_t, timespec};
use umsg::posix::{Outgoing, SendError};

use crate::error::{Failure, answer};
use crate::handle::{self, Held, umsg_mqd_t};
use crate::messages::Messages;
use crate::time;

/// One of several messages. Sending reads `data`, `len` and `priority`; receiving reads `data` and `size`, and sets `len` and `priority`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_message {
    /// The message's bytes, or the place to which a receive copies them; NULL if there are none. Sending does not change the bytes.
    pub data: *mut c_void,
    /// The length of the buffer at `data`, in bytes: for receiving.
    pub size: size_t,
    /// The length of the message, in bytes.
    pub len: size_t,
    /// The message's priority.
    pub priority: c_uint,
}

/// Sends several messages as one: all of them or none.
///
/// A receiver finds all of the `n` messages at once. The call takes one lock and makes at most one round of wake-ups. The messages are delivered by
/// priority; messages of one priority are delivered in the given order. If the queue has no room for all messages, the call waits. A waiting batch
/// queues among the blocked senders. While the batch is the first of them, the free room is kept for the batch.
///
/// A call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If the handle has `O_NONBLOCK`, the call does
/// not wait, and ignores the time. The messages must not change during the call.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error; nothing was sent.
///
/// # Errors
/// - `EAGAIN`: there is no room for all messages, and the handle has `O_NONBLOCK`, or the queue was created with `UMSG_ON_FULL_FAIL`.
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for sending.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `messages`, the `data` of one of them, or `abs_timeout` is at an address that can't be read.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EINVAL`: a priority is 32,768 or more; or `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to
///   999,999,999.
/// - `EMSGSIZE`: a message is longer than the queue's message size, or there are more messages than the queue can hold.
/// - `ENOMEM`, `ENOSPC`: the system has no memory for the messages, or the namespace's file system is full or its limit of
///   bytes is reached.
/// - `ETIMEDOUT`: the deadline passed before there was room for all messages.
///
/// # If the process dies
/// Before the call returns, either all messages were sent or none.
///
/// # See also
/// umsg_mq_receive_batch(3), umsg_mq_send(3), umsg_mq_send_some(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_send_batch(
    mqdes: umsg_mqd_t,
    messages: *const umsg_mq_message,
    n: size_t,
    abs_timeout: *const timespec,
) -> c_int {
    let send = || {
        // SAFETY: the caller promises NULL or a readable timespec, and `n` readable messages.
        let call = unsafe { Call::new(mqdes, messages, n, abs_timeout)? };
        let until = time::until(call.deadline, &call.held);
        call.held.queue.send_all_of(&call.messages, until)?;
        Ok(0)
    };
    answer(send())
}

/// Sends as many of several messages as the queue has room for.
///
/// Sends the first of the `n` messages as one batch: as many as fit, and at least one. While the queue is full, the call waits to send the
/// first message; further messages that fit then follow as a second batch.
///
/// A call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If the handle has `O_NONBLOCK`, the call does
/// not wait, and ignores the time. The messages must not change during the call.
///
/// # Return value
/// On success, the call returns the number of messages sent, which is 0 only if `n` is 0. On error, -1 is returned, and errno is set to indicate the
/// error; no message was sent.
///
/// # Errors
/// The errors of umsg_mq_send_batch(3), with two differences. `EAGAIN` and `ETIMEDOUT` mean that there is no room for the first message. `EMSGSIZE`
/// means that a message is longer than the queue's message size. Each message is checked, even if there is no room for it.
///
/// # If the process dies
/// Before the call returns, none, some or all of the messages were sent, from the first one on. Each sent message is complete.
///
/// # See also
/// umsg_mq_send(3), umsg_mq_send_batch(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_send_some(
    mqdes: umsg_mqd_t,
    messages: *const umsg_mq_message,
    n: size_t,
    abs_timeout: *const timespec,
) -> ssize_t {
    let send = || {
        // SAFETY: the caller promises NULL or a readable timespec, and `n` readable messages.
        let call = unsafe { Call::new(mqdes, messages, n, abs_timeout)? };
        let until = time::until(call.deadline, &call.held);
        let sent = call.held.queue.send_some_of(&call.messages, until)?;
        Ok(sent.cast_signed())
    };
    answer(send())
}

struct Call<'a> {
    held: Held,
    messages: Messages<'a, umsg_mq_message>,
    deadline: Option<SystemTime>,
}

impl Call<'_> {
    /// Checks the arguments. The order of errors is that of a single message: time-out, handle, then the messages.
    ///
    /// # Safety
    /// `abs_timeout` is NULL or readable; `messages` has `n` members, each with `len` bytes at `data`. The members and the bytes stay
    /// readable and unchanged as long as the result is used. Otherwise, the pointers are addresses that a pointer check refuses.
    unsafe fn new(
        mqdes: umsg_mqd_t,
        messages: *const umsg_mq_message,
        n: size_t,
        abs_timeout: *const timespec,
    ) -> Result<Self, Failure> {
        // SAFETY: by this function's contract.
        let deadline = unsafe { time::deadline(abs_timeout)? };
        let held = handle::hold(mqdes)?;
        if !held.can_send {
            return Err(SendError::NotWritable.into());
        }
        // SAFETY: by this function's contract.
        let messages = unsafe { Messages::new(messages, n)? };
        let max = held.message_size;
        messages.check(max, |len| SendError::TooLong { len, max }.into())?;
        Ok(Call {
            held,
            messages,
            deadline,
        })
    }
}

impl Outgoing for Messages<'_, umsg_mq_message> {
    #[inline(always)]
    fn count(&self) -> usize {
        Messages::count(self)
    }

    #[inline(always)]
    fn at(&self, index: usize) -> (&[u8], u32) {
        let (message, bytes) = Messages::at(self, index);
        (bytes, message.priority)
    }
}
