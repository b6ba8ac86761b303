//! POSIX queues: receiving several messages in one call.

use libc::{size_t, ssize_t, timespec};
use umsg::posix::{Incoming, ReceiveError};

use crate::batch::umsg_mq_message;
use crate::error::answer;
use crate::handle::{self, umsg_mqd_t};
use crate::messages::Places;
use crate::time;

/// Receives several messages.
///
/// Receives up to `n` of the messages in the queue, in order of delivery and under one lock. Each message is copied to the `data` of one of
/// `messages`, in order, and `len` and `priority` are set. A message that is longer than the `size` of its element stays in the queue and ends the
/// call. The `size` of the first element must be at least the queue's message size, so that the call receives at least one message.
///
/// While the queue is empty, the call waits for one message, not for more. The wait ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL
/// means no limit. If the handle has `O_NONBLOCK`, the call does not wait, and ignores the time. The buffers at `data` must not overlap. Other
/// receivers wait while the call copies messages.
///
/// # Return value
/// On success, the call returns the number of messages received, which is 0 only if `n` is 0. On error, -1 is returned, and errno is set to indicate
/// the error; no message was received.
///
/// # Errors
/// - `EAGAIN`: the queue is empty and the handle has `O_NONBLOCK`; or a stopped process has held a lock of this
///   queue for more than a second.
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for receiving.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `messages`, the `data` of one of them, or `abs_timeout` is at an address that can't be read or written.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `EMSGSIZE`: `size` of the first of `messages` is less than the queue's message size.
/// - `ENOMEM`, `ENOSPC`: the system has no memory left, or the namespace's file system is full.
/// - `ETIMEDOUT`: the deadline passed before a message came.
///
/// # If the process dies
/// Before the call returns, the messages that were already copied are lost. The other messages are in the queue.
///
/// # See also
/// umsg_mq_lease(3), umsg_mq_receive(3), umsg_mq_send_batch(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_receive_batch(
    mqdes: umsg_mqd_t,
    messages: *mut umsg_mq_message,
    n: size_t,
    abs_timeout: *const timespec,
) -> ssize_t {
    let receive = || {
        // SAFETY: the caller promises NULL or a readable timespec.
        let deadline = unsafe { time::deadline(abs_timeout)? };
        let held = handle::hold(mqdes)?;
        if !held.can_receive {
            return Err(ReceiveError::NotReadable.into());
        }
        // SAFETY: the caller promises `n` writable messages that no other thread uses.
        let mut places = unsafe { Places::new(messages, n, held.message_size)? };
        if let Some(first) = places.first() {
            let (len, needed) = (first.size, held.message_size);
            if len < needed {
                return Err(ReceiveError::BufferTooSmall { len, needed }.into());
            }
        }
        places.check()?;
        let until = time::until(deadline, &held);
        let received = held.queue.receive_into(&mut places, n, until)?;
        Ok(received.cast_signed())
    };
    answer(receive())
}

impl Incoming for Places<'_, umsg_mq_message> {
    #[inline(always)]
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        self.room(len)
    }

    #[inline(always)]
    fn taken(&mut self, len: usize, priority: u32) {
        if let Some(message) = self.fill() {
            message.len = len;
            message.priority = priority;
        }
    }
}
